"""Few-shot examples for a conductor: plans of differing shapes, so that none is simply copied.

The plans are written for a strong worker (0) and a light one (1) and shown with the names of the
team at hand. Where the team has a worker that writes and runs programs, calculations are its.
Where steps may be given to the caller, one more example shows what for.

There are three sets. `general` is for prompted conductors. The others are for training, four
examples each, as in the paper (papers.md 1.2): `tasks` has one of each task that the paper trains
on, `apart` only tasks that it does not train on.
"""

from collections.abc import Sequence
from typing import Literal

from pydantic import TypeAdapter

from podium.plan import CALLER, Plan, Step
from podium.plan_text import render_json, render_lists
from podium.prompting import PROMPTS
from podium_workers.asked import ExampleSet
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
CALLERS = "examples_caller"
"""Prompt that shows what steps of the caller are for."""


def set_of(name: ExampleSet) -> str:
    """The prompt that holds a set of examples."""
    return f"examples_{name}"


_EXAMPLES = {
    prompt: tuple(map(_ADAPTER.validate_json, text.splitlines()))
    for prompt, text in PROMPTS.items()
    if prompt.startswith("examples_")
}


def examples(
    workers: Sequence[str],
    *,
    lists: bool,
    max_steps: int,
    named: ExampleSet = "general",
    program: str | None = None,
    caller: Sequence[str] = (),
) -> str:
    """The examples of a set that fit into *max_steps*, as the conductor's prompt shows them.

    *program* is the worker that calculates by programs, if the team has one. *caller* is the whole
    team, the caller as its last, if steps may be given to the caller.
    """
    blocks: list[str] = []
    for example in (*_EXAMPLES[set_of(named)], *(_EXAMPLES[CALLERS] if caller else ())):
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
