"""`podium ask`: a question in, its answer out; or an earlier run carried on."""

from dataclasses import dataclass

import anyio
import click

from podium.cli.compose import Podium, open_podium
from podium.cli.following import (
    answer,
    begin,
    check_pool,
    choose_progress,
    use_limit,
    use_plan,
)
from podium.cli.invocation import Invocation, pass_invocation
from podium.cli.questions import Asked, question_options
from podium.cli.record import Record, record
from podium.cli.saying import say
from podium.cli.signals import stoppable
from podium.cli.wording import as_json, count, put, put_json, spent
from podium.errors import RunError
from podium.plan import Step
from podium.trace import Run, RunRequest
from podium_workers.worker import Frozen

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
  podium ask --resume 6a53c0
  podium ask --resume 6a53c0 --max-seconds 300"""
)
@question_options
@click.option(
    "--resume", metavar="RUN",
    help="Carry on this planned, stopped or failed run instead; --plan, --max-seconds change it.",
)  # fmt: skip
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
            "--resume carries on a run as it was asked; give only --plan or --max-seconds with it."
        )
    start = Resumed(run_id=resume, max_seconds=asked.max_seconds) if resume else None
    asking = _Ask(invocation, start or asked.request(invocation.settings), asked.plan(), quiet)
    found = anyio.run(stoppable, asking.run)
    if json_:
        put_json(as_json(found))
    elif found.answer is not None:
        put(found.answer)
    _tell(found, quiet=quiet)
    ctx.exit(WAITS_FOR_USER if found.status == "needs_caller" else 0)


class Resumed(Frozen):
    """A run to be carried on."""

    run_id: str
    max_seconds: float | None
    """Its new time limit; None leaves it as it is."""


@dataclass(frozen=True)
class _Ask:
    invocation: Invocation
    start: RunRequest | Resumed
    steps: tuple[Step, ...] | None
    quiet: bool

    async def run(self) -> Record:
        settings, environment = self.invocation.settings, self.invocation.environment
        async with open_podium(settings, environment, quiet=self.quiet) as podium:
            if isinstance(self.start, Resumed):
                run = await self._resume(podium, self.start)
            else:
                run = await begin(podium, self.start, self.steps)
            run = await answer(podium, run, choose_progress(quiet=self.quiet))
            return await record(podium.store, run)

    async def _resume(self, podium: Podium, start: Resumed) -> Run:
        run = await podium.runs.of(start.run_id, self.invocation.settings.principal)
        if run.status == "finished" and self.steps is None:
            return run
        check_pool(podium, run)
        if self.steps is not None:
            run = await use_plan(podium, run, self.steps)
        if start.max_seconds is not None:
            run = await use_limit(podium, run, start.max_seconds)
        return run


def _tell(found: Record, *, quiet: bool) -> None:
    """What belongs to the answer, on stderr.

    Raises:
        RunError: there is no answer, and nobody is waited for.
    """
    if not quiet:
        say(receipt_line(found))
    for note in found.notes:
        say(f"Note: {note}")
    for waiting in found.waiting:
        say(f"Step {waiting.step} is yours: {waiting.ask}")
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
