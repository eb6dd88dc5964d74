"""The ledger: all that is known of runs, in one SQLite file that several processes may share.

Speaks in runs, rounds, steps and calls, never in rows. What a writing method was given is durable
when it returns, and is written even if its caller is cancelled meanwhile.
"""

import json
import sqlite3
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

import anyio
import anyio.to_thread

from podium import database, queries, rows, search
from podium.database import MEMORY, Value, execute, insert, update, upsert
from podium.errors import StoreError
from podium.migrations import check_shape, migrate
from podium.plan import Proposal
from podium.queries import Filter, SearchHit, WorkerHistory
from podium.trace import CallRecord, Round, Run, RunStatus, RunSummary, StepResult
from podium.writer import Writer, open_writer
from podium_workers.worker import Usage

T = TypeVar("T")
Clock = Callable[[], float]
"""Gives Unix time; may be asked from any thread."""


class _Reader(Protocol):
    async def do(self, work: Callable[[sqlite3.Connection], T]) -> T: ...


class _FileReader:
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


class Store:
    """The open ledger, made by `open_store`.

    Every method may raise StoreError: one sentence that says what is wrong with the file.
    """

    def __init__(self, writer: Writer, reader: _Reader, clock: Clock) -> None:
        self.writer = writer
        """Where all writing goes through; counts its commits."""
        self._reader = reader
        self._clock = clock

    async def create_run(self, run: Run) -> None:
        """Store a new run, with its question, files, settings and pool."""

        def write(connection: sqlite3.Connection) -> None:
            at = insert(connection, "runs", rows.run_row(run))
            search.put_question(connection, at, run.request.question, run.answer or "")
            for file, row in zip(run.request.files, rows.file_rows(run), strict=True):
                _put_text(connection, file.text)
                insert(connection, "files", row)

        await self.writer.do(write)

    async def save_run(self, run: Run) -> None:
        """Store what has changed of a run: all but its id, principal, parent, age, question, files.

        Raises:
            RunError: the run is not in the ledger.
        """

        def write(connection: sqlite3.Connection) -> None:
            sql = "SELECT id, answer FROM runs WHERE run_id = :run_id"
            for at, answer in execute(connection, sql, {"run_id": run.run_id}).fetchall():
                update(connection, "runs", rows.run_changes(run), "run_id")
                if answer != run.answer:
                    search.put_question(connection, at, run.request.question, run.answer or "")
                return
            raise queries.unknown_run(run.run_id)

        await self.writer.do(write)

    async def run(self, run_id: str, *, principal: str | None = None) -> Run:
        """The run with that id, or whose id alone begins with it (6 characters at least).

        Raises:
            RunError: there is none, or not one of *principal*; or there are several.
        """
        only = Filter(principal=principal)
        return await self._reader.do(partial(queries.run, run_id=run_id, only=only))

    async def children(self, run_id: str) -> tuple[Run, ...]:
        """The runs that are steps of this one, oldest first."""
        return await self._reader.do(partial(queries.children, run_id=run_id))

    async def save_round(self, run_id: str, number: int, proposal: Proposal) -> None:
        """Store a proposal, before anything of it is carried out, or in place of an earlier one."""
        row = rows.round_row(run_id, number, proposal)
        await self.writer.do(
            lambda connection: upsert(connection, "rounds", row, ("run_id", "number"))
        )

    async def drop_round(self, run_id: str, number: int) -> None:
        """Forget a proposal that no longer holds; its calls, and so its cost, stay."""
        sql = "DELETE FROM rounds WHERE run_id = :run_id AND number = :number"
        values: dict[str, Value] = {"run_id": run_id, "number": number}
        await self.writer.do(lambda connection: execute(connection, sql, values))

    async def rounds(self, run_id: str) -> tuple[Round, ...]:
        """A run's rounds in order, with the newest version of each step."""
        return await self._reader.do(partial(queries.rounds, run_id=run_id))

    async def save_step(self, run_id: str, result: StepResult) -> None:
        """Store a step's result, in place of an earlier one with its number and version."""
        row = rows.step_row(run_id, result)

        def write(connection: sqlite3.Connection) -> None:
            upsert(connection, "steps", row, ("run_id", "number", "version"))
            if result.finished:
                _put_step_in_search(connection, run_id, result)

        await self.writer.do(write)

    async def steps(self, run_id: str, *, every_version: bool = False) -> tuple[StepResult, ...]:
        """A run's steps by number: the newest version of each, or every one, oldest first."""
        read = partial(queries.steps, run_id=run_id, every_version=every_version)
        return await self._reader.do(read)

    async def mark_stale(self, run_id: str, numbers: Iterable[int]) -> None:
        """Say of the newest version of some steps that it no longer counts; replies are kept."""
        sql = (
            "UPDATE steps SET status = 'stale' WHERE run_id = :run_id "
            f"AND number IN (SELECT value FROM json_each(:numbers)) AND {queries.NEWEST_VERSION}"
        )
        values = {"run_id": run_id, "numbers": json.dumps(list(numbers))}
        await self.writer.do(lambda connection: execute(connection, sql, values))

    async def put_text(self, text: str) -> str:
        """Store a text and return the hash that it is read by; the same text is stored once."""
        return await self.writer.do(lambda connection: _put_text(connection, text))

    async def text(self, sha: str) -> str:
        """The text with that hash."""
        return await self._reader.do(partial(queries.text, sha=sha))

    async def save_call(self, record: CallRecord) -> None:
        """Store a request to a provider, in place of what was known of it before."""
        row = rows.call_row(record)
        await self.writer.do(lambda connection: upsert(connection, "calls", row, ("call_id",)))

    async def calls(self, run_id: str) -> tuple[CallRecord, ...]:
        """The requests of a run in the order in which they were made."""
        return await self._reader.do(partial(queries.calls, run_id=run_id))

    async def summaries(
        self,
        *,
        principal: str | None = None,
        limit: int = 20,
        since: float | None = None,
        until: float | None = None,
        status: RunStatus | None = None,
        nested: bool | None = False,
    ) -> tuple[RunSummary, ...]:
        """The newest runs, newest first; *since* and *until* are Unix times.

        Runs that are steps of others are left out; with *nested* None they are there as well.
        """
        only = Filter(principal=principal, since=since, until=until, status=status, nested=nested)
        now = self._clock()
        read = partial(queries.summaries, only=only, now=now, limit=limit)
        return await self._reader.do(read)

    async def search(
        self,
        text: str,
        *,
        principal: str | None = None,
        since: float | None = None,
        until: float | None = None,
        limit: int = 20,
    ) -> tuple[SearchHit, ...]:
        """Runs in whose question, answer or steps all words of *text* occur, newest first.

        Any text is safe. Double quotes keep words together; an empty text finds every run.
        """
        only = Filter(principal=principal, since=since, until=until)
        now = self._clock()
        read = partial(queries.search_hits, words=text, only=only, now=now, limit=limit)
        return await self._reader.do(read)

    async def usage(self, run_id: str) -> Usage:
        """What a run has used so far, together with the runs that are its steps."""
        return await self._reader.do(partial(queries.usage, run_id=run_id))

    async def worker_history(self, worker: str, model: str) -> WorkerHistory:
        """How long a worker's replies were and how fast they came, for estimates."""
        return await self._reader.do(partial(queries.worker_history, worker=worker, model=model))

    async def claim(self, run_id: str, owner: str, ttl_s: float) -> bool:
        """Make *owner* the one who carries out a run for so long; False if another one is.

        A nested run cannot be claimed while somebody carries out a run above it.
        """
        sql = (
            f"{queries.LINE} "
            "UPDATE runs SET owner = :owner, lease_until = :now + :ttl_s WHERE run_id = :run_id "
            "AND (owner IS NULL OR owner = :owner OR lease_until <= :now) "
            "AND NOT EXISTS (SELECT 1 FROM runs AS above WHERE above.run_id IN line "
            "AND above.run_id <> :run_id AND above.lease_until > :now) RETURNING run_id"
        )
        return bool(await self._lease(sql, {"run_id": run_id, "owner": owner, "ttl_s": ttl_s}))

    async def renew(self, owner: str, ttl_s: float, run_ids: Iterable[str]) -> set[str]:
        """Prolong *owner*'s leases; gives back those of the runs that are still its own."""
        sql = (
            "UPDATE runs SET lease_until = :now + :ttl_s WHERE owner = :owner "
            "AND run_id IN (SELECT value FROM json_each(:ids)) RETURNING run_id"
        )
        ids = json.dumps(list(run_ids))
        return await self._lease(sql, {"owner": owner, "ttl_s": ttl_s, "ids": ids})

    async def release(self, run_id: str, owner: str) -> None:
        """Give a run up, if it is still *owner*'s."""
        sql = (
            "UPDATE runs SET owner = NULL, lease_until = NULL "
            "WHERE run_id = :run_id AND owner = :owner RETURNING run_id"
        )
        await self._lease(sql, {"run_id": run_id, "owner": owner})

    async def is_held(self, run_id: str) -> bool:
        """Whether somebody carries out a run now: claimed, and the lease has not run out."""
        return await self._reader.do(partial(queries.is_held, run_id=run_id, now=self._clock()))

    async def _lease(self, sql: str, values: Mapping[str, Value]) -> set[str]:
        def write(connection: sqlite3.Connection) -> set[str]:
            # The time of the write itself, which may have waited for its turn.
            found = execute(connection, sql, {**values, "now": self._clock()})
            return {run_id for (run_id,) in found.fetchall()}

        return await self.writer.do(write)


