"""`podium plan`: a plan and what it will take, kept as a run and not carried out."""

from collections.abc import Callable
from functools import partial

import anyio
import click

from podium.cli.compose import open_podium
from podium.cli.following import begin, choose_progress, follow
from podium.cli.invocation import Invocation, pass_invocation
from podium.cli.progress import reads
from podium.cli.questions import GivenQuestion, question_options
from podium.cli.record import Record, record
from podium.cli.signals import stoppable
from podium.cli.wording import as_json, count, put, put_json
from podium.errors import RunError
from podium.estimate import Estimate, Range, estimate
from podium.orchestrator import Orchestrator
from podium.plan import Plan, PlanSource, Step
from podium.receipt import of_the_writer
from podium.trace import RunRequest
from podium.views import money
from podium_workers.worker import Frozen

SOURCES: dict[PlanSource, str] = {
    "model": "written by the conductor",
    "fallback": "no plan could be read, so one worker answers alone",
    "fixed": "the strategy's own",
    "caller": "yours",
}
"""Who wrote a plan, in words."""


class Planned(Frozen):
    """A plan, what it will take, and the run that it belongs to."""

    plan: Plan
    source: PlanSource
    notes: tuple[str, ...]
    """What has to be known of who wrote it."""
    estimate: Estimate
    record: Record


@click.command(
    epilog="""\b
Examples:
  podium plan "Compare three ways to cache this API, then recommend one."
  podium plan "Which of these logs shows the fault?" --file a.log --file b.log --json
  podium plan "Solve it." --plan my-plan.json      (what would my own plan cost?)"""
)
@question_options
@click.option("--json", "json_", is_flag=True, help="One JSON object on stdout.")
@click.option("--quiet", is_flag=True, help="No progress on stderr.")
@pass_invocation
def plan(invocation: Invocation, *, json_: bool, quiet: bool, **given: object) -> None:
    """Plan a question and price the plan, without carrying it out.

    Nothing is called but the conductor. The plan is kept as a run that can be started, walked step
    by step, or changed.
    """
    asked = GivenQuestion.model_validate(given)
    invocation = invocation.with_given(conductor=asked.conductor)
    # Whoever starts it later has seen it.
    request = asked.request(invocation.settings).model_copy(update={"approve": "nothing"})
    steps = asked.plan()
    found = anyio.run(stoppable, partial(_plan, invocation, request, steps, quiet))
    if json_:
        put_json(as_json(found.record) | {"estimate": as_json(found.estimate)})
    else:
        put(_text(found))


async def _plan(
    invocation: Invocation, request: RunRequest, steps: tuple[Step, ...] | None, quiet: bool
) -> Planned:
    settings = invocation.settings
    async with open_podium(settings, invocation.environment, quiet=quiet) as podium:
        run = await begin(podium, request, steps)
        run = await follow(podium, run, Orchestrator.plan, choose_progress(quiet=quiet))
        rounds = await podium.store.rounds(run.run_id)
        if not rounds or rounds[0].plan is None:
            raise RunError(run.error.message if run.error else f"Run {run.run_id} has no plan.")
        return Planned(
            plan=rounds[0].plan,
            source=rounds[0].proposal.source,
            notes=of_the_writer(rounds[0].proposal),
            estimate=await estimate(podium.store, run, rounds[0].plan),
            record=await record(podium.store, run),
        )


def _text(found: Planned) -> str:
    run_id = found.record.run_id
    steps = [
        f"  {number} {step.worker}{reads(found.plan, number)}: {step.subtask}"
        for number, step in found.plan.numbered()
    ]
    head = f"Plan of {count(len(steps), 'step')}, {SOURCES[found.source]}:"
    return "\n".join(
        [
            head,
            *steps,
            *(f"Note: {note}" for note in found.notes),
            "",
            f"Price  {_price(found.estimate)}",
            f"Time   {_range(found.estimate.seconds, _seconds)}",
            f"Run    {run_id}",
            "",
            f"Carry it out:   podium resume {run_id}",
            f"Step by step:   podium step {run_id}",
            f"Change a step:  podium step {run_id} 0 --worker NAME --subtask TEXT",
        ]
    )


def _price(found: Estimate) -> str:
    if found.usd.worst == 0:
        return "free"
    unknown = f" (unknown for {', '.join(found.unpriced)})" if found.unpriced else ""
    return _range(found.usd, lambda usd: "unknown" if usd is None else money(usd)) + unknown


def _range(found: Range, shown: Callable[[float | None], str]) -> str:
    return f"low {shown(found.low)}, expected {shown(found.expected)}, worst {shown(found.worst)}"


def _seconds(value: float | None) -> str:
    return "unknown" if value is None else f"{value:,.0f} s"
