"""Tasks in the ledger: durable, somebody's own, for a time, and with one end."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from tests.ledger_samples import Clock, a_run

from podium.store import Store, open_store
from podium.task_book import TaskBook, TaskRow, TaskState

DONE = TaskState(status="completed", since=1005.0, result={"content": []})


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def store(tmp_path: Path) -> AsyncGenerator[Store]:
    async with open_store(tmp_path / "podium.db") as store:
        await store.create_run(a_run())
        yield store


@pytest.fixture
def book(store: Store, clock: Clock) -> TaskBook:
    return TaskBook(store, clock)


def a_task(task_id: str = "t4sk", **changes: object) -> TaskRow:
    row = TaskRow(
        task_id=task_id,
        principal="me",
        tool="orchestrate",
        run_id="run-000001",
        created_at=1000.0,
        updated_at=1000.0,
        expires_at=1060.0,
    )
    return row.model_copy(update=changes)


async def test_what_is_stored_is_found_by_any_process(
    book: TaskBook, clock: Clock, tmp_path: Path
) -> None:
    rows = (
        a_task("plain"),
        a_task("full", asks=True, cancelled=True, answered=("a", "b"), declined=("b",)),
        a_task("no-run", run_id=None),
    )
    for row in rows:
        await book.put(row)
    async with open_store(tmp_path / "podium.db") as another:
        other = TaskBook(another, clock)
        assert [await other.find(row.task_id) for row in rows] == list(rows)


async def test_a_task_is_found_by_its_owner_until_it_expires(book: TaskBook, clock: Clock) -> None:
    await book.put(a_task())
    assert await book.find("t4sk", principal="me") is not None
    assert await book.find("t4sk", principal="you") is None
    assert await book.find("other", principal="me") is None
    clock.now = 1059.9
    assert await book.find("t4sk") is not None
    clock.now = 1060.0
    assert await book.find("t4sk") is None


async def test_expired_tasks_go_when_a_new_one_comes(book: TaskBook, clock: Clock) -> None:
    await book.put(a_task("old"))
    clock.now = 1060.0
    await book.put(a_task("new", expires_at=1120.0))
    clock.now = 1000.0
    assert await book.find("old") is None
    assert await book.find("new") is not None


async def test_the_first_end_is_the_end(book: TaskBook, clock: Clock) -> None:
    await book.put(a_task())
    clock.now = 1005.0
    await book.settle("t4sk", DONE)
    clock.now = 1006.0
    await book.settle("t4sk", TaskState(status="cancelled"))
    await book.mark_cancelled("t4sk")
    await book.mark_answered("t4sk", "step-0", "step-0")
    found = await book.find("t4sk")
    assert found is not None
    assert found == a_task(updated_at=1005.0, outcome=DONE.model_dump_json())
    assert found.end == DONE


async def test_answers_and_a_cancel_are_kept(book: TaskBook, clock: Clock) -> None:
    await book.put(a_task())
    clock.now = 1005.0
    await book.mark_answered("t4sk", "step-0")
    await book.mark_answered("t4sk", "plan#2", "plan")
    await book.mark_cancelled("t4sk")
    assert await book.find("t4sk") == a_task(
        updated_at=1005.0, answered=("step-0", "plan#2"), declined=("plan",), cancelled=True
    )


async def test_a_task_goes_with_its_run(book: TaskBook, store: Store) -> None:
    await book.put(a_task())
    await book.put(a_task("no-run", run_id=None))
    await store.writer.do(lambda connection: connection.execute("DELETE FROM runs"))
    assert await book.find("t4sk") is None
    assert await book.find("no-run") is not None
