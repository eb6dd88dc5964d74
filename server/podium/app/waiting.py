"""Waiting for a run on behalf of a client, with signs of life."""

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream
from mcp.server.mcpserver import Context

from podium.config import OnDisconnect
from podium.errors import PodiumError
from podium.runs import Runs
from podium.trace import Event, Run
from podium_workers.worker import mend

PROGRESS_S = 8.0
"""Seconds between signs of life while nothing happens; idle limits of clients start at 10."""


async def wait(
    runs: Runs, run: Run, ctx: Context, seconds: float, on_disconnect: OnDisconnect
) -> Run:
    """Wait for the run, telling of its events, at most as long as client and setting allow."""
    try:
        return await _watched(runs, run, ctx, seconds)
    except anyio.get_cancelled_exc_class():
        # A time-out, a cancel and a disconnect of a client look alike here.
        await runs.left(run.run_id, on_disconnect)
        raise


async def _watched(runs: Runs, run: Run, ctx: Context, seconds: float) -> Run:
    failed: PodiumError | None = None
    async with runs.watch(run.run_id) as events, anyio.create_task_group() as group:
        group.start_soon(_report, events, ctx)
        try:
            run = await runs.wait(run.run_id, seconds)
        except PodiumError as error:  # raised below: the group would wrap it
            failed = error
        group.cancel_scope.cancel()
    if failed:
        raise failed
    return run


async def _report(events: MemoryObjectReceiveStream[Event], ctx: Context) -> None:
    """Progress that only rises: one for each event, and a sign of life while nothing happens."""
    done, last = 0.0, "working"
    started = anyio.current_time()
    while True:
        event: Event | None = None
        with anyio.move_on_after(PROGRESS_S):
            try:
                event = await events.receive()
            except anyio.EndOfStream:
                return
        done += 1.0
        if event is not None:
            step = "" if event.step is None else f"step {event.step} "
            by = f"{event.worker} " if event.worker else ""
            last = f"{event.kind.replace('_', ' ')}: {step}{by}{event.text}"[:200]
        seconds = anyio.current_time() - started
        await ctx.report_progress(done, None, mend(f"{last} ({seconds:.0f} s)"))
