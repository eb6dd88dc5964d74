"""Runs as objects: started, watched, waited for, stopped; and who carries out which run."""

import logging
import sqlite3
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path

import anyio
import pytest
from tests.core_parts import (
    BOUND_S,
    NO_KEY,
    Given,
    Parts,
    by_subtask,
    open_parts,
    plan_of,
    step,
    subtasks_of,
    worker,
)

from podium.errors import PodiumError, RunError, StoreError
from podium.orchestrator import Orchestrator
from podium.plan import Proposal
from podium.policy import Ask, State
from podium.revision import run_step
from podium.runs import LEASE_S, Runs, open_runs
from podium.trace import Event, Observer, Run, StepResult
from podium_workers.scripted import Line, ScriptedWorker

PLAN = plan_of(step("ann", "Quick."), step("ann", "Held.", 0))


class Held:
    """A worker whose second subtask waits until it is let go."""

    def __init__(self) -> None:
        self.began = anyio.Event()
        self.go = anyio.Event()
        self.worker = worker("ann", by_subtask({"Quick.": "Quick.", "Held.": self._hold}))

    async def _hold(self) -> Line:
        self.began.set()
        await self.go.wait()
        return "Let go."


class Faulty:
    """A policy with a bug."""

    async def propose(self, state: State, ask: Ask) -> Proposal:
        raise RuntimeError("a secret detail")


@asynccontextmanager
async def runs_of(
    folder: Path, *workers: ScriptedWorker, lease_s: float = LEASE_S
) -> AsyncGenerator[tuple[Runs, Parts]]:
    """The runs of one process over the ledger in *folder*."""
    policies = {"given": Given((PLAN,)), "faulty": Faulty()}
    with anyio.fail_after(BOUND_S):
        async with (
            open_parts(folder, *workers, policies=policies) as parts,
            open_runs(parts.orchestrator, lease_s=lease_s) as runs,
        ):
            yield runs, parts


def change(folder: Path, sql: str, *values: object) -> None:
    """Do something to the ledger's file behind Podium's back."""
    with closing(sqlite3.connect(folder / "podium.db")) as connection, connection:
        connection.execute(sql, values)


class Awaited(logging.Handler):
    """Sets an event once something has been logged."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text
        self.logged = anyio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if self.text in record.getMessage():
            self.logged.set()


@contextmanager
def awaited(text: str) -> Generator[anyio.Event]:
    handler = Awaited(text)
    logger = logging.getLogger("podium.runs")
    logger.addHandler(handler)
    try:
        yield handler.logged
    finally:
        logger.removeHandler(handler)


def lease_of(folder: Path, run: Run) -> str | None:
    """Who holds a run, as the ledger's file has it."""
    with closing(sqlite3.connect(folder / "podium.db")) as connection:
        sql = "SELECT owner FROM runs WHERE run_id = ?"
        (owner,) = connection.execute(sql, (run.run_id,)).fetchone()
    assert owner is None or isinstance(owner, str)
    return owner


async def test_a_started_run_goes_on_in_the_background_to_its_end(tmp_path: Path):
    held = Held()
    async with runs_of(tmp_path, held.worker) as (runs, parts):
        run = await parts.create()
        await runs.start(run)
        await held.began.wait()
        assert (await runs.wait(run.run_id, 0)).status == "running"
        assert lease_of(tmp_path, run) is not None
        held.go.set()
        done = await runs.wait(run.run_id)
        assert (done.status, done.answer) == ("finished", "Let go.")
        assert lease_of(tmp_path, run) is None
        assert (await runs.wait(run.run_id)) == done


async def test_a_view_that_is_cancelled_does_not_end_the_work(tmp_path: Path):
    held = Held()
    async with runs_of(tmp_path, held.worker) as (runs, parts):
        run = await parts.create()
        await runs.start(run)
        await held.began.wait()
        async with anyio.create_task_group() as group:
            group.start_soon(runs.wait, run.run_id)
            await anyio.wait_all_tasks_blocked()
            group.cancel_scope.cancel()
        held.go.set()
        assert (await runs.wait(run.run_id)).status == "finished"


async def test_t03_a_second_start_attaches_to_the_first(tmp_path: Path):
    held = Held()
    async with runs_of(tmp_path, held.worker) as (runs, parts):
        run = await parts.create()
        await runs.start(run)
        await held.began.wait()
        await runs.start(run)
        held.go.set()
        first, second = await runs.wait(run.run_id), await runs.wait(run.run_id)
        assert first == second
        assert subtasks_of(held.worker) == ["Quick.", "Held."]
        await runs.start(first)  # nor does a finished run begin again
        assert len(held.worker.seen) == 2


async def test_two_things_are_not_done_to_a_run_at_once(tmp_path: Path):
    held = Held()
    async with runs_of(tmp_path, held.worker) as (runs, parts):
        run = await parts.create()
        await runs.start(run)
        with pytest.raises(RunError, match="is being worked on; wait for it"):
            await runs.launch(run, Orchestrator.plan)
        held.go.set()
        await runs.wait(run.run_id)


