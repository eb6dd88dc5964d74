"""What was answered with a trained conductor and without it, and the table of that."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from podium_lab.bench.answered import Answered, compared, table

TRAINED, PROMPTED = "trained conductor", "prompted conductor"
UNDECIDED = "undecided"
"""Status of a run that finished, and whose answer no judge could judge."""


class Result(Answered):
    """One question asked in one way. It is an answer only where its run finished and was judged;
    the others are kept for what they say, and asked again."""

    kind: str
    """Of the question."""
    answer: str
    planning_tokens: int = 0
    """Tokens, in and out, that the plan took; they are among those of the run."""
    planner: str = ""
    """The worker that wrote the plan; empty where none did."""
    stood_in: bool = False
    """Whether that one planned because the conductor gave no reply."""
    part: int = 0
    """Questions of the sealed part; 0 where that was not noted."""

    @property
    def is_answer(self) -> bool:
        return self.status == "finished"

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    @property
    def remark(self) -> str:
        if self.plan_source not in ("fixed", "model"):
            return f"plan: {self.plan_source}"
        return f"plan by {self.planner} in its place" if self.stood_in else ""


@dataclass(frozen=True)
class Point:
    """What a way comes to: tokens of a question on the mean, and the share that is right."""

    tokens: float
    right: float

    @classmethod
    def of(cls, results: Sequence[Result]) -> "Point":
        return cls(
            sum(it.tokens for it in results) / len(results),
            sum(it.right for it in results) / len(results),
        )


def answers(results: Sequence[Result]) -> tuple[Result, ...]:
    """Those that are answers, the newest of each question in each way."""
    return tuple({it.about: it for it in results if it.is_answer}.values())


def told(results: Sequence[Result]) -> str:
    """The table, how each way does with each kind of question and for its tokens, what is missing.

    It compares the questions that were answered in every way.
    """
    ways = tuple(dict.fromkeys(result.way for result in results))
    order = (TRAINED, *(name for name in ways if name != TRAINED))
    whole = compared(answers(results), ways)
    if not whole:
        return "\n".join(("No question was answered in every way yet.", *_missing(results, order)))
    kinds = sorted({result.kind for result in whole})
    head = (*kinds, "planning tokens", "tokens a question", "right per 1,000 tokens")
    lines = [*table(whole, order), "", f"| way | {' | '.join(head)} |"]
    lines.append("|---" * (len(head) + 1) + "|")
    for name in order:
        own = [result for result in whole if result.way == name]
        shares = [_share([it.right for it in own if it.kind == kind]) for kind in kinds]
        planning = sum(result.planning_tokens for result in own)
        spent, right = sum(result.tokens for result in own), sum(result.right for result in own)
        rate = f"{1000 * right / spent:.2f}" if spent else ""
        cells = (*shares, str(planning), f"{spent / len(own):.0f}", rate)
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join((*lines, "", *_equal_tokens(whole, order), *_missing(results, order)))


def best_by_lot(points: Sequence[Point], tokens: float) -> float | None:
    """The greatest share right that a lot between two of *points* has for no more than *tokens* a
    question; None where each of them takes more."""
    cheap = [it for it in points if it.tokens <= tokens]
    dear = [it for it in points if it.tokens > tokens]
    if not cheap:
        return None
    mixed = (
        one.right + (other.right - one.right) * (tokens - one.tokens) / (other.tokens - one.tokens)
        for one in cheap
        for other in dear
    )
    return max(*(it.right for it in cheap), *mixed)


def _equal_tokens(whole: Sequence[Result], order: Sequence[str]) -> Iterator[str]:
    """Each conductor against the best that single workers give for as many tokens."""
    by_way = {name: [it for it in whole if it.way == name] for name in order}
    single = [Point.of(own) for name, own in by_way.items() if name not in (TRAINED, PROMPTED)]
    if not single:
        return
    for name in (TRAINED, PROMPTED):
        if not by_way.get(name):
            continue
        own = Point.of(by_way[name])
        best = best_by_lot(single, own.tokens)
        said = (
            "no single worker is as cheap"
            if best is None
            else f"the best single workers {best * len(by_way[name]):.1f}"
        )
        yield (
            f"- At equal tokens ({own.tokens:.0f} a question), of {len(by_way[name])}: {name} "
            f"{sum(it.right for it in by_way[name])} right, {said}."
        )
    yield (
        "- At equal tokens single workers may be one of them, or a lot that gives each question to "
        "one of two, so that both sides spend as much on the mean. Which ones, and by what odds, "
        "is chosen in hindsight, which favours them. Nobody is asked twice and voted over, which "
        "changes nothing at temperature 0; `podium train profile --repeats` tells what votes bring "
        "elsewhere. Tokens are counted alike whatever the size of the model."
    )


def _missing(results: Sequence[Result], order: Sequence[str]) -> Iterator[str]:
    """What is not there to be compared, and why."""
    asked = {result.item for result in results}
    known = {result.about for result in answers(results)}
    size = max((result.part for result in results), default=0)
    if size > len(asked):
        yield f"- {len(asked)} of the {size} questions of the sealed part were asked so far."
    newest = {result.about: result.status for result in results}
    left_out = set[str]()
    for name in order:
        lacking = {item for item in asked if (item, name) not in known}
        left_out |= lacking
        why = Counter(newest.get((item, name), "not asked") for item in lacking)
        if lacking:
            shown = ", ".join(f"{count} {reason}" for reason, count in why.most_common())
            yield f"- Missing: {name}, {len(lacking)} of {len(asked)} ({shown})."
    if left_out:
        yield (
            f"- {len(left_out)} of {len(asked)} questions lack an answer in some way and are left "
            "out of all; the command typed again asks what is missing."
        )


def _share(rights: Sequence[bool]) -> str:
    return f"{sum(rights)} of {len(rights)}"
