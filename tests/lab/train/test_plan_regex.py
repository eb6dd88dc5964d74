"""The grammar of plans as one regular expression, for vLLM in training."""

import re

import pytest

from podium.plan import Plan, Step
from podium.plan_grammar import json_grammar, lists_grammar
from podium.plan_text import parse_plan, render_json, render_lists
from podium_lab.train.plan_regex import regex_of

NAMES = ("a", "b", "c")
PLANS = re.compile(regex_of(lists_grammar(3, max_steps=3, prose=40)))
ONE = Plan(steps=(Step(worker="b", subtask='Say "yes" or\nno, \\ maybe.'),))
THREE = Plan(
    steps=(
        Step(worker="a", subtask="Find the number."),
        Step(worker="c", subtask="Find it again.", access=()),
        Step(worker="b", subtask="Compare the two.", access=(0, 1)),
    )
)


@pytest.mark.parametrize("plan", [ONE, THREE])
@pytest.mark.parametrize("before", ["", "Two are better than one.\n"])
def test_a_plan_that_is_written_as_asked_is_let_through(plan: Plan, before: str) -> None:
    text = before + render_lists(plan, NAMES)
    assert PLANS.fullmatch(text)
    assert parse_plan(text, NAMES, max_steps=3) == plan


@pytest.mark.parametrize(
    "text",
    [
        'model_id = [3]\nsubtasks = ["Do what is asked."]\naccess_list = [[]]',
        'model_id = [0, 1]\nsubtasks = ["Do what is asked."]\naccess_list = [[]]',
        'model_id = [0, 1]\nsubtasks = ["Do the first.", "Do the rest."]\naccess_list = [[], [1]]',
        'model_id = [0]\nsubtasks = ["short"]\naccess_list = [[]]',
        f'{"x" * 41} model_id = [0]\nsubtasks = ["Do what is asked."]\naccess_list = [[]]',
        "I would ask the first of them.",
    ],
)
def test_what_is_no_plan_is_not(text: str) -> None:
    assert PLANS.fullmatch(text) is None


@pytest.mark.parametrize("plan", [ONE, THREE])
def test_a_plan_in_json_is_let_through(plan: Plan) -> None:
    pattern = re.compile(regex_of(json_grammar(NAMES, max_steps=3)))
    assert pattern.fullmatch(render_json(plan))
    assert not pattern.fullmatch(render_json(plan).replace('"b"', '"d"'))


def test_letters_that_are_not_counted_let_every_plan_through() -> None:
    free = re.compile(regex_of(lists_grammar(3, max_steps=3, prose=40, counted=False)))
    short = 'model_id = [0]\nsubtasks = ["short"]\naccess_list = [[]]'
    assert free.fullmatch(short)
    assert not free.fullmatch(short.replace("short", ""))
    assert free.fullmatch(render_lists(THREE, NAMES))


def test_a_recursive_grammar_is_refused() -> None:
    with pytest.raises(ValueError, match="recursive"):
        regex_of('root ::= "(" root ")"\n')


def test_an_unknown_sign_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot be read"):
        regex_of('root ::= "a" @ "b"\n')
