"""Plans as text: what is read, what is refused and why, and how it is written."""

import json
from collections.abc import Callable

import pytest
from pydantic import JsonValue
from tests.plan_samples import POOL, one_step, plan_of, read, rule_of

from podium.errors import PlanError
from podium.plan import Access
from podium.plan_text import (
    MAX_SUBTASK,
    parse_plan,
    read_number,
    render_json,
    render_lists,
)

TWO_STEPS = plan_of(("Solve it.", "gpt-5.1", ()), ("Check it.", "qwen-coder", "all"))


@pytest.mark.parametrize(
    "text",
    [
        'model_id=[2,0]\nsubtasks=["Solve it.", "Check it."]\naccess_list=[[], ["all"]]',
        "Model IDs: ['2', '0'], Subtask: ['Solve it.', 'Check it.'], Access: [[], 'all']",
        "model id = [2.0, qwen-coder]\nsubtasks = ['Solve it.', 'Check it.']\n"
        "access list = [None, 'all']",
        "MODEL_ID：[2, 0] SUBTASKS：['Solve it.', 'Check it.'] ACCESS_LIST：['none', ['ALL']]",
        "model_id: list[int] = [2, 0]  # two\nsubtasks: list[str] = [\n    'Solve it.',  # first\n"
        '    """Check it.""",\n]\naccess_list: list = [(), ("all",)]',
        "- **model_id**: `[2, 0]`\n- **subtasks**: [\n  - 'Solve it.',\n  - 'Check it.']\n"
        "- **access_list**: [[], ['all']]",
        "model_id:\n```python\n[2, 0]\n```\nsubtasks:\n```python\n['Solve it.', 'Check it.']\n```\n"
        "access_list:\n```python\n[[], ['all']]\n```",
        "model_id=[2, 0], subtasks=[Solve it., Check it.], access_list=[[], [all]]",
        '{"model_id": [2, 0], "subtasks": ["Solve it.", "Check it."], "access_list": [[], "all"]}',
        "access_list=[[], 'all'] subtasks=['Solve it.', 'Check it.'] model_id=[2, 0]",
    ],
)
def test_three_lists_are_read_as_people_and_models_write_them(text: str) -> None:
    assert read(text) == TWO_STEPS


@pytest.mark.parametrize(
    "text",
    [
        '{"steps":[{"subtask":"Solve it.","worker":"gpt-5.1","access":[]},'
        '{"access":"all","worker":"qwen-coder","subtask":"Check it."}]}',
        '[{"subtask": "Solve it.", "worker": 2, "access": null},'
        ' {"subtask": "Check it.", "worker": "0", "access": ["all"]}]',
        "{'steps': [{'subtask': 'Solve it.', 'worker': 'gpt-5.1', 'access': None,},"
        " {'subtask': 'Check it.', 'worker': 'qwen-coder', 'access': 'all'},],}",
        "{steps: [{subtask: 'Solve it.', worker: gpt-5.1, access: none},"
        " {subtask: 'Check it.', worker: qwen-coder, access: all}]}",
        '```json\n{"plan": {"steps": [{"Subtask": "Solve it.", "model": "GPT-5.1", "access": ""}, '
        '{"subtask": "Check it.", "model_id": 0, "access_list": ["all", 0]}]}}\n```',
        'steps = [{"subtask": "Solve it.", "worker": "gpt-5.1", "access": []}, '
        '{"subtask": "Check it.", "worker": "qwen-coder", "access": "all"}]',
        '{"plan": [{"step": 0, "subtask": "Solve it.", "worker": "gpt-5.1", "access": []}, '
        '{"step": 1, "subtask": "Check it.", "worker": "qwen-coder", "access": "all"}]}',
    ],
)
def test_json_is_read_in_any_order_and_wrapping(text: str) -> None:
    assert read(text) == TWO_STEPS


def test_own_numbers_become_run_wide_numbers_and_all_stays_all() -> None:
    text = (
        'model_id=[0, 1, 1, 0] subtasks=["a", "b", "c", "d"] access_list=[["all"], [0], [1, 0], 2]'
    )
    accesses = [step.access for step in read(text, first=7).steps]
    assert accesses == ["all", (7,), (8, 7), (9,)]
    assert read(text, first=7).first == 7


