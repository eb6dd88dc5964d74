"""Second rounds: a run that is carried on, what it earns, and what became of its answer."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from tests.core_parts import written

from podium.errors import SettingsError
from podium.plan_text import parse_plan
from podium.policy import State
from podium.policy.conductor import conductor_prompt
from podium.store import Store, open_store
from podium.verify import verify
from podium_lab.train.config import read_job
from podium_lab.train.environment import Environment, Outcome, Rewards, Score
from podium_lab.train.generated import generate
from podium_lab.train.items import Item
from podium_lab.train.purse import Purse
from podium_lab.train.random_plans import accepting
from podium_lab.train.recursion import Recursion, Transitions, pairs, transitions, unasked
from podium_lab.train.simulated import Simulation, Skills
from podium_lab.train.watch import summed
from podium_workers.errors import OverloadedError, RefusedError
from podium_workers.pool import Pool
from podium_workers.scripted import ScriptedWorker
from podium_workers.worker import Price

(FACT,) = generate(1, seed=1, kinds=("facts",))
PRICE = Price(input=1, output=1)
KNOWS = Skills(name="knows", by_kind={"facts": 1.0}, price=PRICE)
GUESSES = Skills(name="guesses", by_kind={}, price=PRICE)
RIGHT, WRONG = written(("knows", "Answer.", [])), written(("guesses", "Answer.", []))
ACCEPTS = accepting("json")


@pytest.fixture
async def store(tmp_path: Path) -> AsyncGenerator[Store]:
    async with open_store(tmp_path / "podium.db") as store:
        yield store


def _pool(*items: Item) -> Pool:
    simulation = Simulation.of(items or (FACT,))
    workers = tuple(simulation.worker(skills) for skills in (KNOWS, GUESSES))
    return Pool(workers=workers, conductor="knows")


def _seen(pool: Pool) -> int:
    return sum(len(it.seen) for it in pool.workers if isinstance(it, ScriptedWorker))


async def _first(environment: Environment, text: str, pool: Pool) -> tuple[Score, Outcome]:
    score = await environment.score(text, FACT, pool)
    outcome = await environment.outcome(score)
    assert outcome is not None
    return score, outcome


async def test_a_second_round_carries_the_run_on_and_pays_nothing_again(store: Store) -> None:
    environment, pool = Environment(store), _pool()
    first, outcome = await _first(environment, WRONG, pool)
    mend = written(("knows", "Mend it.", "all"))
    second = await environment.score(mend, FACT, pool, before=outcome)
    assert (second.reward, second.right, second.before, second.round) == (1.0, True, False, 1)
    assert (second.workers, second.access) == (("knows",), ((0,),))
    assert second.run_id == first.run_id
    assert _seen(pool) == 2
    run = await store.run(second.run_id)
    texts = [found.proposal.raw_text for found in await store.rounds(run.run_id)]
    assert texts == [WRONG, mend, ""], "and then it has accepted"
    assert (run.status, run.answer, run.request.rounds) == ("finished", second.answer, 2)
    assert first.usage + second.usage == await store.usage(run.run_id)
    assert (await verify(store, run.run_id)).findings == ()


@pytest.mark.parametrize(("text", "reward"), [(RIGHT, 1.0), (WRONG, 0.5)])
async def test_accepting_earns_what_the_answer_earns(
    store: Store, text: str, reward: float
) -> None:
    environment, pool = Environment(store, rewards=Rewards(per_usd=1000)), _pool()
    first, outcome = await _first(environment, text, pool)
    assert first.reward is not None
    assert first.reward < reward or not first.right, "a right answer has cost something"
    second = await environment.score(ACCEPTS, FACT, pool, before=outcome)
    assert (second.reward, second.right) == (reward, first.right)
    assert (second.accepted, second.valid, second.workers) == (True, True, ())
    assert second.usage.cost_usd == 0.0
    assert second.answer == first.answer
    last = (await store.rounds(second.run_id))[-1]
    assert (last.proposal.source, last.proposal.raw_text) == ("model", ACCEPTS)
    assert _seen(pool) == 1


async def test_a_first_round_has_nothing_to_accept(store: Store) -> None:
    score = await Environment(store).score(ACCEPTS, FACT, _pool())
    assert (score.reward, score.valid, score.accepted) == (0.0, False, False)
    assert await Environment(store).outcome(score) is None


async def test_a_second_text_without_a_plan_leaves_the_run_as_it_is(store: Store) -> None:
    environment, pool = Environment(store), _pool()
    first, outcome = await _first(environment, RIGHT, pool)
    second = await environment.score("Looks fine to me.", FACT, pool, before=outcome)
    assert (second.reward, second.valid, second.right, second.round) == (0.0, False, None, 1)
    assert (await store.run(first.run_id)).status == "finished"


async def test_a_worker_that_fails_in_the_second_round_drops_it(store: Store) -> None:
    worker = ScriptedWorker.named("one", [FACT.answer, OverloadedError("Too busy.")])
    environment, pool = Environment(store), Pool(workers=(worker,), conductor="one")
    text = written(("one", "Answer.", []))
    _, outcome = await _first(environment, text, pool)
    second = await environment.score(text, FACT, pool, before=outcome)
    assert (second.reward, second.valid, second.right, second.before) == (None, True, None, True)
    assert "Too busy" in second.problem


async def test_a_plan_that_fails_by_its_own_fault_leaves_the_answer_before(store: Store) -> None:
    worker = ScriptedWorker.named("one", [f"Answer: {FACT.answer}", RefusedError("No.")])
    environment, pool = Environment(store), Pool(workers=(worker,), conductor="one")
    text = written(("one", "Answer.", []))
    _, outcome = await _first(environment, text, pool)
    second = await environment.score(text, FACT, pool, before=outcome)
    assert (second.reward, second.right, second.accepted) == (1.0, True, False)


async def test_a_round_with_a_failed_step_has_no_second(store: Store) -> None:
    worker = ScriptedWorker.named("one", [f"Answer: {FACT.answer}", RefusedError("No.")])
    pool = Pool(workers=(worker,), conductor="one")
    text = written(("one", "Answer.", []), ("one", "Check it.", [0]))
    score = await Environment(store).score(text, FACT, pool)
    assert score.right is True
    assert await Environment(store).outcome(score) is None


async def test_the_second_prompt_is_the_servers_and_the_same_every_time(
    store: Store, tmp_path: Path
) -> None:
    environment, pool = Environment(store), _pool()
    card = pool.cards[0]
    _, outcome = await _first(environment, WRONG, pool)
    prompt = environment.prompt(FACT, pool, card, before=outcome)
    run = outcome.run
    state = State(run.request, pool, run.fence, run.seed, outcome.rounds)
    assert prompt == conductor_prompt(state, card, max_steps=5)[0]
    assert WRONG in prompt
    assert run.answer is not None
    assert run.answer in prompt
    assert prompt.startswith(environment.prompt(FACT, pool, card))
    async with open_store(tmp_path / "other.db") as other:
        environment = Environment(other)
        _, outcome = await _first(environment, WRONG, pool)
        assert environment.prompt(FACT, pool, card, before=outcome) == prompt


async def test_a_second_round_has_its_own_share_of_the_purse_and_its_own_time(
    store: Store,
) -> None:
    purse = Purse(usd=1.0, parallel=1)
    environment, pool = Environment(store, purse=purse, max_seconds=30), _pool()
    first, outcome = await _first(environment, WRONG, pool)
    second = await environment.score(RIGHT, FACT, pool, before=outcome)
    assert second.reward == 1.0
    assert first.usage.cost_usd is not None
    assert second.usage.cost_usd is not None
    assert purse.spent == pytest.approx(first.usage.cost_usd + second.usage.cost_usd)
    request = (await store.run(second.run_id)).request
    assert request.max_usd == pytest.approx(1.0)
    assert request.max_seconds is not None
    assert request.max_seconds > 30


def _second(before: bool | None, right: bool | None, *, workers: tuple[str, ...] = ("a",)) -> Score:
    return Score(
        item="1", reward=1.0 if right else 0.5, round=1, before=before, valid=True, right=right,
        workers=workers, subtasks=workers,
    )  # fmt: skip


FIRST = Score(item="1", reward=1.0, valid=True, right=True, workers=("a",), subtasks=("do",))
UNREADABLE = Score(item="1", reward=0.0)
DROPPED = Score(item="1", reward=None, valid=True)


def test_transitions_are_counted_by_what_an_answer_was_and_became() -> None:
    scores = [
        FIRST,
        _second(True, True, workers=()),
        _second(True, True),
        _second(False, True),
        _second(True, False),
        _second(False, False),
        Score(item="1", reward=0.0, round=1, before=True),  # unreadable: the answer stands
        unasked(UNREADABLE),
        unasked(DROPPED),  # of which nothing is known
        Score(item="1", reward=None, round=1, before=True, valid=True, workers=("a",)),  # dropped
    ]
    found = transitions(scores)
    assert found == Transitions(
        right_right=3, wrong_right=1, right_wrong=1, wrong_wrong=2,
        accepted=1, unreadable=1, unasked=1, reward=4 / 6,
    )  # fmt: skip
    assert found is not None
    assert (found.count, found.first, found.second) == (7, 4 / 7, 4 / 7)
    assert "right->wrong 1" in found.told()
    assert transitions([FIRST]) is None


def test_first_rounds_are_counted_alone_and_left_out_rows_not_at_all() -> None:
    firsts = [FIRST, UNREADABLE]
    seconds = [_second(True, False), unasked(UNREADABLE)]
    step = summed(1, [firsts, seconds])
    assert (step.rollouts, step.dropped, step.right, step.valid) == (3, 0, 0.5, 0.5)
    assert step.second is not None
    assert (step.second.right_wrong, step.second.wrong_wrong) == (1, 1)
    assert step.flat_groups == 0.0
    assert summed(1, [[UNREADABLE] * 2, [unasked(UNREADABLE)] * 2]).flat_groups == 1.0


def test_the_second_round_has_its_part_in_what_the_first_earns() -> None:
    paper = Recursion()
    assert paper.credited(FIRST, _second(True, False)).reward == pytest.approx(0.875)
    wrong = FIRST.model_copy(update={"reward": 0.5, "right": False})
    assert paper.credited(wrong, _second(False, True)).reward == pytest.approx(0.625)
    assert paper.credited(UNREADABLE, unasked(UNREADABLE)) == UNREADABLE
    assert paper.credited(DROPPED, unasked(DROPPED)).reward is None
    assert Recursion(discount=0.0).credited(FIRST, _second(True, False)) == FIRST


def test_first_rounds_and_their_second_ones_are_groups_of_their_own() -> None:
    assert list(pairs(8, 2)) == [(0, 2), (1, 3), (4, 6), (5, 7)]


@pytest.mark.parametrize("form", ["lists", "json"])
def test_an_acceptance_is_read_in_both_forms(form: str) -> None:
    assert parse_plan(accepting(form), ["one"], first=1, may_accept=True) is None


PLAIN = """
folder = "out"
[model]
base = "tiny"
[[taskset]]
source = "generated"
[[workers.simulated]]
name = "one"
by_kind = { facts = 1.0 }
[recursion]
"""


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("discounts = 0.2\n", r"recursion\.discounts: there is no such key"),
        ("discount = 1.5\n", r"recursion\.discount: "),
        ("[grpo]\nrollouts = 7\nbatch = 28\n", "give an even number from 4 on"),
        ("[grpo]\nrollouts = 2\nbatch = 8\n", "give an even number from 4 on"),
    ],
)
def test_what_is_wrong_with_the_section_is_named(tmp_path: Path, more: str, said: str) -> None:
    path = tmp_path / "job.toml"
    path.write_text(PLAIN + more)
    with pytest.raises(SettingsError, match=said):
        read_job(path)


def test_a_group_is_of_one_round(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text(PLAIN)
    job = read_job(path)
    assert job.recursion == Recursion(discount=0.25)
    assert (job.grpo.rollouts, job.group) == (64, 32)


def test_a_base_beside_the_jobs_file_is_found(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text(PLAIN.replace('"tiny"', '"runs/before/model"'))
    assert read_job(path).model.base == "runs/before/model"
    (tmp_path / "runs" / "before" / "model").mkdir(parents=True)
    assert read_job(path).model.base == str(tmp_path / "runs" / "before" / "model")
