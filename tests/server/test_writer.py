"""The writing thread: groups of jobs, failures that stay their own, writes that outlive callers."""

import logging
import sqlite3
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path

import anyio
import pytest

from podium.database import connect, connect_read_only
from podium.errors import RunError, StoreError
from podium.writer import Writer, open_writer

SMALL = 200
HUGE = 2_000_000
CHECKED_AT_COMMIT = (
    "CREATE TABLE links (name TEXT REFERENCES notes (name) DEFERRABLE INITIALLY DEFERRED) STRICT"
)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "ledger.db")


@pytest.fixture
async def writer(path: str) -> AsyncIterator[Writer]:
    connection = connect(path, busy_timeout_s=10)
    connection.execute("CREATE TABLE notes (name TEXT PRIMARY KEY, text TEXT NOT NULL) STRICT")
    async with open_writer(connection, path, lambda _: None) as writer:
        yield writer


def note(name: str, size: int = SMALL) -> Callable[[sqlite3.Connection], None]:
    def write(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO notes VALUES (?, ?)", (name, "x" * size))

    return write


def names(path: str) -> set[str]:
    with closing(sqlite3.connect(path)) as connection:
        return {name for (name,) in connection.execute("SELECT name FROM notes")}


@contextmanager
def held_by_another(path: str) -> Generator[Callable[[], None]]:
    """The file is locked for writing until the yielded function is called."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield lambda: other.execute("ROLLBACK").close()


async def test_many_writers_share_few_commits(path: str, writer: Writer) -> None:
    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            with held_by_another(path) as let_go:
                for number in range(200):
                    group.start_soon(writer.do, note(str(number)))
                await anyio.wait_all_tasks_blocked()
                let_go()

    assert len(names(path)) == 200
    assert writer.commits <= 2


async def test_a_job_gives_back_what_it_found(writer: Writer) -> None:
    await writer.do(note("a"))

    assert await writer.do(lambda it: it.execute("SELECT name FROM notes").fetchone()) == ("a",)


async def test_a_failing_job_leaves_the_others_of_its_group_intact(
    path: str, writer: Writer
) -> None:
    await writer.do(note("taken"))
    failed: list[Exception] = []

    def half_done(connection: sqlite3.Connection) -> None:
        note("half")(connection)
        raise RunError("no such run")

    async def expect_failure(work: Callable[[sqlite3.Connection], None]) -> None:
        with pytest.raises((StoreError, RunError)) as caught:
            await writer.do(work)
        failed.append(caught.value)

    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            with held_by_another(path) as let_go:
                group.start_soon(writer.do, note("before"))
                group.start_soon(expect_failure, note("taken"))
                group.start_soon(expect_failure, half_done)
                group.start_soon(writer.do, note("after"))
                await anyio.wait_all_tasks_blocked()
                let_go()

    assert names(path) == {"taken", "before", "after"}
    assert {type(error) for error in failed} == {StoreError, RunError}


async def test_a_fault_in_a_job_reaches_its_own_task_only(path: str, writer: Writer) -> None:
    with pytest.raises(ZeroDivisionError):
        await writer.do(lambda _: 1 // 0)

    await writer.do(note("next"))
    assert names(path) == {"next"}


async def test_on_a_full_disk_only_what_does_not_fit_fails(path: str, writer: Writer) -> None:
    await writer.do(lambda it: it.execute("PRAGMA max_page_count = 30").close())
    refused: list[StoreError] = []

    async def write_too_much() -> None:
        with pytest.raises(StoreError) as caught:
            await writer.do(note("huge", HUGE))
        refused.append(caught.value)

    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            with held_by_another(path) as let_go:
                group.start_soon(writer.do, note("before"))
                group.start_soon(write_too_much)
                group.start_soon(writer.do, note("after"))
                await anyio.wait_all_tasks_blocked()
                let_go()
    await writer.do(note("later"))

    assert names(path) == {"before", "after", "later"}
    cause = refused[0].__cause__
    assert isinstance(cause, sqlite3.Error)
    assert cause.sqlite_errorcode == sqlite3.SQLITE_FULL


async def test_an_error_that_ends_the_whole_transaction_fails_its_own_job_only(
    path: str, writer: Writer
) -> None:
    await writer.do(note("taken"))
    await writer.do(lambda it: it.execute(CHECKED_AT_COMMIT).close())
    refused: list[StoreError] = []

    async def expect_failure(sql: str) -> None:
        with pytest.raises(StoreError) as caught:
            await writer.do(lambda it: it.execute(sql).close())
        refused.append(caught.value)

    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            with held_by_another(path) as let_go:
                group.start_soon(writer.do, note("before"))
                group.start_soon(
                    expect_failure, "INSERT OR ROLLBACK INTO notes VALUES ('taken', '')"
                )
                group.start_soon(expect_failure, "INSERT INTO links VALUES ('nowhere')")
                group.start_soon(writer.do, note("after"))
                await anyio.wait_all_tasks_blocked()
                let_go()

    assert names(path) == {"taken", "before", "after"}
    assert len(refused) == 2


async def test_a_file_locked_for_too_long_fails_the_write_and_nothing_more(path: str) -> None:
    connection = connect(path, busy_timeout_s=0.05)
    connection.execute("CREATE TABLE notes (name TEXT PRIMARY KEY, text TEXT NOT NULL) STRICT")
    async with open_writer(connection, path, lambda _: None) as writer:
        with held_by_another(path) as let_go:
            with pytest.raises(StoreError) as caught:
                await writer.do(note("a"))
            let_go()
        await writer.do(note("b"))

    assert names(path) == {"b"}
    assert isinstance(caught.value.__cause__, sqlite3.OperationalError)
    assert caught.value.__cause__.sqlite_errorcode == sqlite3.SQLITE_BUSY


async def test_a_read_only_file_fails_the_write(path: str, writer: Writer) -> None:
    await writer.do(note("a"))
    connection = connect_read_only(path, busy_timeout_s=1)
    async with open_writer(connection, path, lambda _: None) as reader:
        with pytest.raises(StoreError) as caught:
            await reader.do(note("b"))

    assert names(path) == {"a"}
    assert isinstance(caught.value.__cause__, sqlite3.OperationalError)
    assert caught.value.__cause__.sqlite_errorcode & 0xFF == sqlite3.SQLITE_READONLY


async def test_a_refused_file_is_not_written(path: str) -> None:
    def refuse(_: sqlite3.Connection) -> None:
        raise StoreError("not this file")

    connection = connect(path, busy_timeout_s=1)
    connection.execute("CREATE TABLE notes (name TEXT PRIMARY KEY, text TEXT NOT NULL) STRICT")
    async with open_writer(connection, path, refuse) as writer:
        with pytest.raises(StoreError, match="not this file"):
            await writer.do(note("a"))

    assert names(path) == set()


async def test_a_write_outlives_the_cancellation_of_its_caller(path: str, writer: Writer) -> None:
    returned: list[str] = []

    async def write() -> None:
        await writer.do(note("paid"))
        returned.append("paid")

    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            with held_by_another(path) as let_go:
                group.start_soon(write)
                await anyio.wait_all_tasks_blocked()
                group.cancel_scope.cancel()
                let_go()

    assert names(path) == {"paid"}, "the group ended only after the write"
    assert returned == []


async def test_a_caller_that_is_cancelled_already_still_writes(path: str, writer: Writer) -> None:
    with anyio.CancelScope() as scope:
        scope.cancel()
        await writer.do(note("paid"))

    assert scope.cancelled_caught
    assert names(path) == {"paid"}


async def test_the_failure_of_a_cancelled_write_is_logged(
    writer: Writer, caplog: pytest.LogCaptureFixture
) -> None:
    await writer.do(note("taken"))
    with caplog.at_level(logging.WARNING), anyio.CancelScope() as scope:
        scope.cancel()
        await writer.do(note("taken"))

    assert [record.name for record in caplog.records] == ["podium.writer"]


async def test_closing_finishes_what_is_queued(path: str) -> None:
    connection = connect(path, busy_timeout_s=10)
    connection.execute("CREATE TABLE notes (name TEXT PRIMARY KEY, text TEXT NOT NULL) STRICT")
    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            with held_by_another(path) as let_go:
                async with open_writer(connection, path, lambda _: None) as writer:
                    for number in range(20):
                        group.start_soon(writer.do, note(str(number)))
                    await anyio.wait_all_tasks_blocked()
                    let_go()

    assert len(names(path)) == 20


async def test_a_closed_writer_says_so(path: str) -> None:
    async with open_writer(connect(path, busy_timeout_s=1), path, lambda _: None) as writer:
        pass

    with pytest.raises(StoreError):
        await writer.do(note("late"))