@asynccontextmanager
async def open_store(
    path: Path | str, *, clock: Clock = time.time, busy_timeout_s: float = 30.0
) -> AsyncGenerator[Store]:
    """Open the ledger at *path*, or make it; `":memory:"` gives one that is gone at the end.

    Raises:
        StoreError: the file cannot be opened or written, is of a newer Podium, or is something
            else; or another process has held it for longer than *busy_timeout_s*.
    """
    name = MEMORY if path == MEMORY else str(Path(path))
    connection = await anyio.to_thread.run_sync(_open, name, busy_timeout_s)
    async with open_writer(connection, name, partial(check_shape, path=name)) as writer:
        if name == MEMORY:  # such a ledger is seen by one connection only
            yield Store(writer, writer, clock)
            return
        reading = database.connect_read_only(name, busy_timeout_s=busy_timeout_s)
        try:
            yield Store(writer, _FileReader(reading, name), clock)
        finally:
            reading.close()


def _open(name: str, busy_timeout_s: float) -> sqlite3.Connection:
    connection = database.connect(name, busy_timeout_s=busy_timeout_s)
    try:
        migrate(connection, name)
    except StoreError:
        connection.close()
        raise
    return connection


def _put_text(connection: sqlite3.Connection, text: str) -> str:
    sha = rows.sha(text)
    sql = "INSERT OR IGNORE INTO blobs (sha, text) VALUES (:sha, :text)"
    execute(connection, sql, {"sha": sha, "text": text})
    return sha


def _put_step_in_search(connection: sqlite3.Connection, run_id: str, result: StepResult) -> None:
    sql = (
        "SELECT id FROM runs WHERE run_id = :run_id AND NOT EXISTS (SELECT 1 FROM steps WHERE "
        "run_id = :run_id AND number = :number AND version > :version)"
    )
    values = {"run_id": run_id, "number": result.number, "version": result.version}
    for (run,) in execute(connection, sql, values).fetchall():
        search.put_step(connection, run, result.number, result.subtask, result.reply)
