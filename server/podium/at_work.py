"""Work on a run in this process: what is done, who watches it, who is told of its end."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import anyio
from anyio.streams.memory import MemoryObjectSendStream

from podium.errors import PodiumError
from podium.leases import Lease
from podium.orchestrator import Orchestrator
from podium.store import Write
from podium.trace import Event, Observer, Run

Work = Callable[[Orchestrator, Run, Observer], Awaitable[object]]
"""Something to do with a run while this process holds it; the orchestrator writes as its holder."""

AtEnd = Callable[[PodiumError | None], Awaitable[Write | None]]
"""Told of the end of work on a run, with what went wrong; gives what is to be written when the run
is given up. A PodiumError of its own is logged."""


@dataclass
class Active:
    """Work on a run in this process."""

    work: Work | None
    """What is done first; None when the run is carried on to its answer from the start."""
    answering: bool
    """Whether the run is carried on to its answer, now or right after this work."""
    lease: Lease | None = None
    """From when this process has taken the run until it gives it up or has lost it."""
    stopped: bool = False
    """Whether somebody has stopped it: then it is not just interrupted."""
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    ended: anyio.Event = field(default_factory=anyio.Event)
    error: PodiumError | None = None
    answered: Run | None = None
    """The run as it stands at the end of this work, if it was carried on to there."""
    watchers: set[MemoryObjectSendStream[Event]] = field(
        default_factory=set[MemoryObjectSendStream[Event]]
    )
    followers: dict[str, AtEnd] = field(default_factory=dict[str, AtEnd])
    """By a name each, so that none is there twice."""

    async def tell(self, event: Event) -> None:
        """Give an event to every watcher; a slow one never holds up the run."""
        for watcher in tuple(self.watchers):
            try:
                watcher.send_nowait(event)
            except anyio.BrokenResourceError:  # it has stopped listening
                self.watchers.discard(watcher)
