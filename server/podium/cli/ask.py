"""`podium ask`: a question in, its answer out."""

from dataclasses import dataclass

import anyio
import click

from podium.cli.answering import finish
from podium.cli.approving import Left, left, settled
from podium.cli.compose import open_podium
from podium.cli.following import ask as ask_and_follow
from podium.cli.following import choose_progress
from podium.cli.invocation import Invocation, pass_invocation
from podium.cli.questions import GivenQuestion, question_options
from podium.cli.signals import stoppable
from podium.plan import Step
from podium.trace import RunRequest


@click.command(
    epilog="""\b
Examples:
  podium ask "Why is the sky blue?"
  podium ask "What does this do, and where could it fail?" --file deploy.sh --file lib.sh
  git diff | podium ask "Review this change."
  podium ask - < question.txt > answer.txt
  podium ask "And in winter?" --follow-up 6a53c0
  podium ask "Sum up both." --strategy single --local-only --max-seconds 60
  podium ask "Is this proof right?" --file proof.md --max-usd 0.25
  podium ask "Why does test_total fail?" --caller --approve plan
  podium ask "Prove it." --plan my-plan.json
  podium ask "What is 17 times the year of that treaty?" --conductor trained/"""
)
@question_options
@click.option(
    "--approve", type=click.Choice(["nothing", "plan"]),
    help="plan: show the plan and its price, and wait for a yes [default: the setting].",
)  # fmt: skip
@click.option("--json", "json_", is_flag=True, help="One JSON object on stdout.")
@click.option("--quiet", is_flag=True, help="No progress and no receipt on stderr.")
@pass_invocation
@click.pass_context
def ask(
    ctx: click.Context, invocation: Invocation, *, json_: bool, quiet: bool, **given: object
) -> None:
    """Answer a question with a team of models.

    The answer alone goes to stdout. QUESTION is - to read it from stdin; with a question and
    something piped in, the pipe is a file named stdin. A question that is being worked on, in
    another window say, is waited for and not asked twice.
    """
    asked = GivenQuestion.model_validate(given)
    invocation = invocation.with_given(conductor=asked.conductor)
    request, steps = asked.request(invocation.settings), asked.plan()
    asking = _Ask(invocation, request, steps or (), asked.fresh, quiet)
    found = settled(invocation, anyio.run(stoppable, asking.run), quiet=quiet)
    finish(ctx, found, json_=json_, quiet=quiet)


@dataclass(frozen=True)
class _Ask:
    invocation: Invocation
    request: RunRequest
    steps: tuple[Step, ...]
    fresh: bool
    quiet: bool

    async def run(self) -> Left:
        settings, environment = self.invocation.settings, self.invocation.environment
        async with open_podium(settings, environment, quiet=self.quiet) as podium:
            progress = choose_progress(quiet=self.quiet)
            run = await ask_and_follow(
                podium, self.request, progress, steps=self.steps, fresh=self.fresh
            )
            return await left(podium, run)
