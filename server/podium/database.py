"""SQLite as the ledger uses it: opening a file, reading rows, and what an error means to a user.

Knows nothing of runs or of threads.
"""

import os
import sqlite3
import time
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from podium.errors import StoreError
from podium_workers.worker import mend

if TYPE_CHECKING:
    from sqlite_utils import Database

Value = str | int | float | None
Row = dict[str, Value]

MEMORY = ":memory:"
OLDEST_SQLITE = (3, 38, 0)
"""From this version on STRICT tables, RETURNING and JSON functions are always there."""

_ELSEWHERE = "or name another file with --store FILE"
_MEANINGS = {
    sqlite3.SQLITE_BUSY: "The ledger {path} was locked by another program for too long; close what "
    "holds it (a backup, a database browser) and try again.",
    sqlite3.SQLITE_READONLY: "The ledger {path} is read-only; make the file and its folder "
    f"writable, {_ELSEWHERE}.",
    sqlite3.SQLITE_IOERR: "The disk failed on the ledger {path} ({error}); check the disk and its "
    f"free space, {_ELSEWHERE}.",
    sqlite3.SQLITE_CORRUPT: "The ledger {path} is damaged ({error}); move it away and put a backup "
    f"in its place, {_ELSEWHERE}.",
    sqlite3.SQLITE_FULL: "There is no room left for the ledger {path}; free some disk space and "
    "try again (what was stored before is intact).",
    sqlite3.SQLITE_CANTOPEN: "The ledger {path} cannot be opened; check that its folder exists and "
    f"is writable, {_ELSEWHERE}.",
    sqlite3.SQLITE_NOTADB: "The file {path} is not a ledger of Podium; move it away, "
    "or name another file with --store FILE.",
    sqlite3.SQLITE_CONSTRAINT: "The ledger {path} refused a record that contradicts others "
    "({error}); its run and its round have to be stored before it, and ids only once.",
}
_MEANINGS[sqlite3.SQLITE_LOCKED] = _MEANINGS[sqlite3.SQLITE_BUSY]
_MEANINGS[sqlite3.SQLITE_PERM] = _MEANINGS[sqlite3.SQLITE_READONLY]


def explain(error: sqlite3.Error, path: str) -> StoreError:
    """What *error* on the ledger at *path* means, as one sentence."""
    # Errors that the driver itself raises carry no code.
    code: int = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    unknown = "The ledger {path} could not be read or written: {error}."
    # Extended codes hold the primary one in their low byte.
    return StoreError(_MEANINGS.get(code & 0xFF, unknown).format(path=path, error=error))


def connect(path: str, *, busy_timeout_s: float) -> sqlite3.Connection:
    """Open the ledger at *path* for writing; a missing file is made, for its owner's eyes only.

    Raises:
        StoreError: the file cannot be opened or written, or is something else.
    """
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        raise StoreError(
            f"SQLite {sqlite3.sqlite_version} is too old for the ledger; use a Python that comes "
            f"with SQLite {'.'.join(map(str, OLDEST_SQLITE))} or newer."
        )
    if path == MEMORY:
        return _configured(path, busy_timeout_s)
    _make_file(Path(path))
    try:
        connection = _configured(path, busy_timeout_s)
        with _closed_on_failure(connection):
            _use_wal(connection, busy_timeout_s)
    except sqlite3.Error as error:
        raise explain(error, path) from error
    return connection


def connect_read_only(path: str, *, busy_timeout_s: float) -> sqlite3.Connection:
    """A second connection that can only read the ledger at *path*.

    Raises:
        StoreError: the file cannot be opened.
    """
    try:
        uri = Path(path).absolute().as_uri() + "?mode=ro"
        return _configured(uri, busy_timeout_s, uri=True)
    except sqlite3.Error as error:
        raise explain(error, path) from error


def _configured(target: str, busy_timeout_s: float, *, uri: bool = False) -> sqlite3.Connection:
    connection = sqlite3.connect(
        target,
        timeout=busy_timeout_s,
        isolation_level=None,  # transactions are begun by name, never by the driver
        check_same_thread=False,  # one thread at a time, but not the one that opens
        cached_statements=256,
        uri=uri,
    )
    with _closed_on_failure(connection):
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
    return connection


