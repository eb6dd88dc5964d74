"""Plans as text: what is read, what is refused and why, and that writing and reading agree."""

import json
from collections.abc import Callable

import jsonschema
import pytest
from anthropic import transform_schema
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import JsonValue

from podium.errors import PlanError
from podium.plan import Access, Plan, Step
from podium.plan_text import (
    MAX_SUBTASK,
    parse_plan,
    plan_schema,
    read_number,
    render_json,
    render_lists,
)

steady = settings(derandomize=True, deadline=None, max_examples=100)
POOL = ("qwen-coder", "Smol", "gpt-5.1", "podium")


def read(text: str, *, first: int = 0, max_steps: int = 5) -> Plan:
    plan = parse_plan(text, POOL, first=first, max_steps=max_steps)
    assert plan is not None
    return plan


def rule_of(text: str, *, may_accept: bool = False) -> str:
    with pytest.raises(PlanError) as refused:
        parse_plan(text, POOL, may_accept=may_accept)
    return refused.value.rule


def one_step(worker: object = "Smol", access: object = (), subtask: object = "Go on.") -> str:
    return json.dumps({"steps": [{"subtask": subtask, "worker": worker, "access": access}]})


def plan_of(*steps: tuple[str, str, Access], first: int = 0) -> Plan:
    return Plan(
        steps=tuple(Step(subtask=task, worker=who, access=access) for task, who, access in steps),
        first=first,
    )


# --- The two forms -------------------------------------------------------------------------------

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


# --- Where the plan stands -----------------------------------------------------------------------

EXAMPLE = '{"steps": [{"subtask": "EXAMPLE", "worker": "Smol", "access": []}]}'
WANTED = '{"steps": [{"subtask": "Wanted.", "worker": "Smol", "access": []}]}'
LISTS = "model_id=[1]\nsubtasks=['Wanted.']\naccess_list=[[]]"


@pytest.mark.parametrize(
    "text",
    [
        f"A plan looks like {EXAMPLE}. Mine is {WANTED}",
        f"First model_id=[0], subtasks=['EXAMPLE'], access_list=[[]]. No: {LISTS}",
        f"Draft: model_id=[0, 1], subtasks=['EXAMPLE', 'x'] ... better:\n{LISTS}",
        f"{LISTS}\nI gave model_id=[0] no thought, and subtasks: [none]",
        f"access: [everything]\n{LISTS}",
        f"{LISTS}\naccess: [everything]",
        f"{EXAMPLE} then {LISTS}",
        f"{LISTS.replace('Wanted', 'EXAMPLE')} then {WANTED}",
        f"{WANTED}\nHope this {{helps}}! Steps: [1] read, [2] act. {{'note': 'steps: [{{}}]'}}",
        f"It's {{really}} a [{{hard}}] one, don't you think? {WANTED} It's done.",
        f"{WANTED} " * 3 + WANTED[:40],
        f'The form is {{"steps": [{{"subtask": ... {WANTED}',
        WANTED.replace("{", "{ \n ", 1).replace("}]}", "} \n]"),
    ],
)
def test_t27_the_last_complete_plan_wins(text: str) -> None:
    assert read(text) == plan_of(("Wanted.", "Smol", ()))


def test_t27_a_plan_inside_a_string_is_no_plan() -> None:
    inner = json.dumps(EXAMPLE)[1:-1]
    subtask = f"Explain {inner} and model_id=[0], subtasks=[1], access_list=[]"
    plan = plan_of((subtask, "Smol", ()))
    assert read("So: " + render_json(plan) + " That is all.") == plan
    assert read("So: " + render_lists(plan, POOL) + "\nThat is all.") == plan


@pytest.mark.parametrize(
    "text",
    [
        f"<think>Perhaps {EXAMPLE}</think>{WANTED}",
        f"<thinking>Perhaps {EXAMPLE}</thinking>\n{WANTED}",
        f"Perhaps {EXAMPLE}</think>\n{WANTED}",
        f"<think>The form is {EXAMPLE}, so\n{WANTED}",
        f"{WANTED}\n<think>Or {EXAMPLE}?</think>",
        f"<THINK >a <think> b</think>{WANTED}",
    ],
)
def test_t27_what_was_only_thought_does_not_count(text: str) -> None:
    assert read(text) == plan_of(("Wanted.", "Smol", ()))


def test_t27_a_plan_that_was_only_thought_is_not_found() -> None:
    assert rule_of(f"<think>{WANTED}</think> So be it.") == "not_found"
    assert rule_of(f"{WANTED}</think> So be it.") == "not_found"


