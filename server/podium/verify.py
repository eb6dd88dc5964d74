"""`podium verify`: rebuild the prompt of every finished step from plan and replies, and compare.

Independent looks (user report T32): the prompt rebuilt from what the plan grants, and nothing else,
must equal the stored one byte for byte; the fence tags in it must name exactly the steps that the
plan grants; and every call that was made for the step must have been sent that prompt, or, to a
worker that failed before, one that shows no other steps.
"""

import re
from collections.abc import Sequence

from pydantic import ValidationError

from podium.errors import StoreError
from podium.material import material
from podium.plan import PODIUM, Plan
from podium.prompting import prompt_hash
from podium.store import Store
from podium.trace import CallRecord, Run, StepResult
from podium.window import fit_to
from podium_workers.errors import ContextTooLongError
from podium_workers.worker import Frozen, Prompt, WorkerCard


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
    calls = await store.calls(run.run_id)
    done = {result.number: result for found in rounds for result in found.results}
    findings: list[Finding] = []
    checked = 0
    for found in rounds:
        for result in found.results:
            if found.plan and result.finished and result.prompt:
                problems = await _problems(store, run, found.plan, result, done)
                problems += await _sent(store, run, found.plan, result, calls)
                findings += [Finding(step=result.number, problem=problem) for problem in problems]
                checked += 1
    return Verdict(run_id=run.run_id, steps=checked, findings=tuple(findings))


async def _problems(
    store: Store, run: Run, plan: Plan, result: StepResult, done: dict[int, StepResult]
) -> list[str]:
    if result.number not in plan.numbers:
        return ["It was done, but the plan has no such step."]
    try:
        stored = await _prompt(store, result.prompt)
    except (StoreError, ValidationError):
        return ["Its prompt is not in the ledger any more, or cannot be read."]
    return _compare(run, plan, result, done, stored)


async def _sent(
    store: Store, run: Run, plan: Plan, result: StepResult, calls: Sequence[CallRecord]
) -> list[str]:
    """What is wrong with the prompts that went to providers for this version of the step."""
    problems: list[str] = []
    granted = set(plan.reads(result.number)) if result.number in plan.numbers else set[int]()
    for call in calls:
        if (call.step, call.version) != (result.number, result.version):
            continue
        if call.worker == result.worker and call.prompt != result.prompt:
            problems.append(f"{call.worker} was sent another prompt than the step's own.")
        elif call.worker != result.worker:
            try:
                shown = _tags(run, _text(await _prompt(store, call.prompt)))
            except (StoreError, ValidationError):
                problems.append(f"The prompt sent to {call.worker} cannot be read any more.")
            else:
                problems += [
                    f"{call.worker}, which failed, was shown step {number}, which is not granted."
                    for number in sorted(shown - granted)
                ]
    return problems


async def _prompt(store: Store, sha: str) -> Prompt:
    return Prompt.model_validate_json(await store.text(sha))


def _tags(run: Run, text: str) -> set[int]:
    """The steps whose fences stand in a prompt."""
    return {int(number) for number in re.findall(rf'<step_{run.fence} number="(\d+)">', text)}


def _compare(
    run: Run, plan: Plan, result: StepResult, done: dict[int, StepResult], stored: Prompt
) -> list[str]:
    granted = {number: done[number] for number in plan.reads(result.number) if number in done}
    rebuilt = _rebuilt(run, plan, result, granted, stored)
    if stored == rebuilt:
        problems: list[str] = []
    elif result.template != prompt_hash("worker"):
        problems = ["It was made with another version of Podium's worker prompt: not rebuilt."]
    else:
        problems = ["The stored prompt is not the one that plan and replies give."]
    text = _text(stored)
    tags = _tags(run, text)
    problems += [
        f"It shows step {number}, which is not granted." for number in sorted(tags - granted.keys())
    ]
    problems += [
        f"It lacks step {number}, which is granted." for number in sorted(granted.keys() - tags)
    ]
    problems += [
        f"It holds the reply of step {number}, which is not granted."
        for number, other in done.items()
        if number not in granted and _copied(other.reply, text, _asked(rebuilt))
    ]
    return problems


def _rebuilt(
    run: Run, plan: Plan, result: StepResult, granted: dict[int, StepResult], stored: Prompt
) -> Prompt | None:
    """The step's prompt, made without sight of what is not granted; None if that fits no window."""
    card = run.pool[0] if result.worker == PODIUM else _card(run, result.worker, stored)
    budget, ratio = result.window or (0, 1.0)
    shown = material(run, plan, result.number, granted)
    shown = shown.model_copy(update={"final": result.final})  # the plan may have grown since
    try:
        fitted = fit_to(shown, card, budget, ratio)
    except ContextTooLongError:
        return None
    return Prompt.of(fitted.text, system="" if result.worker == PODIUM else card.role)


def _card(run: Run, worker: str, stored: Prompt) -> WorkerCard:
    """The worker's card; of one that joined the pool after the run was made, only its role."""
    for card in run.pool:
        if card.name == worker:
            return card
    roles = [message.text for message in stored.messages if message.role == "system"]
    return run.pool[0].model_copy(update={"name": worker, "role": "".join(roles)})


def _copied(reply: str, text: str, allowed: str) -> bool:
    """Whether a reply stands in a prompt; short ones may do so by chance."""
    return len(reply) >= 40 and reply in text and reply not in allowed


def _asked(prompt: Prompt | None) -> str:
    """The part of a prompt that plan and replies make: all but the worker's role."""
    return prompt.messages[-1].text if prompt else ""


def _text(prompt: Prompt | None) -> str:
    return "\n".join(message.text for message in prompt.messages) if prompt else ""
