"""What a step's prompt is made of: exactly what its access list grants."""

from collections.abc import Mapping

from podium.plan import Plan
from podium.prompting import Material, Visible
from podium.trace import Run, StepResult


def material(run: Run, plan: Plan, number: int, done: Mapping[int, StepResult]) -> Material:
    """The question, its files and earlier exchange, the visible steps and the subtask."""
    visible = tuple(
        Visible(
            number=read,
            subtask=done[read].subtask,
            reply=done[read].reply if done[read].finished else "",
        )
        for read in plan.reads(number)
        if read in done
    )
    return Material(
        question=run.request.question,
        earlier=run.request.earlier,
        files=run.request.files,
        visible=visible,
        subtask=plan.step(number).subtask,
        fence=run.fence,
        final=number == plan.numbers[-1] and not plan.inner,
    )
