"""Shows a job while it runs: redrawn in a terminal, a line for each iteration elsewhere."""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress

from rich.console import Console
from rich.live import Live
from rich.text import Text

from podium.cli.saying import printable
from podium_lab.train.curves import WIDTH
from podium_lab.train.errors import TrainingError
from podium_lab.train.records import Records
from podium_lab.train.status import line, outcome, status
from podium_lab.train.trinity.shown import line as generation_line

EVERY_S = 1.0
"""Seconds between looks at the records."""
_AROUND = 60
"""Characters of a line of the status beside its curve."""

Pause = Callable[[], None]


def follow(records: Records, console: Console, *, pause: Pause | None = None) -> None:
    """Show a job until it has ended, or until Ctrl-C; what is there already is shown first.

    *pause* waits between looks.

    Raises:
        TrainingError: there is no job in the folder.
    """
    records.begun()
    wait = pause or (lambda: time.sleep(EVERY_S))
    with suppress(KeyboardInterrupt):
        if console.is_terminal:
            _redraw(records, console, wait)
        else:
            _print(records, console, wait)


def _redraw(records: Records, console: Console, wait: Pause) -> None:
    width = max(10, min(WIDTH, console.width - _AROUND))
    with Live(console=console, auto_refresh=False, vertical_overflow="visible") as live:
        for _ in _changes(records, wait):
            # A job that begins again rewrites its records one by one.
            with suppress(TrainingError):
                shown = "\n".join(status(records, width=width))
                live.update(Text(printable(shown), overflow="fold"), refresh=True)


def _print(records: Records, console: Console, wait: Pause) -> None:
    told = 0
    for _ in _changes(records, wait):
        lines = _lines(records)
        if lines and max(lines) < told:  # it went on from an earlier checkpoint
            told = max(lines)
        for number in sorted(lines.keys() - range(told + 1)):
            _say(lines[number], console)
            told = number
    _say(outcome(records), console)


def _lines(records: Records) -> dict[int, str]:
    """A line for each iteration, or each generation, by its number."""
    iterations = {step.iteration: line(step) for step in records.steps()}
    generations = {it.number: generation_line(it) for it in records.generations()}
    return iterations or generations


def _say(text: str, console: Console) -> None:
    console.print(printable(text), markup=False, highlight=False, soft_wrap=True)


def _changes(records: Records, wait: Pause) -> Iterator[None]:
    """One for what is there, one for each change, one for the end."""
    before: object = None
    while True:
        done = records.ended() is not None
        now = records.marks()
        if now != before or done:
            yield
        if done:
            return
        before = now
        wait()
