"""What `vllm_plans` measures, as data, and the tables that are made of it."""

import statistics
from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter

from podium_workers.worker import Frozen

Form = Literal["json", "lists"]
FORMS: tuple[Form, ...] = ("json", "lists")


class Written(Frozen):
    """One plan as it was written."""

    kind: Literal["plan"] = "plan"
    model: str
    form: Form
    question: str
    text: str
    readable: bool
    """Whether a plan was found in the text."""
    fault: str
    """The rule that it breaks; empty for a valid plan."""
    steps: int
    cut_off: bool
    seconds: float
    input_tokens: int
    cached_tokens: int
    output_tokens: int


class Speed(Frozen):
    """The same prompts once more, through Podium's worker or by plain HTTP."""

    kind: Literal["speed"] = "speed"
    model: str
    form: Form
    by: Literal["podium", "http"]
    seconds: float
    output_tokens: int


class Fault(Frozen):
    """How long something took that went wrong on purpose."""

    kind: Literal["fault"] = "fault"
    model: str
    what: str
    seconds: float
    seen: str


Result = Written | Speed | Fault
_RESULT: TypeAdapter[Result] = TypeAdapter(Result)


def questions() -> tuple[str, ...]:
    """The questions for which plans are written."""
    text = (files("podium_lab.bench") / "plan_questions.txt").read_text(encoding="utf-8")
    return tuple(text.splitlines())


def read(path: Path) -> tuple[Result, ...]:
    """The results of a file."""
    return tuple(_RESULT.validate_json(it) for it in path.read_text(encoding="utf-8").splitlines())


def tables(results: Sequence[Result]) -> Iterator[str]:
    """Markdown: plans, speed, faults."""
    written = [it for it in results if isinstance(it, Written)]
    yield "| model | form | plans | found | valid | cut off | steps | tokens a plan | cached |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for model, form in dict.fromkeys((it.model, it.form) for it in written):
        yield _row([it for it in written if (it.model, it.form) == (model, form)])
    yield ""
    speeds = [it for it in results if isinstance(it, Speed)]
    if speeds:
        yield "| model | form | plain HTTP, tokens/s | Podium, tokens/s | Podium / plain |"
        yield "|---|---|---|---|---|"
    for model, form in dict.fromkeys((it.model, it.form) for it in speeds):
        yield _speeds([it for it in speeds if (it.model, it.form) == (model, form)])
    yield ""
    for it in results:
        if isinstance(it, Fault):
            yield f"- {it.model}, {it.what}: {it.seconds:.2f} s; {it.seen}"


def _row(plans: Sequence[Written]) -> str:
    steps = ", ".join(str(sum(it.steps == n for it in plans)) for n in range(1, 6))
    tokens = statistics.mean(it.output_tokens for it in plans)
    cached = sum(it.cached_tokens for it in plans) / sum(it.input_tokens for it in plans)
    faults = sorted({it.fault for it in plans if it.fault})
    cells = (
        plans[0].model,
        plans[0].form,
        len(plans),
        sum(it.readable for it in plans),
        f"{sum(not it.fault for it in plans)}" + (f" ({', '.join(faults)})" if faults else ""),
        sum(it.cut_off for it in plans),
        steps,
        f"{tokens:.0f}",
        f"{cached:.0%}",
    )
    return f"| {' | '.join(map(str, cells))} |"


def _speeds(speeds: Sequence[Speed]) -> str:
    def rate(by: str) -> float:
        return statistics.median(it.output_tokens / it.seconds for it in speeds if it.by == by)

    plain, own = rate("http"), rate("podium")
    return f"| {speeds[0].model} | {speeds[0].form} | {plain:.1f} | {own:.1f} | {own / plain:.3f} |"
