"""Few-shot examples for a conductor: plans of differing shapes, so that none is simply copied.

The plans are written for a strong worker (0) and a light one (1) and shown with the names of the
team at hand.
"""

from collections.abc import Sequence

from pydantic import TypeAdapter

from podium.plan import Plan, Step
from podium.plan_text import render_json, render_lists
from podium.prompting import PROMPTS
from podium_workers.worker import Frozen


class _ExampleStep(Frozen):
    subtask: str
    worker: int
    access: tuple[int, ...]


class _Example(Frozen):
    question: str
    steps: tuple[_ExampleStep, ...]


_ADAPTER = TypeAdapter(_Example)
_EXAMPLES = tuple(_ADAPTER.validate_json(line) for line in PROMPTS["examples"].splitlines())


def examples(workers: Sequence[str], *, lists: bool, max_steps: int) -> str:
    """The examples that fit into *max_steps*, as the conductor's prompt shows them."""
    blocks: list[str] = []
    for example in _EXAMPLES:
        if len(example.steps) > max_steps:
            continue
        plan = Plan(steps=tuple(_named(step, workers) for step in example.steps))
        text = "\n" + render_lists(plan, workers) if lists else render_json(plan)
        blocks.append(f"Question: {example.question}\nPlan: {text}")
    return "\n\n".join(blocks)


def _named(step: _ExampleStep, workers: Sequence[str]) -> Step:
    worker = workers[min(step.worker, len(workers) - 1)]
    return Step(worker=worker, subtask=step.subtask, access=step.access)
