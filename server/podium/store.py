"""The ledger: all that is known of runs, in one SQLite file that several processes may share.

Speaks in runs, rounds, steps and calls, never in rows. What a writing method was given is durable
when it returns, and is written even if its caller is cancelled meanwhile.

Whoever carries out a run writes through `Store.held`: once another process has taken the run, he
can no longer change it, but replies that were paid are still recorded.
"""

import json
import sqlite3
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.to_thread

from podium import accounts, database, leases, queries, rows, search, turns
from podium.budget import Account, Amount
from podium.database import MEMORY, Row, Value, execute, insert, update, upsert
from podium.errors import StoreError
from podium.leases import Held, Lease
from podium.migrations import check_shape, migrate
from podium.plan import Proposal
from podium.queries import Filter, SearchHit, WorkerHistory
from podium.reader import FileReader, Reader
from podium.trace import CallRecord, Round, Run, RunStatus, RunSummary, StepResult
from podium.writer import Writer, open_writer
from podium_workers.worker import RateLimits, Usage

T = TypeVar("T")
Clock = Callable[[], float]
"""Gives Unix time; may be asked from any thread."""
Write = Callable[[sqlite3.Connection], object]
"""Something to write into the ledger; it may be carried out again when a transaction fails."""

text_hash = rows.sha
"""The name under which a text is stored."""


