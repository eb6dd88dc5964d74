"""Who follows a run is told how work on it ended, before anybody else may take the run."""

import sqlite3
from pathlib import Path

import anyio
import pytest
from tests.core_parts import by_subtask, hanging, open_parts, plan_of, step, worker

from podium.errors import PodiumError, QuestionError, StoreError
from podium.orchestrator import Orchestrator
from podium.runs import Runs, open_runs
from podium.store import Write
from podium.trace import Observer, Run, RunRequest

GIVEN = RunRequest(question="Why?", strategy="given")
PLANS = [plan_of(step("solo", "Wait."))]


class Follower:
    """Notes what it is told, and whether the run was still held; writes a mark."""

    def __init__(self, runs: Runs, run_id: str) -> None:
        self._runs, self._run_id = runs, run_id
        self.told: list[tuple[PodiumError | None, bool]] = []

    async def __call__(self, error: PodiumError | None) -> Write:
        self.told.append((error, await self._runs.store.is_held(self._run_id)))
        return self._mark

    def _mark(self, connection: sqlite3.Connection) -> None:
        held = "SELECT owner IS NOT NULL FROM runs WHERE run_id = ?"
        assert connection.execute(held, (self._run_id,)).fetchone() == (1,)
        connection.execute("INSERT OR IGNORE INTO blobs VALUES ('mark', 'the end')")


async def test_the_end_is_told_once_to_each_while_the_run_is_still_held(tmp_path: Path) -> None:
    async with (
        open_parts(tmp_path, worker("solo"), plans=PLANS) as parts,
        open_runs(parts.orchestrator) as runs,
    ):
        run = await runs.ask(GIVEN, principal="me")
        follower = Follower(runs, run.run_id)
        runs.follow(run.run_id, "one", follower)
        runs.follow(run.run_id, "one", follower)
        runs.follow(run.run_id, "two", follower)
        await runs.wait(run.run_id)
        assert follower.told == [(None, True)] * 2
        assert await runs.store.text("mark") == "the end"
        runs.follow(run.run_id, "late", follower)
        assert len(follower.told) == 2


async def test_what_went_wrong_is_told_and_a_follower_that_fails_holds_nothing_up(
    tmp_path: Path,
) -> None:
    async def fail(error: PodiumError | None) -> Write | None:
        raise StoreError("There is no room left.")

    async def work(orchestrator: Orchestrator, run: Run, observer: Observer) -> None:
        raise QuestionError("step", "is wrong.")

    async with open_parts(tmp_path, worker("solo")) as parts, open_runs(parts.orchestrator) as runs:
        run = await parts.create()
        follower = Follower(runs, run.run_id)
        await runs.launch(run, work)
        runs.follow(run.run_id, "failing", fail)
        runs.follow(run.run_id, "noting", follower)
        with anyio.fail_after(10):
            while runs.is_mine(run.run_id):
                await anyio.lowlevel.checkpoint()
        ((error, held),) = follower.told
        assert isinstance(error, QuestionError)
        assert held
        assert not await runs.at_work(run.run_id)


async def test_a_stop_is_an_end_and_the_end_of_the_process_is_none(tmp_path: Path) -> None:
    began = anyio.Event()
    script = by_subtask({"Wait.": hanging(began)})
    async with open_parts(tmp_path, worker("solo", script), plans=PLANS) as parts:
        async with open_runs(parts.orchestrator) as runs:
            stopped = await runs.ask(GIVEN, principal="me")
            follower = Follower(runs, stopped.run_id)
            runs.follow(stopped.run_id, "one", follower)
            await began.wait()
            await runs.stop(stopped.run_id)
            assert follower.told == [(None, True)]

            interrupted = await runs.ask(GIVEN, principal="me", fresh=True)
            other = Follower(runs, interrupted.run_id)
            runs.follow(interrupted.run_id, "one", other)
        assert other.told == []
        assert (await parts.store.run(interrupted.run_id)).status == "interrupted"


async def test_a_fault_at_the_end_is_raised_and_leaves_nobody_waiting(tmp_path: Path) -> None:
    async def break_down(error: PodiumError | None) -> Write | None:
        raise RuntimeError("a fault in Podium")

    async def serve() -> None:
        async with (
            open_parts(tmp_path, worker("solo"), plans=PLANS) as parts,
            open_runs(parts.orchestrator) as runs,
        ):
            run = await runs.ask(GIVEN, principal="me")
            runs.follow(run.run_id, "one", break_down)
            await anyio.sleep_forever()

    with anyio.fail_after(20), pytest.raises(BaseExceptionGroup) as raised:
        await serve()
    assert raised.group_contains(RuntimeError, match="a fault in Podium")


async def test_followers_may_come_while_others_are_told(tmp_path: Path) -> None:
    async with (
        open_parts(tmp_path, worker("solo"), plans=PLANS) as parts,
        open_runs(parts.orchestrator) as runs,
    ):
        run = await runs.ask(GIVEN, principal="me")
        told: list[str] = []

        async def bring_another(error: PodiumError | None) -> Write | None:
            told.append("one")
            runs.follow(run.run_id, "two", note)
            return None

        async def note(error: PodiumError | None) -> Write | None:
            told.append("two")
            return None

        runs.follow(run.run_id, "one", bring_another)
        await runs.wait(run.run_id)
        assert told == ["one", "two"]
