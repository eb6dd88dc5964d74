"""Rollouts: a policy's text in, its reward out, through the server's own parser and executor."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from tests.core_parts import written

from podium.store import Store, open_store
from podium_lab.train.environment import Environment, Rewards, shuffled
from podium_lab.train.generated import generate
from podium_lab.train.items import Item
from podium_lab.train.judging import Judges
from podium_lab.train.purse import Purse
from podium_lab.train.simulated import Simulation, Skills
from podium_workers.errors import OverloadedError, PoolSelectionError, RefusedError
from podium_workers.pool import Pool
from podium_workers.scripted import ScriptedWorker
from podium_workers.worker import Price

KNOWS = Skills(name="knows", by_kind={"facts": 1.0})
CALCULATES = Skills(name="calculates", by_kind={"arithmetic": 1.0})
(TWO_GOALS,) = generate(1, seed=1, kinds=("facts+arithmetic",))
(FACT,) = generate(1, seed=1, kinds=("facts",))
POOL_OF = (KNOWS, CALCULATES)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncGenerator[Store]:
    async with open_store(tmp_path / "podium.db") as store:
        yield store


def _pool(*items: Item) -> Pool:
    simulation = Simulation.of(items)
    workers = tuple(simulation.worker(skills) for skills in POOL_OF)
    return Pool(workers=workers, conductor="knows")


def _replying(worker: ScriptedWorker) -> Pool:
    return Pool(workers=(worker,), conductor=worker.card.name)


async def test_a_text_without_a_plan_earns_nothing_and_begins_no_run(store: Store) -> None:
    score = await Environment(store).score("I would ask both of them.", FACT, _pool(FACT))
    assert (score.reward, score.valid, score.right, score.run_id) == (0.0, False, None, "")
    assert score.problem.startswith("not_found: ")
    assert await store.summaries(principal="training") == ()


async def test_a_readable_plan_with_a_wrong_answer_earns_half(store: Store) -> None:
    text = written(("calculates", "Answer.", []))
    score = await Environment(store).score(text, FACT, _pool(FACT))
    assert (score.reward, score.valid, score.right) == (0.5, True, False)


async def test_a_right_answer_earns_it_all_and_its_run_is_in_the_ledger(store: Store) -> None:
    text = written(("knows", "Answer.", []))
    score = await Environment(store).score(text, FACT, _pool(FACT))
    assert (score.reward, score.right, score.workers) == (1.0, True, ("knows",))
    run = await store.run(score.run_id)
    assert (run.status, run.answer) == ("finished", score.answer)
    assert score.usage == await store.usage(score.run_id)


async def test_two_goals_need_two_workers_and_the_access_between_them(store: Store) -> None:
    pool, environment = _pool(TWO_GOALS), Environment(store)
    together = written(("knows", "Find the number.", []), ("calculates", "Calculate.", [0]))
    blind = written(("knows", "Find the number.", []), ("calculates", "Calculate.", []))
    alone = written(("calculates", "Answer.", []))
    rewards = [
        (await environment.score(text, TWO_GOALS, pool)).reward for text in (together, blind, alone)
    ]
    assert rewards == [1.0, 0.5, 0.5]


async def test_a_failure_of_a_provider_drops_the_rollout(store: Store) -> None:
    worker = ScriptedWorker.named("busy", [OverloadedError("Too busy.")])
    text = written(("busy", "Answer.", []))
    score = await Environment(store).score(text, FACT, _replying(worker))
    assert (score.reward, score.valid, score.right) == (None, True, None)
    assert "busy" in score.problem


async def test_a_step_that_another_worker_has_done_drops_the_rollout(store: Store) -> None:
    right = ScriptedWorker.named("other", [FACT.answer])
    busy = ScriptedWorker.named("busy", [OverloadedError("Too busy.")])
    pool = Pool(workers=(right, busy), conductor="other")
    score = await Environment(store).score(written(("busy", "Answer.", [])), FACT, pool)
    assert (score.reward, score.right) == (None, None)


async def test_a_worker_that_refuses_is_the_plans_own_fault(store: Store) -> None:
    worker = ScriptedWorker.named("prim", [RefusedError("No.")])
    score = await Environment(store).score(
        written(("prim", "Answer.", [])), FACT, _replying(worker)
    )
    assert (score.reward, score.right) == (0.5, False)


async def test_a_plan_earns_nothing_by_what_another_worker_has_done(store: Store) -> None:
    right = ScriptedWorker.named("other", [FACT.answer])
    prim = ScriptedWorker.named("prim", [RefusedError("No.")])
    pool = Pool(workers=(right, prim), conductor="other")
    score = await Environment(store).score(written(("prim", "Answer.", [])), FACT, pool)
    assert len(right.seen) == 1
    assert (score.reward, score.right) == (0.5, False)


async def test_a_judge_without_a_verdict_drops_the_rollout(store: Store) -> None:
    item = FACT.model_copy(update={"judge": "program"})
    worker = ScriptedWorker.named("one", ["4"])
    environment = Environment(store, judges=Judges())
    score = await environment.score(written(("one", "Answer.", [])), item, _replying(worker))
    assert (score.reward, score.right) == (None, None)
    assert "no checks" in score.problem


async def test_steps_and_money_cost_reward_only_where_that_is_set(store: Store) -> None:
    pool, text = _pool(FACT), written(("knows", "Answer.", []), ("knows", "Check.", [0]))
    paper = await Environment(store).score(text, FACT, pool)
    dear = Environment(store, rewards=Rewards(per_step=0.1))
    assert (paper.reward, (await dear.score(text, FACT, pool)).reward) == (1.0, 0.9)
    assert Rewards(per_usd=10).of(right=True, steps=1, price_usd=0.02) == pytest.approx(0.8)
    assert Rewards(per_usd=10).of(right=True, steps=1, price_usd=50.0) == 0.0
    assert Rewards(per_step=0.1, per_usd=1).of(right=False, steps=3, price_usd=0.2) == 0.5


async def test_the_prompt_is_the_one_that_the_server_sends(store: Store) -> None:
    pool = _pool(FACT)
    card = pool.cards[0]
    prompt = Environment(store).prompt(FACT, pool, card)
    assert FACT.question in prompt
    assert "knows" in prompt


def test_a_pool_for_one_rollout_has_the_named_workers_in_that_order() -> None:
    pool = _pool(FACT)
    assert shuffled(pool, ["calculates", "knows"]).names == ("calculates", "knows")
    assert shuffled(pool, ["calculates"]).names == ("calculates",)
    with pytest.raises(PoolSelectionError):
        shuffled(pool, ["nobody"])


async def test_a_job_never_spends_more_than_its_purse(store: Store) -> None:
    dear = Skills(name="dear", by_kind={"facts": 1.0}, price=Price(input=1000, output=1000))
    pool = Pool(workers=(Simulation.of([FACT]).worker(dear),), conductor="dear")
    purse = Purse(usd=10.0, parallel=1)
    environment = Environment(store, purse=purse)
    text = written(("dear", "Answer.", []))
    first = await environment.score(text, FACT, pool)
    assert (first.reward, first.usage.cost_usd) == (1.0, purse.spent)
    assert purse.spent > 0
    little = Environment(store, purse=Purse(usd=0.001, parallel=1))
    second = await little.score(text, FACT, pool)
    assert (second.reward, second.usage.output_tokens) == (None, 0)
