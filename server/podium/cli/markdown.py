"""A run as a Markdown page. What users and models wrote stands in fences that it cannot close."""

import re
from collections.abc import Iterable, Iterator, Sequence

from pydantic import ValidationError

from podium.cli.exported import ExportedRun, ProposedRound
from podium.cli.plan import SOURCES
from podium.cli.progress import reads
from podium.cli.wording import count, spent, when
from podium.plan import Plan
from podium.trace import CallRecord, StepResult
from podium.views import money, prompt_text

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+!|~&])")
_TICKS = re.compile(r"`{3,}")
_GONE = "(not in the ledger any more)"


def page(found: ExportedRun) -> str:
    """The run, and below it the runs nested in it."""
    return "\n\n".join(_run(found)) + "\n"


def _run(found: ExportedRun) -> Iterator[str]:
    yield f"# Run `{found.run.run_id}`"
    yield _table(("", ""), _facts(found))
    yield from _question(found)
    yield from _answer(found)
    for seen in found.rounds:
        yield from _round(found, seen)
    yield from _steps(found)
    yield from _receipt(found)
    for inner in found.nested:
        yield from _run(inner)


def _facts(found: ExportedRun) -> list[tuple[str, ...]]:
    run, request = found.run, found.run.request
    told = [
        ("status", run.status),
        ("asked", when(run.created_at)),
        ("strategy", request.strategy),
        ("workers", ", ".join(f"{card.name} ({card.model})" for card in run.pool)),
        ("planner", f"{run.planner.name} ({run.planner.model})" if run.planner else ""),
        ("step of run", run.parent_id or ""),
        ("follows run", request.follow_up or ""),
    ]
    return [(name, inline(value)) for name, value in told if value]


def _question(found: ExportedRun) -> Iterator[str]:
    request = found.run.request
    yield "## Question"
    yield fenced(request.question)
    if request.earlier:
        yield "What came before:"
        yield fenced(request.earlier)
    for file in request.files:
        yield f"### File {inline(file.name)}, {count(file.bytes, 'byte')}"
        yield fenced(file.text)


def _answer(found: ExportedRun) -> Iterator[str]:
    run = found.run
    if run.answer is not None:
        yield "## Answer"
        if run.answer_step is not None:
            yield f"The reply of step {run.answer_step}."
        yield fenced(run.answer)
    if run.notes:
        yield "\n".join(f"- {inline(note)}" for note in run.notes)
    if run.error:
        yield f"No answer: {inline(run.error.message)}"


def _round(found: ExportedRun, seen: ProposedRound) -> Iterator[str]:
    proposal = seen.proposal
    if not isinstance(proposal.next, Plan):
        return
    yield f"## Plan {seen.number}"
    yield f"{SOURCES[proposal.source].capitalize()}."
    yield "\n".join(_planned(proposal.next))
    if proposal.refused:
        yield "\n".join(f"- Refused as a plan: {inline(why)}" for why in proposal.refused)
    if proposal.source == "model":
        yield "As it was written:"
        yield fenced(proposal.raw_text)
    planning = [call for call in found.calls if call.step is None and call.round == seen.number]
    for call in planning:
        yield f"### Asked for plan {seen.number}: {inline(call.worker)}, {_ended(call)}"
        yield from _exchange(found, call)


def _planned(plan: Plan) -> Iterator[str]:
    for number, step in plan.numbered():
        yield f"- **{number}** {inline(step.worker)}{reads(plan, number)}: {inline(step.subtask)}"


def _steps(found: ExportedRun) -> Iterator[str]:
    if found.steps:
        yield "## Steps"
    plans = [seen.proposal.next for seen in found.rounds if isinstance(seen.proposal.next, Plan)]
    newest = {step.number: step.version for step in found.steps}
    for step in found.steps:
        version = f", version {step.version}" if newest[step.number] or step.version else ""
        by = f"{inline(step.worker)}{_reads(plans, step)}"
        yield f"### Step {step.number}{version}: {by}, {step.status}"
        yield from _step(found, step)


