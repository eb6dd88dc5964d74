"""Waiting for a run on behalf of a client, with signs of life."""

from dataclasses import dataclass

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream
from mcp.server.mcpserver import Context

from podium.app.leaving import leave_at_work
from podium.config import OnDisconnect
from podium.errors import PodiumError
from podium.runs import Runs
from podium.trace import Event, Run
from podium_workers.worker import mend

PROGRESS_S = 8.0
"""Seconds between signs of life while nothing happens; idle limits of clients start at 10."""
LAST_WORDS_S = 2.0
"""How long an answer waits until a slow connection has taken the progress that led to it."""
_LONGEST = 200
"""Characters that a sign of life shows of an event."""


@dataclass
class Progress:
    """Signs of life for one call of a client, in numbers that only rise.

    One for the whole call, however often it waits: a client may end a call whose progress falls.
    """

    ctx: Context
    _told: float = 0.0

    async def begin(self, run: Run) -> None:
        """Tell the run's id as early as can be: whoever has it can come back for the answer."""
        if not self._told:
            await self.tell(f"run {run.run_id}: waiting for it")

    async def tell(self, text: str) -> None:
        """Send a line to the client, if it wants to hear of progress."""
        self._told += 1.0
        await self.ctx.report_progress(self._told, None, mend(text))


async def wait(
    runs: Runs, run: Run, progress: Progress, seconds: float, on_disconnect: OnDisconnect
) -> Run:
    """Wait for the run, telling of its events, at most so many seconds."""
    await leave_at_work(runs, run)
    try:
        return await _watched(runs, run, progress, seconds)
    except anyio.get_cancelled_exc_class():
        # A time-out, a cancel and a disconnect of a client look alike here.
        await runs.left(run.run_id, on_disconnect)
        raise


async def carry_on(
    runs: Runs, run: Run, progress: Progress, seconds: float, on_disconnect: OnDisconnect
) -> Run:
    """Begin the work on a run, or attach to it, and wait for its answer as `wait` does."""
    until = anyio.current_time() + seconds
    while True:
        await runs.start(run)
        left = until - anyio.current_time()
        run = await wait(runs, run, progress, max(left, 0.01), on_disconnect)
        # A run of another process may have been left to us while we waited.
        if run.status != "running" or anyio.current_time() >= until:
            return run


async def _watched(runs: Runs, run: Run, progress: Progress, seconds: float) -> Run:
    failed: PodiumError | None = None
    told = anyio.Event()
    async with runs.watch(run.run_id) as events, anyio.create_task_group() as group:
        await progress.begin(run)
        group.start_soon(_report, events, progress, told)
        try:
            run = await runs.wait(run.run_id, seconds)
        except PodiumError as error:  # raised below: the group would wrap it
            failed = error
        if failed or run.status != "running":
            with anyio.move_on_after(LAST_WORDS_S):
                await told.wait()
        group.cancel_scope.cancel()
    if failed:
        raise failed
    return run


async def _report(
    events: MemoryObjectReceiveStream[Event], progress: Progress, told: anyio.Event
) -> None:
    """One line for each event, and a sign of life while nothing happens; until cancelled.

    *told* is set when there are no more events. There are none at all of a run that another process
    works on, but it is waited for all the same.
    """
    last = "working"
    started = anyio.current_time()
    while True:
        event: Event | None = None
        with anyio.move_on_after(PROGRESS_S):
            try:
                event = await events.receive()
            except anyio.EndOfStream:
                told.set()
                await anyio.sleep_forever()
        if event is not None:
            step = "" if event.step is None else f"step {event.step} "
            by = f"{event.worker} " if event.worker else ""
            last = f"{event.kind.replace('_', ' ')}: {step}{by}{event.text}"[:_LONGEST]
        seconds = anyio.current_time() - started
        await progress.tell(f"{last} ({seconds:.0f} s)")
