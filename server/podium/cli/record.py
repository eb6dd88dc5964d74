"""A run as the command line's JSON has it."""

from podium.plan import Access, PlanSource
from podium.receipt import Receipt
from podium.store import Store
from podium.trace import Failure, Run, RunStatus
from podium.views import full_receipt
from podium_workers.worker import Frozen


class PlannedStep(Frozen):
    """One step of a plan, under its run-wide number."""

    step: int
    worker: str
    subtask: str
    access: Access


class WrittenPlan(Frozen):
    """The plan of one round, as it was (or is to be) carried out."""

    round: int
    source: PlanSource
    steps: tuple[PlannedStep, ...]


class UserStep(Frozen):
    """A step that waits for the user, and what it asks."""

    step: int
    ask: str


class Record(Frozen):
    """What a run gave, what it rests on, and what it cost."""

    run_id: str
    status: RunStatus
    question: str
    strategy: str
    answer: str | None
    answer_step: int | None
    notes: tuple[str, ...]
    error: Failure | None
    waiting: tuple[UserStep, ...]
    plans: tuple[WrittenPlan, ...]
    receipt: Receipt


async def record(store: Store, run: Run) -> Record:
    """The record of *run* as the ledger has it."""
    rounds = await store.rounds(run.run_id)
    results = [result for found in rounds for result in found.results]
    plans = [
        WrittenPlan(
            round=found.number,
            source=found.proposal.source,
            steps=tuple(
                PlannedStep(step=number, **dict(step)) for number, step in found.plan.numbered()
            ),
        )
        for found in rounds
        if found.plan
    ]
    return Record(
        run_id=run.run_id,
        status=run.status,
        question=run.request.question,
        strategy=run.request.strategy,
        answer=run.answer,
        answer_step=run.answer_step,
        notes=run.notes,
        error=run.error,
        waiting=tuple(
            UserStep(step=result.number, ask=result.subtask)
            for result in results
            if result.status == "waiting"
        ),
        plans=tuple(plans),
        receipt=await full_receipt(store, run),
    )
