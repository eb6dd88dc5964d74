"""What can go wrong with a ledger, for real, and what must be there afterwards."""

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path

import anyio
import pytest
from tests.ledger_samples import (
    FULL_REQUEST,
    WRITTEN,
    Clock,
    a_call,
    a_run,
    a_step,
    put_text,
    stored,
)

from podium.errors import RunError, StoreError
from podium.store import Store, open_store
from podium.trace import (
    Round,
)

PROGRAM = Path(__file__).parents[1] / "write_ledger.py"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture
async def store(path: Path, clock: Clock) -> AsyncIterator[Store]:
    async with open_store(path, clock=clock) as store:
        yield store


async def test_a_record_that_contradicts_others_is_refused(store: Store) -> None:
    run = await stored(store, a_run())

    with pytest.raises(StoreError):
        await store.create_run(run)
    with pytest.raises(StoreError):
        await store.save_step(run.run_id, a_step(0))
    with pytest.raises(StoreError):
        await store.save_round("unknown", 0, WRITTEN)
    with pytest.raises(StoreError):
        await store.save_call(a_call("a", "unknown"))
    with pytest.raises(StoreError):
        await store.create_run(a_run("orphan", parent_id="unknown"))

    assert await store.run(run.run_id) == run
    assert len(await store.summaries()) == 1


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE runs SET data = 'not json'",
        "UPDATE runs SET data = '[]'",
        "UPDATE runs SET pool = '{}'",
        "UPDATE runs SET request = '{\"unknown\": 1}'",
        "UPDATE runs SET status = 'dreaming'",
    ],
)
async def test_a_row_that_cannot_be_read_is_named(store: Store, path: Path, damage: str) -> None:
    run = await stored(store, a_run())
    await stored(store, a_run("another-run"))
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute(f"{damage} WHERE run_id = ?", (run.run_id,))

    with pytest.raises(StoreError, match=run.run_id):
        await store.run(run.run_id)

    assert (await store.run("another-run")).status == "planned"


async def test_a_plan_that_is_no_longer_allowed_is_named(store: Store, path: Path) -> None:
    run = await stored(store, a_run(), WRITTEN)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("UPDATE rounds SET proposal = replace(proposal, '\"all\"', '[7]')")

    with pytest.raises(StoreError, match=run.run_id):
        await store.rounds(run.run_id)


async def test_a_damaged_page_is_told_and_what_is_whole_can_be_read(path: Path) -> None:
    async with open_store(path) as store:
        await stored(store, a_run())
        sha = await put_text(store, "a long text " * 10_000)
    with path.open("r+b") as file:  # the last page is one of the long text
        file.seek(-4096, os.SEEK_END)
        file.write(os.urandom(4096))

    async with open_store(path) as store:
        with pytest.raises(StoreError):
            await store.text(sha)
        assert (await store.run("run-000001")) == a_run()


async def test_a_damaged_first_page_is_refused(path: Path) -> None:
    async with open_store(path) as store:
        await stored(store, a_run())
    with path.open("r+b") as file:
        file.seek(100)
        file.write(os.urandom(3000))

    with pytest.raises(StoreError):
        async with open_store(path):
            pass


async def test_a_full_disk_fails_what_does_not_fit_and_nothing_else(store: Store) -> None:
    await stored(store, a_run())
    await store.writer.do(lambda it: it.execute("PRAGMA max_page_count = 60").close())

    with pytest.raises(StoreError) as caught:
        await put_text(store, "x" * 1_000_000)

    assert isinstance(caught.value.__cause__, sqlite3.Error)
    assert caught.value.__cause__.sqlite_errorcode == sqlite3.SQLITE_FULL
    await store.save_run(a_run(status="failed"))
    assert (await store.run("run-000001")).status == "failed"


async def test_a_file_locked_by_another_program_is_told(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA journal_mode = WAL")
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError) as caught, anyio.fail_after(20):
            async with open_store(path, busy_timeout_s=0.05):
                pass

    assert isinstance(caught.value.__cause__, sqlite3.OperationalError)
    assert caught.value.__cause__.sqlite_errorcode == sqlite3.SQLITE_BUSY


