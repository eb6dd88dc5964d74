"""The shape of the ledger file: made, brought up to date, and refused when it is not ours."""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlite_utils import Database
from tests import earlier_ledgers as earlier_ledger
from tests.earlier_ledgers import make_earlier

from podium.database import connect
from podium.errors import StoreError
from podium.migrations import APPLICATION_ID, MIGRATIONS, Migration, migrate
from podium.store import open_store
from podium.task_book import TaskBook


def m002_adds_a_column(db: Database) -> None:
    db.executescript("ALTER TABLE runs ADD COLUMN mood TEXT NOT NULL DEFAULT 'calm';")


def m002_fails_half_way(db: Database) -> None:
    db.executescript("CREATE TABLE half (way TEXT) STRICT; INSERT INTO nowhere VALUES (1);")


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "ledger.db")


@pytest.fixture
def ledger(path: str) -> Iterator[sqlite3.Connection]:
    with closing(connect(path, busy_timeout_s=5)) as connection:
        yield connection


def shape(connection: sqlite3.Connection) -> tuple[int, int, list[tuple[str, str]]]:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    schema = "SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name"
    return version, application, connection.execute(schema).fetchall()


def applied(connection: sqlite3.Connection) -> list[tuple[int, str]]:
    return connection.execute("SELECT number, name FROM migrations ORDER BY number").fetchall()


def test_an_empty_file_becomes_a_ledger(path: str, ledger: sqlite3.Connection) -> None:
    migrate(ledger, path)

    version, application, schema = shape(ledger)
    assert (version, application) == (len(MIGRATIONS), APPLICATION_ID)
    names = {name for name, _ in schema}
    assert {"runs", "rounds", "steps", "calls", "blobs", "files", "search"} <= names
    assert applied(ledger) == [(n, it.__name__) for n, it in enumerate(MIGRATIONS, start=1)]


def test_all_tables_of_ours_are_strict(path: str, ledger: sqlite3.Connection) -> None:
    migrate(ledger, path)

    tables = "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table' "
    loose = ledger.execute(tables + "AND NOT strict AND name NOT LIKE 'sqlite_%'").fetchall()
    assert loose == []


@pytest.mark.parametrize("earlier", range(len(MIGRATIONS) + 1))
def test_every_earlier_shape_becomes_todays(
    path: str, ledger: sqlite3.Connection, tmp_path: Path, earlier: int
) -> None:
    migrate(ledger, path, MIGRATIONS[:earlier])

    migrate(ledger, path)

    with closing(connect(str(tmp_path / "fresh.db"), busy_timeout_s=5)) as fresh:
        migrate(fresh, "fresh")
        assert shape(ledger) == shape(fresh)


@pytest.mark.parametrize("earlier", [0, 1])
def test_a_new_step_is_applied_once_and_recorded(
    path: str, ledger: sqlite3.Connection, earlier: int
) -> None:
    both = (MIGRATIONS[0], m002_adds_a_column)
    migrate(ledger, path, both[:earlier])

    migrate(ledger, path, both)
    migrate(ledger, path, both)

    assert applied(ledger) == [(1, "m001_first_schema"), (2, "m002_adds_a_column")]
    columns = ledger.execute("SELECT name FROM pragma_table_info('runs')").fetchall()
    assert ("mood",) in columns


def test_a_step_keeps_the_rows_that_are_there(path: str, ledger: sqlite3.Connection) -> None:
    migrate(ledger, path, MIGRATIONS[:1])
    ledger.execute("INSERT INTO blobs VALUES ('a', 'text')")

    migrate(ledger, path, (MIGRATIONS[0], m002_adds_a_column))

    assert ledger.execute("SELECT * FROM blobs").fetchall() == [("a", "text")]


def test_a_step_that_fails_leaves_no_trace(path: str, ledger: sqlite3.Connection) -> None:
    migrate(ledger, path, MIGRATIONS[:1])
    before = shape(ledger)

    with pytest.raises(StoreError):
        migrate(ledger, path, (MIGRATIONS[0], m002_fails_half_way))

    assert shape(ledger) == before
    assert not ledger.in_transaction


def test_a_newer_file_is_refused_and_left_alone(path: str, ledger: sqlite3.Connection) -> None:
    migrate(ledger, path)
    ledger.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    before = shape(ledger)

    with pytest.raises(StoreError) as caught:
        migrate(ledger, path)

    assert path in str(caught.value)
    assert shape(ledger) == before


@pytest.mark.parametrize("version", [0, 1, 99])
def test_a_database_of_another_program_is_refused_and_left_alone(
    path: str, ledger: sqlite3.Connection, version: int
) -> None:
    ledger.execute("CREATE TABLE songs (title TEXT)")
    ledger.execute(f"PRAGMA user_version = {version}")
    before = shape(ledger)

    with pytest.raises(StoreError):
        migrate(ledger, path)

    assert shape(ledger) == before


