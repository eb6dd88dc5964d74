"""Replies are paid for once: by content, over runs, and over a job that was stopped."""

from pathlib import Path

import anyio
import pytest
from tests.core_parts import written

from podium.store import open_store
from podium_lab.train.caching import CachedWorker, cached
from podium_lab.train.environment import Environment, Rewards
from podium_lab.train.items import Goal, Item
from podium_workers.errors import ManifestError, OverloadedError
from podium_workers.pool import Pool
from podium_workers.scripted import ScriptedWorker
from podium_workers.worker import Price

ITEM = Item(
    id="1", taskset="some", question="What is 6 times 7?", judge="number", answer="42",
    goals=(Goal(kind="arithmetic", answer="42"),),
)  # fmt: skip
PLAN = written(("one", "Answer.", []))


def _pool(worker: ScriptedWorker) -> Pool:
    return Pool(workers=(worker,), conductor="one")


async def test_the_same_plan_is_paid_once_also_by_rollouts_at_the_same_time(tmp_path: Path) -> None:
    worker = ScriptedWorker.named("one", ["42", "41"])
    async with (
        open_store(tmp_path / "a.db") as store,
        cached(_pool(worker), tmp_path / "c") as pool,
    ):
        environment = Environment(store)
        rewards: list[float | None] = []

        async def roll() -> None:
            rewards.append((await environment.score(PLAN, ITEM, pool)).reward)

        async with anyio.create_task_group() as group:
            for _ in range(8):
                group.start_soon(roll)
    assert rewards == [1.0] * 8
    assert len(worker.seen) == 1
    (only,) = pool.workers
    assert isinstance(only, CachedWorker)
    assert (only.hits, only.misses) == (7, 1)


async def test_a_plan_earns_the_same_whether_its_replies_are_paid_for_or_kept(
    tmp_path: Path,
) -> None:
    price = Price(input=1000, output=1000)
    card = ScriptedWorker.named("one", ["42"]).card.model_copy(update={"price": price})
    async with (
        open_store(tmp_path / "a.db") as store,
        cached(_pool(ScriptedWorker(card, ["42"])), tmp_path / "c") as pool,
    ):
        environment = Environment(store, rewards=Rewards(per_usd=1.0))
        first = await environment.score(PLAN, ITEM, pool)
        again = await environment.score(PLAN, ITEM, pool)
    assert first.usage.cost_usd == first.price_usd
    assert (again.usage.cost_usd, again.price_usd) == (0.0, first.price_usd)
    assert first.reward is not None
    assert again.reward == first.reward < 1.0


async def test_another_subtask_is_another_content(tmp_path: Path) -> None:
    worker = ScriptedWorker.named("one", ["42"])
    async with (
        open_store(tmp_path / "a.db") as store,
        cached(_pool(worker), tmp_path / "c") as pool,
    ):
        await Environment(store).score(PLAN, ITEM, pool)
        await Environment(store).score(written(("one", "Think.", [])), ITEM, pool)
    assert len(worker.seen) == 2


async def test_a_job_that_goes_on_has_what_it_paid_for(tmp_path: Path) -> None:
    first, later = (ScriptedWorker.named("one", ["42"]) for _ in range(2))
    for worker in (first, later):
        async with (
            open_store(tmp_path / "a.db") as store,
            cached(_pool(worker), tmp_path / "c") as pool,
        ):
            score = await Environment(store).score(PLAN, ITEM, pool)
            assert score.reward == 1.0
    assert (len(first.seen), len(later.seen)) == (1, 0)


async def test_a_failure_is_not_kept(tmp_path: Path) -> None:
    worker = ScriptedWorker.named("one", [OverloadedError("Busy."), "42"])
    async with (
        open_store(tmp_path / "a.db") as store,
        cached(_pool(worker), tmp_path / "c") as pool,
    ):
        score = await Environment(store).score(PLAN, ITEM, pool)
        again = await Environment(store).score(PLAN, ITEM, pool)
    assert (score.reward, again.reward) == (1.0, 1.0)
    assert len(worker.seen) == 2


async def test_a_file_that_is_no_cassette_is_refused(tmp_path: Path) -> None:
    (tmp_path / "c").write_text("hello\n")
    with pytest.raises(ManifestError, match="no line of a cassette"):
        async with cached(_pool(ScriptedWorker.named("one", ["42"])), tmp_path / "c"):
            pass
