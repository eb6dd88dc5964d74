"""A run as its reader sees it: one model for tools, resources and the command line's JSON."""

from collections.abc import Sequence

from podium.estimate import Estimate
from podium.plan import CALLER, Plan, PlanSource
from podium.receipt import Receipt, best_so_far, receipt
from podium.store import Store
from podium.trace import DECLINED, Cut, Failure, Round, Run, RunStatus, RunSummary, StepResult
from podium_workers.worker import Frozen, Prompt, Usage, WorkerCard


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
    """A run: plan, steps, answer and what it cost so far. Long texts are shortened."""

    run_id: str
    status: RunStatus
    """A run whose process died is shown as interrupted."""
    working: bool
    """Whether a process is working on it now, planning included."""
    question: str
    strategy: str
    plan_source: PlanSource | None
    """Who wrote the newest plan."""
    rounds: int
    """Plans so far."""
    steps: list[StepView]
    answer: str
    """Beginning of the answer; empty until there is one."""
    answer_characters: int
    """Length of the whole answer."""
    answer_step: int
    """Step whose reply is the answer; -1 until there is one."""
    best_so_far: str
    """Beginning of the newest finished step's reply, while there is no answer."""
    best_step: int
    """Step that gave it; -1 when none has finished, or there is an answer."""
    notes: list[str]
    """What the reader of the answer has to know."""
    degraded: bool
    """Whether the answer rests on less than was planned: a step failed or was done by another
    worker, no plan could be read, or a limit ended the run. The notes and steps say how."""
    limit: str
    """The limit that ended it: usd, day_usd, tokens, steps or seconds; empty when none did."""
    error: str
    """Why there is no answer; empty when nothing is wrong."""
    needs: str
    """What the caller is asked to do; empty when nothing."""
    usage: Usage
    """Everything paid so far, nested runs included. `cost_usd` is null when a price is unknown."""
    seconds: float


_RAISED = {"usd": "max_usd", "tokens": "max_tokens", "steps": "max_steps", "seconds": "max_seconds"}
"""The argument that raises a limit."""
ANSWER = 20_000
"""Characters of an answer in a view; the whole one comes in pages."""
_QUESTION = 120
"""Characters that a line about a run shows of its question."""
_SUBTASK = 100
"""Characters that a line about a step shows of its subtask."""
_READABLE = 1500
"""Characters of each reply that a step of the caller's may read, as the text shows them."""
_BEST = 600
"""Characters that a text result shows of the best answer so far."""
_LONGEST = 2000
"""Characters of a question, subtask or reply in a view."""


async def view(
    store: Store, run: Run, *, working: bool = False, reply_characters: int = _LONGEST
) -> RunView:
    """*run* with its steps; *working* says whether a process is at it."""
    rounds = await store.rounds(run.run_id)
    plans = [found for found in rounds if found.plan]
    steps = [line for found in plans for line in _steps(found, reply_characters)]
    waiting = [line for line in steps if line.status == "waiting"]
    paid = await full_receipt(store, run)
    answer = run.answer or ""
    best = best_so_far(rounds) if run.answer is None else None
    return RunView(
        run_id=run.run_id,
        status="interrupted" if run.status == "running" and not working else run.status,
        working=working,
        question=_short(run.request.question),
        strategy=run.request.strategy,
        plan_source=plans[-1].proposal.source if plans else None,
        rounds=len(plans),
        steps=steps,
        answer=answer[:ANSWER],
        answer_characters=len(answer),
        answer_step=-1 if run.answer_step is None else run.answer_step,
        best_so_far=best.reply[:ANSWER] if best else "",
        best_step=best.number if best else -1,
        notes=list(run.notes),
        degraded=_is_degraded(run, plans),
        limit=run.limit or "",
        error=(run.error.message.strip() or run.error.code) if run.error else "",
        needs=_needs(run, steps, waiting),
        usage=paid.total,
        seconds=round(paid.seconds, 3),
    )


def _is_degraded(run: Run, plans: Sequence[Round]) -> bool:
    if run.status == "partial" or any(found.proposal.source == "fallback" for found in plans):
        return True
    results = [result for found in plans for result in found.results]
    return any(
        result.status == "failed"
        or (result.finished and result.worker not in (result.planned_worker, CALLER))
        for result in results
    )


def _needs(run: Run, steps: Sequence[StepView], waiting: Sequence[StepView]) -> str:
    if run.status == "planned" and run.request.waits_for_approval and steps:
        return "The user's yes to this plan."
    return "\n".join(f"Step {line.step}: {line.subtask}" for line in waiting)


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


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
        subtask=_short(step.subtask),
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
    status = f"{seen.status} (degraded)" if seen.degraded else seen.status
    return (
        f"Run {seen.run_id}: {status}, {count} step{'' if count == 1 else 's'}{by}, "
        f"{seen.seconds:.1f} s, {tokens} tokens, {money(seen.usage.cost_usd)}."
    )


def told(
    seen: RunView,
    expected: Estimate | None = None,
    *,
    answer: str = "",
    takes: Estimate | None = None,
    wait_s: float = 40,
) -> str:
    """A run in a few lines, for whoever asked for it; *answer* is the whole of it.

    A plan that is told with what is *expected* of it is shown; what it *takes* is told while it is
    carried out, with a wait of *wait_s* seconds to ask again with.
    """
    if seen.working:
        lines = [_working(seen, takes, int(wait_s)) + _best(seen)]
        lines += [_turn(seen)] if seen.needs else []
    else:
        lines = [_headline(seen, answer or seen.answer)]
    if expected:
        lines.append(told_plan(seen, expected))
    lines += [f"Note: {note}" for note in seen.notes]
    if seen.limit in _RAISED and not seen.working:
        again = f"orchestrate(run_id={seen.run_id!r}, {_RAISED[seen.limit]}=…)"
        lines.append(f"With a higher limit it goes on: {again}.")
    lines.append(summary(seen))
    return "\n\n".join(lines)


