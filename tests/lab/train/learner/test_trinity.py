"""Evolution of a head and its rivals, on a small table with made-up states; needs numpy and cma."""

import importlib.util
from pathlib import Path

import pytest

if importlib.util.find_spec("cma") is None:
    pytest.skip("evolution needs the package cma", allow_module_level=True)

import anyio
import numpy as np
from tests.lab.train.trinity_parts import CALC, KNOW, MadeUpStates, small, table_of

from podium.config import Settings
from podium.policy.head import load_head
from podium_lab.train.config import Job
from podium_lab.train.errors import TrainingError
from podium_lab.train.learner.trinity_arena import Arena
from podium_lab.train.learner.trinity_baselines import random_search, reinforce, supervised
from podium_lab.train.learner.trinity_evolve import CHECKPOINT, evolve
from podium_lab.train.learner.trinity_run import compare, run
from podium_lab.train.records import Records
from podium_lab.train.trinity.command import evolve_head
from podium_lab.train.trinity.config import Evolution
from podium_lab.train.trinity.features import FILE, CachedStates
from podium_lab.train.trinity.gathering import Gathered, chosen
from podium_lab.train.trinity.table import Table

TRAIN, TEST = small(18), small(30)[18:]
SMALL = Evolution(generations=30, population=12, replications=24, checkpoint_every=5)


async def gathered() -> Gathered:
    table = await table_of((*TRAIN, *TEST))
    states = [await MadeUpStates()(text) for text in table.views]
    return Gathered(table, states, TRAIN, TEST, "simulated")


def arena_of(found: Gathered) -> Arena:
    return Arena(found.table, found.states, found.train)


async def test_an_evolved_head_routes_what_no_worker_can_do_alone():
    found = await gathered()
    arena = arena_of(found)
    weights, curve = evolve(arena, TRAIN, SMALL, seed=0)
    held_out = arena.play(weights[None], arena.begins(TEST)).right.mean()
    alone = np.asarray([found.table.alone(item) for item in TEST]).mean(axis=0).max()
    assert np.mean(curve[-5:]) > np.mean(curve[:5]) + 0.3
    assert held_out > alone + 0.3


async def test_an_evolution_goes_on_exactly_as_it_would_have(tmp_path: Path):
    arena = arena_of(await gathered())
    whole, curve = evolve(arena, TRAIN, SMALL, seed=3)
    part = SMALL.model_copy(update={"generations": 10})
    evolve(arena, TRAIN, part, seed=3, folder=tmp_path)
    assert (tmp_path / CHECKPOINT).exists()
    np.random.seed(99)  # chance that somebody else has used meanwhile
    rest, longer = evolve(arena, TRAIN, SMALL, seed=3, folder=tmp_path)
    assert longer == curve
    assert np.array_equal(rest, whole)
    with pytest.raises(TrainingError, match="begun with other items, states or settings"):
        evolve(arena, TRAIN[1:], SMALL, seed=3, folder=tmp_path)


async def test_heads_of_one_generation_have_the_same_luck():
    arena = arena_of(await gathered())
    chance = np.random.default_rng(0).random((len(TRAIN), 5, 2))
    head = np.random.default_rng(1).normal(size=arena.size)
    played = arena.play(np.stack([head, head]), arena.begins(TRAIN), chance)
    assert np.array_equal(played.right[0], played.right[1])


async def test_a_head_is_the_same_in_the_arena_and_in_the_server(tmp_path: Path):
    found = await gathered()
    arena = arena_of(found)
    weights = np.random.default_rng(0).normal(size=arena.size)
    path = tmp_path / "head.json"
    made = arena.head(weights, model="smollm2", prompts="x")
    path.write_text(made.model_dump_json())
    head = load_head(path)
    for view, state in enumerate(found.states):
        served = [value for part in head.logits(state) for value in part]
        trained = weights.reshape(arena.rows, -1) @ arena.features[view]
        assert served == pytest.approx(trained.tolist(), abs=1e-9)


async def test_rivals_learn_from_the_same_episodes():
    found = await gathered()
    arena = arena_of(found)
    begins = arena.begins(TRAIN)

    def share(weights: np.ndarray) -> float:
        return float(arena.play(weights[None], begins).right.mean())

    nothing = share(np.zeros(arena.size))
    assert share(random_search(arena, TRAIN, SMALL, seed=0)) > nothing
    assert share(reinforce(arena, TRAIN, SMALL, seed=0)) > nothing
    alone = np.mean([any(found.table.alone(item)) for item in TRAIN])
    assert share(supervised(arena, TRAIN, everywhere=False)) > alone - 0.1
    assert share(supervised(arena, TRAIN, everywhere=True)) > alone


