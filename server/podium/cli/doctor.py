"""`podium doctor`: what is installed, found and missing, and what to type next."""

import click

from podium.cli.check import Check, Level
from podium.cli.checks import examine
from podium.cli.client_checks import client_checks
from podium.cli.invocation import Invocation, pass_invocation
from podium.cli.saying import say
from podium.cli.wording import as_json, count, put, put_json

_MARKS: dict[Level, str] = {"ok": "ok  ", "note": "note", "problem": "FAIL"}


@click.command(
    epilog="""\b
Examples:
  podium doctor
  podium doctor --json
  podium --pool my-pool.toml doctor"""
)
@click.option("--json", "json_", is_flag=True, help="One JSON object on stdout.")
@pass_invocation
@click.pass_context
def doctor(ctx: click.Context, invocation: Invocation, *, json_: bool) -> None:
    """Look at the installation; sends nothing to any model.

    Exit code 1 when something is missing without which no question can be asked.
    """
    checks = [*examine(invocation), *client_checks(invocation)]
    problems = [check for check in checks if check.level == "problem"]
    if json_:
        put_json({"ok": not problems, "checks": [as_json(check) for check in checks]})
    else:
        put("\n".join(map(_line, checks)))
        say(_summary(len(problems)))
    ctx.exit(1 if problems else 0)


def _line(check: Check) -> str:
    line = f"{_MARKS[check.level]}  {check.area}: {check.found}"
    return f"{line}\n        -> {check.remedy}" if check.remedy else line


def _summary(problems: int) -> str:
    if problems:
        return f"{count(problems, 'thing')} must be mended first."
    return 'Ready: podium ask "…"'
