"""Forks: a run again from one step on, by another worker, without paying for what came before.

A fork is a run of its own. It has the question, the plan and the seed of the run that it is made
of, and takes over the replies of all steps that do not rest on the changed one.
"""

from collections.abc import Mapping

from podium.errors import RunError, StepError
from podium.executor import is_done
from podium.flow import dependents
from podium.orchestrator import Orchestrator
from podium.plan import Plan, Step
from podium.revision import check_own_plan
from podium.trace import Round, Run, StepResult
from podium_workers.worker import Usage


async def fork(
    orchestrator: Orchestrator, run: Run, number: int, changes: Mapping[str, object]
) -> Run:
    """A new run that is as *run*, but for step *number* and all that rests on it.

    *changes* are the worker and the subtask that the step gets; without any it is done again as
    it was. Rounds after the step's own are proposed anew. The fork is planned, not yet carried out.

    Raises:
        RunError: the run has no plan yet.
        StepError: it has no such step.
        PlanError: the changed plan is not allowed.
    """
    store = orchestrator.store
    rounds = _until(run, await store.rounds(run.run_id), number)
    planned = rounds[-1]
    plan = _changed(orchestrator, run, planned, number, changes)
    source = "caller" if plan != planned.plan else planned.proposal.source
    proposal = planned.proposal.model_copy(update={"next": plan, "source": source})
    forked = await _create(orchestrator, run)
    for found in rounds[:-1]:
        await store.save_round(forked.run_id, found.number, found.proposal)
    await store.save_round(forked.run_id, planned.number, proposal)
    for result in _kept(rounds, number):
        await store.save_step(forked.run_id, _taken(result, run))
    return forked


def _until(run: Run, rounds: tuple[Round, ...], number: int) -> tuple[Round, ...]:
    """The rounds up to the one that planned that step."""
    if not any(found.plan for found in rounds):
        raise RunError(f"Run {run.run_id} has no plan to fork; `podium resume` makes one.")
    for place, found in enumerate(rounds, start=1):
        if found.plan and number in found.plan.numbers:
            return rounds[:place]
    count = sum(len(found.plan.steps) for found in rounds if found.plan)
    raise StepError(f"There is no step {number}; the run has {count} steps, numbered from 0.")


def _changed(
    orchestrator: Orchestrator,
    run: Run,
    planned: Round,
    number: int,
    changes: Mapping[str, object],
) -> Plan:
    plan = planned.plan
    assert plan is not None, "the last of the rounds is the one that planned the step"
    step = Step.model_validate(plan.step(number).model_dump() | dict(changes))
    steps = tuple(step if n == number else old for n, old in plan.numbered())
    return check_own_plan(orchestrator, run.request, steps, first=plan.first)


async def _create(orchestrator: Orchestrator, run: Run) -> Run:
    """A run with the same request.

    With the same mark and seed too: so the prompts of the steps that are taken over are its own
    prompts, and only what was changed makes a difference.
    """
    made = await orchestrator.prepare(run.request, principal=run.principal)
    # Whoever forks a run has seen its plan.
    request = run.request.model_copy(update={"approve": "nothing"})
    same = {"request": request, "fence": run.fence, "seed": run.seed}
    forked = made.model_copy(update=same | {"forked_from": run.run_id})
    await orchestrator.store.create_run(forked)
    return forked


def _kept(rounds: tuple[Round, ...], number: int) -> list[StepResult]:
    """Steps that were done, and do not rest on the changed one."""
    plans = [found.plan for found in rounds if found.plan]
    again = {number} | dependents(plans, number)
    results = [result for found in rounds for result in found.results]
    return [result for result in results if is_done(result) and result.number not in again]


def _taken(result: StepResult, run: Run) -> StepResult:
    """A result as the fork has it: the first of its number, and paid for elsewhere."""
    return result.model_copy(
        update={
            "version": 0,
            "usage": Usage(cost_usd=0.0),
            "seconds": 0.0,
            "nested_run": None,
            "taken_from": result.taken_from or run.run_id,
        }
    )
