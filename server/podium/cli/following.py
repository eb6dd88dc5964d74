"""Works on a run while its events are shown; Ctrl-C stops the run, not just the view."""

import sys
from collections.abc import Sequence

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream

from podium.at_work import Work
from podium.cli.compose import Podium
from podium.cli.progress import Lines, Progress
from podium.cli.saying import say
from podium.errors import PoolError
from podium.orchestrator import Orchestrator
from podium.plan import Step
from podium.revision import check_own_plan, replace_plan
from podium.runs import LEASE_S
from podium.trace import Event, Observer, Round, Run, RunRequest, RunStatus

UNENDED: tuple[RunStatus, ...] = ("planned", "running", "interrupted")
"""What a run may be left as by a process that has died or was stopped."""


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
    return await _shown(podium, run, rounds, progress)


async def _shown(podium: Podium, run: Run, rounds: Sequence[Round], progress: Progress) -> Run:
    """Show how the work on a run goes that has just begun; *rounds* is what was there before."""
    try:
        async with podium.runs.watch(run.run_id) as events:
            with progress:
                progress.begin(run, rounds)
                async with anyio.create_task_group() as group:
                    group.start_soon(_show, events, progress)
                    await podium.runs.wait(run.run_id)
    except anyio.get_cancelled_exc_class():
        with anyio.CancelScope(shield=True):
            await podium.runs.stop(run.run_id)
        say(f"What was done is kept; go on with: podium resume {run.run_id}")
        raise
    return await podium.store.run(run.run_id)


async def answer(podium: Podium, run: Run, progress: Progress) -> Run:
    """Carry a run on to its end; one that has ended is left as it is.

    A run that another process works on is waited for, and carried on here if that process has
    died or was stopped.
    """
    if run.status == "finished":
        return run
    if await podium.store.is_held(run.run_id):
        say(
            f"Another Podium process works on run {run.run_id}; waiting for it. If it has died, "
            f"the run goes on here in at most {LEASE_S:g} s."
        )
        run = await podium.runs.wait(run.run_id)
        if run.status not in UNENDED:
            return run
    return await follow(podium, run, Orchestrator.answer, progress)


async def ask(
    podium: Podium,
    request: RunRequest,
    progress: Progress,
    *,
    steps: Sequence[Step] = (),
    fresh: bool = False,
) -> Run:
    """Ask a question and show how it goes; the run at its end.

    The same question that is already at work is waited for instead, unless this is to be *fresh*.

    Raises:
        PodiumError: the request or the plan is not allowed; nothing is stored.
    """
    principal, request = podium.settings.principal, _by_name(podium, request)
    run = await podium.runs.ask(request, principal=principal, steps=steps, fresh=fresh)
    if podium.runs.is_mine(run.run_id):
        return await _shown(podium, run, (), progress)
    say(f"The same question was asked before, as run {run.run_id} (--fresh asks anew).")
    return await answer(podium, run, progress)


async def begin(podium: Podium, request: RunRequest, steps: Sequence[Step] | None) -> Run:
    """A new run that stands still, with the user's own plan if there is one.

    Raises:
        PodiumError: the request or the plan is not allowed; nothing is stored.
    """
    request = _by_name(podium, request)
    if steps is not None:
        check_own_plan(podium.orchestrator, request, steps)
    run = await podium.orchestrator.create(request, principal=podium.settings.principal)
    return run if steps is None else await use_plan(podium, run, steps)


def _by_name(podium: Podium, request: RunRequest) -> RunRequest:
    """The request; a conductor that was given by its path is the pool's own."""
    named = [worker.card.name for worker in podium.pool.everyone]
    own = request.conductor is not None and request.conductor not in named
    return request.model_copy(update={"conductor": None}) if own else request


async def use_plan(podium: Podium, run: Run, steps: Sequence[Step]) -> Run:
    """Give a run the user's own plan.

    Raises:
        RunError: the run is being worked on.
        PlanError: the plan is not allowed.
    """

    async def work(held: Orchestrator, run: Run, observer: Observer) -> None:
        await replace_plan(held, run, steps)

    await podium.runs.launch(run, work)
    return await podium.runs.wait(run.run_id)


def check_pool(podium: Podium, run: Run) -> None:
    """Refuse to carry on a run among strangers, to whom nobody meant to send it.

    Raises:
        PoolError: this pool has none of the workers that the run was made for.
    """
    planned = [card.name for card in run.pool]
    if set(planned).isdisjoint(podium.pool.names):
        raise PoolError(
            f"Run {run.run_id} was made for the workers {', '.join(planned)}, but this pool has "
            f"{', '.join(podium.pool.names)}; give the pool that it was made with: --pool FILE."
        )


async def _show(events: MemoryObjectReceiveStream[Event], progress: Progress) -> None:
    async for event in events:
        progress.tell(event)
