"""`podium runs`: the ledger as a list, by date, status and words."""

from collections.abc import Sequence
from typing import get_args

import anyio
import click

from podium.cli.compose import open_ledger
from podium.cli.invocation import Invocation, pass_invocation
from podium.cli.ranges import Whole
from podium.cli.saying import say
from podium.cli.wording import as_json, one_line, put, put_json, spent, table, when
from podium.inputs import read_moment
from podium.trace import RunStatus, RunSummary
from podium_workers.worker import Frozen

_MANY = 1000
"""Hits that are looked through when a search is narrowed by more than date."""


def _moment(ctx: click.Context, option: click.Parameter, value: str | None) -> float | None:
    """A date as Unix time; a day given with --until counts to its end."""
    try:
        return None if value is None else read_moment(value, end=option.name == "until")
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


class Wanted(Frozen):
    """Which runs to list."""

    limit: int
    since: float | None
    until: float | None
    status: RunStatus | None
    search: str
    nested: bool


class Line(Frozen):
    """A run of the list, and where the words were found in it."""

    summary: RunSummary
    snippet: str = ""


@click.command(
    epilog="""\b
Examples:
  podium runs
  podium runs --status failed --since 7d
  podium runs --search "rate limit" --limit 5
  podium runs --since 2026-11-01 --until 2026-11-30 --json"""
)
@click.option(
    "--limit", type=Whole(1, 10_000), default=20, show_default=True, metavar="N",
    help="Runs at most.",
)  # fmt: skip
@click.option(
    "--since", callback=_moment, metavar="DATE", help="From this date on, or 12h, 7d, 2w ago."
)
@click.option(
    "--until", callback=_moment, metavar="DATE", help="Up to this date, the day included."
)
@click.option("--status", type=click.Choice(get_args(RunStatus)), help="Only runs of this status.")
@click.option(
    "--search", default="", metavar="WORDS",
    help="Words in question, answer, subtasks or replies; quotes keep words together.",
)  # fmt: skip
@click.option("--nested", is_flag=True, help="Also runs that are steps of other runs.")
@click.option("--json", "json_", is_flag=True, help="A list of objects on stdout.")
@pass_invocation
def runs(invocation: Invocation, *, json_: bool, **given: object) -> None:
    """List runs, newest first."""
    wanted = Wanted.model_validate(given)
    found = anyio.run(_find, invocation, wanted)
    if not found:
        say(_nothing(invocation, wanted))
    if json_:
        put_json([as_json(line.summary) | _snippet(line, wanted) for line in found])
    elif found:
        put(_text(found), one_row=True)


async def _find(invocation: Invocation, wanted: Wanted) -> tuple[Line, ...]:
    settings = invocation.settings
    if not settings.store.exists():
        return ()
    mine, since, until = settings.principal, wanted.since, wanted.until
    async with open_ledger(settings) as store:
        if not wanted.search.strip():
            found = await store.summaries(
                principal=mine,
                limit=wanted.limit,
                since=since,
                until=until,
                status=wanted.status,
                nested=None if wanted.nested else False,
            )
            return tuple(Line(summary=summary) for summary in found)
        narrowed = wanted.status or not wanted.nested
        limit = _MANY if narrowed else wanted.limit
        hits = await store.search(
            wanted.search, principal=mine, since=since, until=until, limit=limit
        )
        lines = [
            Line(summary=hit.summary, snippet=hit.snippet)
            for hit in hits
            if wanted.status in (None, hit.summary.status)
            and (wanted.nested or hit.summary.parent_id is None)
        ]
        return tuple(lines[: wanted.limit])


def _nothing(invocation: Invocation, wanted: Wanted) -> str:
    if wanted.search.strip() or wanted.since or wanted.until or wanted.status:
        return "No run fits."
    return f'The ledger {invocation.settings.store} holds no runs yet; podium ask "…" makes one.'


def _snippet(line: Line, wanted: Wanted) -> dict[str, object]:
    return {"snippet": line.snippet} if wanted.search.strip() else {}


def _text(found: Sequence[Line]) -> str:
    rows = [_row(line.summary) for line in found]
    head = ("run", "when", "status", "policy", "plan", "steps", "time", "used", "question")
    snippets = [[one_line(line.snippet, 200)] if line.snippet else [] for line in found]
    return table(head, rows, snippets)


def _row(run: RunSummary) -> tuple[str, ...]:
    plan = run.plan_source or "none"
    return (
        run.run_id,
        when(run.created_at),
        run.status,
        run.policy,
        f"{plan}, fallback" if run.fallback and plan != "fallback" else plan,
        str(run.steps),
        f"{run.seconds:.1f} s",
        spent(run.usage),
        one_line(run.question, 80),
    )
