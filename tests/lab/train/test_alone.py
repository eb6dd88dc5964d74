"""Plans against workers alone: of those shown, at equal spend, and who is chosen for what."""

from collections.abc import Mapping

import pytest

from podium_lab.train.alone import Reference, Spend, against, routed
from podium_lab.train.environment import Score
from podium_lab.train.items import Item
from podium_lab.train.judging import comparable
from podium_lab.train.reference import votes
from podium_workers.worker import Usage

RIGHT = {"1": ("a",), "2": ("b",), "3": ("a", "b"), "4": ()}
ALONE = Spend(calls=10, tokens=100, usd=0.1)


def _score(item: str, *workers: str, right: bool = True, **more: object) -> Score:
    known: Mapping[str, object] = {
        "item": item, "reward": 1.0 if right else 0.5, "valid": bool(workers), "right": right,
        "workers": workers, "usage": Usage(input_tokens=20, output_tokens=5), "price_usd": 0.025,
    }  # fmt: skip
    return Score.model_validate({**known, **more})


def _item(judge: str) -> Item:
    return Item.model_validate(
        {"id": "1", "taskset": "own", "question": "?", "judge": judge, "answer": "12"}
    )


def test_regret_and_gain_are_told_of_items_that_are_known() -> None:
    scores = [
        _score("1", "a"), _score("2", "a", right=False), _score("3", "b"),
        _score("4", "a", right=False), _score("unknown", "a"),
    ]  # fmt: skip
    found = against(scores, Reference(right=RIGHT))
    assert found is not None
    assert found.regret == pytest.approx(3 / 4 - 2 / 4)
    assert found.gain == pytest.approx(2 / 4 - 2 / 4)
    assert against(scores[-1:], Reference(right=RIGHT)) is None


def test_only_workers_that_were_shown_count() -> None:
    scores = [_score("1", "b", right=False, shown=("b", "c")), _score("2", "b", shown=("b", "c"))]
    found = against(scores, Reference(right=RIGHT))
    assert found is not None
    assert (found.regret, found.gain, found.single) == (0.0, 0.0, "b")
    shown = [score.model_copy(update={"shown": ("a", "b")}) for score in scores]
    found = against(shown, Reference(right=RIGHT))
    assert found is not None
    assert found.regret == 0.5


def test_the_best_single_worker_is_chosen_for_each_pool_by_all_that_is_known() -> None:
    reference = Reference(right={"1": ("a",), "2": ("a",), "3": ("b",)})
    scores = [_score("3", "b", shown=("a", "b")), _score("3", "b", shown=("b", "c"))]
    found = against(scores, reference)
    assert found is not None
    assert found.gain == pytest.approx(1 - 1 / 2)


@pytest.mark.parametrize(
    ("price", "alone", "unit", "ratio"),
    [
        (0.025, ALONE, "USD", 2.5),
        (None, ALONE, "tokens", 2.5),
        (0.025, ALONE.model_copy(update={"usd": 0.0}), "tokens", 2.5),
        (0.025, None, "calls", 2.0),
    ],
)
def test_spend_is_money_where_it_is_known_else_tokens_else_calls(
    price: float | None, alone: Spend | None, unit: str, ratio: float
) -> None:
    spent = {"a": alone, "b": alone} if alone else {}
    reference = Reference.model_validate({"right": RIGHT, "spent": spent})
    found = against([_score("1", "a", "b", price_usd=price)], reference)
    assert found is not None
    assert found.unit == unit
    assert found.spend_ratio == pytest.approx(ratio)


def test_at_equal_spend_a_worker_is_asked_as_often_as_the_plans_pay_for() -> None:
    voted = {"1": {"a": (False, False, True), "b": (False,) * 3}}
    reference = Reference(right={"1": ()}, voted=voted, spent={"a": ALONE, "b": ALONE})
    few = against([_score("1", "a", right=False)], reference)
    many = against(
        [_score("1", "a", right=False, usage=Usage(input_tokens=90), price_usd=0.09)], reference
    )
    assert few is not None
    assert (few.single_calls, few.gain) == (2, 0.0)
    assert many is not None
    assert (many.single, many.single_calls, many.gain) == ("a", 3, -1.0)
    assert many.spend_ratio == pytest.approx(9.0), "it was profiled three times, not nine"


def test_the_most_frequent_answer_counts_and_the_earliest_of_equals() -> None:
    said = ["it is 7", "12", "12", "no idea"]
    scores = [_score("1", "a", right="12" in text, answer=text) for text in said]
    assert votes(_item("number"), scores) == (False, False, True, True)
    assert votes(_item("code"), scores) == (False,) * 4


@pytest.mark.parametrize(
    ("judge", "reply", "told"),
    [
        ("number", "So it is 1,200.0.", "1200"),
        ("choice", "I think. Answer: B", "B"),
        ("text", "The capital.\nAnswer: Bogotá.", "bogota"),
        ("math", "<answer>x + 1</answer>", "x + 1"),
        ("text", "  ", ""),
        ("program", "print(1)", None),
    ],
)
def test_replies_that_say_the_same_are_alike(judge: str, reply: str, told: str | None) -> None:
    assert comparable(_item(judge), reply) == told


SKILLS = {"a": {"facts": 0.9, "sums": 0.1}, "b": {"facts": 0.2, "sums": 0.8}, "c": {"facts": 0.2}}
ROUTES = Reference(goals={"1": ("facts", "sums"), "2": ("facts",)}, skills=SKILLS)


@pytest.mark.parametrize(
    ("workers", "shown", "is_so"),
    [
        (("a", "b"), (), True),
        (("b", "a", "b"), (), True),
        (("b", "a"), (), False),
        (("a",), (), False),
        (("b",), ("b", "c"), True),
        (("c", "b"), ("b", "c"), True),
        (("c",), ("a", "c"), False),
        ((), (), None),
    ],
)
def test_a_plan_is_routed_if_each_skill_has_its_worker_of_those_shown(
    workers: tuple[str, ...], shown: tuple[str, ...], is_so: bool | None
) -> None:
    assert ROUTES.is_routed(_score("1", *workers, shown=shown)) is is_so


def test_routing_is_told_apart_from_right_answers() -> None:
    scores = [_score("2", "a", right=False), _score("2", "b"), _score("unknown", "a")]
    assert routed(scores, ROUTES) == 0.5
    assert routed(scores[2:], ROUTES) is None
    assert ROUTES.is_routed(_score("2", "b", shown=("nobody",))) is None