class Store:
    """The open ledger, made by `open_store`.

    Every method may raise StoreError: one sentence that says what is wrong with the file; and what
    writes through a lease, LeaseLostError: another process has taken the run over.
    """

    def __init__(
        self, writer: Writer, reader: Reader, clock: Clock, lease: Lease | None = None
    ) -> None:
        self.writer = writer
        """Where all writing goes through; counts its commits."""
        self._reader = reader
        self._clock = clock
        self._lease = lease

    @property
    def reader(self) -> Reader:
        """Where all reading goes through."""
        return self._reader

    def held(self, lease: Lease) -> "Store":
        """The ledger as the holder of *lease* writes it."""
        return Store(self.writer, self._reader, self._clock, lease)

    async def _write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await self.writer.do(self._fenced(work))

    def _fenced(self, work: Callable[[sqlite3.Connection], T]) -> Callable[[sqlite3.Connection], T]:
        """*work*, refused once the lease is lost."""
        lease = self._lease
        if lease is None:
            return work

        def write(connection: sqlite3.Connection) -> T:
            leases.check(connection, lease)
            return work(connection)

        return write

    async def create_run(self, run: Run) -> None:
        """Store a new run, with its question, files, settings and pool."""
        await self._write(partial(_put_run, run=run))

    async def begin_run(self, run: Run, key: str | None, owner: str, ttl_s: float) -> Lease | str:
        """Store a new run that *owner* carries out from the first moment on; its lease.

        If the same was asked before, as *key* says, and is still worked on, or has ended with
        nobody there to be told, that run is left as it is, and its id is given instead.
        """

        def write(connection: sqlite3.Connection) -> Lease | str:
            now = self._clock()
            if key and (before := queries.asked_before(connection, key, now)):
                return before
            _put_run(connection, run, key)
            return _certain(leases.claim(connection, run.run_id, owner, None, now=now, ttl_s=ttl_s))

        return await self.writer.do(write)

    async def save_run(self, run: Run) -> None:
        """Store what has changed of a run: all but who asked for what, and when.

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

        await self._write(write)

    async def set_limits(self, run_id: str, limits: Mapping[str, float | None]) -> None:
        """Change limits of a run, by their names in its request; for calls at once."""
        changed = "".join(f", '$.{name}', :{name}" for name in limits)
        sql = f"UPDATE runs SET request = json_set(request{changed}) WHERE run_id = :run_id"
        values: Row = {**limits, "run_id": run_id}
        await self.writer.do(lambda connection: execute(connection, sql, values))

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

    async def save_round(
        self, run_id: str, number: int, proposal: Proposal, *, wait: bool = True
    ) -> None:
        """Store a proposal, before anything of it is carried out, or in place of an earlier one.

        Without *wait* it is durable with the next write that is waited for.
        """
        row = rows.round_row(run_id, number, proposal)
        key = ("run_id", "number")
        write = self._fenced(lambda connection: upsert(connection, "rounds", row, key))
        if wait:
            await self.writer.do(write)
        else:
            self.writer.post(write)

    async def drop_round(self, run_id: str, number: int) -> None:
        """Forget a proposal that no longer holds; its calls, and so its cost, stay."""
        sql = "DELETE FROM rounds WHERE run_id = :run_id AND number = :number"
        values: dict[str, Value] = {"run_id": run_id, "number": number}
        await self._write(lambda connection: execute(connection, sql, values))

    async def rounds(self, run_id: str) -> tuple[Round, ...]:
        """A run's rounds in order, with the newest version of each step."""
        return await self._reader.do(partial(queries.rounds, run_id=run_id))

    async def save_step(
        self, run_id: str, result: StepResult, texts: Iterable[str] = (), *, wait: bool = True
    ) -> None:
        """Store a step's result, in place of an earlier one with its number and version.

        Without *wait* it is durable with the next write that is waited for.

        *texts* are those that it names.

        A step that was begun before the run was taken over is still recorded when it ends: whoever
        took it gives the steps that he begins versions of their own.
        """
        row = rows.step_row(run_id, result)

        def write(connection: sqlite3.Connection) -> None:
            if self._lease and not (result.finished and _has_begun(connection, run_id, result)):
                leases.check(connection, self._lease)
            rows.put_texts(connection, texts)
            upsert(connection, "steps", row, ("run_id", "number", "version"))
            if result.finished:
                _put_step_in_search(connection, run_id, result)

        if wait:
            await self.writer.do(write)
        else:
            self.writer.post(write)

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
        await self._write(lambda connection: execute(connection, sql, values))

    async def text(self, sha: str) -> str:
        """The text with that hash."""
        return await self._reader.do(partial(queries.text, sha=sha))

    async def accounts(self, run_id: str, day_usd: float | None) -> tuple[Account, ...]:
        """The limits that calls for a run stand under, and what stands against them.

        *day_usd* is what the run's principal may spend on this day; None means any amount.
        """
        now = self._clock()
        read = partial(accounts.standing, run_id=run_id, day_usd=day_usd, now=now)
        return await self._reader.do(read)

    async def spent_usd(self) -> float:
        """What all runs have cost; a call of which nobody knows counts at its worst."""
        return await self._reader.do(accounts.spent_usd)

    async def open_call(
        self, record: CallRecord, amount: Amount, day_usd: float | None, texts: Iterable[str] = ()
    ) -> bool:
        """Store a call that is about to be made, with the *texts* that it names, and reserve.

        False if what it may take would pass a limit of its run or of the day; then nothing is
        stored.
        """

        def write(connection: sqlite3.Connection) -> bool:
            if not accounts.reserve(connection, record, amount, day_usd, self._clock()):
                return False
            rows.put_texts(connection, texts)
            return True

        return await self._write(write)

    async def take_up_call(self, record: CallRecord, earlier: str) -> None:
        """Store a call that takes the place of an *earlier* one, which had broken off."""
        await self._write(partial(accounts.take_up, record=record, earlier=earlier))

    async def save_call(self, record: CallRecord) -> None:
        """Store what is known of a call, in place of what was known of it before."""
        await self.writer.do(partial(accounts.put_call, record=record))

    async def close_call(
        self, record: CallRecord, texts: Iterable[str] = (), *, wait: bool = True
    ) -> None:
        """Store a call that has ended, with the *texts* that it names.

        What it has cost takes the place of what was reserved for it. Without *wait* it is durable
        with the next write that is waited for.
        """

        def write(connection: sqlite3.Connection) -> None:
            rows.put_texts(connection, texts)
            accounts.settle(connection, record, self._clock())

        if wait:
            await self.writer.do(write)
        else:
            self.writer.post(write)

    async def take_turn(self, limits: RateLimits, tokens: int) -> float:
        """Take an account's turn for a request of so many tokens; else the seconds until it is."""

        def write(connection: sqlite3.Connection) -> float:
            return turns.take(connection, limits, tokens, self._clock())

        return await self.writer.do(write)

    async def give_back_turn(self, limits: RateLimits, tokens: int) -> None:
        """Give back tokens that a request was given and has not used."""
        await self.writer.do(partial(turns.give_back, limits=limits, tokens=tokens))

    async def stay_away(self, account: str, seconds: float) -> None:
        """Let no process ask an account for so long."""

        def write(connection: sqlite3.Connection) -> None:
            turns.stay_away(connection, account, self._clock() + seconds)

        await self.writer.do(write)

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

    async def holder(self, run_id: str) -> Held | None:
        """Who carries out a run, or a run that it is a step of, or did when he died."""
        return await self._reader.do(partial(leases.holder, run_id=run_id))

    async def running(self) -> tuple[Held, ...]:
        """The runs that are being carried out to their answer, oldest first, dead owners' too."""
        return await self._reader.do(leases.running)

    async def claim(
        self, run_id: str, owner: str, ttl_s: float, over: Held | None = None
    ) -> Lease | None:
        """Make *owner* the one who carries out a run for so long; None if another one is.

        With *over* the run is taken from that owner, unless he has renewed his lease meanwhile;
        what he had begun is ended. A nested run cannot be had while a run above it is held.
        """

        def write(connection: sqlite3.Connection) -> Lease | None:
            # The time of the write itself, which may have waited for its turn.
            now = self._clock()
            return leases.claim(connection, run_id, owner, over, now=now, ttl_s=ttl_s)

        return await self.writer.do(write)

    async def renew(self, owner: str, ttl_s: float, run_ids: Iterable[str]) -> set[str]:
        """Prolong *owner*'s leases; gives back those of the runs that are still its own."""
        held = tuple(run_ids)

        def write(connection: sqlite3.Connection) -> set[str]:
            return leases.renew(connection, owner, self._clock() + ttl_s, held)

        return await self.writer.do(write)

    async def release(self, lease: Lease, also: Iterable[Write] = ()) -> None:
        """Give a run up, unless it was taken over, and *also* write this in the same moment."""
        writes = [*also, partial(leases.release, lease=lease)]

        def write(connection: sqlite3.Connection) -> None:
            for each in writes:
                each(connection)

        await self.writer.do(write)

    async def ask_stop(self, run_id: str) -> None:
        """Tell the process that carries out a run to stop it."""
        await self.writer.do(partial(leases.ask_stop, run_id=run_id))

    async def stops_asked(self, owner: str) -> set[str]:
        """The runs of *owner* that he has been told to stop."""
        return await self._reader.do(partial(leases.stops_asked, owner=owner))

    async def is_held(self, run_id: str) -> bool:
        """Whether somebody carries out a run now: claimed, and the lease has not run out."""
        return await self._reader.do(partial(queries.is_held, run_id=run_id, now=self._clock()))

    async def mark_told(self, run_id: str) -> None:
        """Say that somebody was there to be told how a run ended: asking again begins a new one."""
        sql = "UPDATE runs SET told = 1 WHERE run_id = :run_id AND NOT told"
        await self.writer.do(lambda connection: execute(connection, sql, {"run_id": run_id}))


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
            yield Store(writer, FileReader(reading, name), clock)
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


