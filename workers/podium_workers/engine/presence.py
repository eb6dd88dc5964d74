"""Who uses the engine: the processes that hold it and the calls that run."""

from collections.abc import Generator
from contextlib import contextmanager
from itertools import count

import anyio


class Presence:
    """Counts users, and knows for how long there have been none."""

    def __init__(self) -> None:
        self._limits: dict[int, int] = {}
        self._numbers = count()
        self._calls = 0
        self._last_limit: int | None = None
        self._since = anyio.current_time()
        self.had_users = False
        """Whether anybody has come yet."""
        self.closed = False
        """Set when the engine ends: whoever comes now has to start another one."""

    @property
    def clients(self) -> int:
        return len(self._limits)

    @property
    def memory_limit(self) -> int | None:
        """The smallest limit, in bytes, among those of the clients; the last one without any."""
        return min(self._limits.values(), default=self._last_limit)

    @property
    def unused_s(self) -> float:
        """Seconds since the last user left; 0 while there are users."""
        busy = self._limits or self._calls
        return 0.0 if busy else anyio.current_time() - self._since

    @contextmanager
    def client(self, memory_limit: int) -> Generator[None]:
        """A process holds the engine for as long as the block runs."""
        number = next(self._numbers)
        self.had_users = True
        self._limits[number] = memory_limit
        try:
            yield
        finally:
            self._last_limit = self.memory_limit
            del self._limits[number]
            self._since = anyio.current_time()

    @contextmanager
    def call(self) -> Generator[None]:
        """A call runs for as long as the block does."""
        self._calls += 1
        try:
            yield
        finally:
            self._calls -= 1
            self._since = anyio.current_time()
