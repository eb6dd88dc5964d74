"""`podium fork`: a run again from one step on, by another worker."""

from dataclasses import dataclass

import anyio
import click

from podium.cli.answering import finish
from podium.cli.compose import Podium, open_podium
from podium.cli.following import answer, check_pool, choose_progress
from podium.cli.invocation import Invocation, pass_invocation
from podium.cli.questions import conductor_option
from podium.cli.ranges import Whole, filled
from podium.cli.record import Record, record
from podium.cli.saying import say
from podium.cli.signals import stoppable
from podium.cli.wording import count
from podium.forking import fork as make_fork
from podium.trace import Run


@click.command(
    epilog="""\b
Examples:
  podium fork 6a53c0 --step 2 --worker claude
  podium fork 6a53c0 --step 0 --subtask "List the facts, with their sources."
  podium fork 6a53c0 --step 1                      (the same worker once more)
  podium compare 6a53c0 91fe27                     (the run and its fork, side by side)"""
)
@click.argument("run_id", metavar="RUN")
@click.option(
    "--step", "number", type=Whole(min=0), required=True, metavar="K",
    help="The step from which on it is done again.",
)  # fmt: skip
@click.option("--worker", callback=filled, metavar="NAME", help="Who does that step instead.")
@click.option("--subtask", callback=filled, metavar="TEXT", help="What that step is to do instead.")
@conductor_option
@click.option("--json", "json_", is_flag=True, help="One JSON object on stdout.")
@click.option("--quiet", is_flag=True, help="No progress and no receipt on stderr.")
@pass_invocation
@click.pass_context
def fork(
    ctx: click.Context,
    invocation: Invocation,
    *,
    run_id: str,
    number: int,
    worker: str | None,
    subtask: str | None,
    conductor: str | None,
    json_: bool,
    quiet: bool,
) -> None:
    """Do a run again from one step on, as a run of its own.

    The question, the plan and the replies of all steps that do not rest on step K are taken over,
    and not paid again. Step K and what rests on it are done anew; so are later rounds.
    """
    parts = {"worker": worker, "subtask": subtask}
    changes: dict[str, object] = {name: value for name, value in parts.items() if value is not None}
    forking = _Fork(invocation.with_given(conductor=conductor), run_id, number, changes, quiet)
    finish(ctx, anyio.run(stoppable, forking.run), json_=json_, quiet=quiet)


@dataclass(frozen=True)
class _Fork:
    invocation: Invocation
    run_id: str
    number: int
    changes: dict[str, object]
    quiet: bool

    async def run(self) -> Record:
        settings, environment = self.invocation.settings, self.invocation.environment
        async with open_podium(settings, environment, quiet=self.quiet) as podium:
            run = await self._made(podium)
            run = await answer(podium, run, choose_progress(quiet=self.quiet))
            await podium.store.mark_told(run.run_id)
            return await record(podium.store, run)

    async def _made(self, podium: Podium) -> Run:
        origin = await podium.runs.of(self.run_id, self.invocation.settings.principal)
        check_pool(podium, origin)
        made = await make_fork(podium.orchestrator, origin, self.number, self.changes)
        if not self.quiet:
            taken = len(await podium.store.steps(made.run_id))
            say(
                f"Fork of run {origin.run_id} at step {self.number}: {count(taken, 'step')} taken "
                f"over. Side by side: podium compare {origin.run_id} {made.run_id}"
            )
        return made