def _put_run(connection: sqlite3.Connection, run: Run, key: str | None = None) -> None:
    at = insert(connection, "runs", rows.run_row(run) | {"request_key": key})
    search.put_question(connection, at, run.request.question, run.answer or "")
    rows.put_texts(connection, (file.text for file in run.request.files))
    for row in rows.file_rows(run):
        insert(connection, "files", row)


def _certain(lease: Lease | None) -> Lease:
    assert lease is not None, "nobody else can have a run that was stored a moment ago"
    return lease


def _has_begun(connection: sqlite3.Connection, run_id: str, result: StepResult) -> bool:
    sql = (
        "SELECT 1 FROM steps WHERE run_id = :run_id AND number = :number AND version = :version "
        "AND status = 'running'"
    )
    values = {"run_id": run_id, "number": result.number, "version": result.version}
    return execute(connection, sql, values).fetchone() is not None


def _put_step_in_search(connection: sqlite3.Connection, run_id: str, result: StepResult) -> None:
    sql = (
        "SELECT id FROM runs WHERE run_id = :run_id AND NOT EXISTS (SELECT 1 FROM steps WHERE "
        "run_id = :run_id AND number = :number AND version > :version)"
    )
    values = {"run_id": run_id, "number": result.number, "version": result.version}
    for (run,) in execute(connection, sql, values).fetchall():
        search.put_step(connection, run, result.number, result.subtask, result.reply)
