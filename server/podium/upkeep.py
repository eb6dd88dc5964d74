"""Removing old runs from the ledger, and giving the room back that they took.

Opens the file for itself; other processes may go on using it. When the caller is cancelled, the
statement in hand is given up and undone.
"""

import contextlib
import sqlite3
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import anyio.from_thread
import anyio.to_thread

from podium import pruning
from podium.backup import BUSY_S, given_up_when_cancelled, reading
from podium.database import connect, explain, roll_back
from podium.migrations import check_shape, migrate
from podium.pruning import OldRun, Room, Wanted
from podium_workers.worker import Frozen

T = TypeVar("T")
Clock = Callable[[], float]
"""Gives Unix time."""
Told = Callable[[int], None]
"""Called on a thread with the number of runs removed so far."""

RUNS_AT_ONCE = 200
TEXTS_AT_ONCE = 2000
"""What goes in one transaction at most, so that other processes get their turn."""
_LONGEST_PAUSE_S = 0.1
_LOOSE = 0.1
"""Share of free room from which a ledger is rewritten although nothing was removed."""


class Survey(Frozen):
    """What pruning would do."""

    runs: tuple[OldRun, ...]
    """The runs that would go, the one that lay untouched longest first."""
    bytes: int
    """Size of the ledger now, without the room in it that is free already."""

    @property
    def freed(self) -> int:
        """About how many bytes the going of these runs frees."""
        return sum(run.bytes for run in self.runs)


class Pruned(Frozen):
    """What pruning has done."""

    runs: int
    """Runs removed, each with the runs that were its steps."""
    texts: int
    """Texts that nothing needed any more; None while runs were at work, which may need them."""
    compacted: bool
    """Whether the file was rewritten without the room that is free in it."""
    bytes: int
    """Size of the ledger now, without the room in it that is free."""


async def survey(path: Path, wanted: Wanted, *, clock: Clock = time.time) -> Survey:
    """What `prune` would remove now.

    Raises:
        StoreError: the ledger cannot be read.
    """
    return await anyio.to_thread.run_sync(_survey, path, wanted, clock)


async def prune(
    path: Path,
    wanted: Wanted,
    *,
    clock: Clock = time.time,
    told: Told | None = None,
) -> Pruned:
    """Remove the runs that `survey` names, the oldest first, and the texts that only they used.

    Bit by bit, so that others can use the ledger meanwhile; what is removed when it is broken off
    is gone, and the rest is whole. A run at work never goes. What was spent on a day is kept. At
    the end the file is rewritten without free room, unless another connection has it open, which
    that would hold up; with a size to be kept, more runs may then go until it is reached.

    Raises:
        StoreError: the ledger cannot be read or written.
    """
    return await anyio.to_thread.run_sync(_prune, path, wanted, clock, told)


def _survey(path: Path, wanted: Wanted, clock: Clock) -> Survey:
    with reading(path) as connection, given_up_when_cancelled(connection):
        connection.execute("BEGIN")
        check_shape(connection, str(path))
        runs = pruning.removable(connection, wanted, clock())
        return Survey(runs=runs, bytes=pruning.room(connection).used)


def _prune(path: Path, wanted: Wanted, clock: Clock, told: Told | None) -> Pruned:
    runs, texts = _remove_all(path, wanted, clock, told, 0)
    room = _room(path)
    is_loose = room.free > _LOOSE * (room.used + room.free)
    compacted = bool(runs or texts or is_loose) and _compact(path)
    # Sizes are estimates until the file is rewritten; then it is seen whether it is small enough.
    while compacted and wanted.keep_bytes is not None:
        more, of_them = _remove_all(path, wanted, clock, told, runs)
        if not more:
            break
        runs, texts = runs + more, texts + of_them
        compacted = _compact(path)
    return Pruned(runs=runs, texts=texts, compacted=compacted, bytes=_room(path).used)


def _room(path: Path) -> Room:
    with reading(path) as connection:
        return pruning.room(connection)


def _remove_all(
    path: Path, wanted: Wanted, clock: Clock, told: Told | None, before: int
) -> tuple[int, int]:
    """Runs removed, and texts; *before* says how many runs went earlier."""
    with _writing(path) as (connection, write):
        gone = 0
        for some in _parts(_survey(path, wanted, clock).runs, RUNS_AT_ONCE):
            gone += write(partial(_remove, runs=some, wanted=wanted, clock=clock))
            if told:
                told(before + gone)
        return gone, _prune_texts(connection, write)


def _remove(
    connection: sqlite3.Connection, runs: Sequence[OldRun], wanted: Wanted, clock: Clock
) -> int:
    return pruning.remove(connection, runs, wanted, clock())


def _prune_texts(connection: sqlite3.Connection, write: "_Write") -> int:
    with given_up_when_cancelled(connection):
        unused = pruning.unused_texts(connection)
    return sum(
        write(partial(pruning.remove_texts, shas=some)) for some in _parts(unused, TEXTS_AT_ONCE)
    )


def _parts(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for first in range(0, len(items), size):
        yield items[first : first + size]


class _Write:
    """Carries out pieces of work, each as one transaction, and leaves others room between them."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self._path = str(path)

    def __call__(self, work: Callable[[sqlite3.Connection], T]) -> T:
        anyio.from_thread.check_cancelled()
        began = time.monotonic()
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            check_shape(self._connection, self._path)
            done = work(self._connection)
            self._connection.execute("COMMIT")
        except BaseException:
            roll_back(self._connection)
            raise
        time.sleep(min(_LONGEST_PAUSE_S, time.monotonic() - began))
        return done


@contextlib.contextmanager
def _writing(path: Path) -> Generator[tuple[sqlite3.Connection, _Write]]:
    """A connection that writes an existing ledger, brought up to date, and how it writes."""
    with reading(path):
        pass  # it is there, and it is ours
    with contextlib.closing(connect(str(path), busy_timeout_s=BUSY_S)) as connection:
        migrate(connection, str(path))
        try:
            yield connection, _Write(connection, path)
        except sqlite3.Error as error:
            raise explain(error, str(path)) from error


def _compact(path: Path) -> bool:
    """Rewrite the ledger without free room; False if another connection has it open."""
    with contextlib.closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as connection:
        try:
            if not _is_alone(connection):
                return False
            with given_up_when_cancelled(connection):
                # Its index only notes what has gone, and would even have grown by that.
                connection.execute("INSERT INTO search (search) VALUES ('optimize')")
                connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        except sqlite3.Error as error:
            raise explain(error, str(path)) from error
    return True


def _is_alone(connection: sqlite3.Connection) -> bool:
    """Take the file for this connection alone until it is closed; False if others have it open."""
    # Before anything is read: only then does the mode keep out those that open the file later.
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    try:
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("COMMIT")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:
            return False
        raise
    return True
