"""What a caller may do with a run that stands still: edit its plan, edit a step, run one step."""

from collections.abc import Mapping, Sequence

from podium.errors import StepError
from podium.executor import is_done
from podium.flow import check_plan, dependents
from podium.orchestrator import Orchestrator, deadline_of
from podium.plan import CALLER, Accept, Plan, Proposal, Step
from podium.trace import Observer, Round, Run, RunRequest, StepResult, Waiting

PLAN_STEPS = 20
"""Steps that a plan given by a user may have."""
LIMITS = ("max_usd", "max_tokens", "max_steps", "max_seconds", "allow_unpriced")
"""What of a run's request may be changed after it was made."""


async def change_limits(orchestrator: Orchestrator, run: Run, limits: Mapping[str, object]) -> Run:
    """Give a run other limits, by their names in its request.

    Those of money and tokens hold for calls at once, also of a run that is at work; those of steps
    and seconds from its next start on.

    Raises:
        ValidationError: a value is no limit.
    """
    request = RunRequest.model_validate(run.request.model_dump() | dict(limits))
    changed = {name: getattr(request, name) for name in limits}
    await orchestrator.store.set_limits(run.run_id, changed)
    return run.model_copy(update={"request": request})


def check_own_plan(
    orchestrator: Orchestrator, request: RunRequest, steps: Sequence[Step], *, first: int = 0
) -> Plan:
    """The user's own steps as a plan that this request allows.

    Raises:
        PlanError: the plan is not allowed.
    """
    plan = Plan(steps=tuple(steps), first=first)
    names = orchestrator.allowed(request).names
    check_plan(plan, names, depth=request.depth, max_steps=PLAN_STEPS)
    return plan


async def replace_plan(orchestrator: Orchestrator, run: Run, steps: Sequence[Step]) -> Round:
    """Put the user's steps in the place of the newest plan (or of the first, if none).

    Finished steps that the new plan keeps as they are stay finished; the others, and all that
    rests on them, become stale.

    Raises:
        PlanError: the plan is not allowed.
    """
    rounds = await orchestrator.store.rounds(run.run_id)
    planned = [found for found in rounds if found.plan]
    number = planned[-1].number if planned else 0
    old = planned[-1].plan if planned else None
    plan = check_own_plan(orchestrator, run.request, steps, first=old.first if old else 0)
    raw_text = planned[-1].proposal.raw_text if planned else ""
    changed = _changed(old, plan, planned[-1]) if old else set(plan.numbers)
    for n in sorted(changed.intersection(plan.numbers)):
        changed |= dependents([plan], n)
    await orchestrator.store.mark_stale(run.run_id, sorted(changed))
    proposal = Proposal(next=plan, source="caller", raw_text=raw_text)
    await orchestrator.store.save_round(run.run_id, number, proposal)
    await _reopen(orchestrator, run, rounds)
    return Round(number=number, proposal=proposal)


async def edit_step(
    orchestrator: Orchestrator, run: Run, number: int, changes: Mapping[str, object]
) -> Plan:
    """Change worker, subtask or access of one step; what rests on it becomes stale.

    Raises:
        StepError: the run has no such step.
        PlanError: the changed plan is not allowed.
    """
    rounds = await orchestrator.store.rounds(run.run_id)
    found = _round_of(rounds, number)
    plan = found.plan
    assert plan is not None, "_round_of gives a round with a plan"
    step = Step.model_validate(plan.step(number).model_dump() | dict(changes))
    steps = tuple(step if n == number else old for n, old in plan.numbered())
    edited = check_own_plan(orchestrator, run.request, steps, first=plan.first)
    plans = [edited if other is found else other.plan for other in rounds if other.plan]
    await orchestrator.store.mark_stale(run.run_id, sorted({number} | dependents(plans, number)))
    proposal = found.proposal.model_copy(update={"next": edited, "source": "caller"})
    await orchestrator.store.save_round(run.run_id, found.number, proposal)
    await _reopen(orchestrator, run, rounds)
    return edited


async def run_step(
    orchestrator: Orchestrator,
    run: Run,
    number: int | None,
    observer: Observer,
    *,
    result: str | None = None,
) -> StepResult | Waiting:
    """Run one step of a planned run: the named one, or the next; or take the caller's result.

    A finished step is not run again: its record is returned, also to who sends its result again.

    Raises:
        StepError: no such step, none left, or it reads steps that have not been done; or the caller
            has given another result for it already.
    """
    rounds = await orchestrator.store.rounds(run.run_id)
    number = _next_step(rounds) if number is None else number
    found = _round_of(rounds, number)
    execution = orchestrator.execution(run, rounds, found.number, observer, deadline_of(run))
    done = execution.done.get(number)
    if done and done.finished and (result is None or _is_again(done, result)):
        return done
    if done and done.finished and done.planned_worker == CALLER:
        raise StepError(
            f"Step {number} was answered already, with another result; to replace it, change the "
            "step first: give it another subtask or worker."
        )
    undone = [n for n in execution.plan.reads(number) if not is_done(execution.done.get(n))]
    if undone:
        first = f"run step {undone[0]} first"
        raise StepError(f"Step {number} reads steps {undone}, which are not done; {first}.")
    plans = [other.plan for other in rounds if other.plan]
    await orchestrator.store.mark_stale(run.run_id, sorted(dependents(plans, number)))
    if isinstance(rounds[-1].proposal.next, Accept):
        await _reopen(orchestrator, run, rounds)
    if result is None:
        async with orchestrator.timed(run):
            return await execution.run_step(number)
    return await execution.take_result(number, result)


def _is_again(done: StepResult, result: str) -> bool:
    """Whether a result of the caller's is the one that it gave before: it was not told of that."""
    return done.worker == CALLER and done.reply == result


async def _reopen(orchestrator: Orchestrator, run: Run, rounds: Sequence[Round]) -> None:
    """An edited run has no answer until it is carried on and the policy has accepted again."""
    if rounds and isinstance(rounds[-1].proposal.next, Accept):
        await orchestrator.store.drop_round(run.run_id, rounds[-1].number)
    changes = {
        "status": "planned",
        "answer": None,
        "answer_step": None,
        "finished_at": None,
        "error": None,
        "limit": None,
        "notes": (),
    }
    await orchestrator.store.save_run(run.model_copy(update=changes))


def _changed(old: Plan, new: Plan, found: Round) -> set[int]:
    """Steps that one plan has and the other has not, or has otherwise."""
    alike = {
        n
        for n in set(old.numbers).intersection(new.numbers)
        if old.step(n).worker == new.step(n).worker
        and old.step(n).subtask == new.step(n).subtask
        and old.reads(n) == new.reads(n)
    }
    # A last step that could not read everything has to say so to the user.
    alike -= {
        result.number
        for result in found.results
        if result.number == new.numbers[-1] and result.cuts and not result.final
    }
    return set(old.numbers).union(new.numbers) - alike


def _round_of(rounds: Sequence[Round], number: int) -> Round:
    for found in rounds:
        if found.plan and number in found.plan.numbers:
            return found
    count = sum(len(found.plan.steps) for found in rounds if found.plan)
    raise StepError(f"There is no step {number}; the run has {count} steps, numbered from 0.")


def _next_step(rounds: Sequence[Round]) -> int:
    results = {result.number: result for found in rounds for result in found.results}
    for found in rounds:
        for number in found.plan.numbers if found.plan else ():
            if not is_done(results.get(number)):
                return number
    raise StepError("Every step of this run is done; start it to get the answer, or edit a step.")
