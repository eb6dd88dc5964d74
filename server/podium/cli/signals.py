"""Signals that end a process: SIGTERM and SIGHUP stop the work in hand, as Ctrl-C does."""

import signal
import sys
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

T = TypeVar("T")


class Stopped(Exception):
    """A signal has ended the work; *number* says which."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by signal {number}")
        self.number = number


def ending_signals() -> tuple[signal.Signals, ...]:
    """Those that can be waited for here; none on Windows, no SIGHUP below `nohup`."""
    if sys.platform == "win32":
        return ()
    ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    return (signal.SIGTERM,) if ignored else (signal.SIGTERM, signal.SIGHUP)


async def stoppable(work: Callable[[], Awaitable[T]]) -> T:
    """What *work* gives; a signal that ends the process cancels it first.

    Raises:
        Stopped: within an exception group, when a signal came.
    """
    found: list[T] = []
    async with anyio.create_task_group() as group:
        group.start_soon(_raise_on_signal)
        found.append(await work())
        group.cancel_scope.cancel()
    return found[0]


async def _raise_on_signal() -> None:
    if not (awaited := ending_signals()):
        return
    with anyio.open_signal_receiver(*awaited) as signals:
        async for number in signals:
            raise Stopped(number)
