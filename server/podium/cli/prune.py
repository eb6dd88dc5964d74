"""`podium prune`: old runs leave the ledger, after a look at which they are."""

import sys
import time
from functools import partial
from typing import cast, get_args

import anyio
import click

from podium.cli.invocation import Invocation, pass_invocation
from podium.cli.ranges import as_bytes
from podium.cli.saying import say
from podium.cli.signals import stoppable
from podium.cli.wording import as_json, count, one_line, put, put_json, size, table, when
from podium.inputs import read_moment
from podium.pruning import UNTOUCHED_S, OldRun, Wanted
from podium.trace import RunStatus
from podium.upkeep import RUNS_AT_ONCE, Pruned, Survey, survey
from podium.upkeep import prune as prune_runs

_SHOWN = 20
"""Runs that are listed before the rest is only counted."""
_REMOVABLE = tuple(status for status in get_args(RunStatus) if status != "running")


def _moment(ctx: click.Context, option: click.Parameter, value: str | None) -> float | None:
    try:
        return None if value is None else read_moment(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command(
    epilog="""\b
Examples:
  podium prune --older-than 30d --dry-run
  podium prune --older-than 2026-01-01
  podium prune --keep-size 500MB --yes
  podium prune --older-than 7d --status failed --status stopped"""
)
@click.option(
    "--older-than", "before", callback=_moment, metavar="AGE",
    help="Runs for which nothing was done since: 30d, 12h, 2w, or a date.",
)  # fmt: skip
@click.option(
    "--keep-size", "keep_bytes", callback=as_bytes, metavar="SIZE",
    help="The oldest runs, until the ledger takes no more than this: 500MB, 2GB.",
)  # fmt: skip
@click.option(
    "--status", "statuses", multiple=True, type=click.Choice(_REMOVABLE),
    help="Only runs of this status; can be given several times.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Only show what would go.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--json", "json_", is_flag=True, help="One JSON object on stdout.")
@pass_invocation
@click.pass_context
def prune(
    ctx: click.Context,
    invocation: Invocation,
    *,
    before: float | None,
    keep_bytes: int | None,
    statuses: tuple[str, ...],
    dry_run: bool,
    yes: bool,
    json_: bool,
) -> None:
    """Remove old runs, with their steps, prompts and replies.

    With both limits, both hold afterwards. Runs at work always stay, and so do those for which
    something was done in the last 60 seconds. Runs that wait for you, and
    those whose process died, stay unless --status names them (needs_caller, interrupted). What was
    spent on each day is kept.
    """
    if before is None and keep_bytes is None:
        raise click.UsageError("Say which runs: --older-than AGE, --keep-size SIZE, or both.")
    settings = invocation.settings
    wanted = Wanted(
        principal=settings.principal,
        before=before,
        keep_bytes=keep_bytes,
        statuses=cast("tuple[RunStatus, ...]", statuses),
    )
    seen = anyio.run(stoppable, partial(survey, settings.store, wanted))
    if dry_run:
        _show(seen, json_=json_)
        _tell_of_newest(before)
    elif not seen.runs or yes or _is_agreed(seen):
        work = partial(prune_runs, settings.store, wanted, told=partial(_told, len(seen.runs)))
        _report(seen, anyio.run(stoppable, work), keep_bytes, json_=json_)
        _tell_of_newest(before)
    else:
        say("Nothing was removed.")
        ctx.exit(1)


def _show(seen: Survey, *, json_: bool) -> None:
    if json_:
        put_json(as_json(seen) | {"freed": seen.freed})
    elif seen.runs:
        put(_listed(seen.runs), one_row=True)
    if not json_:
        say(_amount(seen))


def _tell_of_newest(before: float | None) -> None:
    """Says which runs stay, although they are older than was asked for."""
    if before is not None and before > time.time() - UNTOUCHED_S:
        say(
            f"Runs for which something was done in the last {UNTOUCHED_S:.0f} seconds stay; "
            "prune again a little later."
        )


def _listed(runs: tuple[OldRun, ...]) -> str:
    rows = [
        (run.run_id, when(run.last_at), run.status, size(run.bytes), one_line(run.question, 60))
        for run in runs[:_SHOWN]
    ]
    more = [f"… and {len(runs) - _SHOWN:,} more"] if len(runs) > _SHOWN else []
    return "\n".join([table(("run", "last worked on", "status", "size", "question"), rows), *more])


def _amount(seen: Survey) -> str:
    if not seen.runs:
        return f"No run fits; the ledger takes {size(seen.bytes)}."
    return f"{count(len(seen.runs), 'run')}, about {size(seen.freed)} of {size(seen.bytes)}."


def _is_agreed(seen: Survey) -> bool:
    if not sys.stdin.isatty():
        raise click.UsageError(f"{_amount(seen)} To remove them without being asked, add --yes.")
    say(_listed(seen.runs))
    return click.confirm(f"{_amount(seen)} Remove them for good?", err=True)


def _told(of: int, gone: int) -> None:
    """Says how far it is, where there is more than one part."""
    if of > RUNS_AT_ONCE:
        say(f"{gone:,} of {count(of, 'run')} removed")


def _report(seen: Survey, done: Pruned, keep_bytes: int | None, *, json_: bool) -> None:
    if json_:
        put_json(as_json(done) | {"bytes_before": seen.bytes})
    else:
        took = f" (it took {size(seen.bytes)})" if done.bytes != seen.bytes else ""
        put(f"Removed {count(done.runs, 'run')}; the ledger takes {size(done.bytes)}{took}.")
    is_final = done.compacted or not done.runs
    if is_final and keep_bytes is not None and done.bytes > keep_bytes:
        say(
            f"That is more than {size(keep_bytes)}: what is left is at work, a minute old at most, "
            "or has to be named with --status."
        )
    if done.runs and not done.compacted:
        say(
            "Another process has the ledger open, so that its file keeps its size; new runs use "
            "the room. To shrink the file, end every Podium and prune again."
        )
