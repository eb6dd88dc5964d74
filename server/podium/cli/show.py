"""`podium show`: everything that the ledger has of one run."""

from collections.abc import Mapping
from datetime import datetime

import anyio
import click
from pydantic import ValidationError

from podium.cli.compose import open_ledger
from podium.cli.invocation import Invocation, pass_invocation
from podium.cli.plan import SOURCES
from podium.cli.progress import reads
from podium.cli.record import Record, record
from podium.cli.wording import as_json, count, put, put_json, spent, table
from podium.plan import Plan
from podium.receipt import StepLine
from podium.store import Store
from podium.trace import CallRecord, Round, Run, StepResult
from podium.views import prompt_text
from podium_workers.worker import Frozen


class Shown(Frozen):
    """A run with all that belongs to it."""

    run: Run
    record: Record
    rounds: tuple[Round, ...]
    calls: tuple[CallRecord, ...]
    prompts: dict[str, str]
    """Prompts as people read them, by hash; empty when nobody asked for them."""


@click.command(
    epilog="""\b
Examples:
  podium show 6a53c0
  podium show 6a53c0 --prompts | less
  podium show 6a53c0 --no-replies
  podium show 6a53c0 --json > run.json"""
)
@click.argument("run_id", metavar="RUN")
@click.option("--prompts", is_flag=True, help="Also every prompt, as it was sent.")
@click.option("--replies/--no-replies", default=True, help="Whether to show what workers replied.")
@click.option("--json", "json_", is_flag=True, help="One JSON object on stdout.")
@pass_invocation
def show(invocation: Invocation, *, run_id: str, prompts: bool, replies: bool, json_: bool) -> None:
    """Show all that is known of a run.

    Its question, its plans as they were written and as they are run, its steps, its answer and
    its receipt.
    """
    found = anyio.run(_look, invocation, run_id, prompts)
    if json_:
        put_json(_data(found, replies=replies))
    else:
        put("\n".join(_text(found, replies=replies)))


async def _look(invocation: Invocation, run_id: str, prompts: bool) -> Shown:
    settings = invocation.settings
    async with open_ledger(settings) as store:
        run = await store.run(run_id, principal=settings.principal)
        calls = await store.calls(run.run_id)
        return Shown(
            run=run,
            record=await record(store, run),
            rounds=await store.rounds(run.run_id),
            calls=calls,
            prompts=await _prompts(store, calls) if prompts else {},
        )


async def _prompts(store: Store, calls: tuple[CallRecord, ...]) -> dict[str, str]:
    return {call.prompt: _readable(await store.text(call.prompt)) for call in calls}


def _readable(stored: str) -> str:
    try:
        return prompt_text(stored)
    except ValidationError:
        return f"(damaged in the ledger) {stored}"


def _data(found: Shown, *, replies: bool) -> dict[str, object]:
    hidden = set[str]() if replies else {"reply"}
    results = [result for seen in found.rounds for result in seen.results]
    return as_json(found.record) | {
        "created_at": found.run.created_at,
        "files": [{"name": file.name, "bytes": file.bytes} for file in found.run.request.files],
        "proposals": [as_json(seen.proposal) for seen in found.rounds],
        "steps": [result.model_dump(mode="json", exclude=hidden) for result in results],
        "calls": [as_json(call) for call in found.calls],
        "prompts": found.prompts,
    }


def _text(found: Shown, *, replies: bool) -> list[str]:
    run = found.run
    request = run.request
    asked = datetime.fromtimestamp(run.created_at).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")
    lines = [f"Run {run.run_id}: {run.status}, asked {asked}, strategy {request.strategy}"]
    if run.parent_id:
        lines.append(f"A step of run {run.parent_id}")
    if request.follow_up:
        lines.append(f"Follows run {request.follow_up}")
    if run.forked_from:
        lines.append(f"A fork of run {run.forked_from}")
    lines += _section("Question", request.question)
    lines += [f"  with {file.name}, {count(file.bytes, 'byte')}" for file in request.files]
    for seen in found.rounds:
        lines += _round(seen, found, replies=replies)
    if run.answer is not None:
        lines += _section(f"Answer (step {run.answer_step})", run.answer)
    lines += [f"Note: {note}" for note in run.notes]
    if run.error:
        lines.append(f"Error: {run.error.message}")
    return [*lines, *_receipt(found.record)]


def _round(seen: Round, found: Shown, *, replies: bool) -> list[str]:
    proposal = seen.proposal
    if seen.plan is None:
        return []
    lines: list[str] = []
    for call in found.calls:
        if call.step is None and call.round == seen.number and call.prompt in found.prompts:
            lines += _section(
                f"Prompt for plan {seen.number} to {call.worker}", found.prompts[call.prompt]
            )
    lines += [f"\nRefused as a plan: {why}" for why in proposal.refused]
    if proposal.source == "model":
        by = f" by {proposal.worker}" if proposal.worker else ""
        lines += _section(f"Plan {seen.number} as it was written{by}", proposal.raw_text.strip())
    lines += _section(
        f"Plan {seen.number} as it is run, {SOURCES[proposal.source]}", _plan(seen.plan)
    )
    by_number = {result.number: result for result in seen.results}
    for number in seen.plan.numbers:
        lines += _step(seen.plan, number, by_number, found, replies=replies)
    return lines


def _plan(plan: Plan) -> str:
    return "\n".join(
        f"{number} {step.worker}{reads(plan, number)}: {step.subtask}"
        for number, step in plan.numbered()
    )


def _step(
    plan: Plan,
    number: int,
    results: Mapping[int, StepResult],
    found: Shown,
    *,
    replies: bool,
) -> list[str]:
    result = results.get(number)
    if result is None:
        return [f"\nStep {number}: not done yet"]
    took = f", {result.seconds:.1f} s, {spent(result.usage)}" if result.finished else ""
    lines = [f"\nStep {number}: {result.worker}{reads(plan, number)}, {result.status}{took}"]
    lines += [f"  {failed.worker} failed: {failed.message}" for failed in result.failures]
    lines += [
        f"  cut to fit: {cut.part}, {cut.sent:,} of {count(cut.given, 'character')} sent"
        for cut in result.cuts
    ]
    if result.nested_run:
        lines.append(f"  done by run {result.nested_run}")
    if result.taken_from:
        lines.append(f"  taken over from run {result.taken_from}, which paid for it")
    if result.prompt in found.prompts:
        lines += _section(f"Prompt of step {number}", found.prompts[result.prompt])
    if replies and result.reply:
        lines += _section(f"Reply of step {number}", result.reply)
    return lines


def _section(head: str, text: str) -> list[str]:
    return [f"\n{head}", *(f"  {line}".rstrip() for line in text.splitlines())]


def _receipt(found: Record) -> list[str]:
    paid = found.receipt
    rows = [("planning", "", "", "", spent(paid.planning)), *map(_receipt_row, paid.steps)]
    total = ("total", "", "", f"{paid.seconds:.1f} s", spent(paid.total))
    lines = [
        "\nReceipt",
        *_indented(table(("", "worker", "status", "time", "used"), [*rows, total])),
    ]
    read = [
        f"  {line.name}: {line.bytes_sent:,} of {count(line.bytes_given, 'byte')} read"
        for line in paid.inputs
    ]
    return [*lines, *read]


def _receipt_row(line: StepLine) -> tuple[str, ...]:
    return (
        f"step {line.step}",
        line.worker,
        line.status,
        f"{line.seconds:.1f} s",
        spent(line.usage),
    )


def _indented(text: str) -> list[str]:
    return [f"  {line}" for line in text.splitlines()]
