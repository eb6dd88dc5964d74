"""`podium verify`: rebuild every prompt of a run from its plan and replies, and compare.

Two independent looks (user report T32): the rebuilt prompt must equal the stored one byte for
byte, and the fence tags in the stored one must name exactly the steps that the plan grants.
"""

import re

from podium.material import material
from podium.plan import PODIUM, Plan
from podium.store import Store
from podium.trace import Round, Run, StepResult
from podium.window import fit_to
from podium_workers.worker import Frozen, Prompt


class Finding(Frozen):
    """A step whose prompt is not what its access list grants."""

    step: int
    problem: str


class Verdict(Frozen):
    """What `verify` found in one run."""

    run_id: str
    steps: int
    """Prompts that were rebuilt."""
    findings: tuple[Finding, ...]


async def verify(store: Store, run_id: str) -> Verdict:
    """Check the prompts of all finished steps of a run.

    Raises:
        RunError: there is no such run.
    """
    run = await store.run(run_id)
    rounds = await store.rounds(run.run_id)
    done = {result.number: result for found in rounds for result in found.results}
    findings: list[Finding] = []
    checked = 0
    for plan, result in _finished_steps(rounds):
        stored = Prompt.model_validate_json(await store.text(result.prompt))
        problems = _check(run, plan, result, done, stored)
        findings += [Finding(step=result.number, problem=problem) for problem in problems]
        checked += 1
    return Verdict(run_id=run.run_id, steps=checked, findings=tuple(findings))


def _finished_steps(rounds: tuple[Round, ...]) -> list[tuple[Plan, StepResult]]:
    return [
        (found.plan, result)
        for found in rounds
        for result in found.results
        if found.plan and result.finished and result.prompt and result.number in found.plan.numbers
    ]


def _check(
    run: Run, plan: Plan, result: StepResult, done: dict[int, StepResult], stored: Prompt
) -> list[str]:
    problems: list[str] = []
    if stored != _rebuilt(run, plan, result, done):
        problems.append("The stored prompt is not the one that plan and replies give.")
    text = "\n".join(message.text for message in stored.messages)
    tags = {int(number) for number in re.findall(rf'<step_{run.fence} number="(\d+)">', text)}
    granted = {number for number in plan.reads(result.number) if number in done}
    problems += [
        f"It shows step {number}, which is not granted." for number in sorted(tags - granted)
    ]
    problems += [f"It lacks step {number}, which is granted." for number in sorted(granted - tags)]
    return problems + _copies(run, result, done, granted, text)


def _rebuilt(run: Run, plan: Plan, result: StepResult, done: dict[int, StepResult]) -> Prompt:
    nested = result.worker == PODIUM
    cards = {card.name: card for card in run.pool}
    card = run.pool[0] if nested else cards[result.worker]
    budget, ratio = result.window or (0, 1.0)
    fitted = fit_to(material(run, plan, result.number, done), card, budget, ratio)
    return Prompt.of(fitted.text, system="" if nested else card.role)


def _copies(
    run: Run, result: StepResult, done: dict[int, StepResult], granted: set[int], text: str
) -> list[str]:
    """Replies that stand in the prompt although neither the plan nor a granted text has them."""
    request = run.request
    known = [request.question, request.earlier, result.subtask, *(f.text for f in request.files)]
    known += [done[number].reply + done[number].subtask for number in granted]
    return [
        f"It holds the reply of step {number}, which is not granted."
        for number, other in done.items()
        if number not in granted | {result.number}
        and len(other.reply) >= 40
        and other.reply in text
        and not any(other.reply in source for source in known)
    ]