@contextmanager
def _closed_on_failure(connection: sqlite3.Connection) -> Generator[None]:
    try:
        yield
    except BaseException:
        connection.close()
        raise


def _make_file(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        _check_writable(path)
    except OSError as error:
        raise StoreError(
            f"The folder of the ledger {path} cannot be made ({error.strerror}); name another "
            "file with --store FILE."
        ) from error
    try:
        # Exclusive, so that an existing file is never opened and closed here: closing any
        # descriptor of a file drops the locks that SQLite holds on it in this process.
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        _check_writable(path)
    except OSError as error:
        raise StoreError(
            f"The ledger {path} cannot be made ({error.strerror}); make its folder writable, "
            f"{_ELSEWHERE}."
        ) from error


def _check_writable(path: Path) -> None:
    if not path.parent.is_dir():
        raise StoreError(
            f"The ledger {path} cannot be made: {path.parent} is not a folder; "
            "name another file with --store FILE."
        )
    if path.is_dir():
        raise StoreError(f"{path} is a folder; name a file in it with --store FILE.")
    for place in (path, path.parent):
        if not os.access(place, os.W_OK):
            raise StoreError(f"{place} is read-only; make it writable, {_ELSEWHERE}.")


def _use_wal(connection: sqlite3.Connection, patience_s: float) -> None:
    # Leaving the rollback journal needs the file alone, and SQLite does not wait for that by
    # itself: several servers that start on a fresh file at once would fail here.
    deadline = time.monotonic() + patience_s
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return


def database(connection: sqlite3.Connection) -> "Database":
    """*connection* with the comforts of sqlite-utils, and without its plugins."""
    from sqlite_utils import Database  # 0.1 s that a start on an up-to-date ledger does not need

    return Database(connection, execute_plugins=False)


def select(
    connection: sqlite3.Connection, sql: str, values: Mapping[str, Value] | None = None
) -> Iterable[Row]:
    """The rows that a query gives, one by one, as they are asked for."""
    # Not by way of sqlite-utils, which carries out five statements for every query.
    found = connection.execute(sql, _storable(values or {}))
    names = [str(column[0]) for column in found.description]
    return (dict(zip(names, row, strict=True)) for row in found)


def execute(
    connection: sqlite3.Connection, sql: str, values: Mapping[str, Value]
) -> sqlite3.Cursor:
    """Carry out one statement; its rows have to be fetched before the next one."""
    return connection.execute(sql, _storable(values))


def insert(connection: sqlite3.Connection, table: str, row: Row) -> int:
    """Add *row* and return its row id."""
    return execute(connection, _insertion(table, row), row).lastrowid or 0


def upsert(connection: sqlite3.Connection, table: str, row: Row, key: tuple[str, ...]) -> None:
    """Add *row*, or put it in the place of the one with the same *key*."""
    changed = ", ".join(f"{name} = excluded.{name}" for name in row if name not in key)
    conflict = f"ON CONFLICT ({', '.join(key)}) DO UPDATE SET {changed}"
    execute(connection, f"{_insertion(table, row)} {conflict}", row)


def roll_back(connection: sqlite3.Connection) -> None:
    """End a transaction without effect, unless an error has ended it already."""
    if connection.in_transaction:
        connection.execute("ROLLBACK")


def update(connection: sqlite3.Connection, table: str, row: Row, key: str) -> None:
    """Change the row whose *key* is that of *row*."""
    changed = ", ".join(f"{name} = :{name}" for name in row if name != key)
    execute(connection, f"UPDATE {table} SET {changed} WHERE {key} = :{key}", row)


def _insertion(table: str, row: Row) -> str:
    return f"INSERT INTO {table} ({', '.join(row)}) VALUES (:{', :'.join(row)})"


def _storable(values: Mapping[str, Value]) -> Row:
    return {name: mend(it) if isinstance(it, str) else it for name, it in values.items()}
