"""Few-shot examples for a conductor: plans of differing shapes, so that none is simply copied.

The plans are written for a strong worker (0) and a light one (1) and shown with the names of the
team at hand. Where the team has a worker that writes and runs programs, calculations are its.
Where steps may be given to the caller, one more example shows what for.
"""

from collections.abc import Sequence
from typing import Literal

from pydantic import TypeAdapter

from podium.plan import CALLER, Plan, Step
from podium.plan_text import render_json, render_lists
from podium.prompting import PROMPTS
from podium_workers.worker import Frozen


class _ExampleStep(Frozen):
    subtask: str
    worker: int | Literal["program", "caller"]
    access: tuple[int, ...]


class _Example(Frozen):
    question: str
    steps: tuple[_ExampleStep, ...] = ()
    """The plan of a team without a worker for programs; empty: not shown to such a team."""
    with_program: tuple[_ExampleStep, ...] = ()
    """The plan instead where the team has a worker for programs."""


_ADAPTER = TypeAdapter(_Example)
_EXAMPLES = tuple(_ADAPTER.validate_json(line) for line in PROMPTS["examples"].splitlines())
_WITH_CALLER = tuple(
    _ADAPTER.validate_json(line) for line in PROMPTS["caller_examples"].splitlines()
)


def examples(
    workers: Sequence[str],
    *,
    lists: bool,
    max_steps: int,
    program: str | None = None,
    caller: Sequence[str] = (),
) -> str:
    """The examples that fit into *max_steps*, as the conductor's prompt shows them.

    *program* is the worker that calculates by programs, if the team has one. *caller* is the whole
    team, the caller as its last, if steps may be given to the caller.
    """
    blocks: list[str] = []
    for example in (*_EXAMPLES, *(_WITH_CALLER if caller else ())):
        steps = (program and example.with_program) or example.steps
        if not 1 <= len(steps) <= max_steps:
            continue
        plan = Plan(steps=tuple(_named(step, workers, program or "") for step in steps))
        text = "\n" + render_lists(plan, caller or workers) if lists else render_json(plan)
        blocks.append(f"Question: {example.question}\nPlan: {text}")
    return "\n\n".join(blocks)


def _named(step: _ExampleStep, workers: Sequence[str], program: str) -> Step:
    if step.worker == "caller":
        return Step(worker=CALLER, subtask=step.subtask, access=step.access)
    others = [name for name in workers if name != program] or [program]
    worker = program if step.worker == "program" else others[min(step.worker, len(others) - 1)]
    return Step(worker=worker, subtask=step.subtask, access=step.access)
