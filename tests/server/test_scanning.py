"""Where the plan stands in a text, and what its strings hold."""

import json
from contextlib import suppress

import pytest
from tests.plan_samples import POOL, one_step, plan_of, read, rule_of

from podium.errors import PlanError
from podium.plan_text import (
    parse_plan,
    render_json,
    render_lists,
)

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


BIG = 30_000


def settle(text: str) -> None:
    """Reads *text* to an end, whatever the end is."""
    with suppress(PlanError):
        parse_plan(text, POOL)


@pytest.mark.parametrize(
    "unit",
    ["[", "{", "]", '"', "'", "\\", "steps:[", 'steps:["', "steps:['it's ", '{"a":', '{"a":"',
     "[{", "[{'a':'b', ", 'steps:["a"b","c",', "<think>", "</think>", "{ ", "- ", "#\n", "access:",
     "\x00{\"a\":[", "model_id=[", EXAMPLE, "漢“", "steps:[#\n"],
)  # fmt: skip
@pytest.mark.parametrize("end", ["", "]" * 100, EXAMPLE])
def test_long_and_tangled_text_is_read_to_an_end(unit: str, end: str) -> None:
    settle(unit * (BIG // len(unit)) + end)


def test_deep_nesting_is_no_recursion() -> None:
    deep = "[" * 10_000 + "]" * 10_000
    settle(deep)
    assert rule_of(f"model_id={deep} subtasks=['a'] access_list=[[]]") == "decode"
    assert rule_of(f'{{"steps": {deep}}}') == "decode"


def test_a_plan_behind_a_megabyte_of_prose_is_found() -> None:
    prose = "It's a 'nice' day, {isn't} it? [1] Yes; f(x) = {x} \"quoted\". " * 16_000
    assert read(prose + WANTED) == plan_of(("Wanted.", "Smol", ()))
