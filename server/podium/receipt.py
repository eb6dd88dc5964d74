"""The receipt of a run: who did what, what it cost, what was cut or not read.

Everything is derived from the ledger's records; the sum over calls is the total.
"""

import time
from collections.abc import Sequence

from podium.plan import Cut, Proposal
from podium.trace import CallRecord, Failure, Round, Run, StepResult, StepStatus, seconds_of
from podium_workers.worker import Frozen, Usage


class StepLine(Frozen):
    """One step on the receipt."""

    step: int
    worker: str
    planned_worker: str
    model: str
    """The model that was asked for; empty when none replied."""
    served_by: str
    """The model as the provider names it in its reply."""
    status: StepStatus
    usage: Usage
    """All attempts at this step, failed ones included."""
    seconds: float
    failures: tuple[Failure, ...]
    cuts: tuple[Cut, ...]


class InputLine(Frozen):
    """One input of the question, and how much of it the best informed step could read."""

    name: str
    bytes_given: int
    bytes_sent: int


class Receipt(Frozen):
    """What a run cost and what it rests on."""

    run_id: str
    planning: Usage
    """Calls that wrote plans."""
    steps: tuple[StepLine, ...]
    inputs: tuple[InputLine, ...]
    calls: int
    total: Usage
    seconds: float
    """From start to end, waiting for calls that ran at the same time counted once."""


def receipt(
    run: Run, rounds: Sequence[Round], calls: Sequence[CallRecord], nested: Usage
) -> Receipt:
    """The receipt of *run*; *nested* is what its child runs used."""
    results = [result for found in rounds for result in found.results]
    planning = [call.usage for call in calls if call.step is None]
    return Receipt(
        run_id=run.run_id,
        planning=sum(planning, Usage()),
        steps=tuple(_line(result, calls) for result in results),
        inputs=tuple(_inputs(run, results)),
        calls=len(calls),
        total=sum((call.usage for call in calls), nested),
        seconds=_seconds(run),
    )


def best_so_far(rounds: Sequence[Round], accepted: int | None = None) -> StepResult | None:
    """The accepted step if it finished, else the newest finished step of the newest round.

    One whose reply was not meant for the user only where there is no other.
    """
    finished = {
        result.number: (not found.plan.inner, result.number, result)
        for found in rounds
        for result in found.results
        if result.finished and found.plan and result.number in found.plan.numbers
    }
    if accepted in finished:
        return finished[accepted][-1]
    return max(finished.values(), key=lambda found: found[:2])[-1] if finished else None


def notes(rounds: Sequence[Round], answered_by: StepResult) -> tuple[str, ...]:
    """What the reader of an answer has to know: fallbacks, cuts, steps that failed."""
    plans = [found for found in rounds if found.plan]
    said: list[str] = []
    for found in plans:
        if found.proposal.source == "fallback":
            said.append("No plan could be used; one worker answered alone.")
            said += [f"Refused last: {why}" for why in found.proposal.refused[-1:]]
    for found in plans:
        said += of_the_writer(found.proposal)
    newest = plans[-1].plan if plans else None
    if newest and not newest.inner and answered_by.number != newest.numbers[-1]:
        said.append(f"The last step gave no reply; this is the reply of step {answered_by.number}.")
    for found in rounds:
        if found.proposal.cuts:
            said.append(f"The conductor could not read everything: {_shown(found.proposal.cuts)}.")
        for result in found.results:
            said += _about(result)
    if answered_by.finish_reason == "length":
        said.append("The answer reached the worker's longest reply and may be cut off at its end.")
    return tuple(said)


def of_the_writer(proposal: Proposal) -> tuple[str, ...]:
    """What the reader of a plan has to know of who wrote it."""
    said: list[str] = []
    if proposal.failed:
        by = proposal.worker or "nobody"
        said.append(f"The plan was written by {by}, since {'; '.join(proposal.failed)}")
    return (*said, proposal.remark) if proposal.remark else tuple(said)


def _about(result: StepResult) -> list[str]:
    said: list[str] = []
    if result.status == "failed":
        reasons = "; ".join(f"{failed.worker}: {failed.message}" for failed in result.failures)
        said.append(f"Step {result.number} failed. {reasons}")
    elif result.worker != result.planned_worker:
        said.append(
            f"Step {result.number} was planned for {result.planned_worker} and done by "
            f"{result.worker}. {result.failures[0].worker}: {result.failures[0].message}"
            if result.failures
            else f"Step {result.number} was done by {result.worker}."
        )
    if result.note and result.finished:
        said.append(f"Step {result.number}: {result.note}")
    if result.cuts:
        said.append(f"Step {result.number} could not read everything: {_shown(result.cuts)}.")
    return said


def _shown(cuts: Sequence[Cut]) -> str:
    return ", ".join(f"{cut.part} ({cut.sent} of {cut.given} characters)" for cut in cuts)


def _seconds(run: Run) -> float:
    return seconds_of(run.worked_s, run.resumed_at, time.time())


def _line(result: StepResult, calls: Sequence[CallRecord]) -> StepLine:
    own = [call for call in calls if call.step == result.number]
    replied = next((call for call in reversed(own) if call.status == "finished"), None)
    return StepLine(
        step=result.number,
        worker=result.worker,
        planned_worker=result.planned_worker,
        model=replied.model if replied else "",
        served_by=replied.served_by if replied else "",
        status=result.status,
        usage=result.usage if result.nested_run else sum((call.usage for call in own), Usage()),
        seconds=result.seconds,
        failures=result.failures,
        cuts=result.cuts,
    )


def _inputs(run: Run, results: Sequence[StepResult]) -> list[InputLine]:
    """Bytes given, and bytes that the best informed finished step could read."""
    finished = [result for result in results if result.finished and result.prompt]
    lines: list[InputLine] = []
    for file in run.request.files:
        part = f"file:{file.name}"
        shares = [
            next((cut.sent / cut.given for cut in result.cuts if cut.part == part), 1.0)
            for result in finished
        ]
        sent = int(file.bytes * max(shares, default=0.0))
        lines.append(InputLine(name=file.name, bytes_given=file.bytes, bytes_sent=sent))
    return lines
