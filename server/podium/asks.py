"""What a run that stands still needs from outside: a result, a yes to its plan, or more money.

All of it is read from the ledger, so any process can ask and take the answer, also after a restart.
Knows nothing of how the question reaches whoever has to answer it.
"""

import hashlib
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Literal

import anyio
from pydantic import JsonValue

from podium.ending import save
from podium.errors import QuestionError, RunError
from podium.estimate import estimate
from podium.orchestrator import Orchestrator
from podium.plan import Plan
from podium.revision import change_limits, run_step
from podium.runs import Runs
from podium.store import Store
from podium.trace import DECLINED, Observer, Round, Run, StepResult
from podium.views import told_plan, view
from podium_workers.worker import Frozen, mend

AskKind = Literal["caller", "plan", "budget"]
_READABLE = 4000
"""Characters of each reply that a step of the caller's may read, as the question shows them."""
_BEST = 600


class Ask(Frozen):
    """One question to somebody outside, as one flat form."""

    key: str
    """The same for the same question in every process, and another one for the next question."""
    kind: AskKind
    """`caller`: do a step; `plan`: approve the plan; `budget`: raise the limit in money."""
    message: str
    """What is asked, in plain words, with all that is needed to answer it."""
    form: dict[str, JsonValue]
    """JSON schema of the answer: an object of plain values, as elicitation takes it."""


async def pending(runs: Runs, run: Run, declined: Collection[str] = ()) -> Ask | None:
    """What *run* waits for; None when it waits for nothing, or only for what was *declined*.

    Steps of a run that is walked one by one are not asked for: whoever walks it sees them.
    """
    store = runs.store
    run = await store.run(run.run_id)
    rounds = await store.rounds(run.run_id)
    for kind, key, step in _open(run, rounds):
        if key not in declined:
            return await _asked(store, run, rounds, kind, key, step)
    return None


async def respond(runs: Runs, run: Run, ask: Ask, content: Mapping[str, JsonValue] | None) -> Run:
    """Take the answer to *ask* and carry the run on; None stands for a refusal.

    A refused plan stops the run; a refused step or a refused raise leaves it as it stands. The run
    goes on in the background.

    Raises:
        QuestionError: the answer does not fit the form; nothing has changed.
        RunError: it was answered before, or another process works on the run.
    """
    given = None if content is None else _read(ask, content)
    if given is None and ask.kind != "plan":
        return await runs.store.run(run.run_id)

    async def take(held: Orchestrator, run: Run, observer: Observer) -> None:
        _check_open(ask, run, await held.store.rounds(run.run_id))
        await _take(held, run, ask, given, observer)

    # Whoever sent the answer may be gone meanwhile; it must not be left half taken.
    with anyio.CancelScope(shield=True):
        _check_open(ask, await runs.store.run(run.run_id), await runs.store.rounds(run.run_id))
        await runs.launch(run, take)
        run = await runs.wait(run.run_id)
        if given is not None:
            await runs.start(run)
    return await runs.store.run(run.run_id)


def _open(run: Run, rounds: Sequence[Round]) -> list[tuple[AskKind, str, int]]:
    """Kind, key and step (or -1) of all that a run waits for."""
    plans = [found.plan for found in rounds if found.plan]
    if run.status == "planned" and plans and run.request.waits_for_approval:
        # Another plan is another question: a yes to the one before does not count.
        return [("plan", f"plan-{_mark(plans[-1])}", -1)]
    if run.status in ("partial", "failed") and run.limit == "usd" and run.request.max_usd:
        return [("budget", f"max_usd-{run.request.max_usd!r}", -1)]
    if run.status != "needs_caller":
        return []
    waiting = [
        result
        for found in rounds
        for result in found.results
        if result.status == "waiting" and found.plan and result.number in found.plan.numbers
    ]
    return [("caller", _step_key(result), result.number) for result in waiting]


def _step_key(result: StepResult) -> str:
    """`step-2`; with its version where the step has been asked for anew, in other words perhaps."""
    again = f".{result.version}" if result.version else ""
    return f"step-{result.number}{again}"


def _mark(plan: Plan) -> str:
    return hashlib.sha256(plan.model_dump_json().encode()).hexdigest()[:12]


def _check_open(ask: Ask, run: Run, rounds: Sequence[Round]) -> None:
    if ask.key not in [key for _, key, _ in _open(run, rounds)]:
        raise RunError(
            f"Run {run.run_id} does not wait for this any more: it was answered elsewhere, or the "
            f"run was changed; it is {run.status}. See it with get_run(run_id={run.run_id!r})."
        )


async def _asked(
    store: Store, run: Run, rounds: Sequence[Round], kind: AskKind, key: str, step: int
) -> Ask:
    if kind == "caller":
        message, form = _step_asked(run, rounds, step)
    elif kind == "plan":
        message, form = await _plan_asked(store, run, rounds)
    else:
        message, form = await _budget_asked(store, run, rounds)
    return Ask(key=key, kind=kind, message=mend(message), form=form)


