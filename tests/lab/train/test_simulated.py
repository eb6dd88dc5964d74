"""Simulated workers: skills as they are set, and the same reply to the same every time."""

from podium_lab.train.generated import generate
from podium_lab.train.items import Item
from podium_lab.train.simulated import Simulation, Skills

KNOWS = Skills(name="knows", by_kind={"facts": 0.8, "arithmetic": 0.1})
CALCULATES = Skills(name="calculates", by_kind={"facts": 0.1, "arithmetic": 0.9})
CERTAIN = Skills(name="certain", by_kind={"facts": 1, "arithmetic": 1, "code": 1})


def _prompt(item: Item, *replies: str) -> str:
    steps = "".join(f"<reply_ab12>\n{reply}\n</reply_ab12>\n" for reply in replies)
    return (
        f"You are one of several.\n\n<overall_task_ab12>\n{item.question}\n</overall_task_ab12>\n"
        f"\n{steps}\nYour subtask: Help."
    )


def test_a_worker_is_right_as_often_as_its_skill_says() -> None:
    items = generate(600, seed=4, kinds=("arithmetic",))
    simulation = Simulation.of(items, seed=1)
    for skills, share in ((KNOWS, 0.1), (CALCULATES, 0.9)):
        right = sum(item.answer in simulation.reply(skills, _prompt(item)) for item in items)
        assert abs(right / len(items) - share) < 0.04


def test_the_same_worker_says_the_same_and_another_seed_is_another_worker() -> None:
    items = generate(40, seed=4, kinds=("facts",))
    said = [
        [Simulation.of(items, seed=seed).reply(KNOWS, _prompt(item)) for item in items]
        for seed in (1, 1, 2)
    ]
    assert said[0] == said[1] != said[2]


def test_a_worker_goes_on_from_what_it_can_read() -> None:
    (item,) = generate(1, seed=1, kinds=("facts+arithmetic",))
    simulation = Simulation.of([item])
    only_calculates = Skills(name="c", by_kind={"arithmetic": 1.0})
    only_knows = Skills(name="k", by_kind={"facts": 1.0})
    found = simulation.reply(only_knows, _prompt(item))
    assert "Answer" not in found
    assert item.answer in simulation.reply(only_calculates, _prompt(item, found))
    assert item.answer not in simulation.reply(only_calculates, _prompt(item))


def test_a_worker_that_knows_better_corrects_what_it_reads() -> None:
    (item,) = generate(1, seed=1, kinds=("facts+arithmetic",))
    wrong = "Found 0: 1\nFound 1: 5\nAnswer: 5"
    simulation = Simulation.of([item])
    assert f"Answer: {item.answer}" in simulation.reply(CERTAIN, _prompt(item, wrong))
    unable = Skills(name="unable", by_kind={})
    assert "Answer: 5" in simulation.reply(unable, _prompt(item, wrong))


def test_a_worker_may_put_its_own_result_in_the_place_of_a_right_one() -> None:
    items = generate(300, seed=4, kinds=("facts",))
    simulation = Simulation.of(items)
    stubborn = Skills(name="stubborn", by_kind={"arithmetic": 1.0}, overrides=0.5)
    kept = 0
    for item in items:
        right = simulation.reply(CERTAIN, _prompt(item))
        kept += simulation.reply(stubborn, _prompt(item, right)) == right
    assert abs(kept / len(items) - 0.5) < 0.08


def test_a_worker_that_can_do_a_part_goes_on_all_the_same() -> None:
    (item,) = generate(1, seed=1, kinds=("facts+arithmetic",))
    simulation = Simulation.of([item])
    calculates = Skills(name="c", by_kind={"arithmetic": 1.0}, overrides=1.0)
    found = simulation.reply(Skills(name="k", by_kind={"facts": 1.0}), _prompt(item))
    assert f"Answer: {item.answer}" in simulation.reply(calculates, _prompt(item, found))


def test_a_worker_that_fails_may_say_that_it_does_not_know() -> None:
    items = generate(300, seed=4, kinds=("facts",))
    simulation = Simulation.of(items)
    honest = Skills(name="honest", by_kind={"facts": 0.6}, admits=0.5)
    replies = [simulation.reply(honest, _prompt(item)) for item in items]
    right = [item.answer in reply for item, reply in zip(items, replies, strict=True)]
    admitted = [reply == "I do not know." for reply in replies]
    assert abs(sum(right) / 300 - 0.6) < 0.06
    assert abs(sum(admitted) / 300 - 0.2) < 0.06
    assert not any(map(min, right, admitted))


def test_who_admits_that_it_does_not_know_still_goes_on_from_what_it_reads() -> None:
    (item,) = generate(1, seed=1, kinds=("facts+arithmetic",))
    simulation = Simulation.of([item])
    honest = Skills(name="honest", by_kind={"arithmetic": 1.0}, admits=1)
    assert simulation.reply(honest, _prompt(item)) == "I do not know."
    found = simulation.reply(CERTAIN, _prompt(item)).splitlines()[0]
    assert f"Answer: {item.answer}" in simulation.reply(honest, _prompt(item, found))


def test_what_a_single_worker_can_answer_is_known() -> None:
    (item,) = generate(1, seed=1, kinds=("facts+arithmetic",))
    simulation = Simulation.of([item])
    halves = (
        Skills(name="k", by_kind={"facts": 1.0}),
        Skills(name="c", by_kind={"arithmetic": 1.0}),
    )
    assert not simulation.best_alone(halves, item)
    assert simulation.best_alone((CERTAIN,), item)


def test_code_is_given_as_code() -> None:
    (item,) = generate(1, seed=1, kinds=("code",))
    reply = Simulation.of([item]).reply(CERTAIN, _prompt(item))
    assert f"```python\n{item.goals[0].answer}\n```" in reply


def test_a_prompt_without_its_question_is_answered_with_nothing() -> None:
    (item,) = generate(1, seed=1, kinds=("code",))
    reply = Simulation.of([item]).reply(CERTAIN, "Write a function.")
    assert reply == "I do not know what I am asked."
