"""How results are written for people: tables, figures, and text that cannot steer a terminal."""

import json
import re
import sys
import time
from collections.abc import Sequence

import click

from podium.trace import Run, RunStatus
from podium.views import money
from podium_workers.worker import Frozen, Usage

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Everything that a terminal could take as an order, tabs and line ends excepted."""


def printable(text: str) -> str:
    """*text* without control characters: what a model wrote must not steer a terminal."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n"))


def one_line(text: str, width: int) -> str:
    """*text* on one line of at most *width* characters."""
    flat = " ".join(printable(text).split())
    return flat if len(flat) <= width else f"{flat[: width - 1]}…"


def put(text: str) -> None:
    """A result, to stdout: as it is into a pipe, harmless on a terminal."""
    click.echo(printable(text) if sys.stdout.isatty() else text)


def put_json(value: object) -> None:
    """A result as JSON, to stdout."""
    click.echo(json.dumps(value, ensure_ascii=False, indent=2))


def as_json(model: Frozen) -> dict[str, object]:
    """A model as JSON values."""
    return model.model_dump(mode="json")


def spent(usage: Usage) -> str:
    """Tokens and price."""
    tokens = usage.input_tokens + usage.output_tokens
    return f"{count(tokens, 'token')}, {money(usage.cost_usd)}"


def count(number: int, what: str) -> str:
    """A number of things, in the right form."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def size(number_of_bytes: int) -> str:
    """An amount of bytes."""
    if number_of_bytes < 1_000_000:
        return f"{number_of_bytes / 1000:,.0f} kB"
    if number_of_bytes < 10_000_000_000:
        return f"{number_of_bytes / 1_000_000:,.0f} MB"
    return f"{number_of_bytes / 1_000_000_000:,.0f} GB"


def when(unix_time: float) -> str:
    """A moment in local time."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(unix_time))


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Rows under their heads, in columns as wide as they must be; the last one is not padded."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    widths[-1] = 0
    lines = (
        "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in (head, *rows)
    )
    return "\n".join(line.rstrip() for line in lines)


_GO_ON: dict[RunStatus, str] = {
    "planned": "podium ask --resume {id}",
    "stopped": "podium ask --resume {id}",
    "interrupted": "podium ask --resume {id}",
    "failed": "podium ask --resume {id}",
    "running": "podium show {id}",
}


def next_command(run: Run) -> str:
    """What to type to go on with a run; empty when it is done or a step waits for the user."""
    return _GO_ON.get(run.status, "").format(id=run.run_id)
