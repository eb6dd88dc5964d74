"""The grammars of both forms, held against the parser that reads what they let through."""

import re
from collections.abc import Iterator
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core_parts import worker
from tests.recorded_call import RecordedCall

from podium.errors import PlanError
from podium.plan import Access, Plan, Step
from podium.plan_grammar import LONGEST_SUBTASK, SHORTEST_SUBTASK, json_grammar, lists_grammar
from podium.plan_text import parse_plan, plan_schema, render_json, render_lists
from podium.policy import State
from podium.policy.conductor import PROMPTED_PROSE, Conductor
from podium.trace import RunRequest
from podium_workers.asked import Asked
from podium_workers.pool import Pool
from podium_workers.worker import ModelSettings, Prompt, Reply

steady = settings(derandomize=True, deadline=None, max_examples=200)
LONGEST_PROSE = 100
WORKERS = ("ann", "bob", "cy")
_PART = re.compile(
    r'"(?P<literal>(?:[^"\\]|\\.)*)"|(?P<rule>[a-z][a-z0-9-]*)|(?P<kept>\[(?:[^\]\\]|\\.)*\]'
    r"|\{\d+,\d+\}|[()|?])|\s+"
)


_ESCAPE = re.compile(r"\\(.)")


def _meant(escape: re.Match[str]) -> str:
    return "\n" if escape[1] == "n" else escape[1]


def pattern_of(grammar: str) -> re.Pattern[str]:
    """The grammar as a regular expression, which it can be since no rule leads to itself."""
    rules = dict(line.split(" ::= ", 1) for line in grammar.splitlines())

    def parts(text: str) -> Iterator[str]:
        for part in _PART.finditer(text):
            if part["literal"] is not None:
                yield re.escape(_ESCAPE.sub(_meant, part["literal"]))
            elif part["rule"]:
                yield f"(?:{''.join(parts(rules[part['rule']]))})"
            else:
                yield part["kept"] or ""

    return re.compile("".join(parts(rules["root"])))


GRAMMAR = pattern_of(lists_grammar(len(WORKERS), max_steps=5, prose=LONGEST_PROSE))
AGAIN = pattern_of(lists_grammar(len(WORKERS), max_steps=5, may_accept=True, prose=LONGEST_PROSE))
BY_JSON = pattern_of(json_grammar(WORKERS, max_steps=5))
JSON_AGAIN = pattern_of(json_grammar(WORKERS, max_steps=5, may_accept=True))


def lists(model_id: str, subtasks: str, access_list: str, *, prose: str = "") -> str:
    return f"{prose}model_id = {model_id}\nsubtasks = {subtasks}\naccess_list = {access_list}"


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    count = draw(st.integers(1, 5))
    letters = st.characters(codec="utf-8", exclude_categories=["Cc", "Zs", "Zl", "Zp"])
    word = st.text(letters, min_size=SHORTEST_SUBTASK, max_size=20)
    subtask = st.tuples(word, word).map(" ".join)
    steps = [
        Step(
            worker=draw(st.sampled_from(WORKERS)),
            subtask=draw(subtask),
            access=draw(_access(number)),
        )
        for number in range(count)
    ]
    return Plan(steps=tuple(steps))


def _access(number: int) -> st.SearchStrategy[Access]:
    some = st.lists(st.integers(0, number - 1), max_size=number) if number else st.just([])
    return st.one_of(st.none(), some).map(_meant_by) if number else some.map(_meant_by)


def _meant_by(reads: list[int] | None) -> Access:
    return "all" if reads is None else (*reads,)


@settings(steady)
@given(plans())
def test_every_plan_can_be_written(plan: Plan) -> None:
    text = render_lists(plan, WORKERS)

    assert GRAMMAR.fullmatch(text)
    assert GRAMMAR.fullmatch(f"One could ask model 0 first [as in 1].\n\n{text}")
    assert parse_plan(text, WORKERS) == plan


@settings(steady)
@given(plans())
def test_every_plan_can_be_written_as_json(plan: Plan) -> None:
    text = render_json(plan)

    assert BY_JSON.fullmatch(text)
    assert parse_plan(text, WORKERS) == plan


def step(worker: str = "ann", subtask: str = "Solve it all.", access: str = "[]") -> str:
    return f'{{"subtask": "{subtask}", "worker": "{worker}", "access": {access}}}'


@pytest.mark.parametrize(
    "steps",
    [
        "",
        step("dee"),
        step(subtask="Do it."),
        step(subtask="x" * (LONGEST_SUBTASK + 1)),
        step(access="[0]"),
        step(access='"all"'),
        f"{step()}, {step(access='[1]')}",
        ", ".join([step()] * 6),
        f"{step()},{step()}",
        f"{step()}, ",
    ],
)
def test_what_is_no_json_plan_cannot_be_written(steps: str) -> None:
    assert not BY_JSON.fullmatch(f'{{"steps": [{steps}]}}')


def test_a_later_round_may_accept_as_json() -> None:
    accepted, reading = '{"steps": []}', f'{{"steps": [{step(access=chr(34) + "all" + chr(34))}]}}'

    assert JSON_AGAIN.fullmatch(accepted)
    assert JSON_AGAIN.fullmatch(reading)
    assert parse_plan(accepted, WORKERS, may_accept=True) is None


