"""Diagnostics: what is counted, and what stops a run that only seems to learn."""

import math
from collections.abc import Mapping, Sequence
from random import Random

import pytest

from podium_lab.train.environment import Score
from podium_lab.train.watch import Step, StopRules, Watch, summed
from podium_workers.worker import Usage


def _score(*workers: str, right: bool = True, item: str = "1", subtask: str = "") -> Score:
    texts = tuple(subtask or f"do {name}" for name in workers)
    return Score(
        item=item, reward=1.0 if right else 0.5, valid=True, right=right, workers=workers,
        subtasks=texts, usage=Usage(input_tokens=8, output_tokens=2),
    )  # fmt: skip


UNREADABLE = Score(item="1", reward=0.0)
DROPPED = Score(item="1", reward=None, valid=True, workers=("a",), subtasks=("do",))


def _step(number: int = 0, *, right: float = 0.5, valid: float = 1.0, **changes: object) -> Step:
    plain = Step(
        iteration=number, rollouts=16, dropped=0, reward=0.5, valid=valid, right=right * valid,
        right_if_valid=right, lengths={1: 8, 2: 8}, routing={"a": 0.5, "b": 0.5}, entropy=1.0,
        finals={"a": 1.0}, stock=0.1, flat_groups=0.2, regret=None, gain=None, tokens=1,
        cost_usd=0.0,
    )  # fmt: skip
    return plain.model_copy(update=changes)


def _watched(steps: Sequence[Step], **rules: object) -> str:
    watch = Watch(StopRules.model_validate({"after": 4, "window": 3, **rules}), workers=2)
    return next((said for step in steps if (said := watch.look(step))), "")


def test_what_is_right_is_counted_apart_from_what_is_readable() -> None:
    step = summed(3, [[_score("a"), _score("b", right=False), UNREADABLE, DROPPED]])
    assert (step.rollouts, step.dropped, step.reward) == (4, 1, 0.5)
    assert step.valid == pytest.approx(2 / 3)
    assert step.right == pytest.approx(1 / 3)
    assert step.right_if_valid == 0.5
    assert step.tokens == 20


def test_routing_is_counted_by_steps_and_by_who_comes_last() -> None:
    step = summed(0, [[_score("a", "b"), _score("b")]])
    assert step.routing == {"a": pytest.approx(1 / 3), "b": pytest.approx(2 / 3)}
    assert step.finals == {"b": 1.0}
    assert step.lengths == {1: 1, 2: 1}
    assert step.entropy == pytest.approx(-(1 / 3 * math.log2(1 / 3) + 2 / 3 * math.log2(2 / 3)))


def test_groups_without_spread_teach_nothing() -> None:
    mixed, flat = [_score("a"), UNREADABLE], [_score("a"), _score("b"), DROPPED]
    assert summed(0, [mixed, flat]).flat_groups == 0.5
    lost, single = [DROPPED, DROPPED], [_score("a"), DROPPED]
    assert summed(0, [mixed, flat, lost, single]).flat_groups == 0.5
    assert summed(0, [lost]).flat_groups == 0


def test_stock_phrases_are_those_that_many_plans_repeat() -> None:
    stock = [_score("a", subtask="Solve it.") for _ in range(6)]
    own = [_score("a", subtask=f"Find the number {n}.") for n in range(4)]
    assert summed(0, [[*stock, *own]]).stock == 0.6


def test_a_run_that_learns_goes_on() -> None:
    assert _watched([_step(n, right=0.4 + n / 50) for n in range(20)]) == ""


