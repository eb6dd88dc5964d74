"""Pruning: what goes, what never goes, and that what stays is whole."""

import re
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path

import anyio
import anyio.from_thread
import pytest
from tests.core_parts import (
    REFUSED,
    by_subtask,
    file,
    nesting,
    open_parts,
    plan_of,
    step,
    worker,
)
from tests.ledger_samples import WRITTEN, Clock, a_call, a_run, a_step, put_text, stored

from podium.budget import Amount
from podium.database import connect
from podium.errors import RunError, StoreError
from podium.migrations import MIGRATIONS, migrate
from podium.plan import PODIUM
from podium.pruning import UNTOUCHED_S, Wanted
from podium.revision import edit_step
from podium.store import Store, open_store, text_hash
from podium.trace import Run, RunRequest, RunStatus
from podium.upkeep import RUNS_AT_ONCE, Told, prune, survey
from podium_workers.worker import Reply, Usage

PROGRAM = Path(__file__).parents[1] / "prune_ledger.py"
NOW = 10_000.0
OLD = Wanted(before=5_000.0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture
def clock() -> Clock:
    clock = Clock()
    clock.now = NOW
    return clock


@asynccontextmanager
async def opened(path: Path, clock: Clock) -> AsyncGenerator[Store]:
    async with open_store(path, clock=clock) as store:
        yield store


@contextmanager
def raw(path: Path) -> Generator[sqlite3.Connection]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


async def a_whole_run(
    store: Store, run_id: str, *, at: float = 100.0, text: str = "", **changes: object
) -> Run:
    """A finished run with texts of its own, or with *text* for all of them."""
    run = a_run(
        run_id, created_at=at, **({"status": "finished", "answer": f"{run_id} is done"} | changes)
    )
    await stored(store, run, WRITTEN)
    prompt = await put_text(store, text or f"Prompt of {run_id}.")
    reply = await put_text(store, text or f"Reply of {run_id}.")
    reasoning = await put_text(store, text or f"Reasoning of {run_id}.")
    await store.save_step(run_id, a_step(0, prompt=prompt, reply=f"{run_id} said so"))
    call = a_call(f"call of {run_id}", run_id, prompt=prompt, reply=reply, started_at=at)
    await store.save_call(call.model_copy(update={"reasoning": reasoning}))
    return run


async def reasoning_of(store: Store, run_id: str) -> str:
    (call,) = await store.calls(run_id)
    assert call.reasoning
    return await store.text(call.reasoning)


async def ids(path: Path) -> set[str]:
    async with open_store(path) as store:
        return {found.run_id for found in await store.summaries(limit=10_000, nested=None)}


async def surveyed(path: Path, wanted: Wanted, clock: Clock) -> list[str]:
    """The runs that would go, in order."""
    return [run.run_id for run in (await survey(path, wanted, clock=clock)).runs]


def counts(path: Path) -> dict[str, int]:
    tables = ("runs", "files", "rounds", "steps", "calls", "search", "blobs")
    with raw(path) as connection:
        return {
            table: connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            for table in tables
        }


def check_whole(path: Path) -> None:
    """The file is sound, nothing in it points nowhere, and each text that is named is there."""
    with raw(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        assert named_texts(connection) == texts(connection)


def texts(connection: sqlite3.Connection) -> set[str]:
    return {sha for (sha,) in connection.execute("SELECT sha FROM blobs")}


def named_texts(connection: sqlite3.Connection) -> set[str]:
    """Whatever looks like the hash of a text, in any column of any record."""
    tables = "SELECT name FROM pragma_table_list WHERE type = 'table' AND schema = 'main'"
    found: set[str] = set()
    for (table,) in connection.execute(tables).fetchall():
        if table != "blobs" and not table.startswith(("sqlite_", "search")):
            for row in connection.execute(f"SELECT * FROM {table}"):
                found.update(re.findall(r"\b[0-9a-f]{64}\b", "\n".join(map(str, row))))
    return found


async def test_an_old_run_goes_with_all_that_is_its_own(path: Path, clock: Clock) -> None:
    files = (file("notes.txt", "Some notes. " * 5000),)
    request = RunRequest(question="An old question?", files=files)
    async with opened(path, clock) as store:
        await a_whole_run(store, "old-run", request=request)
        await a_whole_run(store, "its-step", parent_id="old-run")
        await a_whole_run(store, "its-step-of-step", parent_id="its-step")
        new = await a_whole_run(store, "new-run", at=6_000.0)
        before = await reasoning_of(store, "new-run")

    seen = await survey(path, OLD, clock=clock)
    done = await prune(path, OLD, clock=clock)

    assert [run.run_id for run in seen.runs] == ["old-run"]
    assert (done.runs, done.texts, done.compacted) == (1, 10, True)
    assert done.bytes < seen.bytes
    one_run = {"runs": 1, "files": 0, "rounds": 1, "steps": 1, "calls": 1, "search": 2, "blobs": 3}
    assert counts(path) == one_run
    check_whole(path)
    async with opened(path, clock) as store:
        assert await store.run("new-run") == new
        assert await reasoning_of(store, "new-run") == before
        assert [hit.summary.run_id for hit in await store.search("said so")] == ["new-run"]
        assert await store.search("notes") == ()
        with pytest.raises(RunError):
            await store.run("old-run")


async def test_a_text_that_two_runs_use_stays_until_both_are_gone(path: Path, clock: Clock) -> None:
    async with opened(path, clock) as store:
        await a_whole_run(store, "old-run", text="The same for all.")
        await a_whole_run(store, "new-run", at=6_000.0, text="The same for all.")

    first = await prune(path, OLD, clock=clock)
    assert (first.runs, first.texts) == (1, 0)
    check_whole(path)
    async with opened(path, clock) as store:
        sha = (await store.steps("new-run"))[0].prompt
        assert await store.text(sha) == "The same for all."

    second = await prune(path, Wanted(), clock=clock)
    assert (second.runs, second.texts) == (1, 1)
    assert not any(counts(path).values())


async def test_no_text_goes_that_any_record_of_a_real_run_names(tmp_path: Path) -> None:
    inner = plan_of(step("ann", "Think."))
    outer = plan_of(step(PODIUM, "Hard."), step("bob", "Easy.", 0), step("ann", "Say it.", 1))
    ann = worker("ann", by_subtask({}, "A reply."))
    bob = worker("bob", [REFUSED])
    async with open_parts(tmp_path, ann, bob, policies=nesting(inner, outer)) as parts:
        first = await parts.ask("First?", depth=1, files=(file("a.txt", "A file."),))
        second = await parts.ask("Second?", depth=1, files=(file("a.txt", "A file."),))
        again = await parts.store.run(second.run_id)
        await edit_step(parts.orchestrator, again, 2, {"subtask": "Say it again."})
        await parts.go_on(again)
        await _settle_with_reasoning(parts.store, second)
    path = tmp_path / "podium.db"
    with raw(path) as connection:
        connection.execute("UPDATE runs SET created_at = 0, started_at = 0, finished_at = 0")
        connection.execute("UPDATE calls SET started_at = 0")
        connection.execute("UPDATE runs SET created_at = 7000 WHERE run_id = ?", (second.run_id,))
        assert named_texts(connection) == texts(connection)

    done = await prune(path, Wanted(before=5_000.0))

    assert done.runs == 1
    assert done.texts > 0
    check_whole(path)
    assert first.run_id not in await ids(path)
    async with open_parts(tmp_path, ann, bob, policies=nesting(inner, outer)) as parts:
        assert await parts.findings(second) == []


async def _settle_with_reasoning(store: Store, run: Run) -> None:
    """A call whose provider shows its reasoning, which scripted workers do not have."""
    reply = Reply(text="A reply.", usage=Usage(), model="m", reasoning="Let me see.")
    call = (await store.calls(run.run_id))[0]
    shown = {"call_id": "shown", "reasoning": await put_text(store, reply.reasoning)}
    await store.save_call(call.model_copy(update=shown))


@pytest.mark.parametrize("whose", ["its own", "that of a step of it"])
async def test_a_run_at_work_never_goes(path: Path, clock: Clock, whose: str) -> None:
    async with opened(path, clock) as store:
        await a_whole_run(store, "busy-run", status="running")
        await a_whole_run(store, "its-step", parent_id="busy-run")
        await a_whole_run(store, "idle-run")
    leased = "busy-run" if whose == "its own" else "its-step"
    hold(path, leased, until=NOW + 1)
    everything = Wanted(statuses=("interrupted", "finished"))

    assert (await prune(path, everything, clock=clock)).runs == 1

    assert await ids(path) == {"busy-run", "its-step"}
    clock.now = NOW + 2
    assert (await prune(path, Wanted(), clock=clock)).runs == 0, "it may still be taken over"
    assert [run.status for run in (await survey(path, everything, clock=clock)).runs] == [
        "interrupted"
    ]
    assert (await prune(path, everything, clock=clock)).runs == 1
    assert await ids(path) == set()


def hold(path: Path, run_id: str, until: float) -> None:
    """Give a run an owner, as a process that carries it out does."""
    with raw(path) as connection:
        sql = "UPDATE runs SET owner = 'somebody', lease_until = ? WHERE run_id = ?"
        connection.execute(sql, (until, run_id))


async def test_a_run_whose_process_died_while_it_planned_has_to_be_named(
    path: Path, clock: Clock
) -> None:
    async with opened(path, clock) as store:
        await store.create_run(a_run(status="planned"))
    hold(path, "run-000001", until=NOW - 100)

    assert await surveyed(path, Wanted(), clock) == []
    assert await surveyed(path, Wanted(statuses=("planned",)), clock) == []
    assert await surveyed(path, Wanted(statuses=("interrupted",)), clock) == ["run-000001"]


async def test_a_run_that_is_taken_up_after_the_survey_stays(path: Path, clock: Clock) -> None:
    last_but_one = f"run-{RUNS_AT_ONCE:04}"
    last = f"run-{RUNS_AT_ONCE + 1:04}"
    async with opened(path, clock) as store:
        for number in range(RUNS_AT_ONCE + 2):
            await store.create_run(a_run(f"run-{number:04}", created_at=100.0 + number))

    def use_the_last(gone: int) -> None:
        hold(path, last_but_one, until=NOW + 30)
        with raw(path) as connection:
            sql = "UPDATE runs SET finished_at = 400 WHERE run_id = ?"
            connection.execute(sql, (last,))

    done = await prune(path, Wanted(), clock=clock, told=use_the_last)

    assert done.runs == RUNS_AT_ONCE
    assert await ids(path) == {last_but_one, last}


@pytest.mark.parametrize(
    ("status", "goes"),
    [
        ("planned", True), ("finished", True), ("partial", True), ("failed", True),
        ("stopped", True), ("interrupted", True), ("needs_caller", False), ("running", False),
    ],
)  # fmt: skip
async def test_only_what_waits_for_someone_has_to_be_named(
    path: Path, clock: Clock, status: RunStatus, goes: bool
) -> None:
    async with opened(path, clock) as store:
        await store.create_run(a_run(status=status))
        other: RunStatus = "failed" if status == "finished" else "finished"
        await store.create_run(a_run("other-run", status=other))

    assert ("run-000001" in await surveyed(path, Wanted(), clock)) is goes
    named = await surveyed(path, Wanted(statuses=(status,)), clock)
    assert named == ([] if status == "running" else ["run-000001"])


async def test_age_counts_from_what_was_last_done(path: Path, clock: Clock) -> None:
    async with opened(path, clock) as store:
        await store.create_run(a_run("untouched"))
        await store.create_run(a_run("started-again", started_at=6_000.0))
        await store.create_run(a_run("finished-late", finished_at=6_000.0))
        await store.create_run(a_run("walked-by-hand"))
        await store.save_call(a_call("late", "walked-by-hand", started_at=6_000.0))
        await store.create_run(a_run("new", created_at=NOW - UNTOUCHED_S / 2))
        await store.create_run(a_run("of-somebody-else", principal="you"))

    mine = OLD.model_copy(update={"principal": "me"})
    assert await surveyed(path, mine, clock) == ["untouched"]
    assert await surveyed(path, OLD, clock) == ["untouched", "of-somebody-else"]
    assert "new" not in await surveyed(path, Wanted(), clock)
    clock.now += UNTOUCHED_S
    assert (await surveyed(path, Wanted(), clock))[-1] == "new"


async def test_both_limits_hold_when_both_are_given(path: Path, clock: Clock) -> None:
    async with opened(path, clock) as store:
        for number in range(10):
            run_id = f"run-{number:04}"
            await a_whole_run(store, run_id, at=1000.0 * number, text=f"{run_id} {'x' * 50_000}")
    whole = (await survey(path, Wanted(), clock=clock)).bytes

    roomy = Wanted(before=2_500.0, keep_bytes=whole)
    tight = Wanted(before=2_500.0, keep_bytes=whole - 150_000)

    assert len(await surveyed(path, roomy, clock)) == 3
    assert len(await surveyed(path, tight, clock)) == 3
    assert len(await surveyed(path, Wanted(before=2_500.0, keep_bytes=whole // 2), clock)) >= 5


async def test_the_oldest_go_until_the_ledger_is_small_enough(path: Path, clock: Clock) -> None:
    async with opened(path, clock) as store:
        for number in range(60):
            run_id = f"run-{number:04}"
            size = 20_000 if number % 3 else 200  # texts weigh, not runs
            await a_whole_run(store, run_id, at=100.0 + number, text=f"{run_id} {'x' * size}")
    whole = (await survey(path, Wanted(), clock=clock)).bytes
    wanted = Wanted(keep_bytes=whole // 2)

    seen = await survey(path, wanted, clock=clock)
    done = await prune(path, wanted, clock=clock)

    left = sorted(await ids(path))
    assert left == [f"run-{number:04}" for number in range(60 - len(left), 60)]
    assert abs(done.runs - len(seen.runs)) <= 3
    assert 24 <= len(left) <= 33
    assert done.bytes <= whole // 2
    assert size_of(path) <= whole // 2
    assert (await survey(path, wanted, clock=clock)).runs == ()
    check_whole(path)


def size_of(path: Path) -> int:
    return path.stat().st_size


async def test_texts_go_while_a_run_is_at_work_and_those_that_it_names_stay(
    path: Path, clock: Clock
) -> None:
    async with opened(path, clock) as store:
        await a_whole_run(store, "old-run", text="What is the answer?")
        await a_whole_run(store, "older-run", text="Something else.")
        await a_whole_run(store, "busy-run", at=6_000.0, status="running")
        hold(path, "busy-run", until=NOW + 30)
        next_call = a_call("next", "busy-run", prompt=text_hash("What is the answer?"))
        await store.open_call(next_call, Amount(), None, ("What is the answer?",))

        done = await prune(path, OLD, clock=clock)

        assert (done.runs, done.texts) == (2, 1)
        assert await store.text(next_call.prompt) == "What is the answer?"


async def test_the_file_keeps_its_size_while_others_have_it_open(path: Path, clock: Clock) -> None:
    async with opened(path, clock) as store:
        for number in range(20):
            await a_whole_run(store, f"run-{number:04}", text=f"{number} {'x' * 50_000}")
        first = await prune(path, OLD, clock=clock)
        assert (first.runs, first.compacted) == (20, False)
        assert (await store.summaries()) == ()
    before = size_of(path)

    second = await prune(path, OLD, clock=clock)

    assert (second.runs, second.compacted) == (0, True)
    assert size_of(path) < before / 5
    assert size_of(path) == second.bytes
    check_whole(path)


async def test_what_a_day_has_cost_outlives_its_runs(path: Path, clock: Clock) -> None:
    async with opened(path, clock) as store:
        for run_id in ("old-run", "new-run"):
            await a_whole_run(store, run_id, at=100.0 if run_id == "old-run" else 6_000.0)
        await a_whole_run(store, "its-step", parent_id="old-run")
    with raw(path) as connection:
        connection.execute("INSERT INTO budgets (scope, nano_usd) VALUES ('monday', 5)")
        sql = (
            "INSERT INTO reservations (call_id, scope, nano_usd, tokens, kept) "
            "VALUES (?, ?, ?, 1, 1)"
        )
        connection.execute(sql, ("call of old-run", "monday", 10))
        connection.execute(sql, ("call of its-step", "tuesday", 20))
        connection.execute(sql, ("call of new-run", "tuesday", 40))

    await prune(path, OLD, clock=clock)

    with raw(path) as connection:
        spent = connection.execute("SELECT scope, nano_usd FROM budgets ORDER BY scope").fetchall()
        held = connection.execute("SELECT call_id, nano_usd FROM reservations").fetchall()
    assert spent == [("monday", 15), ("tuesday", 20)]
    assert held == [("call of new-run", 40)]


async def test_others_write_while_runs_go(path: Path, clock: Clock) -> None:
    async with opened(path, clock) as store:
        for number in range(RUNS_AT_ONCE * 3):
            await store.create_run(a_run(f"run-{number:04}"))
        parts: list[int] = []
        written = threading.Event()

        def told(gone: int) -> None:
            parts.append(gone)
            assert written.wait(20), "nobody else could write between two parts"

        async with anyio.create_task_group() as group:
            with anyio.fail_after(30):
                group.start_soon(_prune, path, clock, told)
                await store.create_run(a_run("new-run", created_at=6_000.0))
                written.set()

    assert parts == [RUNS_AT_ONCE, RUNS_AT_ONCE * 2, RUNS_AT_ONCE * 3]
    assert await ids(path) == {"new-run"}


async def _prune(path: Path, clock: Clock, told: Told) -> None:
    await prune(path, OLD, clock=clock, told=told)


async def test_pruning_that_is_cancelled_ends_after_the_part_in_hand(
    path: Path, clock: Clock
) -> None:
    async with opened(path, clock) as store:
        for number in range(RUNS_AT_ONCE * 3):
            await store.create_run(a_run(f"run-{number:04}"))

    async with anyio.create_task_group() as group:

        def told(gone: int) -> None:
            anyio.from_thread.run_sync(group.cancel_scope.cancel)

        group.start_soon(_prune, path, clock, told)

    assert len(await ids(path)) == RUNS_AT_ONCE * 2
    check_whole(path)


@pytest.mark.skipif(sys.platform == "win32", reason="needs kill -9")
async def test_after_kill_9_in_the_middle_the_ledger_is_whole(path: Path, clock: Clock) -> None:
    async with opened(path, clock) as store, anyio.create_task_group() as group:
        for number in range(RUNS_AT_ONCE * 4):
            group.start_soon(a_whole_run, store, f"run-{number:04}")

    prune_and_kill(path)

    left = await ids(path)

    assert 0 < len(left) <= RUNS_AT_ONCE * 3
    with raw(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        assert named_texts(connection) <= texts(connection)
    assert (await prune(path, OLD, clock=clock)).runs == len(left)
    assert not any(counts(path).values())


def prune_and_kill(path: Path) -> None:
    """Let a process remove all runs, and kill it after the first part."""
    with subprocess.Popen(
        [sys.executable, str(PROGRAM), str(path)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == f"{RUNS_AT_ONCE}\n"
        process.kill()


async def test_a_ledger_of_the_first_format_is_brought_up_to_date(path: Path, clock: Clock) -> None:
    with closing(connect(str(path), busy_timeout_s=5)) as connection:
        migrate(connection, str(path), MIGRATIONS[:1])

    assert (await survey(path, Wanted(), clock=clock)).runs == ()
    assert (await prune(path, Wanted(), clock=clock)).runs == 0

    with raw(path) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)


async def test_a_newer_ledger_is_refused(path: Path, clock: Clock) -> None:
    async with opened(path, clock) as store:
        await a_whole_run(store, "old-run")
    with raw(path) as connection:
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")

    for act in (survey, prune):
        with pytest.raises(StoreError, match="update Podium"):
            await act(path, OLD, clock=clock)
    assert counts(path)["runs"] == 1
