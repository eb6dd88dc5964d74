"""`podium token`: who may call `podium serve --http`, and in whose name."""

from datetime import UTC, datetime, timedelta

import click

from podium.cli.invocation import Invocation, pass_invocation
from podium.cli.ranges import Whole
from podium.cli.saying import say
from podium.cli.wording import count, put, put_json, table, when
from podium.credentials import Token, TokenFile

_MOST_DAYS = 36_500


@click.group(
    epilog="""\b
Examples:
  podium token add anna --days 90
  podium token list
  podium token remove anna"""
)
def token() -> None:
    """Make, list and remove the tokens of people who call `podium serve --http`.

    Each name is a user of its own, who sees no runs but his. A running server heeds every change.
    """


@token.command(
    epilog="""\b
Examples:
  podium token add anna
  podium token add ci --days 30"""
)
@click.argument("name", metavar="NAME")
@click.option("--days", type=Whole(1, _MOST_DAYS), metavar="N", help="How long it is valid.")
@pass_invocation
def add(invocation: Invocation, *, name: str, days: int | None) -> None:
    """Print a new token for NAME, once; only its hash is kept.

    A second one for the same name is valid beside the first, so that one can take its place. The
    name of the setting `principal` shares the runs of this machine's own user.
    """
    file = _file(invocation)
    put(file.add(name, timedelta(days=days) if days else None))
    until = f"for {count(days, 'day')}" if days else "until it is removed"
    say(f"Valid {until}; send it as the header: Authorization: Bearer TOKEN")
    say("It cannot be shown again. `podium token remove` takes it back.")


@token.command("list")
@click.option("--json", "json_", is_flag=True, help="A list of objects on stdout.")
@pass_invocation
def list_(invocation: Invocation, *, json_: bool) -> None:
    """List the tokens: whose they are and how long they are valid, never their texts."""
    found = _file(invocation).read()
    if json_:
        put_json([_data(token) for token in found])
    elif found:
        put(table(("name", "id", "made", "valid until"), [_row(token) for token in found]))
    else:
        say("There are no tokens; `podium token add NAME` makes one.")


@token.command(epilog="\b\nExamples:\n  podium token remove anna\n  podium token remove 3f9a01bc")
@click.argument("which", metavar="NAME|ID")
@pass_invocation
def remove(invocation: Invocation, *, which: str) -> None:
    """Take back all tokens of NAME, or the one with that ID; runs stay."""
    file = _file(invocation)
    removed = file.remove(which)
    say(f"Removed {count(len(removed), 'token')} of {removed[0].name}.")
    if not file.read():
        say(f"No token is left, and none lets nobody in; to ask for none any more: rm {file.path}")


def _file(invocation: Invocation) -> TokenFile:
    return TokenFile(invocation.settings.tokens_file)


def _data(token: Token) -> dict[str, object]:
    return {"id": token.id, **token.model_dump(mode="json", exclude={"sha256"})}


def _row(token: Token) -> tuple[str, ...]:
    return token.name, token.id, when(token.created.timestamp()), _until(token)


def _until(token: Token) -> str:
    if token.expires is None:
        return "it is removed"
    until = when(token.expires.timestamp())
    return until if token.is_valid(datetime.now(UTC)) else f"{until} (expired)"
