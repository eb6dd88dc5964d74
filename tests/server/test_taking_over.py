"""Whose a run is in one ledger: taken over, stopped from elsewhere, attached to."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from tests.core_parts import BOUND_S, Parts, by_subtask, hanging, open_parts, plan_of, step, worker
from tests.ledger_samples import Clock, a_run
from tests.server.test_owner import owner_of_a_process

from podium.errors import RunError
from podium.holding import Holding
from podium.runs import Runs, open_runs
from podium.store import open_store
from podium_workers.scripted import ScriptedWorker

RUN = "run-000001"
LEASE_S = 0.3
PLAN = plan_of(step("ann", "First."), step("ann", "Second.", 0))


def gone_owner() -> str:
    process, owner = owner_of_a_process()
    process.kill()
    process.communicate()
    return owner


@asynccontextmanager
async def process(
    folder: Path, *workers: ScriptedWorker, takes_over: bool = False
) -> AsyncGenerator[tuple[Runs, Parts]]:
    with anyio.fail_after(BOUND_S):
        async with (
            open_parts(folder, *workers, plans=[PLAN]) as parts,
            open_runs(parts.orchestrator, lease_s=LEASE_S, takes_over=takes_over) as runs,
        ):
            yield runs, parts


async def left_by_the_dead(folder: Path, *names: str) -> str:
    """A run that a process was carrying out when it died."""
    async with open_parts(folder, *map(worker, names), plans=[PLAN]) as parts:
        run = await parts.create()
        await parts.store.claim(run.run_id, gone_owner(), 0.0)
        await parts.store.save_run(run.model_copy(update={"status": "running"}))
        return run.run_id


async def finished(runs: Runs, parts: Parts, run_id: str) -> str | None:
    while (await parts.store.run(run_id)).status != "finished":  # noqa: ASYNC110 - not begun yet
        await anyio.sleep(0.02)
    return (await runs.wait(run_id)).answer


async def test_a_run_of_the_dead_is_free_for_who_asks_and_unasked_when_its_lease_has_ended(
    tmp_path: Path,
) -> None:
    clock = Clock()
    with anyio.fail_after(BOUND_S):
        async with open_store(tmp_path / "podium.db", clock=clock) as store:
            await store.create_run(a_run(status="running"))
            await store.claim(RUN, gone_owner(), 10)
            mine = Holding(store, 10, clock)
            assert await mine.is_free(RUN)
            assert await mine.left_behind() == ()
            clock.now += 10
            assert await mine.left_behind() == (RUN,)
            lease = await mine.claim(RUN)
            assert lease is not None
            assert lease.epoch == 2
            again = await mine.claim(RUN)
            assert again is not None, "what could not be given up is still one's own"


async def test_a_server_carries_on_what_the_dead_have_left(tmp_path: Path) -> None:
    run_id = await left_by_the_dead(tmp_path, "ann")
    async with process(tmp_path, worker("ann", ["A.", "B."]), takes_over=True) as (runs, parts):
        assert await finished(runs, parts, run_id) == "B."


async def test_a_server_with_another_pool_leaves_it_until_it_is_asked(tmp_path: Path) -> None:
    run_id = await left_by_the_dead(tmp_path, "ann", "bob")
    async with process(tmp_path, worker("ann"), takes_over=True) as (runs, parts):
        await anyio.sleep(LEASE_S)
        assert (await parts.store.run(run_id)).status == "running"
        await runs.start(await parts.store.run(run_id))
        assert await finished(runs, parts, run_id) == "Done."


async def test_a_run_is_stopped_from_another_process(tmp_path: Path) -> None:
    began = anyio.Event()
    held = worker("ann", by_subtask({"First.": hanging(began)}))
    async with (
        process(tmp_path, held) as (ours, parts),
        process(tmp_path, worker("ann")) as (theirs, _),
    ):
        run = await parts.create()
        await ours.start(run)
        await began.wait()
        assert (await theirs.stop(run.run_id)).status == "stopped"
        assert (await ours.wait(run.run_id)).status == "stopped"
        assert await parts.store.holder(run.run_id) is None


async def test_a_step_of_a_run_at_work_is_not_stopped_alone(tmp_path: Path) -> None:
    began = anyio.Event()
    held = worker("ann", by_subtask({"First.": hanging(began)}))
    async with process(tmp_path, held) as (runs, parts):
        run = await parts.create()
        child = await parts.orchestrator.create(run.request, principal="me", parent_id=run.run_id)
        await runs.start(run)
        await began.wait()
        with pytest.raises(RunError, match=f"is a step of run {run.run_id}.*stop that one"):
            await runs.stop(child.run_id)


async def test_the_same_question_attaches_while_it_is_worked_on(tmp_path: Path) -> None:
    held = worker("ann", by_subtask({"First.": hanging()}))
    async with process(tmp_path, held) as (runs, parts):
        asked = (await parts.create("Why?")).request
        first = await runs.ask(asked, principal="me")
        assert (await runs.ask(asked, principal="me")).run_id == first.run_id
        others = [
            await runs.ask(asked, principal="me", fresh=True),
            await runs.ask(asked, principal="you"),
            await runs.ask(asked.model_copy(update={"rounds": 2}), principal="me"),
            await runs.ask(asked, principal="me", steps=[step("ann", "Mine.")]),
            await runs.plan(asked, principal="me"),
        ]
        assert len({first.run_id, *(other.run_id for other in others)}) == 6


async def test_an_answer_that_nobody_was_told_is_given_to_who_asks_again(tmp_path: Path) -> None:
    async with process(tmp_path, worker("ann", ["One."])) as (runs, parts):
        asked = (await parts.create("Why?")).request
        first = await runs.ask(asked, principal="me")
        await runs.wait(first.run_id)
        again = await runs.ask(asked, principal="me")
        assert (again.run_id, again.status) == (first.run_id, "finished")
        await parts.store.mark_told(first.run_id)
        anew = await runs.ask(asked, principal="me")
        assert anew.run_id != first.run_id
        await runs.wait(anew.run_id)
