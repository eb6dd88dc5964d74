"""Copies of the ledger that are whole, and looking whether a ledger is.

Opens the file for itself, and holds up nobody who uses it.
"""

import contextlib
import os
import secrets
import sqlite3
import threading
from collections.abc import Generator
from pathlib import Path

import anyio.from_thread
import anyio.to_thread

from podium.database import connect_read_only, explain
from podium.errors import StoreError
from podium.migrations import APPLICATION_ID
from podium_workers.worker import Frozen

BUSY_S = 30.0
"""Seconds to wait for other processes that write."""
_AGAIN_S = 0.01
_BESIDE = ("-wal", "-shm", "-journal")
"""Ends of the names of what SQLite keeps beside a file that is open, or was left by a crash."""
_TARGETS = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN)
"""Errors of a backup that the file which is written has."""


class Backup(Frozen):
    """A copy of the ledger that was made and looked through."""

    path: Path
    bytes: int
    runs: int
    """Runs in it, those that are steps of others included."""


class Integrity(Frozen):
    """What a look through a ledger has found."""

    problems: tuple[str, ...] = ()
    """As SQLite tells them, the first few; empty when nothing is wrong."""
    complete: bool = True
    """Whether there was time to look at everything."""


async def backup(source: Path, target: Path, *, force: bool = False) -> Backup:
    """Copy the ledger at *source*, as it is at one moment, to the new file *target*.

    Processes that use the ledger are not held up. The copy is for its owner's eyes only, durable,
    and looked through before it gets its name; an existing file is replaced only with *force*.

    Raises:
        StoreError: there is no ledger to copy, it is damaged, or the copy cannot be made there.
    """
    return await anyio.to_thread.run_sync(_backup, source, target, force)


def look(path: Path, *, within_s: float) -> Integrity:
    """Look through a ledger for damage, for so long at most.

    Raises:
        StoreError: it cannot be opened or read at all.
    """
    with reading(path) as connection, _interrupted_after(connection, within_s):
        try:
            return Integrity(problems=_problems(connection))
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
                raise
            return Integrity(complete=False)


@contextlib.contextmanager
def _interrupted_after(connection: sqlite3.Connection, seconds: float) -> Generator[None]:
    """Break off what *connection* does when it has taken so long."""
    ended = threading.Event()

    def watch() -> None:
        patience = seconds
        while not ended.wait(patience):  # again, should it have come before the statement
            connection.interrupt()
            patience = _AGAIN_S

    watcher = threading.Thread(target=watch, name="podium-look")
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


def _backup(source: Path, target: Path, force: bool) -> Backup:
    with reading(source) as connection:
        _check_target(source, target, force)
        made = target.with_name(f"{target.name}.{secrets.token_hex(4)}.part")
        try:
            _write_copy(connection, made, source, target)
            _check_target(source, target, force)
            os.replace(made, target)
        except OSError as error:
            raise _unwritable(target, str(error.strerror)) from error
        finally:
            made.unlink(missing_ok=True)
    _make_durable(target.parent)
    with reading(target) as copied:
        (runs,) = copied.execute("SELECT count(*) FROM runs").fetchone()
    return Backup(path=target, bytes=target.stat().st_size, runs=runs)


def _check_target(source: Path, target: Path, force: bool) -> None:
    if target.is_dir():
        raise StoreError(f"{target} is a folder; name a file in it.")
    if target.exists() and not target.is_file():
        raise StoreError(f"{target} is a device or a pipe; name a file.")
    if not target.parent.is_dir():
        raise StoreError(f"There is no folder {target.parent}; make it, or name another file.")
    if _is_ledgers_own(source, target):
        raise StoreError(f"{target} belongs to the ledger itself; name another file.")
    # Put in the place of a ledger, the copy would be mixed with what SQLite keeps beside that one.
    for beside in (target.with_name(target.name + end) for end in _BESIDE):
        if beside.exists():
            raise StoreError(
                f"{target} is in use as a database, or was when it was last used ({beside} is "
                "there); name another file."
            )
    if target.exists() and not force:
        raise StoreError(f"{target} exists already; name another file, or replace it with --force.")


def _is_ledgers_own(source: Path, target: Path) -> bool:
    names = {source.name, *(source.name + end for end in _BESIDE)}
    in_its_folder = target.parent.resolve() == source.resolve().parent
    is_it = target.exists() and target.samefile(source)
    return is_it or (in_its_folder and target.name in names)


def _write_copy(connection: sqlite3.Connection, made: Path, source: Path, target: Path) -> None:
    # Made here, so that nobody else can ever read it; SQLite fills an empty file.
    os.close(os.open(made, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    try:
        with given_up_when_cancelled(connection):
            connection.execute("VACUUM INTO ?", (str(made),))
    except sqlite3.Error as error:
        if error.sqlite_errorcode & 0xFF in _TARGETS:
            raise _unwritable(target, str(error)) from error
        raise explain(error, str(source)) from error
    with reading(made) as copied, given_up_when_cancelled(copied):
        problems = _problems(copied)
    if problems:
        raise StoreError(
            f"The copy for {target} was damaged when it was read again ({problems[0]}) and is not "
            "kept; look at the ledger and its disk with `podium doctor`."
        )
    _make_durable(made)


def _unwritable(target: Path, why: str) -> StoreError:
    return StoreError(
        f"The backup {target} cannot be written ({why}); check the free space and the rights "
        "there, or name another file."
    )


def _make_durable(path: Path) -> None:
    """Wait until what was written, or the names in a folder, would survive a loss of power."""
    if path.is_dir() and os.name == "nt":  # folders cannot be opened there, nor need to be
        return
    opened = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


@contextlib.contextmanager
def reading(path: Path) -> Generator[sqlite3.Connection]:
    """A connection that reads an existing ledger of ours."""
    if not path.exists():
        raise StoreError(f"There is no ledger {path}; name one with --store FILE.")
    with contextlib.closing(connect_read_only(str(path), busy_timeout_s=BUSY_S)) as connection:
        try:
            (owner,) = connection.execute("PRAGMA application_id").fetchone()
            if owner != APPLICATION_ID:
                raise StoreError(f"The file {path} is not a ledger of Podium.")
            yield connection
        except sqlite3.Error as error:
            raise explain(error, str(path)) from error


def _problems(connection: sqlite3.Connection) -> tuple[str, ...]:
    try:
        found = connection.execute("PRAGMA quick_check(5)").fetchall()
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_CORRUPT:
            raise
        return (str(error),)  # so bad that it could not even be looked through
    return tuple(line for (line,) in found if line != "ok")


@contextlib.contextmanager
def given_up_when_cancelled(connection: sqlite3.Connection) -> Generator[None]:
    """Break off the statement in hand when the task that waits for this thread is cancelled."""

    def go_on() -> int:
        anyio.from_thread.check_cancelled()  # what is raised here breaks the statement off
        return 0

    connection.set_progress_handler(go_on, 10_000)
    try:
        yield
    except sqlite3.OperationalError:
        anyio.from_thread.check_cancelled()
        raise
    finally:
        connection.set_progress_handler(None, 0)