async def test_a_run_of_another_process_is_watched_but_not_touched(tmp_path: Path):
    held = Held()
    async with (
        runs_of(tmp_path, held.worker) as (ours, parts),
        runs_of(tmp_path, worker("ann")) as (theirs, other),
    ):
        run = await parts.create()
        await ours.start(run)
        await held.began.wait()
        await theirs.start(await other.store.run(run.run_id))  # leaves it to the other
        with pytest.raises(RunError, match="by another Podium process"):
            await theirs.launch(await other.store.run(run.run_id), Orchestrator.plan)
        assert (await theirs.wait(run.run_id, 0)).status == "running"
        async with theirs.watch(run.run_id) as events:
            assert [event async for event in events] == []
        held.go.set()
        assert (await theirs.wait(run.run_id)).answer == "Let go."
        await theirs.start(await other.store.run(run.run_id))  # free again, and finished
        assert await theirs.of(run.run_id[:6], "me") == await ours.of(run.run_id, "me")


async def test_runs_of_another_principal_do_not_exist(tmp_path: Path):
    async with runs_of(tmp_path, worker("ann")) as (runs, parts):
        run = await parts.create()
        with pytest.raises(RunError, match="There is no run") as refused:
            await runs.of(run.run_id, "somebody")
        assert "newest" not in str(refused.value)


async def test_an_unknown_id_is_told_with_the_newest_of_ones_own(tmp_path: Path):
    async with runs_of(tmp_path, worker("ann")) as (runs, parts):
        made = [(await parts.create()).run_id for _ in range(4)]
        with pytest.raises(RunError, match="The newest are") as refused:
            await runs.of("abcdefabcdef", "me")
        told = [run_id for run_id in made if run_id in str(refused.value)]
        assert told == made[1:]


# Stopping.


async def test_a_stopped_run_keeps_what_was_paid_and_can_go_on(tmp_path: Path):
    held = Held()
    async with runs_of(tmp_path, held.worker) as (runs, parts):
        run = await parts.create()
        await runs.start(run)
        await held.began.wait()
        stopped = await runs.stop(run.run_id)
        assert (stopped.status, stopped.answer) == ("stopped", None)
        assert stopped == await parts.store.run(run.run_id)
        assert lease_of(tmp_path, run) is None
        steps = await parts.store.steps(run.run_id)
        assert [found.status for found in steps] == ["finished", "stopped"]
        calls = await parts.store.calls(run.run_id)
        assert [call.status for call in calls] == ["finished", "stopped"]

        held.go.set()
        await runs.start(stopped)
        done = await runs.wait(run.run_id)
        assert (done.status, done.answer) == ("finished", "Let go.")
        assert subtasks_of(held.worker) == ["Quick.", "Held.", "Held."]
        assert await parts.findings(done) == []


async def test_a_run_is_stopped_before_it_has_begun(tmp_path: Path):
    ann = worker("ann")
    async with runs_of(tmp_path, ann) as (runs, parts):
        run = await parts.create()
        await runs.start(run)
        assert (await runs.stop(run.run_id)).status == "stopped"  # before its task had a turn
        planned = await parts.create()
        assert (await runs.stop(planned.run_id)).status == "stopped"
        assert ann.seen == []
        await runs.start(planned)
        done = await runs.wait(planned.run_id)
        assert done.status == "finished"
        assert (await runs.stop(planned.run_id)) == done  # nothing is left to stop


async def test_a_server_that_ends_leaves_its_runs_interrupted(tmp_path: Path):
    held = Held()
    async with runs_of(tmp_path, held.worker) as (runs, parts):
        run = await parts.create()
        await runs.start(run)
        await held.began.wait()
    assert lease_of(tmp_path, run) is None
    ann = worker("ann", ["At last."])
    async with runs_of(tmp_path, ann) as (runs, parts):
        left = await parts.store.run(run.run_id)
        assert left.status == "interrupted"
        await runs.start(left)
        assert (await runs.wait(run.run_id)).answer == "At last."
        assert subtasks_of(ann) == ["Held."]


async def test_a_run_that_never_had_its_turn_is_interrupted_too(tmp_path: Path):
    async with runs_of(tmp_path, worker("ann")) as (runs, parts):
        run = await parts.create()
        await runs.start(run)
    async with runs_of(tmp_path, worker("ann")) as (runs, parts):
        assert (await parts.store.run(run.run_id)).status in ("planned", "interrupted")


# Faults.


async def test_a_bug_ends_its_run_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    held = Held()
    async with runs_of(tmp_path, held.worker) as (runs, parts):
        good, bad = await parts.create(), await parts.create(strategy="faulty")
        await runs.start(good)
        await held.began.wait()
        await runs.start(bad)
        with pytest.raises(PodiumError, match=r"A fault in Podium ended this run \(RuntimeError\)"):
            await runs.wait(bad.run_id)
        failed = await parts.store.run(bad.run_id)
        assert failed.status == "failed"
        assert failed.error is not None
        assert failed.error.code == "internal"
        assert "secret" not in failed.error.message
        assert lease_of(tmp_path, bad) is None
        held.go.set()
        assert (await runs.wait(good.run_id)).status == "finished"
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