def _working(seen: RunView, takes: Estimate | None, wait_s: int) -> str:
    """What is going on, for a model that would otherwise lose patience."""
    if seen.steps:
        done = sum(line.status == "finished" for line in seen.steps)
        at = f"{done} of {len(seen.steps)} planned steps are done"
        at += "".join(
            f"; {line.worker} is at step {line.step}: {line.subtask[:_SUBTASK]}"
            for line in seen.steps
            if line.status == "running"
        )
    else:
        at = "planning who does what"
    return (
        f"Still working: {at.rstrip('.')}. {_so_far(seen, takes)}. The work goes on without you. "
        f"Wait for it with get_run(run_id={seen.run_id!r}, wait_s={wait_s}), as often as it "
        "takes: that is free, starts nothing twice and loses nothing. Do not ask the question anew."
    )


def _so_far(seen: RunView, takes: Estimate | None) -> str:
    spent = f"{seen.seconds:.0f} s so far"
    middle = takes.seconds.expected if takes else None
    if middle is None or middle < 1:
        return spent
    if seen.seconds <= middle:
        return f"{spent}; the whole plan takes about {_seconds(middle)} by the estimate"
    worst = _seconds(takes.seconds.worst if takes else None)
    return f"{spent}, longer than the {_seconds(middle)} expected; at worst {worst}"


def _headline(seen: RunView, answer: str) -> str:
    again = f"orchestrate(run_id={seen.run_id!r})"
    if answer:
        return answer
    if seen.error:
        return f"No answer: {seen.error} {again} tries again.{_best(seen)}"
    if DECLINED in seen.notes:
        return "The user has said no to this plan: go on with it only if the user asks you to."
    if seen.status == "stopped":
        return f"Stopped: nothing more is done. {again} carries it on, if wanted.{_best(seen)}"
    if seen.needs:
        return _turn(seen)
    left = [line.step for line in seen.steps if line.status != "finished"]
    if left:
        return (
            f"Not finished: steps {left} are to be done. {again} runs them and gives the "
            f"answer.{_best(seen)}"
        )
    return (
        f"{'Nothing left to run' if seen.steps else 'Not planned yet'}. {again} gives the answer."
    )


def _turn(seen: RunView) -> str:
    """What whoever called has to do, so that the run can go on."""
    waiting = [line for line in seen.steps if line.status == "waiting"]
    if not waiting:
        return (
            "The plan below waits for the user's yes. Show it to them with its price; "
            f"orchestrate(run_id={seen.run_id!r}) starts it, cancel_run drops it."
        )
    asked = [f"Step {line.step}: {line.subtask}{_readable(seen, line)}\n\n" for line in waiting]
    # A run that is planned is walked step by step.
    goes_on = "run_step then does the next" if seen.status == "planned" else "the run then goes on"
    return (
        f"Your turn: do this yourself, with what you can see and run.\n\n{''.join(asked)}"
        f"Then give what came of it: run_step(run_id={seen.run_id!r}, step={waiting[0].step}, "
        f"result='…'); {goes_on}."
    )


def _readable(seen: RunView, line: StepView) -> str:
    """The replies that a step of the caller's may read."""
    done = {other.step: other for other in seen.steps if other.status == "finished"}
    return "".join(
        f"\n  It may read step {read} ({done[read].worker}): {done[read].reply[:_READABLE]}"
        + (f"… (whole: get_run(run_id={seen.run_id!r}, step={read}))" if more else "")
        for read in line.access
        if read in done
        for more in [done[read].reply_characters > _READABLE]
    )


def _best(seen: RunView) -> str:
    if seen.best_step < 0:
        return ""
    more = "…" if len(seen.best_so_far) > _BEST else ""
    return f"\n\nBest so far (step {seen.best_step}):\n{seen.best_so_far[:_BEST]}{more}"


def told_steps(seen: RunView) -> str:
    """One line a step, with the beginning of its reply and what it lacked."""
    lines: list[str] = []
    for line in seen.steps:
        lines.append(
            f"step {line.step} ({line.worker}, {line.status}, {line.seconds:.1f} s, "
            f"{line.output_tokens} tokens out): {line.subtask[:100]}\n  -> {line.reply[:300]}"
        )
        lines += [f"  failed before: {failed.worker}: {failed.message}" for failed in line.failures]
        lines += [
            f"  not read whole: {cut.part} ({cut.sent} of {cut.given} characters)"
            for cut in line.cuts
        ]
    return "\n".join(lines)


def told_runs(found: Sequence[RunSummary], limit: int) -> str:
    """One line a run; that there may be more than *limit*."""
    lines = [
        f"{run.run_id} {run.status}: {' '.join(run.question[:_QUESTION].split())}" for run in found
    ]
    if len(lines) == limit:
        lines.append("There may be more: raise limit, or set until to look further back.")
    return "\n".join(lines) or "No runs found."


def told_worker(card: WorkerCard) -> str:
    """One line about a worker."""
    return (
        f"{card.name}: {card.model}, {card.where}, {card.context_window} tokens, "
        f"{card.told_price}. {card.good_at}"
    )


def told_plan(seen: RunView, expected: Estimate) -> str:
    """A plan, a line for each step, with its price and time."""
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