@pytest.mark.parametrize(
    "subtask",
    [
        "Put the reasoning into <think> and </think>.",
        'Say "yes", then "no".',
        "It's Alice's turn: don't 'stop'.",
        "“Smart” quotes, ‘both’ kinds; it’s fine.",
        "Brackets ]}) and {[( and \\ and \\n and a\nreal line",
        "先读第一步的结果,再写出结论。「好」",
        "👩‍👩‍👧 🇫🇷 and \x00 NUL",
        "```python\nprint(d['k'])\n```",
    ],
)
def test_t27_strings_keep_what_they_hold(subtask: str) -> None:
    plan = plan_of((subtask, "Smol", ()), ("Then this.", "podium", (0,)))
    for text in (
        render_json(plan),
        render_lists(plan, POOL),
        json.dumps(json.loads(render_json(plan))),
    ):
        assert read(text) == plan
        assert read(f"Let me think, it's easy.\n```\n{text}\n```\nDone, isn't it?") == plan


@pytest.mark.parametrize(
    ("text", "subtasks"),
    [
        (
            "model_id=[0, 1] subtasks=['Check Alice's work', 'Don't stop'] access_list=[[], [0]]",
            ["Check Alice's work", "Don't stop"],
        ),
        (
            "model_id=[0, 1] subtasks=[“Solve the “hard” part”, “It’s “done””] access_list=[[], 0]",
            ["Solve the “hard” part", "It’s “done”"],
        ),
        (
            "model_id=[0, 1] subtasks=[‘It’s the first’, ‘and the last’] access_list=[[], [0]]",
            ["It’s the first", "and the last"],
        ),
        (
            '[{"subtask": "Say "hello" and go", "worker": 0, "access": []},'
            ' {"subtask": "Read f("x") twice", "worker": 1, "access": [0]}]',
            ["Say \"hello\" and go", 'Read f("x") twice'],
        ),
        (
            "{“steps”: [{“subtask”: “One”, “worker”: “Smol”, “access”: []},"
            " {“subtask”: “Two”, “worker”: “Smol”, “access”: [0]}]}",
            ["One", "Two"],
        ),
        (
            'model_id=[0, 1] subtasks=["Compute \\sqrt{2}", `Use \\`x\\``] access_list=[[], [0]]',
            ["Compute \\sqrt{2}", "Use `x`"],
        ),
    ],
)  # fmt: skip
def test_t27_quotes_are_repaired_where_they_delimit(text: str, subtasks: list[str]) -> None:
    assert [step.subtask for step in read(text).steps] == subtasks


@pytest.mark.parametrize(
    "subtask", ["Fix d['k'] and go", "Fix d['k'], then go", "Write f(x['k']) in Python", "['k']"]
)
def test_t27_a_bracket_in_an_unescaped_string_does_not_end_the_list(subtask: str) -> None:
    text = f"model_id=[0, 1]\nsubtasks=['{subtask}', 'End.']\naccess_list=[[], [0]]"
    assert [step.subtask for step in read(text).steps] == [subtask, "End."]


@pytest.mark.parametrize(
    "text",
    [
        one_step(subtask="X").replace("X", 'Use "x", "y": both'),
        "model_id=[0] subtasks=['Explain 'a', 'b''] access_list=[[]]",
    ],
)
def test_t27_quotes_that_can_be_read_in_two_ways_are_refused(text: str) -> None:
    assert rule_of(text) in ("decode", "length")


# --- Workers -------------------------------------------------------------------------------------


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


# --- Refusals ------------------------------------------------------------------------------------


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


# --- What weak models write ----------------------------------------------------------------------


def test_a_small_coder_wraps_its_plan_in_python() -> None:
    text = """Sure! Here's how I would split the question:

```python
# Plan for the team
plan = {
    'steps': [
        {
            'subtask': 'Write a function `is_prime(n)` that doesn\\'t use recursion.',
            'worker': 'Qwen-Coder',   # good at code
            'access': []
        },
        {
            'subtask': "Review the function and fix what's wrong.",
            'worker': 'gpt-5.1',
            'access': [0],
        },
    ]
}
```

This plan uses two workers. Let me know if you'd like changes!"""
    assert read(text) == plan_of(
        ("Write a function `is_prime(n)` that doesn't use recursion.", "qwen-coder", ()),
        ("Review the function and fix what's wrong.", "gpt-5.1", (0,)),
    )


