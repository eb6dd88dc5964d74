"""Reading the ledger beside the one thread that writes it. Knows nothing of what is read."""

import sqlite3
from collections.abc import Callable
from functools import partial
from typing import Protocol, TypeVar

import anyio
import anyio.to_thread

from podium import database

T = TypeVar("T")


class Reader(Protocol):
    """Gives reading its turn."""

    async def do(self, work: Callable[[sqlite3.Connection], T]) -> T: ...


class FileReader:
    """Reads through a connection of its own, so that reading never waits for a commit."""

    def __init__(self, connection: sqlite3.Connection, path: str) -> None:
        self._connection = connection
        self._path = path
        self._one_at_a_time = anyio.CapacityLimiter(1)

    async def do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """What *work* reads, all of it as of one moment."""
        read = partial(self._read, work)
        return await anyio.to_thread.run_sync(read, limiter=self._one_at_a_time)

    def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            self._connection.execute("BEGIN")
            try:
                return work(self._connection)
            finally:
                database.roll_back(self._connection)
        except sqlite3.Error as error:
            raise database.explain(error, self._path) from error
