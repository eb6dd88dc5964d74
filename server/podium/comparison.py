"""Two runs side by side: their plans, who did each step, what differs in the replies, what it cost.

Everything is read from the ledger's records; nothing is judged.
"""

import difflib
from typing import Literal

from podium.plan import Access, PlanSource
from podium.receipt import StepLine
from podium.store import Store
from podium.trace import Round, Run, RunStatus, StepStatus
from podium.views import full_receipt
from podium_workers.worker import Frozen, Usage

_CONTEXT = 1
"""Unchanged lines around a difference."""
_HEAD = 2
"""Lines with which a difference names its files."""


class StepSide(Frozen):
    """A step as one of the runs has it."""

    worker: str
    """Who did it; who is to do it while it is not done."""
    planned_worker: str
    subtask: str
    access: Access
    status: StepStatus | Literal["planned"]
    reply: str
    usage: Usage
    """All attempts at this step in this run; nothing for one that was taken over."""
    seconds: float
    taken_from: str | None
    """The run that did it, when this one took it over."""


class TextDifference(Frozen):
    """How two texts differ."""

    same: bool
    alike: float
    """Share of their words that they have in common and in the same order, from 0 to 1."""
    lines: tuple[str, ...]
    """The difference, `-` for the first text's lines and `+` for the second's; none if same."""


class StepPair(Frozen):
    """The steps of one number; None where a run has no such step."""

    step: int
    first: StepSide | None
    second: StepSide | None
    planned_alike: bool
    """Whether planned worker, subtask and access are the same."""
    reply: TextDifference | None
    """None unless both runs have a reply."""


class Side(Frozen):
    """One of the runs as a whole."""

    run_id: str
    question: str
    status: RunStatus
    plan_sources: tuple[PlanSource, ...]
    steps: int
    calls: int
    seconds: float
    planning: Usage
    total: Usage
    forked_from: str | None
    answer: str | None


class Comparison(Frozen):
    """Two runs side by side."""

    first: Side
    second: Side
    same_question: bool
    steps: tuple[StepPair, ...]
    answer: TextDifference | None
    """None unless both runs have an answer."""


async def compare(store: Store, first: Run, second: Run) -> Comparison:
    """What is the same in two runs, and what is not."""
    one, one_steps = await _read(store, first)
    other, other_steps = await _read(store, second)
    numbers = sorted(one_steps.keys() | other_steps.keys())
    return Comparison(
        first=one,
        second=other,
        same_question=first.request.question == second.request.question,
        steps=tuple(_pair(n, one_steps.get(n), other_steps.get(n)) for n in numbers),
        answer=_difference(one.answer, other.answer),
    )


async def _read(store: Store, run: Run) -> tuple[Side, dict[int, StepSide]]:
    rounds = await store.rounds(run.run_id)
    paid = await full_receipt(store, run)
    lines = {line.step: line for line in paid.steps}
    planned = [found for found in rounds if found.plan]
    steps = {number: side for found in planned for number, side in _sides(found, lines).items()}
    whole = Side(
        run_id=run.run_id,
        question=run.request.question,
        status=run.status,
        plan_sources=tuple(found.proposal.source for found in planned),
        steps=len(steps),
        calls=paid.calls,
        seconds=paid.seconds,
        planning=paid.planning,
        total=paid.total,
        forked_from=run.forked_from,
        answer=run.answer,
    )
    return whole, steps


def _sides(found: Round, lines: dict[int, StepLine]) -> dict[int, StepSide]:
    results = {result.number: result for result in found.results}
    plan = found.plan
    assert plan is not None, "only asked of rounds with a plan"
    return {
        number: StepSide(
            planned_worker=step.worker,
            subtask=step.subtask,
            access=step.access,
            usage=lines[number].usage if number in lines else Usage(),
            worker=done.worker if (done := results.get(number)) else step.worker,
            status=done.status if done else "planned",
            reply=done.reply if done else "",
            seconds=done.seconds if done else 0.0,
            taken_from=done.taken_from if done else None,
        )
        for number, step in plan.numbered()
    }


def _pair(number: int, first: StepSide | None, second: StepSide | None) -> StepPair:
    if first is None or second is None:
        return StepPair(step=number, first=first, second=second, planned_alike=False, reply=None)
    alike = _planned(first) == _planned(second)
    difference = _difference(first.reply or None, second.reply or None)
    return StepPair(step=number, first=first, second=second, planned_alike=alike, reply=difference)


def _planned(side: StepSide) -> tuple[str, str, Access]:
    return side.planned_worker, side.subtask, side.access


def _difference(first: str | None, second: str | None) -> TextDifference | None:
    if first is None or second is None:
        return None
    words = difflib.SequenceMatcher(None, first.split(), second.split())
    lines = difflib.unified_diff(first.splitlines(), second.splitlines(), n=_CONTEXT, lineterm="")
    return TextDifference(
        same=first == second,
        alike=round(words.ratio(), 3),
        lines=tuple(lines)[_HEAD:],
    )
