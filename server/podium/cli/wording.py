"""How results are written for people: tables, figures, JSON."""

import json
import shutil
import sys
import time
from collections.abc import Sequence
from itertools import zip_longest

import click

from podium.cli.saying import printable
from podium.views import money
from podium_workers.worker import Frozen, Usage


def one_line(text: str, width: int) -> str:
    """*text* on one line of at most *width* characters."""
    return clip(" ".join(printable(text).split()), width)


def put(text: str, *, one_row: bool = False) -> None:
    """A result, to stdout: as it is into a pipe, harmless on a terminal.

    With *one_row* no line of it takes more than one row of a terminal.
    """
    if not sys.stdout.isatty():
        click.echo(text)
        return
    columns = shutil.get_terminal_size().columns
    lines = printable(text).split("\n")
    click.echo("\n".join(clip(line, columns) if one_row else line for line in lines))


def clip(line: str, width: int) -> str:
    """The beginning of *line* that fits into so many characters, with a mark if it is cut."""
    return line if len(line) <= width else f"{line[: width - 1]}…"


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


def table(
    head: Sequence[str], rows: Sequence[Sequence[str]], below: Sequence[Sequence[str]] = ()
) -> str:
    """Rows under their heads, in columns as wide as they must be; the last one is not padded.

    *below* has for each row the lines that stand under it, if any.
    """
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    widths[-1] = 0
    lines: list[str] = []
    for row, more in zip_longest((head, *rows), ((), *below), fillvalue=()):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        lines.append("  ".join(cells).rstrip())
        lines += [f"    {line}" for line in more]
    return "\n".join(lines)
