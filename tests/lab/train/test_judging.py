"""Judges: what counts as right, and what only looks like it."""

import sys

import pytest

from podium_lab.train.generated import generate
from podium_lab.train.items import Check, Item, JudgeName
from podium_lab.train.judging import JudgeError, Judges, missing
from podium_workers.errors import NotInstalledError
from podium_workers.programs.sandbox import Sandbox


def _item(judge: JudgeName, answer: str, *checks: Check) -> Item:
    return Item(id="1", taskset="some", question="?", judge=judge, answer=answer, checks=checks)


@pytest.fixture
async def _sandboxed() -> None:
    try:
        await Sandbox().check()
    except NotInstalledError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize(
    ("judge", "answer", "reply", "right"),
    [
        ("number", "1234", "That gives 1,234.00.", True),
        ("number", "1234", "First 1234, but really 1235.", False),
        ("number", "1234", "1" * 400, False),
        ("number", "7", "<answer>7</answer> since 3 + 4 is 7, checked 2 times.", True),
        ("text", "Bogota", "It is Bogotá.", True),
        ("text", "Rome", "Romeo lives in Verona.", False),
        ("text", "Rome", "Rome " + "or Paris " * 40, False),
        ("choice", "B", "The answer is (B).", True),
        ("choice", "B", "Not option A. Answer: B", True),
        ("choice", "B", "I thought of it.\n\nB", True),
        ("choice", "B", "A or B or C or D", False),
    ],
)
async def test_a_reply_is_judged_by_what_it_comes_to(
    judge: JudgeName, answer: str, reply: str, right: bool
) -> None:
    assert await Judges().is_right(_item(judge, answer), reply) is right


async def test_an_answer_that_the_judge_cannot_read_is_no_verdict() -> None:
    with pytest.raises(JudgeError, match="'number' failed on item '1': InvalidOperation"):
        await Judges().is_right(_item("number", "many"), "It is 7.")


async def test_a_missing_library_is_no_verdict_and_is_told_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    items = [_item("number", "1"), _item("math", "2")]
    assert missing(items) == ""
    monkeypatch.setitem(sys.modules, "math_verify", None)
    assert "math-verify" in missing(items)
    assert missing(items[:1]) == ""


@pytest.mark.parametrize(
    ("gold", "reply", "right"),
    [
        ("\\frac{1}{2}", "So we get $0.5$.", True),
        ("\\left(3,\\frac{\\pi}{2}\\right)", "\\boxed{\\left(3,\\frac{\\pi}{2}\\right)}", True),
        ("\\text{Evelyn}", "\\boxed{\\text{Evelyn}}", True),
        ("12", "The result is $13$.", False),
    ],
)
async def test_expressions_are_equal_however_they_are_written(
    gold: str, reply: str, right: bool
) -> None:
    assert await Judges().is_right(_item("math", gold), reply) is right


@pytest.mark.usefixtures("_sandboxed")
async def test_a_judge_that_takes_too_long_says_so() -> None:
    judges = Judges(seconds=0.3)
    with pytest.raises(JudgeError, match="'code' had not decided on item '1' after"):
        await judges.is_right(_item("code", "assert True"), "while True: pass")


async def test_programs_are_not_judged_where_none_can_be_isolated() -> None:
    judges = Judges(sandbox=Sandbox(path="/nowhere"))
    with pytest.raises(JudgeError, match="bubblewrap"):
        await judges.is_right(_item("code", "assert True"), "```python\npass\n```")


@pytest.mark.usefixtures("_sandboxed")
async def test_code_is_right_when_its_checks_run_to_their_end() -> None:
    for item in generate(5, seed=3, kinds=("code",)):
        solution = item.goals[0].answer
        assert await Judges().is_right(item, f"Here:\n```python\n{solution}\n```")
        assert not await Judges().is_right(item, f"```python\n{solution} + 1\n```")


@pytest.mark.usefixtures("_sandboxed")
async def test_code_that_ends_before_its_checks_is_not_right() -> None:
    early = "```python\nprint('all fine')\nraise SystemExit(0)\n```"
    assert not await Judges().is_right(_item("code", "assert False"), early)


@pytest.mark.usefixtures("_sandboxed")
async def test_a_program_is_judged_by_what_it_prints() -> None:
    doubled = (Check(stdin="1 2\n", stdout="2 4\n"), Check(stdin="5\n", stdout="10\n"))
    item = _item("program", "", *doubled)
    right = "```python\nprint(*(2 * int(x) for x in input().split()))\n```"
    as_floats = "```python\nprint(*(2.0 * int(x) for x in input().split()), ' ')\n```"
    wrong = "```python\nprint(2, 4)\n```"
    assert await Judges().is_right(item, right)
    assert await Judges().is_right(item, as_floats)
    assert not await Judges().is_right(item, wrong)