@pytest.mark.parametrize(
    ("access", "meaning"),
    [
        ([], ()), (None, ()), ("none", ()), ("None", ()), ([None], ()), ("", ()), ("[]", ()),
        ("all", "all"), (["all"], "all"), (["ALL", 1], "all"), (1, (1,)), ("1", (1,)),
        (["0", 1.0], (0, 1)), ("Step 1", (1,)), (["step 0", "`1`"], (0, 1)),
    ],
)  # fmt: skip
def test_access_is_a_list_or_a_word_or_a_number(access: object, meaning: Access) -> None:
    steps: list[object] = [{"subtask": "a", "worker": 0, "access": []}] * 2
    text = json.dumps({"steps": [*steps, {"subtask": "b", "worker": 0, "access": access}]})
    assert read(text).steps[2].access == meaning


def test_no_steps_mean_accept_only_where_that_is_allowed() -> None:
    for text in ("model_id=[] subtasks=[] access_list=[]", '{"steps": []}', "Fine. steps: []"):
        assert parse_plan(text, POOL, may_accept=True) is None
        assert rule_of(text) == "empty"


@pytest.mark.parametrize(
    "name",
    [
        "gpt-5.1", "GPT-5.1", " gpt-5.1\n", "`gpt-5.1`", "'gpt-5.1'", "“gpt-5.1”", "**gpt-5.1**",
        "gpt 5.1", "GPT_5_1", "gpt5.1", "gpt-5.1 (the strong one)", "gpt-5.1: good at all",
        "gpt-5.1 - strong", "gpt-5.1.", "2", 2, 2.0, " 2 ", "#2", "Model 2", "model_2",
        "model id 2", "Worker 2", "agent #2", "Model 2: gpt-5.1",
    ],
)  # fmt: skip
def test_t25_a_worker_is_found_however_its_name_is_written(name: object) -> None:
    assert read(one_step(worker=name)).steps[0].worker == "gpt-5.1"


@pytest.mark.parametrize(
    "name", ["gpt-4", "the best one", "", "4", 99, "Model 4", "qwen", "-1", -1]
)
def test_t25_an_unknown_worker_is_refused(name: object) -> None:
    assert rule_of(one_step(worker=name)) == "worker"


def test_t25_the_refusal_lists_the_names_that_are_right() -> None:
    with pytest.raises(PlanError, match=r"'gpt-4'.*qwen-coder, Smol, gpt-5\.1, podium"):
        read(one_step(worker="gpt-4"))


def test_t25_a_conductor_that_was_shown_numbers_learns_no_names() -> None:
    with pytest.raises(PlanError, match="from 0 to 3") as refused:
        read("model_id=[9] subtasks=['a'] access_list=[[]]")
    assert "Smol" not in str(refused.value)


def test_t25_a_name_that_looks_like_a_number_is_a_name_in_json_and_a_number_in_lists() -> None:
    pool = ("2", "b", "1")
    plan = parse_plan(one_step(worker=1), pool)
    assert plan is not None
    assert plan.steps[0].worker == "1"
    plan = parse_plan("model_id=[1] subtasks=['a'] access_list=[[]]", pool)
    assert plan is not None
    assert plan.steps[0].worker == "b"