def _step_asked(run: Run, rounds: Sequence[Round], number: int) -> tuple[str, dict[str, JsonValue]]:
    plan = _plan_of(rounds, number)
    results = {result.number: result for found in rounds for result in found.results}
    readable = [
        f"Step {read} ({results[read].worker}): {_short(results[read].reply, _READABLE)}"
        for read in plan.reads(number)
        if read in results and results[read].finished
    ]
    reads = ["What it may read:", *readable] if readable else []
    question = f"For the question: {_short(run.request.question, _BEST)}"
    lines = [f"Step {number} of the plan is yours: {plan.step(number).subtask}", question, *reads]
    result: JsonValue = {
        "type": "string",
        "title": "Result",
        "description": "What the step gives; later steps read it as you write it.",
        "minLength": 1,
    }
    return "\n\n".join(lines), _form("result", result)


async def _plan_asked(
    store: Store, run: Run, rounds: Sequence[Round]
) -> tuple[str, dict[str, JsonValue]]:
    plan = [found.plan for found in rounds if found.plan][-1]
    expected = await estimate(store, run, plan)
    told = told_plan(await view(store, run), expected)
    question = _short(run.request.question, _BEST)
    approve: JsonValue = {"type": "boolean", "title": "Carry out this plan", "default": True}
    return f"Carry out this plan?\n\nQuestion: {question}\n\n{told}", _form("approve", approve)


async def _budget_asked(
    store: Store, run: Run, rounds: Sequence[Round]
) -> tuple[str, dict[str, JsonValue]]:
    limit = run.request.max_usd or 0.0
    spent = (await store.usage(run.run_id)).cost_usd or 0.0
    needed = await _needed(store, run, rounds, spent)
    best = run.answer or "no step has finished."
    message = (
        f"The run for this question reached its limit of ${limit:g} (spent so far: ${spent:.4f}): "
        f"{_short(run.request.question, _BEST)}\n\nBest so far: {_short(best, _BEST)}\n\n"
        + (f"The rest may cost ${needed - spent:.4f} at worst. " if needed else "")
        + "Raise the limit to go on, or decline to keep this."
    )
    raised: JsonValue = {
        "type": "number",
        "title": "New limit in US dollars",
        "description": f"For the whole run; more than {limit:g}.",
        "minimum": limit,
        "default": max(2 * limit, _rounded_up(needed)),
    }
    return message, _form("max_usd", raised)


async def _needed(store: Store, run: Run, rounds: Sequence[Round], spent: float) -> float:
    """What the run costs at worst when it is carried on by its newest plan; 0 when unknown."""
    plans = [found.plan for found in rounds if found.plan]
    worst = (await estimate(store, run, plans[-1])).usd.worst if plans else None
    return spent + worst if worst else 0.0


def _rounded_up(usd: float) -> float:
    """To two significant digits, so that it reads as a limit."""
    if usd <= 0:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(usd)) - 1)
    return round(math.ceil(usd / unit) * unit, 12)


def _form(name: str, field: JsonValue) -> dict[str, JsonValue]:
    return {"type": "object", "properties": {name: field}, "required": [name]}


def _plan_of(rounds: Sequence[Round], number: int) -> Plan:
    return next(found.plan for found in rounds if found.plan and number in found.plan.numbers)


def _short(text: str, characters: int) -> str:
    return text if len(text) <= characters else f"{text[:characters]}…"


def _read(ask: Ask, content: Mapping[str, JsonValue]) -> JsonValue:
    """The one value of an answer; None where it refuses.

    Raises:
        QuestionError: it does not fit the form.
    """
    if ask.kind == "caller":
        result = content.get("result")
        if not isinstance(result, str) or not result.strip():
            raise QuestionError("result", "is empty; write what the step gives, as text.")
        return mend(result)
    if ask.kind == "plan":
        approve = content.get("approve")
        if not isinstance(approve, bool):
            raise QuestionError("approve", "is missing; send true to run the plan, or false.")
        return True if approve else None
    return _raised(content.get("max_usd"), float(ask.key.removeprefix("max_usd-")))


def _raised(usd: JsonValue, limit: float) -> float:
    # A boolean is a number to Python, and infinity one to some clients.
    if isinstance(usd, int | float) and not isinstance(usd, bool) and limit < usd < math.inf:
        return float(usd)
    raise QuestionError("max_usd", f"has to be a number of US dollars above {limit:g}.")


async def _take(
    held: Orchestrator, run: Run, ask: Ask, given: JsonValue, observer: Observer
) -> None:
    if ask.kind == "caller":
        number = int(ask.key.removeprefix("step-").partition(".")[0])
        await run_step(held, run, number, observer, result=str(given))
    elif ask.kind == "budget":
        await change_limits(held, run, {"max_usd": given})
    elif given:
        await change_limits(held, run, {"approved": True})
    else:
        await save(held.store, run, status="stopped", notes=(DECLINED,))
