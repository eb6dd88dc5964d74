"""The conductor as its own worker: the runs that are steps of a run."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import anyio

from podium.store import Store
from podium.trace import Run, RunRequest

Create = Callable[[RunRequest, Run], Awaitable[Run]]
"""Makes a new run that is a step of the given one."""


def nested_request(parent: Run, question: str) -> RunRequest:
    """What a run that is a step of *parent* is asked: one level less deep, under its limits.

    It asks nobody outside: only the run above it can wait.
    """
    changes: dict[str, object] = {
        "question": question,
        "files": (),
        "earlier": "",
        "follow_up": None,
        "depth": parent.request.depth - 1,
        "caller": False,
        "approve": "nothing",
    }
    return parent.request.model_copy(update=changes)


@dataclass(frozen=True)
class Children:
    """The nested runs of one plan: each step has its own, also when their questions are alike."""

    store: Store
    create: Create
    _taken: set[str] = field(default_factory=set[str])
    _one_at_a_time: anyio.Lock = field(default_factory=anyio.Lock)
    """Held between looking for a nested run and having taken it."""

    async def take(self, parent: Run, request: RunRequest) -> Run:
        """A nested run that was begun, or even paid, but never used; else a new one."""
        async with self._one_at_a_time:
            child = await self._left_over(parent, request) or await self.create(request, parent)
            self._taken.add(child.run_id)
        return child

    async def _left_over(self, parent: Run, request: RunRequest) -> Run | None:
        steps = await self.store.steps(parent.run_id, every_version=True)
        used = self._taken | {step.nested_run for step in steps}
        for child in await self.store.children(parent.run_id):
            if child.request.question == request.question and child.run_id not in used:
                return child.model_copy(update={"request": request})
        return None
