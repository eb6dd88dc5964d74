"""What holds for every text and every plan."""

from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import JsonValue
from tests.plan_samples import POOL

from podium.errors import PlanError
from podium.plan import Access, Plan, Step
from podium.plan_text import parse_plan, read_number, render_json, render_lists

steady = settings(derandomize=True, deadline=None, max_examples=100)


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