def test_a_reasoner_drafts_corrects_itself_and_then_answers() -> None:
    text = """<think>
Okay, so the user wants 17 * 23. The format is model_id = [..], subtasks = [..], access_list = [..].
Maybe model_id = [0, 1], subtasks = ["Compute", "Check"], access_list = [[], ["all"]]. Hmm, that's
too much {for} such a small thing... The user's question isn't hard.
</think>

One model is enough.

**model_id:** [2]
**subtasks:** ["Compute 17 * 23. Put your reasoning in <idea> and the result in <answer>."]
**access_list:** [[]]"""
    assert read(text, first=3) == plan_of(
        (
            "Compute 17 * 23. Put your reasoning in <idea> and the result in <answer>.",
            "gpt-5.1",
            (),
        ),
        first=3,
    )


def test_a_tiny_model_repeats_itself_until_its_limit() -> None:
    row = """{"steps": [{"subtask": "Find the facts.", "worker": "Smol", "access": [
      
      ]}, {"subtask":
"Write the answer.", "worker": "model 0", "access": [ 0 ]}
]}
"""
    assert read(row * 5 + row[:70]) == plan_of(
        ("Find the facts.", "Smol", ()), ("Write the answer.", "qwen-coder", (0,))
    )


# --- Properties ----------------------------------------------------------------------------------

FRAGMENTS = (
    '{"steps": [', '{"subtask": "a", "worker": "Smol", "access": []}', "]}", "model_id=[0]",
    "subtasks=['a']", "access_list=[[]]", "model_id = ", "[", "]", "{", "}", '"', "'", "`", "“",
    "”", "’", "\\", "\n", ",", ":", " ", "<think>", "</think>", "```json\n", "all", "0", "1e99",
    "None", "漢字", "🎉", "\x00", "\ud800", "\\ud83d", "\\u12", "# ", '"""', "it's",
)  # fmt: skip
any_character = st.characters(exclude_categories=())
texts = st.text(any_character, max_size=200) | st.lists(
    st.sampled_from(FRAGMENTS), max_size=40
).map("".join)

words = st.text(st.characters(exclude_categories=("Cs",)), max_size=40) | st.lists(
    st.sampled_from([part for part in FRAGMENTS if part != "\ud800"]), max_size=12
).map("".join)
# Subtasks are stripped when they are read, so a plan that comes back as it went has them stripped.
subtasks = words.map(str.strip).filter(bool)
names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,8}", fullmatch=True)
pools = st.lists(names | st.sampled_from(["0", "1", "2", "a", "A", "a."]), min_size=1, unique=True)


@st.composite
def plans(draw: st.DrawFn, pool: tuple[str, ...] = POOL) -> Plan:
    first = draw(st.integers(0, 9))
    steps: list[Step] = []
    for number in range(first, first + draw(st.integers(1, 5))):
        earlier = (
            st.lists(st.integers(first, number - 1), max_size=4) if number > first else st.just([])
        )
        reads = draw(st.none() | earlier)
        access: Access = "all" if reads is None else tuple(reads)
        steps.append(
            Step(subtask=draw(subtasks), worker=draw(st.sampled_from(pool)), access=access)
        )
    return Plan(steps=tuple(steps), first=first)


def read_or_refused(text: str) -> Plan | None:
    try:
        plan = parse_plan(text, POOL, first=2, may_accept=True)
    except PlanError as error:
        plan, refusal = None, str(error)
    else:
        refusal = ""
    assert b"\n" not in refusal.encode()
    if plan is not None:
        assert {step.worker for step in plan.steps} <= set(POOL)
        assert 1 <= len(plan.steps) <= 5
        assert all(step.subtask.encode() for step in plan.steps)
    return plan


@given(texts)
@settings(steady, max_examples=400)
def test_arbitrary_text_raises_nothing_but_a_plan_error(text: str) -> None:
    read_or_refused(text)


@given(plans(), st.sampled_from(["json", "lists"]), st.data())
@settings(steady, max_examples=200)
def test_damaged_plans_raise_nothing_but_a_plan_error(
    plan: Plan, form: str, data: st.DataObject
) -> None:
    text = render_json(plan) if form == "json" else render_lists(plan, POOL)
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 20)))
        text = text[:start] + data.draw(st.sampled_from(["", *FRAGMENTS])) + text[end:]
    read_or_refused(text)


@given(st.data())
@steady
def test_every_valid_plan_comes_back_from_both_forms(data: st.DataObject) -> None:
    pool = tuple(data.draw(pools))
    plan = data.draw(plans(pool))
    before, after = data.draw(st.sampled_from([("", ""), ("It's so:\n", "\nThat's it {all}.")]))
    for text in (render_json(plan), render_lists(plan, pool)):
        assert parse_plan(before + text + after, pool, first=plan.first) == plan


