"""TRINITY's training without numpy: simulated players, the table of outcomes, episodes, results."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.lab.train.trinity_parts import (
    CALC,
    KNOW,
    MadeUpStates,
    head_of,
    pool_of,
    small,
    table_of,
)

from podium.config import Settings
from podium.policy.head import ROLES, Head, Role
from podium.policy.turns import Said, Standing, subtask
from podium.prompting import Material, Visible, cuttable, worker_prompt
from podium.store import open_store
from podium.verify import verify
from podium_lab.train.config import Job
from podium_lab.train.environment import Score
from podium_lab.train.errors import TrainingError
from podium_lab.train.items import Item
from podium_lab.train.judging import Judges
from podium_lab.train.opening import load_items
from podium_lab.train.records import Ended, Generation, Look, Records
from podium_lab.train.simulated import Simulation, Skills
from podium_lab.train.status import outcome, status
from podium_lab.train.trinity.episodes import Episodes, asking
from podium_lab.train.trinity.features import FILE, CachedStates, KeptStates
from podium_lab.train.trinity.gathering import TABLE, chosen, gather, served
from podium_lab.train.trinity.players import Players
from podium_lab.train.trinity.results import COMPARISON, Comparison, Measured, Method
from podium_lab.train.trinity.table import RIGHT, WRONG, Profiler, Table, views_of
from podium_lab.train.watch import summed
from podium_workers.pool import Pool
from podium_workers.scripted import ScriptedWorker

ITEMS = small()
TWO = next(item for item in ITEMS if item.kind == "facts+arithmetic")
SUM = next(item for item in ITEMS if item.kind == "arithmetic")
NUMBER, RESULT = (goal.answer for goal in TWO.goals)

BY_KIND = head_of(
    [  # one for all, facts, sums, both, first found, second found
        [0, 0, 1, -2, 3, 3],
        [0, 1, 0, 0, 0, 0],
        [0, 0, 0, 0, 0, 0],
        [2, 0, 0, 0, 0, 0],
        [0, 0, 0, -2, 3, 3],
    ]
)
"""Whoever can do it works; what is there is verified."""


def said(skills: Skills, item: Item, role: Role, *read: tuple[Role, str]) -> str:
    """What a simulated player says in a role, once those things have been said."""
    shown = tuple(
        Visible(number=number, subtask=subtask(of), reply=text)
        for number, (of, text) in enumerate(read)
    )
    material = Material(
        question=item.question, earlier="", files=(), visible=shown, subtask=subtask(role),
        fence="", final=role == "worker",
    )  # fmt: skip
    prompt = worker_prompt(material, cuttable(material), ())
    return Players(Simulation.of([item])).reply(skills, prompt)


def worked(result: str) -> tuple[Role, str]:
    """That a Worker has come to this."""
    return "worker", f"Found 0: {result}\nAnswer: {result}"


def test_a_thinker_hands_on_what_is_missing():
    thought = said(KNOW, TWO, "thinker")
    assert f"<suggestion>\nFound 0: {NUMBER}\n</suggestion>" in thought
    assert thought.endswith("<suggested_role>worker</suggested_role>")
    assert said(CALC, TWO, "worker", ("thinker", thought)).endswith(f"Answer: {RESULT}")
    done = said(CALC, TWO, "thinker", ("worker", f"Found 0: {NUMBER}\nFound 1: {RESULT}"))
    assert done.endswith("<suggested_role>verifier</suggested_role>")


def test_a_worker_spoils_most_of_what_it_could_not_have_found():
    sums = [item for item in small(90) if item.kind == "arithmetic"]
    replies = [
        said(KNOW, item, "worker", worked(item.answer)).endswith(f"Answer: {item.answer}")
        for item in sums
    ]
    assert 0 < sum(replies) < len(sums) / 2
    assert all(said(CALC, item, "worker", worked("17")).endswith(item.answer) for item in sums)


def test_a_verifier_tells_right_from_wrong_where_it_could_have_done_it():
    result = SUM.goals[0].answer
    right, wrong = worked(result), worked("17")
    assert said(CALC, SUM, "verifier", right) == "ACCEPT"
    assert said(CALC, SUM, "verifier", wrong).startswith("REJECT")
    assert said(CALC, SUM, "verifier", right, wrong).startswith("REJECT")
    assert said(CALC, TWO, "verifier", ("worker", f"Found 0: {NUMBER}")).startswith("REJECT")


async def test_a_table_leads_where_the_players_do():
    table = await table_of(ITEMS)
    begin = table.begins[TWO.id]
    work, check = ROLES.index("worker"), ROLES.index("verifier")
    calc, know = 0, 1

    assert table.leads[begin][calc][check] == table.leads[begin][know][check] == WRONG
    found = table.leads[begin][know][work]
    assert table.views[table.view_of[found]].endswith(
        f"assistant: <reference_thought_1>\nFound 0: {NUMBER}\n</reference_thought_1>"
    )
    done = table.leads[found][calc][work]
    assert (table.right[begin], table.right[found], table.right[done]) == (False, False, True)
    rejected = table.leads[found][know][check]
    assert table.view_of[rejected] == table.view_of[found]
    assert not table.may_verify[rejected]
    one = table.leads[table.begins[SUM.id]][calc][work]
    assert table.leads[one][calc][check] == RIGHT


async def test_a_table_knows_what_one_worker_can_do_and_what_all_can():
    table = await table_of(ITEMS)
    assert all(table.best(item) for item in ITEMS)
    alone = {item.kind: table.alone(item) for item in ITEMS}
    assert alone == {
        "arithmetic": [True, False], "facts": [False, True], "facts+arithmetic": [False, False],
    }  # fmt: skip
    assert len(views_of(table, ITEMS)) == len(table.views)
    assert len(views_of(table, [TWO])) < len(table.views)


async def test_a_table_of_fewer_turns_asks_less():
    one, two = await table_of(ITEMS, turns=1), await table_of(ITEMS, turns=2)
    # At the beginning a Verifier has nothing to verify: two workers in two roles.
    assert one.asked == 4 * len(ITEMS) < two.asked
    assert [one.best(item) for item in ITEMS] == [item.kind != TWO.kind for item in ITEMS]
    assert all(two.best(item) for item in ITEMS)


async def walked(table: Table, head: Head, states: MadeUpStates, item: Item) -> bool:
    """An item played by looking up, as evolution does."""
    place = table.begins[item.id]
    for _ in range(table.turns):
        workers, roles = head.logits(await states(table.views[table.view_of[place]]))
        rejection = None if table.may_verify[place] else Said(number=0, role="verifier", text="")
        role: Role | None = None if table.forced[place] < 0 else ROLES[table.forced[place]]
        chosen = Standing(rejection=rejection, next_role=role).role(roles)
        worker = max(range(len(workers)), key=lambda number: workers[number])
        place = table.leads[place][worker][ROLES.index(chosen)]
        if place < 0:
            return place == RIGHT
    return table.right[place]


@pytest.mark.parametrize(
    "head",
    [
        BY_KIND,
        head_of([[1], [0], [0], [1], [0]]),
        head_of([[0], [1], [1], [0], [0]]),
        head_of([[0], [1], [0], [0], [1]]),
        head_of([[0, 0, 1], [0, 1], [0, 0, 0, 1], [1, 0, 0, 0, -2], [0, 0, 0, 0, 1]]),
    ],
)
async def test_an_episode_through_the_server_is_what_the_table_says(tmp_path: Path, head: Head):
    table, states = await table_of(ITEMS), MadeUpStates()
    async with open_store(tmp_path / "ledger.db") as store:
        episodes = Episodes(store, pool_of(ITEMS), states)
        played = await episodes.play(head, ITEMS)
        assert [await verify(store, one.run_id) for one in played if one.run_id]
    by_table = [await walked(table, head, states, item) for item in ITEMS]
    assert [one.right for one in played] == by_table
    assert [one.problem for one in played] == [""] * len(ITEMS)


async def test_what_the_server_cuts_the_table_cuts_too(tmp_path: Path):
    question, reply = "Why? " * 2000 + "Say 42.", "Because. " * 900 + "42"
    item = Item(id="1", taskset="own", question=question, judge="number", answer="42")
    card = ScriptedWorker.named("calc", ()).card.model_copy(update={"context_window": 32_000})

    async def ask(name: str, item: Item, material: Material) -> str:
        return reply

    table = await Profiler(("calc",), ask, Judges().is_right, turns=2).profile([item])
    states = MadeUpStates()
    works = head_of([[0], [0], [1], [0]], workers=("calc",))
    async with open_store(tmp_path / "ledger.db") as store:
        pool = Pool(workers=(ScriptedWorker(card, (reply,)),), conductor="calc")
        (played,) = await Episodes(store, pool, states, turns=2).play(works, [item])
    assert played.right, played.problem
    begin, worked = states.seen
    assert begin.count("characters left out here") == 1
    assert worked.count("characters left out here") == 2
    assert table.views == [begin, worked]


async def test_a_good_head_answers_everything_and_says_how(tmp_path: Path):
    async with open_store(tmp_path / "ledger.db") as store:
        episodes = Episodes(store, pool_of(ITEMS), MadeUpStates())
        played = await episodes.play(BY_KIND, [SUM, TWO])
    assert [one.right for one in played] == [True, True]
    assert played[0].turns == (("calc", "worker"), ("calc", "verifier"))
    assert played[1].turns == (("know", "worker"), ("calc", "worker"), ("calc", "verifier"))


async def test_a_worker_that_fails_drops_the_episode(tmp_path: Path):
    async with open_store(tmp_path / "ledger.db") as store:
        strangers = head_of([[1], [0], [0], [1], [0]], workers=("cy", "di"))
        (dropped,) = await Episodes(store, pool_of(ITEMS), MadeUpStates()).play(strangers, [SUM])
    assert dropped.right is None
    assert "The coordinator knows cy, di" in dropped.problem


async def test_what_a_table_asks_is_one_run_of_the_ledger_with_its_limit(tmp_path: Path):
    async with open_store(tmp_path / "ledger.db") as store:
        ask = await asking(store, pool_of(ITEMS), max_usd=1.0)
        material = Material(
            question=SUM.question, earlier="", files=(), visible=(), subtask=subtask("worker"),
            fence="", final=True,
        )  # fmt: skip
        replies = [await ask(name, SUM, material) for name in ("calc", "know")]
        (run,) = await store.summaries(principal="training", limit=9)
        assert len(await store.calls(run.run_id)) == 2
    assert replies[0].endswith(f"Answer: {SUM.goals[0].answer}")


async def test_a_state_is_computed_once_for_ever(tmp_path: Path):
    states, path = MadeUpStates(), tmp_path / FILE
    first = CachedStates.at(states, path)
    texts = ("user: a", "user: b", "user: a")
    found = [await first(text) for text in texts]
    assert (len(states.seen), first.computed, found[0]) == (2, 2, found[2])

    with path.open("a") as file:
        file.write('["broken off')
    again = CachedStates.at(states, path)
    assert [await again(text) for text in texts] == found
    assert (again.computed, len(states.seen)) == (0, 2)
    assert await again("user: c") != found[0]
    assert len(CachedStates.at(states, path).kept.known) == 2 + 1


async def test_states_of_another_file_under_the_same_name_are_others(tmp_path: Path):
    path = tmp_path / FILE
    found = [await CachedStates.at(MadeUpStates(), path, digest)("user: a") for digest in "xyx"]
    assert len(KeptStates(path, MadeUpStates().model, "x").known) == 2
    assert found[0] == found[2]


def job(folder: Path, **changes: object) -> Job:
    values: dict[str, object] = {
        "folder": folder,
        "model": {"base": "smollm2"},
        "taskset": [{"source": "generated", "count": 60, "kinds": ["arithmetic", "facts"]}],
        "workers": {"simulated": [CALC.model_dump(), KNOW.model_dump()]},
        "trinity": {"train_items": 6, "test_items": 4, "turns": 2},
    }
    return Job.model_validate(values | changes)


async def test_a_job_is_gathered_once(tmp_path: Path):
    made = job(tmp_path)
    train, test = chosen(made)
    table = await table_of((*train, *test), turns=2)
    known = CachedStates.at(MadeUpStates(), tmp_path / FILE)
    for text in table.views:
        await known(text)

    heard: list[str] = []
    first = await gather(made, {}, Settings(), heard.append)
    again = await gather(made, {}, Settings(), heard.append)
    assert first == again
    assert (first.label, first.table, len(first.states)) == ("simulated", table, len(table.views))
    assert heard == ["Trying out what calc, know make of 10 items in every role"]
    assert {item.id for item in first.train}.isdisjoint(item.id for item in first.test)

    played = await served(made, {}, Settings(), BY_KIND)
    assert [one.item for one in played] == [item.id for item in test]
    assert all(one.right for one in played)


async def test_a_judge_that_times_out_ends_the_gathering_with_what_to_do(tmp_path: Path):
    coding = {"source": "generated", "count": 60, "kinds": ["code"]}
    made = job(tmp_path, taskset=[coding], judge_seconds=1e-6)
    with pytest.raises(TrainingError) as raised:
        await gather(made, {}, Settings(), lambda text: None)
    told = str(raised.value)
    assert "The judge 'code' had not decided on item" in told
    assert "type the command again" in told
    assert not (tmp_path / TABLE).exists()


async def test_the_records_of_an_evolution_say_how_far_it_is(tmp_path: Path):
    made = job(tmp_path)
    items = load_items(made)
    records = Records(tmp_path)
    records.begin(made, items, "simulated", kind="trinity")
    assert "0 of 200 generations, not done: `podium train trinity` goes on" in outcome(records)

    more = {**made.model_dump(), "trinity": {**made.model_dump()["trinity"], "generations": 300}}
    records.begin(Job.model_validate(more), items, "simulated", kind="trinity")
    other = job(tmp_path, trinity={"train_items": 6, "test_items": 4, "turns": 3})
    with pytest.raises(TrainingError, match=r"begun with another 'trinity\.turns'"):
        records.begin(other, items, "simulated", kind="trinity")
    with pytest.raises(TrainingError, match="a job of `podium train trinity` was begun here"):
        records.begin(made, items, "simulated")
    with pytest.raises(TrainingError, match="set another `folder`"):
        records.see_kind("grpo")
    records.see_kind("trinity")
    with pytest.raises(TrainingError, match="a head was evolved here, no conductor trained"):
        records.conductor()

    records.evolved([Generation(number=n, right=n / 200) for n in range(1, 201)])
    step = summed(0, [[Score(item="1", reward=1.0, valid=True, right=True, workers=("calc",))]])
    records.look(
        Look(name="trinity", part="test", temperature=0, items=1, iterations=200, step=step), []
    )
    found = Comparison(
        label="simulated", model="smollm2", train=8, test=2, episodes=9, states=5, asked=7,
        best=[True, True], measured=(measured("evolved", 0, [1, 0]),),
    )  # fmt: skip
    (tmp_path / COMPARISON).write_text(found.model_dump_json(), encoding="utf-8")
    records.end(Ended(iterations=200))
    head, _, curve, *lines = status(records)
    assert head.endswith("smollm2, workers simulated, 200 of 200 generations, done")
    assert curve.split()[:2] == ["right", "0.005"]
    assert "after 200 generations: 100% right (21% to 100%) of 1 items" in lines[1]
    assert lines[-1].startswith("| evolved | 0.500 (")


def test_a_job_without_a_head_to_evolve_says_what_to_add(tmp_path: Path):
    with pytest.raises(TrainingError, match=r"has no \[trinity\]"):
        chosen(job(tmp_path, trinity=None))


def measured(method: Method, seed: int | None, right: Sequence[int]) -> Measured:
    return Measured(method=method, seed=seed, train=1.0, right=list(map(bool, right)), turns=2.0)


def test_a_comparison_says_how_sure_it_is():
    found = Comparison(
        label="simulated", model="smollm2", train=8, test=4, episodes=9, states=5, asked=7,
        best=[True, True, True, False],
        measured=(
            measured("evolved", 0, [1, 1, 1, 0]),
            measured("evolved", 1, [1, 1, 0, 0]),
            measured("best single worker", None, [1, 0, 0, 0]),
        ),
    )  # fmt: skip
    mean, low, high = found.interval("evolved")
    assert mean == pytest.approx(0.625)
    assert low < mean < high
    gain, least, _ = found.interval("evolved", "best single worker")
    assert gain == pytest.approx(0.375)
    assert least >= 0
    lines = found.table.splitlines()
    assert "Any play at all is right on 0.750" in lines[0]
    assert lines[4].startswith("| evolved | 0.625 (")
    assert "| 0.750 0.500 |" in lines[4]
    assert "| +0.375 (" in lines[5]
