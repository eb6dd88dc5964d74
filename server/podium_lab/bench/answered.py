"""Questions that live models answered in several ways: a file of results, and their table."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Self, TypeVar

from podium.views import RunView
from podium_lab.bench.scoring import median, sign_test, wilson
from podium_workers.worker import Frozen


class Answered(Frozen):
    """One question answered in one way."""

    item: str
    way: str
    right: bool
    status: str
    """How the run ended."""
    plan_source: str
    workers: tuple[str, ...]
    """Who did the steps."""
    seconds: float
    input_tokens: int
    output_tokens: int
    run_id: str

    @classmethod
    def of(cls, seen: RunView, item: str, way: str, *, right: bool, **known: object) -> Self:
        """What a run came to; *known* are the fields that a subclass adds."""
        done = [step.worker for step in seen.steps if step.status == "finished"]
        return cls.model_validate(
            {
                "item": item,
                "way": way,
                "right": right,
                "status": seen.status,
                "plan_source": seen.plan_source or "none",
                "workers": tuple(done),
                "seconds": seen.seconds,
                "input_tokens": seen.usage.input_tokens,
                "output_tokens": seen.usage.output_tokens,
                "run_id": seen.run_id,
                **known,
            }
        )

    @property
    def about(self) -> tuple[str, str]:
        return self.item, self.way

    @property
    def remark(self) -> str:
        """What the table counts behind who did the steps; mostly nothing."""
        return ""


Kind = TypeVar("Kind", bound=Answered)


def append(path: Path, result: Answered) -> None:
    """Add a result to a file."""
    with path.open("a", encoding="utf-8") as file:
        file.write(result.model_dump_json() + "\n")


def resumed(path: Path, kind: type[Kind]) -> tuple[Kind, ...]:
    """The results of a file to which more are to be added; none where there is no file yet.

    A last line that was cut off when its command died is taken away.
    """
    if not path.exists():
        return ()
    text = path.read_bytes()
    path.write_bytes(text[: text.rfind(b"\n") + 1])
    return read(path, kind)


def read(path: Path, kind: type[Kind]) -> tuple[Kind, ...]:
    """The results of a file."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return tuple(kind.model_validate_json(line) for line in lines)


def compared(results: Sequence[Kind], among: Collection[str] = ()) -> tuple[Kind, ...]:
    """Those of the questions that were answered in every way of *among*, or that occurs."""
    ways = set(among) or {result.way for result in results}
    answered = Counter(result.item for result in results)
    return tuple(result for result in results if answered[result.item] == len(ways))


def table(results: Sequence[Answered], order: Sequence[str]) -> Iterator[str]:
    """Markdown: a row for each way in *order*, then pairs against the first of them."""
    ways = [name for name in order if any(result.way == name for result in results)]
    yield "| way | right | 95 % | seconds, median | tokens in | tokens out | steps |"
    yield "|---|---|---|---|---|---|---|"
    for name in ways:
        yield _row(name, [result for result in results if result.way == name])
    yield ""
    for name in ways[1:]:
        yield _pairs(results, name, ways[0])


def either(results: Sequence[Answered], names: Sequence[str]) -> str:
    """On how many questions one of two ways is right."""
    first, second = (_right(results, name) for name in names)
    both = first.keys() & second.keys()
    count = sum(first[item] or second[item] for item in both)
    return f"- {names[0]} or {names[1]} is right on {count} of {len(both)}."


def _row(name: str, results: Sequence[Answered]) -> str:
    right = sum(result.right for result in results)
    low, high = wilson(right, len(results))
    steps = Counter(worker for result in results for worker in result.workers)
    shown = ", ".join(f"{count} {worker}" for worker, count in steps.most_common())
    remarks = Counter(result.remark for result in results if result.remark)
    more = "".join(f" ({count} {remark})" for remark, count in remarks.items())
    return (
        f"| {name} | {right} of {len(results)} | {low:.0%} to {high:.0%} "
        f"| {median([result.seconds for result in results]):.0f} "
        f"| {sum(result.input_tokens for result in results)} "
        f"| {sum(result.output_tokens for result in results)} | {shown}{more} |"
    )


def _pairs(results: Sequence[Answered], name: str, base: str) -> str:
    own, other = _right(results, name), _right(results, base)
    both = own.keys() & other.keys()
    better = sum(own[item] and not other[item] for item in both)
    worse = sum(other[item] and not own[item] for item in both)
    chance = sign_test(better, worse)
    return (
        f"- {name} against {base}, on {len(both)} problems: right where {base} is wrong {better} "
        f"times, wrong where it is right {worse} times (sign test: p = {chance:.2f})."
    )


def _right(results: Sequence[Answered], name: str) -> dict[str, bool]:
    return {result.item: result.right for result in results if result.way == name}