async def test_a_reader_in_another_program_stops_nobody(store: Store, path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN")
        other.execute("SELECT count(*) FROM runs").fetchone()
        with anyio.fail_after(20):
            await stored(store, a_run())
            assert await store.run("run-000001") == a_run()


async def test_a_file_that_a_newer_podium_has_changed_is_read_but_not_written(
    store: Store, path: Path
) -> None:
    run = await stored(store, a_run())
    with closing(sqlite3.connect(path, isolation_level=None)) as newer:
        newer.execute("PRAGMA user_version = 99")

    with pytest.raises(StoreError):
        await store.save_run(run.model_copy(update={"status": "failed"}))

    assert await store.run(run.run_id) == run
    with pytest.raises(StoreError):
        async with open_store(path):
            pass


async def test_a_closed_ledger_says_so(path: Path) -> None:
    async with open_store(path) as store:
        await stored(store, a_run())

    with pytest.raises(StoreError):
        await store.save_run(a_run())
    with pytest.raises(StoreError):
        await store.run("run-000001")


async def test_what_was_stored_is_there_when_the_file_is_opened_again(path: Path) -> None:
    async with open_store(path) as store:
        await stored(store, a_run(request=FULL_REQUEST), WRITTEN)
        await store.save_step("run-000001", a_step(0))

    async with open_store(str(path)) as store:
        assert await store.run("run-000001") == a_run(request=FULL_REQUEST)
        assert await store.rounds("run-000001") == (
            Round(number=0, proposal=WRITTEN, results=(a_step(0),)),
        )


async def test_a_ledger_in_memory_is_gone_at_the_end() -> None:
    async with open_store(":memory:") as store:
        await stored(store, a_run())
        assert len(await store.summaries()) == 1

    async with open_store(":memory:") as store:
        assert await store.summaries() == ()


async def test_a_cancelled_task_still_stores_what_was_paid(store: Store) -> None:
    await stored(store, a_run())

    with anyio.CancelScope() as scope:
        scope.cancel()
        await store.save_call(a_call("paid"))

    assert await store.calls("run-000001") == (a_call("paid"),)


async def test_two_stores_on_one_file_see_each_others_writes(store: Store, path: Path) -> None:
    async with open_store(path) as other:
        async with anyio.create_task_group() as group:
            for number in range(20):
                group.start_soon(store.create_run, a_run(f"here-{number}"))
                group.start_soon(other.create_run, a_run(f"there-{number}"))

        assert len(await store.summaries(limit=100)) == 40
        assert await other.summaries(limit=100) == await store.summaries(limit=100)


def program(path: Path, name: str, count: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), str(path), name, str(count)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def lines(process: subprocess.Popen[str]) -> Iterator[str]:
    assert process.stdout is not None
    for line in process.stdout:
        if line.endswith("\n"):  # a killed program may leave half a line
            yield line.strip()


async def test_processes_share_a_fresh_file_without_errors_or_losses(path: Path) -> None:
    processes = [program(path, name, 50) for name in ("first", "second", "third")]
    results = [process.communicate(timeout=60) for process in processes]

    assert [process.returncode for process in processes] == [0, 0, 0], results
    told = {line for out, _ in results for line in out.split()}
    async with open_store(path) as store:
        assert {summary.run_id for summary in await store.summaries(limit=1000)} == told
        replies = [(await store.steps(run_id))[0].reply for run_id in sorted(told)]
    assert replies == [f"It is {run_id}." for run_id in sorted(told)]
    assert len(told) == 150


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs kill -9")
@pytest.mark.parametrize("told_before_the_kill", [1, 40])
async def test_after_kill_9_every_row_whose_write_had_returned_is_there(
    path: Path, told_before_the_kill: int
) -> None:
    with program(path, "victim", 1_000_000) as process:
        output = lines(process)
        told = [next(output) for _ in range(told_before_the_kill)]
        process.kill()
        told += list(output)
    assert process.returncode == -signal.SIGKILL

    async with open_store(path) as store:
        for run_id in told:
            (result,) = await store.steps(run_id)
            assert result.reply == f"It is {run_id}."
        await stored(store, a_run())
        (hit,) = await store.search(f'"It is {told[-1]}"')
        assert hit.summary.run_id == told[-1]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_the_ledger_works_on_every_event_loop(path: Path, backend: str) -> None:
    async def scenario() -> None:
        async with open_store(path) as store:
            async with anyio.create_task_group() as group:
                for number in range(20):
                    group.start_soon(stored, store, a_run(f"run{number}"), WRITTEN)
            with anyio.CancelScope() as scope:
                scope.cancel()
                await store.save_step("run7", a_step(0, reply="seven"))
            assert scope.cancelled_caught
            with pytest.raises(RunError):
                await store.save_run(a_run("unknown"))
            assert len(await store.summaries(limit=100)) == 20
            assert [hit.summary.run_id for hit in await store.search("seven")] == ["run7"]

    anyio.run(scenario, backend=backend)


def test_opening_an_up_to_date_ledger_does_not_load_sqlite_utils(path: Path) -> None:
    first = program(path, "first", 1)
    first.communicate(timeout=60)
    script = (
        "import anyio, sys\nfrom podium.store import open_store\n"
        "async def main():\n    async with open_store(sys.argv[1]) as store:\n"
        "        await store.mark_told('nobody')\n"
        "anyio.run(main)\nsys.exit('sqlite_utils' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", script, str(path)], timeout=60, check=False)

    assert result.returncode == 0
