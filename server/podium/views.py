"""A run as its reader sees it: one model for tools, resources and the command line's JSON."""

from podium.estimate import Estimate
from podium.plan import Plan, PlanSource
from podium.receipt import Receipt, receipt
from podium.store import Store
from podium.trace import Cut, Failure, Round, Run, RunStatus, StepResult
from podium_workers.worker import Frozen, Prompt, Usage


class StepView(Frozen):
    """One step of a plan and what became of it."""

    step: int
    round: int
    worker: str
    """Who did it, or who is planned to."""
    subtask: str
    access: list[int]
    """Earlier steps that it may read."""
    status: str
    """planned, running, finished, failed, waiting, stale or stopped."""
    reply: str
    """Beginning of its reply; `reply_characters` says how long the whole one is."""
    reply_characters: int
    seconds: float
    output_tokens: int
    failures: list[Failure]
    cuts: list[Cut]
    nested_run: str
    """Run that did this step, when the conductor was its own worker."""


class RunView(Frozen):
    """A run: plan, steps, answer and what it cost so far."""

    run_id: str
    status: RunStatus
    question: str
    strategy: str
    plan_source: PlanSource | None
    """Who wrote the newest plan."""
    rounds: int
    """Plans so far."""
    steps: list[StepView]
    answer: str
    """Empty until there is one."""
    answer_step: int
    """Step whose reply is the answer; -1 until there is one."""
    notes: list[str]
    """What the reader of the answer has to know."""
    error: str
    """Why there is no answer; empty when nothing is wrong."""
    needs: str
    """What the caller is asked to do; empty when nothing."""
    usage: Usage
    """Everything paid so far, nested runs included. `cost_usd` is null when a price is unknown."""
    seconds: float


async def view(store: Store, run: Run, *, reply_characters: int = 2000) -> RunView:
    """*run* with its steps; replies shortened to *reply_characters*."""
    rounds = await store.rounds(run.run_id)
    plans = [found for found in rounds if found.plan]
    steps = [line for found in plans for line in _steps(found, reply_characters)]
    waiting = [line for line in steps if line.status == "waiting"]
    paid = await full_receipt(store, run)
    return RunView(
        run_id=run.run_id,
        status=run.status,
        question=run.request.question,
        strategy=run.request.strategy,
        plan_source=plans[-1].proposal.source if plans else None,
        rounds=len(plans),
        steps=steps,
        answer=run.answer or "",
        answer_step=-1 if run.answer_step is None else run.answer_step,
        notes=list(run.notes),
        error=run.error.message if run.error else "",
        needs="\n".join(f"Step {line.step}: {line.subtask}" for line in waiting),
        usage=paid.total,
        seconds=round(paid.seconds, 3),
    )


async def full_receipt(store: Store, run: Run) -> Receipt:
    """The receipt of a run, nested runs included in its total."""
    nested = Usage()
    for child in await store.children(run.run_id):
        nested += await store.usage(child.run_id)
    rounds = await store.rounds(run.run_id)
    return receipt(run, rounds, await store.calls(run.run_id), nested)


def _steps(found: Round, reply_characters: int) -> list[StepView]:
    plan = found.plan
    assert plan is not None, "only called for rounds with a plan"
    results = {result.number: result for result in found.results}
    return [
        _step(plan, found.number, number, results.get(number), reply_characters)
        for number in plan.numbers
    ]


def _step(
    plan: Plan, round_number: int, number: int, result: StepResult | None, reply_characters: int
) -> StepView:
    step = plan.step(number)
    reply = result.reply if result else ""
    return StepView(
        step=number,
        round=round_number,
        worker=result.worker if result and result.status == "finished" else step.worker,
        subtask=step.subtask,
        access=list(plan.reads(number)),
        status=result.status if result else "planned",
        reply=reply[:reply_characters],
        reply_characters=len(reply),
        seconds=round(result.seconds, 3) if result else 0.0,
        output_tokens=result.usage.output_tokens if result else 0,
        failures=list(result.failures) if result else [],
        cuts=list(result.cuts) if result else [],
        nested_run=(result.nested_run or "") if result else "",
    )


def money(cost_usd: float | None) -> str:
    """A price as people read it; unknown is never zero."""
    if cost_usd is None:
        return "price unknown"
    if 0 < cost_usd < 0.0001:
        return "less than $0.0001"
    return "free" if cost_usd == 0 else f"${cost_usd:.4f}"


def summary(seen: RunView) -> str:
    """One line about a run: who worked, how long, what it cost."""
    workers = sorted({line.worker for line in seen.steps if line.status == "finished"})
    count = len(seen.steps)
    tokens = seen.usage.input_tokens + seen.usage.output_tokens
    by = f" by {', '.join(workers)}" if workers else ""
    return (
        f"Run {seen.run_id}: {seen.status}, {count} step{'' if count == 1 else 's'}{by}, "
        f"{seen.seconds:.1f} s, {tokens} tokens, {money(seen.usage.cost_usd)}."
    )


def told(seen: RunView, expected: Estimate | None = None) -> str:
    """A run in a few lines, for a model or a person that has asked for it."""
    lines = [_headline(seen)]
    if expected:
        lines.append(_planned(seen, expected))
    lines += [f"Note: {note}" for note in seen.notes]
    lines.append(summary(seen))
    return "\n\n".join(lines)


def _headline(seen: RunView) -> str:
    again = f"orchestrate(run_id={seen.run_id!r})"
    if seen.answer:
        return seen.answer
    if seen.error:
        return f"No answer: {seen.error} {again} tries again."
    if seen.needs:
        return f"Your turn. {seen.needs}\nGive it with run_step(run_id, step, result=...)."
    if seen.status == "running":
        done = sum(line.status == "finished" for line in seen.steps)
        return (
            f"Still running: {done} of {len(seen.steps)} planned steps are done. The work goes on; "
            f"wait for it with get_run(run_id={seen.run_id!r}, wait_s=40), which is free."
        )
    left = [line.step for line in seen.steps if line.status != "finished"]
    if left:
        return f"Not finished: steps {left} are to be done. {again} runs them and gives the answer."
    return f"Nothing left to run. {again} gives the answer."


def _planned(seen: RunView, expected: Estimate) -> str:
    lines = [
        f"{line.step}. {line.worker}{_reads(line.access)}: {line.subtask}" for line in seen.steps
    ]
    usd, seconds = expected.usd, expected.seconds
    unknown = f" Price unknown for {', '.join(expected.unpriced)}." if expected.unpriced else ""
    price = (
        "free"
        if usd.worst == 0
        else f"{money(usd.low)} to {money(usd.worst)}, expected {money(usd.expected)}"
    )
    low, middle, worst = (
        _seconds(found) for found in (seconds.low, seconds.expected, seconds.worst)
    )
    time = f"{low} to {worst}, expected {middle}"
    return "\n".join(["Plan:", *lines, f"Price: {price}.{unknown} Time: {time}."])


def _reads(access: list[int]) -> str:
    return f" reads {access}" if access else ""


def _seconds(seconds: float | None) -> str:
    return "unknown" if seconds is None else f"{seconds:.0f} s"


def prompt_text(stored: str) -> str:
    """A stored prompt as people read it."""
    messages = Prompt.model_validate_json(stored).messages
    return "\n\n".join(f"[{message.role}]\n{message.text}" for message in messages)
