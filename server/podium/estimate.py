"""Price and time of a plan before it is paid for: low, expected and worst (user report T37).

Output lengths and speeds come from what the ledger has seen of a worker; without a history from
cautious constants. Worst is every step at its longest reply, tried by every allowed worker as often
as retries allow, in as many rounds as the run may have.
"""

from collections.abc import Mapping, Sequence

from podium.material import material
from podium.plan import CALLER, PODIUM, Plan
from podium.store import Store, WorkerHistory
from podium.tokens import estimate_tokens
from podium.trace import Run
from podium.window import fit, prompt_budget, reply_limit
from podium_workers.errors import ContextTooLongError
from podium_workers.retry import ATTEMPTS
from podium_workers.worker import Frozen, Usage, WorkerCard

TYPICAL_REPLY = 350
"""Output tokens expected of a worker without history."""
SPEED = {"local": 12.0, "hosted": 60.0}
"""Output tokens per second expected of a worker without history."""
NESTED_CALLS = (2, 4, 6)
"""Calls of a nested run, low, expected and worst: its plan and its steps."""


class Range(Frozen):
    """Low, expected and worst; None where a price is unknown."""

    low: float | None
    expected: float | None
    worst: float | None


class Estimate(Frozen):
    """What carrying out a plan will take."""

    usd: Range
    seconds: Range
    unpriced: tuple[str, ...]
    """Workers of the plan whose price is unknown."""


class _Guess(Frozen):
    output: tuple[int, int, int]
    seconds: tuple[float, float, float]
    usd: tuple[float | None, float | None, float | None]


async def estimate(store: Store, run: Run, plan: Plan) -> Estimate:
    """The estimate for the plan's steps; planning itself has been paid already."""
    histories = {card.name: await store.worker_history(card.name, card.model) for card in run.pool}
    guesses: dict[int, _Guess] = {}
    for number in plan.numbers:
        guesses[number] = _guess(run, plan, number, histories, guesses)
    ends = [_critical_path(plan, guesses, kind) for kind in range(3)]
    costs = [_sum([guess.usd[kind] for guess in guesses.values()]) for kind in range(3)]
    cards = {card.name: card for card in run.pool}
    names = {step.worker for step in plan.steps if step.worker in cards}
    return Estimate(
        usd=Range(low=costs[0], expected=costs[1], worst=costs[2]),
        seconds=Range(low=ends[0], expected=ends[1], worst=ends[2]),
        unpriced=tuple(sorted(name for name in names if cards[name].price is None)),
    )


def _guess(
    run: Run,
    plan: Plan,
    number: int,
    histories: Mapping[str, WorkerHistory],
    guesses: Mapping[int, _Guess],
) -> _Guess:
    name = plan.step(number).worker
    if name == CALLER:
        return _Guess(output=(0, 0, 0), seconds=(0, 0, 0), usd=(0, 0, 0))
    card = next((card for card in run.pool if card.name == name), run.pool[0])
    history = histories[card.name]
    own, unread = _own_tokens(run, plan, number, card)
    read = [
        sum(guesses[n].output[kind] for n in plan.reads(number) if n in guesses)
        for kind in (0, 1, 2)
    ]
    mean = history.mean_output_tokens or TYPICAL_REPLY
    longest = reply_limit(card)
    expected = min(max(1, int(mean)), longest)
    output = (max(1, expected // 4), expected, longest)
    calls = NESTED_CALLS if name == PODIUM else (1, 1, 1)
    tries = calls[2] * ATTEMPTS * run.request.rounds
    speed = history.output_tokens_per_s or SPEED[card.where]
    most = prompt_budget(card)
    usages = [Usage(input_tokens=min(own + read[k], most), output_tokens=output[k]) for k in (0, 1)]
    worst = Usage(input_tokens=own + unread + read[2], output_tokens=output[2])
    return _Guess(
        output=output,
        seconds=(
            calls[0] * output[0] / speed,
            calls[1] * output[1] / speed,
            tries * output[2] / speed,
        ),
        usd=(
            _times(calls[0], card.priced(usages[0]).cost_usd),
            _times(calls[1], card.priced(usages[1]).cost_usd),
            _times(tries, _by_everyone(_asked(run, name), worst)),
        ),
    )


def _own_tokens(run: Run, plan: Plan, number: int, card: WorkerCard) -> tuple[int, int]:
    """Tokens of a step's prompt without replies, and at most so many that do not fit into it."""
    try:
        fitted = fit(material(run, plan, number, {}), card)
    except ContextTooLongError:
        return prompt_budget(card), 0
    return estimate_tokens(fitted.text), sum(cut.given - cut.sent for cut in fitted.cuts)


def _times(count: int, cost: float | None) -> float | None:
    return None if cost is None else count * cost


def _asked(run: Run, name: str) -> tuple[WorkerCard, ...]:
    """Who may come to be asked for a step of *name*: of a nested run also who plans it."""
    return (*run.pool, run.planner) if name == PODIUM and run.planner else run.pool


def _by_everyone(cards: Sequence[WorkerCard], usage: Usage) -> float | None:
    """The price of a step that each of these workers tries once."""
    costs = [
        card.priced(
            Usage(
                input_tokens=min(usage.input_tokens, prompt_budget(card)),
                output_tokens=max(usage.output_tokens, reply_limit(card)),
            )
        ).cost_usd
        for card in cards
    ]
    known = [cost for cost in costs if cost is not None]
    return sum(known) if len(known) == len(costs) else None


def _critical_path(plan: Plan, guesses: Mapping[int, _Guess], kind: int) -> float:
    ends: dict[int, float] = {}
    for number in plan.numbers:
        starts = [ends[read] for read in plan.reads(number) if read in ends]
        ends[number] = max(starts, default=0.0) + guesses[number].seconds[kind]
    return round(max(ends.values()), 2)


def _sum(costs: list[float | None]) -> float | None:
    known = [cost for cost in costs if cost is not None]
    return round(sum(known), 6) if len(known) == len(costs) else None
