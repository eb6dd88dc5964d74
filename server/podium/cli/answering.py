"""How `ask` and `resume` end: the answer on stdout, what belongs to it on stderr, an exit code."""

import click

from podium.cli.record import Record
from podium.cli.saying import say
from podium.cli.wording import as_json, count, put, put_json, spent
from podium.errors import RunError

WAITS_FOR_USER = 3
"""Exit code when a step has to be done, or the plan approved, by the user."""


def finish(ctx: click.Context, found: Record, *, json_: bool, quiet: bool) -> None:
    """Show the end of a run.

    Raises:
        RunError: there is no answer, and nobody is waited for.
    """
    if json_:
        put_json(as_json(found))
    elif found.answer is not None:
        put(found.answer)
    _tell(found, quiet=quiet)
    ctx.exit(WAITS_FOR_USER if found.status in ("needs_caller", "planned") else 0)


def _tell(found: Record, *, quiet: bool) -> None:
    if not quiet:
        say(receipt_line(found))
    for note in found.notes:
        say(f"Note: {note}")
    for waiting in found.waiting:
        say(f"Step {waiting.step} is yours: {waiting.ask}")
    if found.status == "needs_caller":
        first = found.waiting[0].step if found.waiting else 0
        say(f"Give your result:  podium step {found.run_id} {first} --result @FILE")
        say(f"Then go on:        podium resume {found.run_id}")
    elif found.status == "planned":
        say(f"The plan waits for your yes:  podium resume {found.run_id}")
    elif found.status not in ("finished", "partial"):
        why = found.error.message if found.error else f"The run is {found.status}."
        at_limit = found.error is not None and found.error.code == "limit"
        then = "goes on with a higher limit" if at_limit else "tries again"
        raise RunError(f"{why} (`podium resume {found.run_id}` {then}.)")


def receipt_line(found: Record) -> str:
    """What a run cost, on one line."""
    paid = found.receipt
    return (
        f"run {found.run_id}: {count(len(paid.steps), 'step')}, {paid.seconds:.1f} s, "
        f"{spent(paid.total)}"
    )