def test_t25_names_that_differ_only_in_case_are_told_apart() -> None:
    pool = ("a.", "A", "a")
    for name in pool:
        plan = parse_plan(one_step(worker=name), pool)
        assert plan is not None
        assert plan.steps[0].worker == name
    with pytest.raises(PlanError):
        parse_plan(one_step(worker="b 1"), ("b-1", "B.1"))


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "not_found"),
        ("I cannot help with that.", "not_found"),
        ("model_id=[0] subtasks=['a']", "not_found"),
        ('{"steps": [{"subtask": "a", "worker": "Smol", "acc', "decode"),
        ("model_id=[0] subtasks=['a access_list=[[]]", "decode"),
        ('{"steps": ["a", "b"]}', "shape"),
        ('{"steps": [{"subtask": "a", "worker": "Smol"}]}', "shape"),
        ("model_id=[0, 1] subtasks=['a'] access_list=[[]]", "length"),
        ("model_id=[0] subtasks=['a'] access_list=[]", "length"),
        (json.dumps({"steps": [{"subtask": "a", "worker": 0, "access": []}] * 6}), "length"),
        (one_step(subtask="  \n"), "subtask"),
        (one_step(subtask=7), "subtask"),
        (one_step(subtask="x" * (MAX_SUBTASK + 1)), "too_long"),
        (one_step(access=[0]), "access"),
        (one_step(access=["the first"]), "access"),
        (one_step(access=[[0]]), "access"),
        (one_step(worker=None), "worker"),
        (one_step(worker=["Smol"]), "worker"),
    ],
)
def test_t26_a_plan_that_cannot_be_used_says_by_which_rule(text: str, rule: str) -> None:
    assert rule_of(text) == rule
    assert rule_of(text, may_accept=True) == rule


def test_t26_a_step_that_reads_itself_or_a_later_one_is_refused() -> None:
    for access in ("[[], [1]]", "[[1], []]", "[[], [4]]"):
        text = f"model_id=[0, 0] subtasks=['a', 'b'] access_list={access}"
        assert rule_of(text) == "access"


@pytest.mark.parametrize("value", [1, "1", " 1 ", 1.0, "1.0", "+1", "１"])
def test_t28_a_number_is_taken_however_it_is_written(value: JsonValue) -> None:
    assert read_number(value, "The score", rule="shape") == 1


@pytest.mark.parametrize(
    "value",
    ["N/A", "", "one", "1.5", "-1", "1e3", "9" * 5000, 1.5, -1, 10**9, 10**400, 1e99, True, False,
     None, [1], {"n": 1}, float("nan"), float("inf"), float("-inf")],
)  # fmt: skip
def test_t28_what_is_no_whole_number_is_refused(value: JsonValue) -> None:
    with pytest.raises(PlanError) as refused:
        read_number(value, "The score", rule="shape")
    assert refused.value.rule == "shape"
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize("value", ["N/A", "NaN", "Infinity", "1e99", "true", "9" * 5000])
def test_t28_odd_numbers_in_a_plan_are_refused(value: str) -> None:
    assert (
        rule_of(f'{{"steps": [{{"subtask": "a", "worker": {value}, "access": []}}]}}') == "worker"
    )
    assert (
        rule_of(f'{{"steps": [{{"subtask": "a", "worker": 0, "access": [{value}]}}]}}') == "access"
    )
    assert rule_of(f"model_id=[{value}] subtasks=['a'] access_list=[[]]") == "worker"


def test_the_forms_look_as_the_prompts_show_them() -> None:
    plan = plan_of(("Say “hi”.", "Smol", ()), ("Check.", "podium", (4,)), ("End.", "Smol", "all"),
                   first=4)  # fmt: skip
    assert render_json(plan) == (
        '{"steps": [{"subtask": "Say “hi”.", "worker": "Smol", "access": []}, '
        '{"subtask": "Check.", "worker": "podium", "access": [0]}, '
        '{"subtask": "End.", "worker": "Smol", "access": "all"}]}'
    )
    assert render_lists(plan, POOL) == (
        'model_id = [1, 3, 1]\nsubtasks = ["Say “hi”.", "Check.", "End."]\n'
        'access_list = [[], [0], ["all"]]'
    )


def test_a_step_of_an_earlier_round_has_no_number_in_the_text() -> None:
    plan = plan_of(("Improve it.", "Smol", (2,)), first=3)
    writers: tuple[Callable[[], str], ...] = (
        lambda: render_json(plan),
        lambda: render_lists(plan, POOL),
    )
    for write in writers:
        with pytest.raises(PlanError) as refused:
            write()
        assert refused.value.rule == "access"
    assert json.loads(render_json(plan, first=0))["steps"][0]["access"] == [2]


def test_a_worker_that_is_not_shown_has_no_number() -> None:
    with pytest.raises(PlanError) as refused:
        render_lists(plan_of(("a", "caller", ())), POOL)
    assert refused.value.rule == "worker"
