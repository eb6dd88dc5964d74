"""`podium ask`: a question in, its answer out; or an earlier run carried on."""

from dataclasses import dataclass

import anyio
import click

from podium.cli.compose import open_podium, say
from podium.cli.following import answer, choose_progress, use_plan
from podium.cli.invocation import Invocation, pass_invocation
from podium.cli.questions import Asked, question_options
from podium.cli.record import Record, record
from podium.cli.wording import as_json, count, printable, put, put_json, spent
from podium.errors import RunError
from podium.plan import Step
from podium.trace import RunRequest

WAITS_FOR_USER = 3
"""Exit code when a step has to be done by the user."""


@click.command(
    epilog="""\b
Examples:
  podium ask "Why is the sky blue?"
  podium ask "What does this do, and where could it fail?" --file deploy.sh --file lib.sh
  git diff | podium ask "Review this change."
  podium ask - < question.txt > answer.txt
  podium ask "And in winter?" --follow-up 6a53c0
  podium ask "Sum up both." --strategy single --local-only --max-seconds 60
  podium ask "Prove it." --plan my-plan.json
  podium ask --resume 6a53c0"""
)
@question_options
@click.option(
    "--resume", metavar="RUN", help="Carry on this planned, stopped or failed run instead."
)
@click.option("--json", "json_", is_flag=True, help="One JSON object on stdout.")
@click.option("--quiet", is_flag=True, help="No progress and no receipt on stderr.")
@pass_invocation
@click.pass_context
def ask(
    ctx: click.Context,
    invocation: Invocation,
    *,
    resume: str | None,
    json_: bool,
    quiet: bool,
    **given: object,
) -> None:
    """Answer a question with a team of models.

    The answer alone goes to stdout. QUESTION is - to read it from stdin; with a question and
    something piped in, the pipe is a file named stdin.
    """
    asked = Asked.model_validate(given)
    if resume and asked.shaping:
        raise click.UsageError(
            "--resume carries on a run as it was asked; give only --plan with it."
        )
    start = resume or asked.request(invocation.settings)
    steps = asked.plan()
    found = anyio.run(_Ask(invocation, start, steps, quiet).run)
    if json_:
        put_json(as_json(found))
    elif found.answer is not None:
        put(found.answer)
    _tell(found, quiet=quiet)
    ctx.exit(WAITS_FOR_USER if found.status == "needs_caller" else 0)


@dataclass(frozen=True)
class _Ask:
    invocation: Invocation
    start: RunRequest | str
    """A new question, or the id of a run."""
    steps: tuple[Step, ...] | None
    quiet: bool

    async def run(self) -> Record:
        settings = self.invocation.settings
        mine = settings.principal
        async with open_podium(settings, self.invocation.environment, quiet=self.quiet) as podium:
            if isinstance(self.start, str):
                run = await podium.runs.of(self.start, mine)
            else:
                run = await podium.orchestrator.create(self.start, principal=mine)
            if self.steps is not None:
                run = await use_plan(podium, run, self.steps)
            run = await answer(podium, run, choose_progress(quiet=self.quiet))
            return await record(podium.store, run)


def _tell(found: Record, *, quiet: bool) -> None:
    """What belongs to the answer, on stderr.

    Raises:
        RunError: there is no answer, and nobody is waited for.
    """
    if not quiet:
        say(receipt_line(found))
    for note in found.notes:
        say(f"Note: {printable(note)}")
    for waiting in found.waiting:
        say(f"Step {waiting.step} is yours: {printable(waiting.ask)}")
    if found.status == "needs_caller":
        first = found.waiting[0].step if found.waiting else 0
        say(f"Give your result:  podium step {found.run_id} {first} --result @FILE")
        say(f"Then go on:        podium ask --resume {found.run_id}")
    elif found.status not in ("finished", "partial"):
        why = found.error.message if found.error else f"The run is {found.status}."
        raise RunError(f"{why} (`podium ask --resume {found.run_id}` tries again.)")


def receipt_line(found: Record) -> str:
    """What a run cost, on one line."""
    paid = found.receipt
    return (
        f"run {found.run_id}: {count(len(paid.steps), 'step')}, {paid.seconds:.1f} s, "
        f"{spent(paid.total)}"
    )
