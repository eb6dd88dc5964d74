"""The generated taskset: seeded, different, and right by the judges that will judge it."""

import hashlib
from collections import Counter

import pytest

from podium_lab.train.generated import CAPITALS, KINDS, NUMBERS, generate
from podium_lab.train.items import in_part, part_of
from podium_lab.train.judging import Judges


def test_the_same_seed_gives_the_same_items() -> None:
    assert generate(40, seed=5) == generate(40, seed=5)
    assert generate(40, seed=5) != generate(40, seed=6)


def test_items_are_different_and_as_many_of_each_kind() -> None:
    items = generate(400, seed=1)
    assert len({item.question for item in items}) == 400
    assert Counter(item.kind for item in items) == dict.fromkeys(KINDS, 50)


def test_no_question_is_in_two_parts_whatever_the_seed() -> None:
    trained = {item.question for item in in_part(generate(800, seed=1), "train")}
    tested = {item.question for item in in_part(generate(800, seed=2), "test")}
    assert trained.isdisjoint(tested)


def test_no_fact_is_in_two_parts_whatever_the_words_and_the_kind() -> None:
    kinds = ("facts", "facts+arithmetic", "facts+extraction")
    parts: dict[str, set[str]] = {}
    for item in (*generate(600, seed=1, kinds=kinds), *generate(600, seed=2, kinds=kinds)):
        parts.setdefault(item.goals[0].answer, set()).add(part_of(item))
    assert len(parts) == len(CAPITALS) + len(NUMBERS)
    assert all(len(found) == 1 for found in parts.values())
    counts = Counter(part for (part,) in parts.values())
    assert {part: round(count / len(parts), 1) for part, count in counts.items()} == {
        "train": 0.6, "validation": 0.2, "test": 0.2,
    }  # fmt: skip


def test_an_id_is_a_hash_of_the_question_and_nothing_else() -> None:
    (fact,) = generate(1, seed=1, kinds=("facts",))
    assert fact.id == hashlib.sha256(fact.question.encode()).hexdigest()[:16]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "code"])
async def test_the_judge_takes_the_right_answer_and_no_other(kind: str) -> None:
    for item in generate(20, seed=2, kinds=(kind,)):
        goal = item.goals[-1].answer
        assert await Judges().is_right(item, f"I have looked. The answer is {goal}.")
        assert not await Judges().is_right(item, "I do not know.")


def test_an_unknown_kind_is_named() -> None:
    with pytest.raises(ValueError, match="no kind 'poems'; known are arithmetic"):
        generate(3, kinds=("poems",))


def test_a_kind_that_is_too_small_says_so() -> None:
    with pytest.raises(ValueError, match="'facts' has only"):
        generate(400, kinds=("facts",))
