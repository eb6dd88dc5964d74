"""Static checks of a plan, and which steps rest on which."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core_parts import plan_of, reading_all, step

from podium.errors import PlanError
from podium.flow import check_plan, dependents
from podium.plan import Access, Plan, Step

POOL = ("ann", "bob")


def test_workers_of_the_pool_and_the_caller_may_always_work():
    check_plan(plan_of(step("ann", "x"), step("caller", "y")), POOL, depth=0, max_steps=2)


def test_a_worker_that_is_not_allowed_is_refused_with_the_nearest_name():
    with pytest.raises(PlanError, match=r"Step 1 names 'anm'.*did you mean 'ann'\?") as caught:
        check_plan(plan_of(step("bob", "x"), step("anm", "y")), POOL, depth=0, max_steps=5)
    assert caught.value.rule == "worker"
    assert "Allowed are ann, bob." in str(caught.value)


def test_the_conductor_is_its_own_worker_only_with_depth():
    plan = plan_of(step("podium", "x"))
    check_plan(plan, POOL, depth=1, max_steps=1)
    with pytest.raises(PlanError, match="set depth to 1") as caught:
        check_plan(plan, POOL, depth=0, max_steps=1)
    assert caught.value.rule == "worker"


def test_a_plan_has_a_greatest_length():
    with pytest.raises(PlanError, match="has 3 steps; at most 2") as caught:
        check_plan(plan_of(*[step("ann", "x")] * 3), POOL, depth=0, max_steps=2)
    assert caught.value.rule == "length"


def test_what_rests_on_a_step_is_found_through_other_steps_and_later_rounds():
    first = plan_of(step("ann", "0"), step("ann", "1"), step("ann", "2", 0))
    second = plan_of(step("ann", "3", 2), step("ann", "4", 1), reading_all("ann", "5"), first=3)
    assert dependents([first, second], 0) == {2, 3, 5}
    assert dependents([first, second], 1) == {4, 5}
    assert dependents([first], 2) == set()
    assert dependents([first, second], 5) == set()


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    steps: list[Step] = []
    for number in range(draw(st.integers(1, 7))):
        some = st.lists(st.integers(0, max(0, number - 1)), max_size=number).map(tuple)
        everything = draw(st.booleans())
        access: Access = "all" if everything else draw(some) if number else ()
        steps.append(Step(worker="ann", subtask="x", access=access))
    return Plan(steps=tuple(steps))


@settings(max_examples=60, derandomize=True, deadline=None)
@given(plans())
def test_dependents_are_those_that_could_have_read_it(plan: Plan):
    for number in plan.numbers:
        found = dependents([plan], number)
        for later in plan.numbers:
            through = {number, *found}
            assert (later in found) == bool(through.intersection(plan.reads(later)))
        assert number not in found