@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(any_character),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
))  # fmt: skip
@steady
def test_t28_any_value_is_a_whole_number_or_a_plan_error(value: JsonValue) -> None:
    try:
        assert 0 <= read_number(value, "It", rule="shape") < 10**6
    except PlanError:
        return


BIG = 30_000


@pytest.mark.parametrize(
    "unit",
    ["[", "{", "]", '"', "'", "\\", "steps:[", 'steps:["', "steps:['it's ", '{"a":', '{"a":"',
     "[{", "[{'a':'b', ", 'steps:["a"b","c",', "<think>", "</think>", "{ ", "- ", "#\n", "access:",
     "\x00{\"a\":[", "model_id=[", EXAMPLE, "漢“", "steps:[#\n"],
)  # fmt: skip
@pytest.mark.parametrize("end", ["", "]" * 100, EXAMPLE])
def test_long_and_tangled_text_is_read_to_an_end(unit: str, end: str) -> None:
    read_or_refused(unit * (BIG // len(unit)) + end)


def test_deep_nesting_is_no_recursion() -> None:
    deep = "[" * 10_000 + "]" * 10_000
    read_or_refused(deep)
    assert rule_of(f"model_id={deep} subtasks=['a'] access_list=[[]]") == "decode"
    assert rule_of(f'{{"steps": {deep}}}') == "decode"


def test_a_plan_behind_a_megabyte_of_prose_is_found() -> None:
    prose = "It's a 'nice' day, {isn't} it? [1] Yes; f(x) = {x} \"quoted\". " * 16_000
    assert read(prose + WANTED) == plan_of(("Wanted.", "Smol", ()))


# --- Writing -------------------------------------------------------------------------------------


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


# --- The schema ----------------------------------------------------------------------------------


def holds(text: str, schema: dict[str, JsonValue]) -> bool:
    try:
        jsonschema.validate(json.loads(text), schema)
    except jsonschema.ValidationError:
        return False
    return True


@pytest.mark.parametrize("by_position", [False, True])
@pytest.mark.parametrize("max_steps", [1, 2, 5])
def test_the_schema_takes_what_a_plan_may_be(max_steps: int, by_position: bool) -> None:
    schema = plan_schema(POOL, max_steps=max_steps, by_position=by_position)
    jsonschema.Draft202012Validator.check_schema(schema)
    nothing: Access = "all" if max_steps == 1 and not by_position else ()
    steps: list[tuple[str, str, Access]] = [
        ("Do one thing.", "Smol", tuple(range(number)) if number else nothing)
        for number in range(max_steps)
    ]
    assert holds(render_json(plan_of(*steps)), schema)
    assert not holds(one_step(worker="gpt-4", subtask="Do one thing."), schema)
    assert not holds('{"steps": []}', schema)
    assert holds('{"steps": []}', plan_schema(POOL, max_steps=max_steps, may_accept=True))


def test_the_schema_by_position_lets_a_step_name_earlier_steps_only() -> None:
    schema = plan_schema(POOL, max_steps=3, by_position=True)

    def takes(*accesses: list[int] | str) -> bool:
        steps = [{"subtask": "Do it now.", "worker": "Smol", "access": read} for read in accesses]
        return holds(json.dumps({"steps": steps}), schema)

    assert takes([])
    assert takes([], "all", [0, 1])
    assert not takes("all")
    assert not takes([0])
    assert not takes([], [1])
    assert not takes([], [], [2])
    assert not takes([], [], [], [])


def test_a_later_round_may_accept_or_read_all_that_came_before() -> None:
    schema = plan_schema(POOL, max_steps=2, may_accept=True, by_position=True)
    assert holds('{"steps": []}', schema)
    assert holds(one_step(subtask="Do it now.", access="all"), schema)


@pytest.mark.parametrize("max_steps", [1, 5])
def test_the_plain_schema_holds_nothing_that_a_provider_refuses(max_steps: int) -> None:
    schema = plan_schema(POOL, max_steps=max_steps, may_accept=True)
    refused = ("minLength", "maxLength", "minimum", "maximum", "maxItems", "prefixItems", "oneOf")
    assert not [word for word in refused if f'"{word}"' in json.dumps(schema)]
    # What Anthropic's own library cannot send it writes into a description.
    assert "description" not in json.dumps(transform_schema(dict(schema)))


def test_the_schema_asks_for_the_work_before_the_worker() -> None:
    for by_position in (False, True):
        text = json.dumps(plan_schema(POOL, max_steps=2, by_position=by_position))
        assert '"required": ["subtask", "worker", "access"]' in text
