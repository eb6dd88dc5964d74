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
from podium_lab.train.watch import Step

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
        steps = records.steps()
        if steps and steps[-1].iteration < told:  # it went on from an earlier checkpoint
            told = steps[-1].iteration
        told = _tell([step for step in steps if step.iteration > told], console) or told
    _say(outcome(records), console)


def _tell(steps: list[Step], console: Console) -> int:
    """Print steps; the number of the last one, 0 of none."""
    for step in steps:
        _say(line(step), console)
    return steps[-1].iteration if steps else 0


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