def test_many_may_migrate_a_fresh_file_at_once(path: str) -> None:
    together = threading.Barrier(6)
    failures: list[Exception] = []

    def open_and_migrate() -> None:
        together.wait(timeout=10)
        try:
            with closing(connect(path, busy_timeout_s=10)) as connection:
                migrate(connection, path)
        except StoreError as error:
            failures.append(error)

    threads = [threading.Thread(target=open_and_migrate) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=20)

    assert failures == []
    with closing(connect(path, busy_timeout_s=5)) as connection:
        assert len(applied(connection)) == len(MIGRATIONS)


def test_migrations_are_numbered_in_order() -> None:
    names: list[Migration] = list(MIGRATIONS)
    assert [it.__name__[:5] for it in names] == [f"m{n:03}_" for n in range(1, len(names) + 1)]


EVERY_FORMAT = pytest.mark.parametrize("version", range(1, len(MIGRATIONS) + 1))


@EVERY_FORMAT
async def test_what_an_earlier_podium_stored_is_read_as_it_was_meant(
    path: str, version: int
) -> None:
    make_earlier(Path(path), version)

    async with open_store(path) as store:
        outer, inner, held = earlier_ledger.OUTER, earlier_ledger.INNER, earlier_ledger.HELD
        for run in (outer, inner, held):
            assert await store.run(run.run_id) == run
        assert await store.children(outer.run_id) == (inner,)
        rounds = await store.rounds(outer.run_id)
        assert tuple(found.proposal for found in rounds) == earlier_ledger.PROPOSALS
        assert rounds[0].results == (earlier_ledger.STEPS[0], earlier_ledger.STEPS[2])
        steps = await store.steps(outer.run_id, every_version=True)
        assert steps == earlier_ledger.STEPS
        assert await store.calls(outer.run_id) == earlier_ledger.CALLS
        assert await store.calls(inner.run_id) == (earlier_ledger.INNER_CALL,)
        for sha, text in earlier_ledger.TEXTS.items():
            assert await store.text(sha) == text
        summaries = await store.summaries(nested=None)
        assert [found.run_id for found in summaries] == [held.run_id, inner.run_id, outer.run_id]
        assert [hit.summary.run_id for hit in await store.search("京")] == [outer.run_id]
        assert [hit.summary.run_id for hit in await store.search("check it")] == [outer.run_id]
        assert (await store.usage(outer.run_id)).input_tokens == 31
        assert (await store.worker_history("solver", "solver-1")).mean_output_tokens == 5


@pytest.mark.parametrize("version", range(3, len(MIGRATIONS) + 1))
async def test_tasks_of_an_earlier_podium_are_read_as_they_were_meant(
    path: str, version: int
) -> None:
    make_earlier(Path(path), version)

    async with open_store(path) as store:
        book = TaskBook(store, lambda: 2002.0)
        for row in earlier_ledger.TASKS:
            found = await book.find(row.task_id)
            assert found is not None
            assert (found, found.end) == (row, row.end)


@EVERY_FORMAT
async def test_every_row_of_an_earlier_podium_is_still_there(path: str, version: int) -> None:
    make_earlier(Path(path), version)
    before = contents(path)

    async with open_store(path):
        pass

    after = contents(path)
    for table, rows in before.items():
        columns = set[str]().union(*rows)
        assert [{name: row[name] for name in columns} for row in after[table]] == rows
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []


@EVERY_FORMAT
async def test_what_an_earlier_podium_stored_can_be_gone_on_with(path: str, version: int) -> None:
    make_earlier(Path(path), version)
    run, step = earlier_ledger.HELD, earlier_ledger.STEPS[2]
    done = run.model_copy(update={"status": "finished", "answer": "Somebody.", "resumed_at": None})

    async with open_store(path) as store:
        await store.save_round(run.run_id, 0, earlier_ledger.PROPOSALS[0])
        await store.save_step(run.run_id, step)
        await store.save_run(done)

    async with open_store(path) as store:
        assert await store.run(run.run_id) == done
        assert await store.steps(run.run_id) == (step,)
        assert [hit.summary.run_id for hit in await store.search("somebody")] == [run.run_id]


def contents(path: str) -> dict[str, list[dict[str, object]]]:
    """The rows of every table that is not the record of the migrations themselves."""
    found: dict[str, list[dict[str, object]]] = {}
    with closing(sqlite3.connect(path)) as connection:
        tables = "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table'"
        for (table,) in connection.execute(tables).fetchall():
            if not table.startswith("sqlite_") and table != "migrations":
                rows = connection.execute(f"SELECT * FROM {table} ORDER BY rowid")
                names = [column[0] for column in rows.description]
                found[table] = [dict(zip(names, row, strict=True)) for row in rows]
    return found
