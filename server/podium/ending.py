"""How a run ends: with its answer, at a limit, badly, stopped, or by a fault. Stores it, and tells.

Knows nothing of how a run is carried out.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from podium.errors import LeaseLostError, LimitError, PodiumError, PoolError, RunError, StoreError
from podium.plan import Accept
from podium.receipt import best_so_far, notes
from podium.store import Store
from podium.trace import Event, Failure, Observer, Round, Run, seconds_of
from podium_workers.errors import WorkerError


async def save(store: Store, run: Run, **changes: object) -> Run:
    """Store a changed run. Unless it is set to run, its clock stands still from now on."""
    if "resumed_at" not in changes:
        worked = seconds_of(run.worked_s, run.resumed_at, time.time())
        changes |= {"worked_s": worked, "resumed_at": None}
    run = run.model_copy(update=changes)
    await store.save_run(run)
    return run


@dataclass(frozen=True)
class Ending:
    """The ways in which one run may end."""

    store: Store
    observer: Observer
    remarks: tuple[str, ...] = ()
    """What the reader of any answer of this run has to know."""

    async def accepted(self, run: Run, rounds: Sequence[Round]) -> Run:
        """The policy has accepted a step: its reply is the answer.

        Raises:
            PoolError: no step has finished.
        """
        proposal = rounds[-1].proposal.next
        assert isinstance(proposal, Accept), "only called when the policy has accepted"
        best = best_so_far(rounds, proposal.step)
        if best is None:
            raise PoolError(_why_nothing(rounds))
        run = await save(
            self.store,
            run,
            status="finished",
            answer=best.reply,
            answer_step=best.number,
            notes=(*self.remarks, *notes(rounds, best)),
            error=None,
            finished_at=time.time(),
        )
        event = Event(kind="finished", run_id=run.run_id, text=best.reply, step=best.number)
        await self.observer(event)
        return run

    async def partial(self, run: Run, limit: LimitError) -> Run:
        """A limit struck: the best answer so far, or a failure when there is none."""
        rounds = await self.store.rounds(run.run_id)
        best = best_so_far(rounds)
        if best is None:
            error = LimitError(limit.limit, f"{limit} No step had finished before that.")
            return await self.failed(run, error)
        note = f"{limit} {_undone(rounds)} This is the best answer so far."
        run = await save(
            self.store,
            run,
            status="partial",
            limit=limit.limit,
            answer=best.reply,
            answer_step=best.number,
            notes=(note, *self.remarks, *notes(rounds, best)),
            finished_at=time.time(),
        )
        await self.observer(Event(kind="finished", run_id=run.run_id, text=note, step=best.number))
        return run

    async def failed(self, run: Run, error: PodiumError | WorkerError) -> Run:
        """There is no answer; why is stored."""
        status = error.status if isinstance(error, WorkerError) else None
        why = Failure(worker="", code=error.code, message=str(error), status=status)
        limit = error.limit if isinstance(error, LimitError) else None
        now = time.time()
        run = await save(self.store, run, status="failed", error=why, limit=limit, finished_at=now)
        await self.observer(Event(kind="failed", run_id=run.run_id, text=str(error)))
        return run


async def mark_stopped(store: Store, run_id: str) -> None:
    """Store that a run has been stopped, unless it has ended."""
    run = await store.run(run_id)
    if run.status in ("running", "interrupted", "planned", "needs_caller"):
        await save(store, run, status="stopped", finished_at=time.time())


async def mark_interrupted(store: Store, run_id: str) -> None:
    """Store that work on a run was cut off, also if that was before it had its first turn."""
    run = await store.run(run_id)
    if run.status == "running":
        await save(store, run, status="interrupted", finished_at=time.time())


async def mark_crashed(store: Store, run_id: str, error: Exception) -> PodiumError:
    """Store that a fault in Podium has ended a run; what to say to whoever waits for it."""
    text = f"A fault in Podium ended this run ({type(error).__name__}); the log has the details."
    failed = Failure(worker="", code="internal", message=text)
    try:
        run = await store.run(run_id)
        await save(store, run, status="failed", error=failed, finished_at=time.time())
    except (StoreError, LeaseLostError) as unwritten:
        return unwritten
    return RunError(text)


def _undone(rounds: Sequence[Round]) -> str:
    planned = sum(len(found.plan.steps) for found in rounds if found.plan)
    left = planned - sum(result.finished for found in rounds for result in found.results)
    was = "1 planned step was" if left == 1 else f"{left} planned steps were"
    return f"{was} not done."


def _why_nothing(rounds: Sequence[Round]) -> str:
    failures = {
        f"{failed.worker}: {failed.message}"
        for found in rounds
        for result in found.results
        for failed in result.failures
    }
    return " ".join(["No step has finished.", *sorted(failures)])