def _reads(plans: Sequence[Plan], step: StepResult) -> str:
    return next((reads(plan, step.number) for plan in plans if step.number in plan.numbers), "")


def _step(found: ExportedRun, step: StepResult) -> Iterator[str]:
    if step.finished:
        yield f"{step.seconds:.1f} s, {spent(step.usage)}"
    told = [f"{failed.worker} failed: {failed.message}" for failed in step.failures]
    told += [
        f"cut to fit: {cut.part}, {cut.sent:,} of {count(cut.given, 'character')} sent"
        for cut in step.cuts
    ]
    told += [f"done by run {step.nested_run}"] if step.nested_run else []
    if told:
        yield "\n".join(f"- {inline(line)}" for line in told)
    yield "Subtask:"
    yield fenced(step.subtask)
    if step.prompt:
        yield "Prompt:"
        yield fenced(_prompt(found, step.prompt))
    if step.reply:
        yield "Reply:"
        yield fenced(step.reply)
    for call in found.calls:
        # What was said beside the step's own prompt and reply.
        if (call.step, call.version) == (step.number, step.version):
            yield from _beside(found, step, call)


def _beside(found: ExportedRun, step: StepResult, call: CallRecord) -> Iterator[str]:
    if call.prompt != step.prompt:
        yield f"Prompt to {inline(call.worker)}, {_ended(call)}:"
        yield fenced(_prompt(found, call.prompt))
    if call.reasoning:
        yield f"Reasoning of {inline(call.worker)}:"
        yield fenced(found.texts.get(call.reasoning) or _GONE)


def _exchange(found: ExportedRun, call: CallRecord) -> Iterator[str]:
    yield "Prompt:"
    yield fenced(_prompt(found, call.prompt))
    if call.reasoning:
        yield "Reasoning:"
        yield fenced(found.texts.get(call.reasoning) or _GONE)


def _ended(call: CallRecord) -> str:
    return f"failed ({call.error.code})" if call.error else call.status


def _prompt(found: ExportedRun, sha: str) -> str:
    stored = found.texts.get(sha)
    if stored is None:
        return _GONE
    try:
        return prompt_text(stored)
    except ValidationError:
        return f"(damaged in the ledger) {stored}"


def _receipt(found: ExportedRun) -> Iterator[str]:
    paid = found.receipt
    yield "## Receipt"
    rows = [("planning", "", "", "", spent(paid.planning))]
    rows += [
        (f"step {line.step}", inline(line.worker), line.status, f"{line.seconds:.1f} s",
         spent(line.usage))
        for line in paid.steps
    ]  # fmt: skip
    total = ("**total**", "", "", f"{paid.seconds:.1f} s", spent(paid.total))
    yield _table(("", "worker", "status", "time", "used"), [*rows, total])
    if found.calls:
        yield "### Requests to models"
        head = ("for", "worker", "model", "status", "in", "out", "price", "time")
        yield _table(head, map(_call, found.calls))
    read = [
        f"- {inline(line.name)}: {line.bytes_sent:,} of {count(line.bytes_given, 'byte')} read"
        for line in paid.inputs
    ]
    if read:
        yield "\n".join(read)


def _call(call: CallRecord) -> tuple[str, ...]:
    return (
        f"plan {call.round}" if call.step is None else f"step {call.step}",
        inline(call.worker),
        inline(call.served_by or call.model),
        _ended(call),
        f"{call.usage.input_tokens:,}",
        f"{call.usage.output_tokens:,}",
        money(call.usage.cost_usd),
        f"{call.seconds:.1f} s",
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def inline(text: str) -> str:
    """*text* on one line, with nothing in it that Markdown would take for its own."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def fenced(text: str) -> str:
    """*text* as it is, in a fence longer than any in it."""
    longest = max((len(found) for found in _TICKS.findall(text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}text\n{text.rstrip()}\n{fence}"
