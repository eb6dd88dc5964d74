"""A job's money: shared between rollouts at the same time, never passed, however often begun."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import anyio
import pytest
from tests.command_line import CommandLine
from tests.core_parts import written
from tests.lab.train.trinity_parts import MadeUpStates, head_of

from podium.config import Settings
from podium.store import open_store
from podium_lab.train.config import Job
from podium_lab.train.environment import Environment
from podium_lab.train.generated import generate
from podium_lab.train.judging import Judges
from podium_lab.train.opening import ALONE, Place, open_ground
from podium_lab.train.purse import Purse, PurseEmptyError, Share
from podium_lab.train.reference import FILE, profile
from podium_lab.train.simulated import Simulation, Skills
from podium_lab.train.trinity.episodes import Episodes
from podium_lab.train.trinity.gathering import gather
from podium_workers.errors import WorkerError
from podium_workers.pool import Pool
from podium_workers.scripted import ScriptedWorker
from podium_workers.worker import Call, ModelSettings, Price, Prompt, Reply

DEAR = Skills(name="dear", by_kind={"facts": 1.0}, price=Price(input=1000, output=1000))
POOL = 'conductor = "ann"\n[[worker]]\nname = "ann"\nkind = "scripted"\nreplies = ["1"]\n'
PLAN = written(("dear", "Answer.", []))
(FACT,) = generate(1, seed=1, kinds=("facts",))
SECOND = Place(number=1, of=2)


def _job(folder: Path, **changes: object) -> Job:
    values: dict[str, object] = {
        "folder": folder,
        "model": {"base": "tiny"},
        "taskset": [{"source": "generated", "count": 12, "kinds": ["facts"]}],
        "workers": {"simulated": [DEAR.model_dump()], "parallel": 1},
        "max_usd": 40.0,
    }
    return Job.model_validate(values | changes)


def _silent(_: str) -> None: ...


async def _spend(job: Job, place: Place = ALONE) -> float:
    """What one rollout of a job costs."""
    async with open_ground(job, {}, Settings(), place) as ground:
        score = await ground.environment.score(PLAN, ground.items[0], ground.pool)
    assert score.usage.cost_usd
    return score.usage.cost_usd


async def test_what_a_rollout_does_not_use_goes_back() -> None:
    purse = Purse(usd=1.0, parallel=4)
    async with purse.share() as share:
        assert share.usd == 0.25
        assert purse.left == 0.75
        share.spent = 0.1
    assert purse.left == pytest.approx(0.9)


async def test_an_unknown_cost_counts_as_the_whole_share() -> None:
    purse = Purse(usd=1.0, parallel=4)
    async with purse.share():
        pass
    assert purse.spent == 0.25


async def test_rollouts_at_the_same_time_never_pass_the_purse_together() -> None:
    purse = Purse(usd=1.0, parallel=8)
    held: list[float] = []

    async def roll() -> None:
        async with purse.share() as share:
            held.append(share.usd)
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as group:
        for _ in range(8):
            group.start_soon(roll)
    assert sum(held) <= 1.0
    assert purse.spent == pytest.approx(sum(held))


async def test_an_empty_purse_begins_nothing_and_says_how_to_go_on() -> None:
    purse = Purse(usd=0.5, parallel=2, spent=0.5)
    with pytest.raises(PurseEmptyError, match=r"spent \$0.5000 of its \$0.5; raise max_usd"):
        async with purse.share():
            raise AssertionError("it has begun")


async def test_a_rollout_that_fails_before_it_costs_anything_gives_its_share_back() -> None:
    purse = Purse(usd=1.0, parallel=2)

    async def fail() -> None:
        async with purse.share() as share:
            share.spent = 0.0
            raise RuntimeError

    with pytest.raises(RuntimeError):
        await fail()
    assert purse.left == 1.0


async def test_what_a_job_has_spent_counts_when_it_goes_on(tmp_path: Path) -> None:
    job = _job(tmp_path)
    spent = await _spend(job) + await _spend(job, SECOND)
    async with open_ground(job, {}, Settings()) as ground:
        assert ground.environment.purse is not None
        assert ground.environment.purse.spent == pytest.approx(spent)
    async with open_ground(job, {}, Settings(), SECOND) as ground:
        assert ground.environment.purse is not None
        assert ground.environment.purse.left == pytest.approx((40.0 - spent) / 2)


async def test_a_call_that_nobody_knows_the_end_of_counts_at_its_worst(tmp_path: Path) -> None:
    card = Simulation.of([FACT]).worker(DEAR).card

    with anyio.CancelScope() as scope:

        class Lost(ScriptedWorker):
            async def reply(self, prompt: Prompt, settings: ModelSettings, call: Call) -> Reply:
                async with call.attempt({"model": card.model}) as attempt:
                    await attempt.sent("1")
                    scope.cancel()
                    await anyio.sleep_forever()
                    raise AssertionError("it goes on")

        async with open_store(tmp_path / "a.db") as store:
            pool = Pool(workers=(Lost(card, ["x"]),), conductor="dear")
            purse = Purse(usd=40.0, parallel=1)
            await Environment(store, purse=purse).score(PLAN, FACT, pool)
    assert scope.cancelled_caught
    async with open_store(tmp_path / "a.db") as store:
        assert await store.spent_usd() > 0


async def test_no_rollout_is_dropped_for_an_empty_purse(tmp_path: Path) -> None:
    async with open_ground(_job(tmp_path, max_usd=1e-9), {}, Settings()) as ground:
        with pytest.raises(PurseEmptyError):
            await ground.environment.score(PLAN, ground.items[0], ground.pool)


@dataclass
class Short(Purse):
    """Money for so many rollouts."""

    rollouts: int = 2

    @asynccontextmanager
    async def share(self) -> AsyncGenerator[Share]:
        self.rollouts -= 1
        if self.rollouts < 0:
            self.spent = self.usd
        async with super().share() as share:
            yield share


async def test_what_was_asked_before_the_money_ended_is_kept(tmp_path: Path) -> None:
    job = _job(tmp_path)
    async with open_ground(job, {}, Settings()) as ground:
        little = replace(ground.environment, purse=Short(usd=40.0, parallel=1))
        with pytest.raises(PurseEmptyError, match="raise max_usd"):
            await profile(replace(ground, environment=little), ground.items, anew=True)
    assert (tmp_path / FILE).read_text().count('["dear"]') == 2 * len(("right", "asked"))


def test_an_empty_purse_is_told_in_a_sentence(podium: CommandLine) -> None:
    (podium.folder / "pool.toml").write_text(POOL)
    (podium.folder / "own.toml").write_text(
        'folder = "out"\nmax_usd = 1e-9\n[model]\nbase = "tiny"\n'
        '[[taskset]]\nsource = "generated"\ncount = 12\n[workers]\nmanifest = "pool.toml"\n'
    )
    done = podium.inside("train", "profile", "own.toml")
    assert done.code == 1
    assert "raise max_usd" in done.err
    assert (podium.folder / "out" / FILE).exists()


async def test_a_reply_that_the_limit_has_cut_drops_its_rollout(tmp_path: Path) -> None:
    card = Simulation.of([FACT]).worker(DEAR).card

    class Cut(ScriptedWorker):
        async def reply(self, prompt: Prompt, settings: ModelSettings, call: Call) -> Reply:
            reply = await super().reply(prompt, settings, call)
            return reply.model_copy(update={"finish_reason": "length"})

    pool = Pool(workers=(Cut(card, ["It is "]),), conductor="dear")
    async with open_store(tmp_path / "a.db") as store:
        free = await Environment(store).score(PLAN, FACT, pool)
        assert (free.reward, free.right) == (0.5, False)
        limited = Environment(store, purse=Purse(usd=1.0, parallel=1))
        score = await limited.score(PLAN, FACT, pool)
    assert (score.reward, score.right) == (None, None)
    assert "max_usd" in score.problem


WORKS = head_of([[0], [0], [1], [0]], workers=("dear",))


async def test_episodes_of_a_head_stay_within_the_purse(tmp_path: Path) -> None:
    pool = Pool(workers=(Simulation.of([FACT]).worker(DEAR),), conductor="dear")
    async with open_store(tmp_path / "a.db") as store:
        purse = Purse(usd=40.0, parallel=1)
        episodes = Episodes(store, pool, MadeUpStates(), Judges(), turns=1, purse=purse)
        (played,) = await episodes.play(WORKS, [FACT])
        assert played.right, played.problem
        assert purse.spent == played.usage.cost_usd
        assert purse.spent > 0
        little = replace(episodes, purse=Purse(usd=0.001, parallel=1))
        (dropped,) = await little.play(WORKS, [FACT])
        assert (dropped.right, dropped.usage.cost_usd) == (None, 0.0)
        assert dropped.problem
        empty = replace(episodes, purse=Purse(usd=1.0, parallel=1, spent=1.0))
        with pytest.RaisesGroup(PurseEmptyError):
            await empty.play(WORKS, [FACT])


async def test_a_table_is_asked_for_what_is_left(tmp_path: Path) -> None:
    (tmp_path / "pool.toml").write_text(POOL)
    job = _job(tmp_path, trinity={"train_items": 1, "test_items": 1, "turns": 1})
    spent = await _spend(job)
    workers = job.workers.model_copy(
        update={"simulated": (), "manifest": tmp_path / "pool.toml", "parallel": 1}
    )
    with pytest.raises(WorkerError):  # the coordinator's model is not there
        await gather(
            job.model_copy(update={"workers": workers}), {}, Settings(models_dir=tmp_path), _silent
        )
    async with open_store(tmp_path / "ledger.db") as store:
        run, _ = await store.summaries(principal="training")
        left = (await store.run(run.run_id)).request.max_usd
    assert left == pytest.approx(40.0 - spent)