async def test_a_ledger_that_cannot_be_written_ends_no_other_work(tmp_path: Path):
    """Neither giving a run up nor renewing its lease may take the server down."""
    held = Held()
    async with runs_of(tmp_path, held.worker, lease_s=0.3) as (runs, parts):
        run = await parts.create()
        await runs.start(run)
        await held.began.wait()
        with awaited("leases could not be renewed") as noticed:
            change(tmp_path, "ALTER TABLE runs RENAME TO gone")
            await noticed.wait()
        with awaited("stays held for 0.3 s") as kept:
            held.go.set()
            with pytest.raises(StoreError):
                await runs.wait(run.run_id)
            assert kept.is_set()
        change(tmp_path, "ALTER TABLE gone RENAME TO runs")
        await runs.start(await parts.store.run(run.run_id))
        assert (await runs.wait(run.run_id)).answer == "Let go."


async def test_a_run_that_was_taken_over_is_let_go_of(tmp_path: Path):
    held = Held()
    async with runs_of(tmp_path, held.worker, lease_s=0.3) as (runs, parts):
        run = await parts.create()
        await runs.start(run)
        await held.began.wait()
        with awaited("was taken over by another process") as noticed:
            sql = "UPDATE runs SET owner = 'other', lease_until = 9e9, epoch = 2 WHERE run_id = ?"
            change(tmp_path, sql, run.run_id)
            await noticed.wait()
        await runs.wait(run.run_id, BOUND_S / 2)
        with pytest.raises(RunError, match="by another Podium process"):
            await runs.launch(run, Orchestrator.answer)
        assert lease_of(tmp_path, run) == "other"


async def test_a_lease_is_prolonged_while_the_work_lasts(tmp_path: Path):
    held = Held()
    async with runs_of(tmp_path, held.worker, lease_s=0.3) as (runs, parts):
        run = await parts.create()
        await runs.start(run)
        await held.began.wait()
        change(tmp_path, "UPDATE runs SET lease_until = 1")
        while not await parts.store.is_held(run.run_id):  # noqa: ASYNC110 - nothing tells of it
            await anyio.sleep(0.01)
        held.go.set()
        assert (await runs.wait(run.run_id)).status == "finished"


async def test_an_expected_failure_of_the_work_is_raised_to_who_waits(tmp_path: Path):
    async with runs_of(tmp_path, worker("ann", [NO_KEY])) as (runs, parts):
        run = await parts.create(strategy="conductor")
        await runs.launch(run, Orchestrator.plan)
        with pytest.raises(PodiumError, match="key is wrong"):
            await runs.wait(run.run_id)
        assert (await runs.wait(run.run_id)).status == "failed"


async def test_one_step_is_work_like_any_other(tmp_path: Path):
    async with runs_of(tmp_path, worker("ann", ["One."])) as (runs, parts):
        run = await parts.create()
        await runs.launch(run, Orchestrator.plan)
        await runs.wait(run.run_id)
        results: list[object] = []

        async def work(held: Orchestrator, run: Run, observer: Observer) -> None:
            results.append(await run_step(held, run, 0, observer))

        await runs.launch(run, work)
        planned = await runs.wait(run.run_id)
        (result,) = results
        assert isinstance(result, StepResult)
        assert (planned.status, result.reply) == ("planned", "One.")


# Watching.


async def test_watchers_get_every_event_in_order_and_end_with_the_work(tmp_path: Path):
    held = Held()
    async with runs_of(tmp_path, held.worker) as (runs, parts):
        run = await parts.create()
        seen: list[list[Event]] = [[], []]

        async def watch(into: list[Event], ready: anyio.Event) -> None:
            async with runs.watch(run.run_id) as events:
                ready.set()
                into += [event async for event in events]

        await runs.start(run)
        async with anyio.create_task_group() as group:
            for into in seen:
                ready = anyio.Event()
                group.start_soon(watch, into, ready)
                await ready.wait()
            held.go.set()
        assert [event.kind for event in seen[0]][-3:] == ["planning", "accepted", "finished"]
        kinds = [(event.kind, event.step) for event in seen[0] if event.step is not None]
        assert kinds == [
            ("step_started", 0),
            ("step_finished", 0),
            ("step_started", 1),
            ("step_finished", 1),
            ("accepted", 1),
            ("finished", 1),
        ]
        assert seen[0] == seen[1]


async def test_a_watcher_that_goes_away_or_is_slow_holds_nothing_up(tmp_path: Path):
    held = Held()
    async with runs_of(tmp_path, held.worker) as (runs, parts):
        run = await parts.create()
        await runs.start(run)
        async with runs.watch(run.run_id) as left, runs.watch(run.run_id) as slow:
            await left.receive()
            left.close()
            held.go.set()
            assert (await runs.wait(run.run_id)).status == "finished"
            assert [event.kind async for event in slow][-1] == "finished"


async def test_a_run_that_nobody_works_on_has_no_events(tmp_path: Path):
    async with runs_of(tmp_path, worker("ann")) as (runs, parts):
        run = await parts.create()
        async with runs.watch(run.run_id) as events:
            assert [event async for event in events] == []