@pytest.mark.parametrize(
    ("collapsed", "rules", "said"),
    [
        ({"routing": {"a": 0.99, "b": 0.01}, "entropy": 0.08}, {}, "Routing has collapsed to 'a'"),
        ({"lengths": {1: 99, 2: 1}}, {"most_one_step": 0.9}, "Plan length has collapsed"),
        ({"stock": 0.9}, {"most_stock": 0.8}, "Subtasks have collapsed"),
        ({"flat_groups": 1.0}, {}, "Rewards have no spread"),
        ({"dropped": 12}, {}, "More than 50% of the rollouts were dropped"),
    ],
)
def test_a_collapse_stops_the_run_and_is_named(
    collapsed: Mapping[str, object], rules: Mapping[str, object], said: str
) -> None:
    steps = [_step(n, right=0.4 + n / 50) for n in range(5)]
    steps += [_step(n, right=0.5).model_copy(update=collapsed) for n in range(5, 8)]
    assert said in _watched(steps, **rules)
    assert _watched(steps[:-1], **rules) == ""


def test_a_reward_that_rises_by_form_alone_stops_the_run() -> None:
    steps = [_step(n, valid=0.3 + 0.06 * n, right=0.35) for n in range(10)]
    assert "Only the form is learned" in _watched(steps, form_after=8)
    assert _watched(steps[:9], form_after=8) == "", "three windows have to say so"


def test_form_that_grows_with_content_is_learning() -> None:
    steps = [_step(n, valid=0.3 + 0.06 * n, right=0.35 + 0.03 * n) for n in range(10)]
    assert _watched(steps, form_after=8) == ""


def _drawn(chance: Random, *, form: float, content: float, questions: int) -> Step:
    """An iteration of so many questions, some harder than others, of 12 rollouts each."""
    read = right = 0
    for _ in range(questions):
        able = chance.betavariate(3 * content, 3 * (1 - content))
        for _ in range(12):
            readable = chance.random() < form
            read += readable
            right += readable and chance.random() < able
    return _step(valid=read / (12 * questions), right=right / max(1, read))


def _stopped_at(seed: int, *, grows: bool, questions: int) -> int:
    """When a run of 120 iterations is stopped, whose form grows at first; 0 if it is not."""
    chance, watch = Random(seed), Watch(StopRules(), workers=2)
    for n in range(120):
        form, content = min(0.95, 0.5 + 0.05 * n), 0.4 + 0.003 * n * grows
        if watch.look(_drawn(chance, form=form, content=content, questions=questions)):
            return n + 1
    return 0


@pytest.mark.parametrize("questions", [4, 12])
def test_unequal_questions_are_not_taken_for_a_collapse(questions: int) -> None:
    good = [_stopped_at(seed, grows=True, questions=questions) for seed in range(10)]
    assert good == [0] * 10
    bad = [_stopped_at(seed, grows=False, questions=questions) for seed in range(10)]
    assert sum(bool(at) for at in bad) >= 5, "most collapses are seen within 120 iterations"


def test_all_to_one_worker_is_no_collapse_where_all_is_right() -> None:
    steps = [_step(n, right=0.99, routing={"a": 1.0}, entropy=0.0) for n in range(10)]
    assert _watched(steps) == ""


@pytest.mark.parametrize("flat", [{"flat_groups": 1.0}, {"routing": {"a": 1.0}, "entropy": 0.0}])
def test_what_is_as_good_as_the_best_worker_of_each_item_has_not_collapsed(
    flat: Mapping[str, object],
) -> None:
    steps = [_step(n, right=0.9, regret=0.0).model_copy(update=flat) for n in range(10)]
    assert _watched(steps) == ""
    assert _watched([it.model_copy(update={"regret": 0.1}) for it in steps])
    nobody = [it.model_copy(update={"right": 0.0, "right_if_valid": 0.0}) for it in steps]
    assert _watched(nobody), "where nobody is right, nothing tells"


def test_a_rule_can_be_switched_off() -> None:
    steps = [_step(n, routing={"a": 1.0}, entropy=0.0) for n in range(10)]
    assert _watched(steps, least_entropy=None, most_to_one=None) == ""


def test_a_reward_that_is_no_number_stops_at_once() -> None:
    assert "not a number" in _watched([_step(0).model_copy(update={"reward": math.nan})])
