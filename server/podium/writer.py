"""The one thread that writes the ledger: it commits whatever is queued as one transaction.

Knows nothing of what is written.
"""

import logging
import queue
import sqlite3
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Protocol, TypeVar, runtime_checkable

import anyio
import anyio.lowlevel
import anyio.to_thread

from podium.database import explain, roll_back
from podium.errors import StoreError

T = TypeVar("T")
logger = logging.getLogger(__name__)

MOST_JOBS = 1000
"""Jobs of one transaction at most, so that readers and other processes get their turn."""
PATIENCE_S = 5.0
"""How long a cancelled caller still waits for its write to be durable."""

Check = Callable[[sqlite3.Connection], None]
"""Looks at the file at the start of every transaction; raises to refuse writing."""


@runtime_checkable
class _AsyncioLoop(Protocol):
    def call_soon_threadsafe(
        self, callback: "Callable[[list[_Job]], None]", jobs: "list[_Job]"
    ) -> object: ...


@runtime_checkable
class _TrioToken(Protocol):
    def run_sync_soon(
        self, sync_fn: "Callable[[list[_Job]], None]", jobs: "list[_Job]"
    ) -> object: ...


class _Job:
    """A write and, once it is done, what became of it."""

    def __init__(
        self, run: Callable[[sqlite3.Connection], object], *, awaited: bool = True
    ) -> None:
        self.run = run
        self.awaited = awaited
        self.done = anyio.Event()
        self.error: Exception | None = None


class _Savepoint:
    """Undoes a job that fails and keeps its error for the task that waits for it."""

    def __init__(self, connection: sqlite3.Connection, job: _Job) -> None:
        self._connection = connection
        self._job = job

    def __enter__(self) -> None:
        self._connection.execute("SAVEPOINT job")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        # Some errors (a full disk) end the whole transaction; then the other jobs are gone too.
        if isinstance(error, Exception) and self._connection.in_transaction:
            self._connection.execute("ROLLBACK TO job")
            self._job.error = error
        elif error is not None:
            return False
        self._connection.execute("RELEASE job")
        return True


class Writer:
    """Gives jobs to the writing thread and waits until they are durable."""

    def __init__(self, connection: sqlite3.Connection, path: str, check: Check) -> None:
        self.commits = 0
        """Transactions so far; grouping keeps it far below the number of jobs."""
        self._connection = connection
        self._path = path
        self._check = check
        self._jobs = queue.SimpleQueue[_Job | None]()
        self._closed = False
        self._call_soon = _caller_of_this_loop()
        # A daemon: a program that dies without closing its ledger must not hang on it.
        self._thread = threading.Thread(target=self._serve, name="podium-ledger", daemon=True)
        self._thread.start()

    async def do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Carry out *work* and return what it gives, once that is committed.

        *work* may be carried out again when a transaction fails, so it must do nothing but read
        and write through its connection. It is carried out even if the caller is cancelled, before
        or while it waits: what was paid for is recorded. The cancellation goes on when the write is
        durable, or after `PATIENCE_S`.

        Raises:
            StoreError: the ledger could not be written; nothing of *work* is in it.
        """
        if self._closed:
            raise StoreError(f"The ledger {self._path} is closed.")
        outcome: list[T] = []

        def run(connection: sqlite3.Connection) -> None:
            outcome[:] = [work(connection)]

        job = _Job(run)
        self._jobs.put(job)
        try:
            await job.done.wait()
        except anyio.get_cancelled_exc_class():
            with anyio.move_on_after(PATIENCE_S, shield=True):
                await job.done.wait()
            if job.error is not None:
                logger.warning("a write of a cancelled task failed: %s", job.error)
            raise
        if isinstance(job.error, sqlite3.Error):
            raise explain(job.error, self._path) from job.error
        if job.error is not None:
            raise job.error
        return outcome[0]

    def post(self, work: Callable[[sqlite3.Connection], object]) -> None:
        """Have *work* carried out before all that is given from now on, without waiting for it.

        For what is durable soon enough with the next write that is waited for. A failure is logged.

        Raises:
            StoreError: the ledger is closed.
        """
        if self._closed:
            raise StoreError(f"The ledger {self._path} is closed.")
        self._jobs.put(_Job(work, awaited=False))

    async def close(self) -> None:
        """Finish what is queued and close the connection."""
        self._closed = True
        self._jobs.put(None)
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._thread.join)

    def _serve(self) -> None:
        while jobs := self._next_jobs():
            self._commit(jobs)
            self._call_soon(_announce, jobs)
        self._connection.close()

    def _next_jobs(self) -> list[_Job]:
        jobs: list[_Job] = []
        job = self._jobs.get()
        while job is not None:
            jobs.append(job)
            if len(jobs) == MOST_JOBS or self._jobs.empty():
                return jobs
            job = self._jobs.get()
        if jobs:
            self._jobs.put(None)  # seen again after these jobs
        return jobs

    def _commit(self, jobs: list[_Job]) -> None:
        try:
            self._transact(jobs)
        except (sqlite3.Error, StoreError) as error:
            roll_back(self._connection)
            if len(jobs) == 1 or _nobody_can_write(error):
                for job in jobs:
                    job.error = error
                return
            for job in jobs:  # each alone, so that only the ones that cannot be done fail
                job.error = None
                self._commit([job])

    def _transact(self, jobs: list[_Job]) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        self._check(self._connection)
        for job in jobs:
            with _Savepoint(self._connection, job):
                job.run(self._connection)
        self._connection.execute("COMMIT")
        self.commits += 1


def _nobody_can_write(error: sqlite3.Error | StoreError) -> bool:
    code: int = getattr(error, "sqlite_errorcode", 0)
    return isinstance(error, StoreError) or code & 0xFF == sqlite3.SQLITE_BUSY


def _caller_of_this_loop() -> Callable[[Callable[[list[_Job]], None], list[_Job]], object]:
    """What has a function called in the event loop, from any thread, without waiting for it.

    anyio's own way waits, and the next transaction would wait for the loop to have time.
    """
    loop = anyio.lowlevel.current_token().native_token
    if isinstance(loop, _TrioToken):
        return loop.run_sync_soon
    assert isinstance(loop, _AsyncioLoop), "anyio knows two kinds of event loops"
    return loop.call_soon_threadsafe


def _announce(jobs: list[_Job]) -> None:
    for job in jobs:
        job.done.set()
        if job.error is not None and not job.awaited:
            logger.warning("a write that nobody waits for failed: %s", job.error)


@asynccontextmanager
async def open_writer(
    connection: sqlite3.Connection, path: str, check: Check
) -> AsyncGenerator[Writer]:
    """A writer that owns *connection*; at the end it finishes what is queued."""
    writer = Writer(connection, path, check)
    try:
        yield writer
    finally:
        await writer.close()