@pytest.mark.parametrize(
    "text",
    [
        lists("[0, 1]", '["Solve it all."]', "[[]]"),
        lists("[0]", '["Solve it all.", "Check it all."]', "[[], [0]]"),
        lists("[3]", '["Solve it all."]', "[[]]"),
        lists("[]", "[]", "[]"),
        lists("[0]", '["Solve it all."]', "[[0]]"),
        lists("[0]", '["Solve it all."]', '["all"]'),
        lists("[0, 0]", '["Solve it all.", "Check it all."]', "[[], [1]]"),
        lists("[0]", f'["{"x" * (LONGEST_SUBTASK + 1)}"]', "[[]]"),
        lists("[0]", '["Do it."]', "[[]]"),
        lists("[0]", '["Solve it\nall."]', "[[]]"),
        lists("[0]", '["Solve it all."]', "[[]]", prose="x" * (LONGEST_PROSE + 1)),
        lists("[0]", '["Solve it all."]', "[[]]", prose="A draft: model_id = [1]\n"),
        lists("[0, 0, 0, 0, 0, 0]", "[" + ", ".join(['"Solve it."'] * 6) + "]", "[[]]"),
        "The plan is that model 0 solves it.",
        lists("[0]", '["Solve it all."]', "[[]]") + "\nThat is it.",
    ],
)
def test_what_is_no_plan_cannot_be_written(text: str) -> None:
    assert not GRAMMAR.fullmatch(text)


@pytest.mark.parametrize("access", ["[[], []]", "[[], [0]]", '[[], "all"]', '[[], ["all"]]'])
def test_a_second_step_may_read_the_first_or_all_or_nothing(access: str) -> None:
    text = lists("[0, 2]", '["Solve it all.", "Check it \\"all\\"."]', access)

    assert GRAMMAR.fullmatch(text)
    assert parse_plan(text, WORKERS)


def test_a_later_round_may_accept_and_read_what_came_before_it() -> None:
    accepted, reading = lists("[]", "[]", "[]"), lists("[0]", '["Mend it all."]', '["all"]')

    assert AGAIN.fullmatch(accepted)
    assert AGAIN.fullmatch(reading)
    assert parse_plan(accepted, WORKERS, may_accept=True) is None
    with pytest.raises(PlanError):
        parse_plan(accepted, WORKERS)


@pytest.mark.parametrize(("workers", "max_steps"), [(1, 1), (12, 5), (2, 20)])
def test_pools_and_limits_of_any_size_have_a_grammar(workers: int, max_steps: int) -> None:
    pattern = pattern_of(lists_grammar(workers, max_steps=max_steps, prose=0))
    names = [f"w{number}" for number in range(workers)]
    step = Step(worker=names[-1], subtask="Solve it all.")
    last = step.model_copy(update={"access": (*range(max_steps - 1),)})

    assert pattern.fullmatch(render_lists(Plan(steps=(*[step] * (max_steps - 1), last)), names))
    too_long = Plan(steps=(step,) * (max_steps + 1))
    assert not pattern.fullmatch(render_lists(too_long, names))


@pytest.mark.parametrize(
    ("kind", "form", "held"),
    [
        ("vllm", "lists", "grammar"),
        ("local", "lists", "grammar"),
        ("vllm", "json", "by position"),
        ("local", "json", "by position"),
        ("openai", "json", "schema"),
        ("openai", "lists", "nothing"),
    ],
)
async def test_a_conductor_is_held_as_far_as_its_decoder_goes(
    kind: str, form: Literal["json", "lists"], held: str
) -> None:
    boss = worker("boss", ["No plan."], card={"kind": kind})
    pool = Pool((boss, worker("ann")), conductor="boss", asked=Asked(form=form))
    seen: list[ModelSettings] = []

    async def ask(name: str, prompt: Prompt, settings: ModelSettings) -> Reply:
        seen.append(settings)
        return await pool.get(name).reply(prompt, settings, RecordedCall())

    state = State(RunRequest(question="Why?"), pool, fence="5f0c9a3e", seed=0)
    await Conductor(max_steps=3, tries=1).propose(state, ask)

    expected = {
        "grammar": (lists_grammar(2, max_steps=3, prose=PROMPTED_PROSE), None),
        "by position": (None, plan_schema(("boss", "ann"), max_steps=3, by_position=True)),
        "schema": (None, plan_schema(("boss", "ann"), max_steps=3)),
        "nothing": (None, None),
    }
    assert [(it.grammar, it.response_schema) for it in seen] == [expected[held]]


async def test_the_three_lists_are_asked_for_with_the_numbers_of_named_workers() -> None:
    pool = Pool((worker("boss", ["No plan."]), worker("ann")), "boss", asked=Asked(form="lists"))
    seen: list[str] = []

    async def ask(name: str, prompt: Prompt, settings: ModelSettings) -> Reply:
        seen.append(prompt.messages[-1].text)
        return await pool.get(name).reply(prompt, settings, RecordedCall())

    state = State(RunRequest(question="Why?", depth=1), pool, fence="5f0c9a3e", seed=0)
    await Conductor(tries=1).propose(state, ask)

    assert "Model id 0: boss: " in seen[0]
    assert "Model id 1: ann: " in seen[0]
    assert "Model id 2: podium: a whole team" in seen[0]


@settings(steady)
@given(st.text("am _[]{}()<>=:'\"`*#\n\\-1", max_size=60), plans())
def test_what_the_grammar_lets_through_can_be_read(prose: str, plan: Plan) -> None:
    text = prose + render_lists(plan, WORKERS)

    if GRAMMAR.fullmatch(text):
        assert parse_plan(text, WORKERS) == plan
