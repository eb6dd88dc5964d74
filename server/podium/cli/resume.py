"""`podium resume`: carries on a run that was planned, stopped, interrupted, cut short or failed."""

from dataclasses import dataclass

import anyio
import click

from podium.cli.answering import finish
from podium.cli.approving import Left, left, settled, take_as_yes
from podium.cli.compose import Podium, open_podium
from podium.cli.following import answer, check_pool, choose_progress, use_plan
from podium.cli.invocation import Invocation, pass_invocation
from podium.cli.questions import conductor_option, limit_options, read_plan
from podium.cli.signals import stoppable
from podium.plan import Step
from podium.revision import change_limits
from podium.trace import Run


@click.command(
    epilog="""\b
Examples:
  podium resume 6a53c0
  podium resume 6a53c0 --max-seconds 300
  podium resume 6a53c0 --max-usd 2      (a run that has reached its limit)
  podium resume 6a53c0 --plan my-plan.json"""
)
@click.argument("run_id", metavar="RUN")
@limit_options
@click.option(
    "--plan", "plan_source", metavar="FILE", help="Your own plan from now on, - for stdin."
)
@conductor_option
@click.option("--json", "json_", is_flag=True, help="One JSON object on stdout.")
@click.option("--quiet", is_flag=True, help="No progress and no receipt on stderr.")
@pass_invocation
@click.pass_context
def resume(
    ctx: click.Context,
    invocation: Invocation,
    *,
    run_id: str,
    plan_source: str | None,
    conductor: str | None,
    json_: bool,
    quiet: bool,
    **limits: object,
) -> None:
    """Carry a run on to its answer; finished steps are never paid again.

    Limits that are given replace the run's own. A run that another Podium works on is waited for.
    """
    invocation = invocation.with_given(conductor=conductor)
    changes = {name: value for name, value in limits.items() if value}
    steps = None if plan_source is None else read_plan(plan_source)
    resuming = _Resume(invocation, run_id, changes, steps, quiet)
    found = settled(invocation, anyio.run(stoppable, resuming.run), quiet=quiet)
    finish(ctx, found, json_=json_, quiet=quiet)


@dataclass(frozen=True)
class _Resume:
    invocation: Invocation
    run_id: str
    limits: dict[str, object]
    steps: tuple[Step, ...] | None
    quiet: bool

    async def run(self) -> Left:
        settings, environment = self.invocation.settings, self.invocation.environment
        async with open_podium(settings, environment, quiet=self.quiet) as podium:
            run = await take_as_yes(podium, await self._prepared(podium))
            run = await answer(podium, run, choose_progress(quiet=self.quiet))
            return await left(podium, run)

    async def _prepared(self, podium: Podium) -> Run:
        run = await podium.runs.of(self.run_id, self.invocation.settings.principal)
        if run.status == "finished" and self.steps is None:
            return run
        check_pool(podium, run)
        if self.limits:
            run = await change_limits(podium.orchestrator, run, self.limits)
        return run if self.steps is None else await use_plan(podium, run, self.steps)
