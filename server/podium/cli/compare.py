"""`podium compare`: two runs side by side."""

from collections.abc import Iterable

import anyio
import click

from podium.cli.compose import open_ledger
from podium.cli.invocation import Invocation, pass_invocation
from podium.cli.wording import as_json, count, one_line, put, put_json, spent, table
from podium.comparison import Comparison, Side, StepPair, StepSide, TextDifference
from podium.comparison import compare as read
from podium_workers.worker import Usage

_SHOWN = 40
"""Lines of a difference that are shown; --full shows all."""


@click.command(
    epilog="""\b
Examples:
  podium compare 6a53c0 91fe27
  podium compare 6a53c0 91fe27 --full | less
  podium compare 6a53c0 91fe27 --json > difference.json"""
)
@click.argument("first", metavar="RUN")
@click.argument("second", metavar="RUN")
@click.option("--full", is_flag=True, help="Every line that differs, however many there are.")
@click.option("--json", "json_", is_flag=True, help="One JSON object on stdout.")
@pass_invocation
def compare(invocation: Invocation, *, first: str, second: str, full: bool, json_: bool) -> None:
    """Show two runs side by side: plans, workers, replies, tokens, time, price, answers.

    Lines with - are the first run's, those with + the second's.
    """
    found = anyio.run(_look, invocation, first, second)
    if json_:
        put_json(as_json(found))
    else:
        put("\n".join(_text(found, most=None if full else _SHOWN)))


async def _look(invocation: Invocation, first: str, second: str) -> Comparison:
    settings = invocation.settings
    async with open_ledger(settings) as store:
        one = await store.run(first, principal=settings.principal)
        other = await store.run(second, principal=settings.principal)
        return await read(store, one, other)


def _text(found: Comparison, *, most: int | None) -> list[str]:
    lines = [_heads(found), ""]
    if not found.same_question:
        lines += ["The questions differ:", f"- {one_line(found.first.question, 200)}"]
        lines += [f"+ {one_line(found.second.question, 200)}", ""]
    lines.append(_steps(found))
    for pair in found.steps:
        lines += _pair(pair, most)
    return [*lines, *_answer(found, most)]


def _answer(found: Comparison, most: int | None) -> Iterable[str]:
    if found.answer is None:
        return ["", f"Answer: {_lacking(found)}"]
    if found.answer.same:
        return ["", "Answer: the same"]
    for pair in found.steps:
        if pair.reply == found.answer:
            return ["", f"Answer: differs as the replies of step {pair.step} do"]
    return _difference("Answer", found.answer, most)


def _heads(found: Comparison) -> str:
    sides = (found.first, found.second)
    rows = [
        ("status", *(side.status for side in sides)),
        ("plan", *(_plan(side) for side in sides)),
        ("planning", *(spent(side.planning) for side in sides)),
        ("calls", *(str(side.calls) for side in sides)),
        ("time", *(f"{side.seconds:.1f} s" for side in sides)),
        ("used", *(spent(side.total) for side in sides)),
    ]
    if any(side.forked_from for side in sides):
        rows.append(("fork of", *(side.forked_from or "" for side in sides)))
    return table(("run", *(side.run_id for side in sides)), rows)


def _plan(side: Side) -> str:
    written = ", ".join(dict.fromkeys(side.plan_sources)) or "none"
    return f"{count(side.steps, 'step')} ({written})"


def _steps(found: Comparison) -> str:
    rows = [
        (
            str(pair.step), _worker(pair.first), _worker(pair.second), _replies(pair),
            _used(pair.first), _used(pair.second),
        )
        for pair in found.steps
    ]  # fmt: skip
    return table(("step", "first", "second", "replies", "first used", "second used"), rows)


def _worker(side: StepSide | None) -> str:
    if side is None:
        return "(no such step)"
    if side.status != "finished":
        return f"{side.worker} ({side.status})"
    return side.worker


def _replies(pair: StepPair) -> str:
    if pair.reply is None:
        return "-"
    return "the same" if pair.reply.same else f"{pair.reply.alike:.0%} alike"


def _used(side: StepSide | None) -> str:
    if side is None:
        return "-"
    if side.taken_from:
        return "taken over"
    return f"{side.seconds:.1f} s, {spent(side.usage)}" if side.usage != Usage() else "-"


def _pair(pair: StepPair, most: int | None) -> Iterable[str]:
    yield from _difference(f"Step {pair.step}", pair.reply, most)
    if pair.first and pair.second and not pair.planned_alike:
        yield f"\nStep {pair.step} was planned otherwise"
        yield from (f"  {mark} {_planned(side)}" for mark, side in _marked(pair.first, pair.second))


def _marked(first: StepSide, second: StepSide) -> tuple[tuple[str, StepSide], ...]:
    return (("-", first), ("+", second))


def _planned(side: StepSide) -> str:
    reads = side.access if side.access == "all" else ", ".join(map(str, side.access))
    return f"{side.planned_worker}{f' reads {reads}' if reads else ''}: {side.subtask}"


def _difference(what: str, found: TextDifference | None, most: int | None) -> Iterable[str]:
    if found is None or found.same:
        return
    yield f"\n{what}: {found.alike:.0%} alike"
    yield from (f"  {line}" for line in found.lines[:most])
    if most is not None and (left := len(found.lines) - most) > 0:
        yield f"  … and {count(left, 'line')} more; --full shows them"


def _lacking(found: Comparison) -> str:
    without = [side.run_id for side in (found.first, found.second) if side.answer is None]
    return f"none in {' and '.join(without)}"
