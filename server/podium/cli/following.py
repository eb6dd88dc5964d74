"""Works on a run while its events are shown; Ctrl-C stops the run, not just the view."""

import sys
from collections.abc import Sequence

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream

from podium.cli.compose import Podium, say
from podium.cli.progress import Lines, Progress
from podium.errors import RunError
from podium.plan import Step
from podium.revision import replace_plan
from podium.runs import Work
from podium.trace import Event, Run


def choose_progress(*, quiet: bool, brief: bool = False) -> Progress:
    """The progress that suits stderr."""
    if quiet:
        return Progress()
    if not sys.stderr.isatty():
        return Lines(brief=brief)
    from podium.cli.live import LiveTable  # rich takes a tenth of a second to import

    return LiveTable()


async def follow(podium: Podium, run: Run, work: Work, progress: Progress) -> Run:
    """Do *work* on *run* and show how it goes; the run as it then stands.

    Raises:
        PodiumError: the work cannot be done, or another process is at it.
    """
    rounds = await podium.store.rounds(run.run_id)
    await podium.runs.launch(run, work)
    try:
        with progress:
            progress.begin(run, rounds)
            async with podium.runs.watch(run.run_id) as events, anyio.create_task_group() as group:
                group.start_soon(_show, events, progress)
                await podium.runs.wait(run.run_id)
    except anyio.get_cancelled_exc_class():
        with anyio.CancelScope(shield=True):
            await podium.runs.stop(run.run_id)
        say(f"What was done is kept; go on with: podium ask --resume {run.run_id}")
        raise
    return await podium.store.run(run.run_id)


async def answer(podium: Podium, run: Run, progress: Progress) -> Run:
    """Carry a run on to its end; one that has ended is left as it is.

    A run that another process works on is waited for.
    """
    if run.status == "finished":
        return run
    if run.status == "running" and await podium.store.is_held(run.run_id):
        say(f"Another Podium process is working on run {run.run_id}; waiting for it.")
        return await podium.runs.wait(run.run_id)
    return await follow(podium, run, podium.orchestrator.answer, progress)


async def use_plan(podium: Podium, run: Run, steps: Sequence[Step]) -> Run:
    """Give a run the user's own plan.

    Raises:
        RunError: the run is being worked on.
        PlanError: the plan is not allowed.
    """
    if await podium.store.is_held(run.run_id):
        raise RunError(f"Run {run.run_id} is being worked on; its plan cannot be changed now.")
    await replace_plan(podium.orchestrator, run, steps)
    return await podium.store.run(run.run_id)


async def _show(events: MemoryObjectReceiveStream[Event], progress: Progress) -> None:
    async for event in events:
        progress.tell(event)
