"""Plans and their texts, as more than one test file uses them."""

import json

import pytest

from podium.errors import PlanError
from podium.plan import Access, Plan, Step
from podium.plan_text import parse_plan

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