def job(folder: Path) -> Job:
    return Job.model_validate(
        {
            "folder": folder, "model": {"base": "smollm2"},
            "taskset": [{"source": "generated", "count": 60, "kinds": ["arithmetic", "facts"]}],
            "workers": {"simulated": [CALC.model_dump(), KNOW.model_dump()]},
            "trinity": SMALL.model_dump(),
        }
    )  # fmt: skip


async def test_a_job_leaves_a_head_that_the_server_reads(tmp_path: Path):
    said: list[str] = []
    head = load_head(run(job(tmp_path), await gathered(), said.append, models_dir=tmp_path))
    assert (head.workers, head.model) == (("calc", "know"), "smollm2")
    assert head.sha256.startswith("b179c952")
    assert head.made["workers"] == "simulated"
    assert said[0].startswith("generation 5: ")


async def test_a_comparison_has_all_ways_and_every_seed(tmp_path: Path):
    said: list[str] = []
    found = compare(job(tmp_path), await gathered(), (0, 1), said.append, models_dir=tmp_path)
    assert [one.seed for one in found.of("evolved")] == [0, 1]
    assert found.interval("evolved", "best single worker")[1] > 0
    assert len(found.table.splitlines()) == 4 + 6
    assert load_head(tmp_path / "head-1.json").made["seed"] == 1
    assert len(said) == 2 * 3
    assert isinstance(found.measured[0].right[0], bool)


async def prepared(folder: Path) -> Job:
    """A job whose states are known, so that no model is asked."""
    made = job(folder)
    train, test = chosen(made)
    states = CachedStates.at(MadeUpStates(), folder / FILE)
    for text in (await table_of((*train, *test))).views:
        await states(text)
    return made


def evolved(made: Job, said: list[str], *, seeds: int | None = None, again: bool = False) -> str:
    return evolve_head(
        made, {}, Settings(), said.append, learn_here=lambda: None, seeds=seeds, again=again
    )  # fmt: skip


def test_an_evolved_head_is_tried_on_the_sealed_part_once(tmp_path: Path):
    made, said = anyio.run(prepared, tmp_path), list[str]()
    first = evolved(made, said)
    (look,) = Records(tmp_path).looks()
    assert (look.name, look.part, look.iterations) == ("trinity", "test", SMALL.generations)
    assert f"on {look.items} held-out items: {look.step.right:.3f} right" in first
    assert len(Records(tmp_path).seen(look)) == look.items

    longer = made.model_copy(
        update={"trinity": SMALL.model_copy(update={"generations": SMALL.generations + 5})}
    )
    second = evolved(longer, said)
    assert "held-out items" not in second
    assert f"opened already, after {SMALL.generations} generations" in second
    assert "--again" in second
    assert "The head is " in second
    assert Records(tmp_path).looks() == (look,)
    assert "test" not in str(load_head(tmp_path / "head.json").made["right"])

    assert "held-out items" in evolved(longer, said, again=True)
    assert [it.iterations for it in Records(tmp_path).looks()] == [30, 35]


def test_a_comparison_opens_the_sealed_part_once(tmp_path: Path):
    made, said = anyio.run(prepared, tmp_path), list[str]()
    shown = evolved(made, said, seeds=1)
    assert "| evolved |" in shown
    assert "Through the server" in shown
    assert {it.name for it in Records(tmp_path).looks()} == {"trinity"}
    told = list(said)
    with pytest.raises(TrainingError, match=r"sealed test part was opened already.*--again"):
        evolved(made, said, seeds=1)
    assert said == told, "nothing was begun"
    assert "held-out items" not in evolved(made, said)
    assert "| evolved |" in evolved(made, said, seeds=1, again=True)


async def test_a_comparison_is_silent_about_the_sealed_part_until_all_is_learned(tmp_path: Path):
    said: list[str] = []
    found = compare(job(tmp_path), await gathered(), (0,), said.append, models_dir=tmp_path)
    (one,) = found.of("REINFORCE")
    assert f"REINFORCE, seed 0: {one.train:.3f} right of what it was made from" in said


async def test_a_table_without_a_place_to_go_is_wrong():
    table: Table = await table_of(TRAIN[:1], turns=1)
    arena = Arena(table, [[0.0]] * len(table.views), TRAIN[:1])
    checks_at_once = np.asarray([0.0] * 4 + [1.0])
    assert not arena.play(checks_at_once[None], arena.begins(TRAIN[:1])).right.any()
