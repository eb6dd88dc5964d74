"""`podium step`: walks a planned run, one step at a time."""

from functools import partial

import anyio
import click

from podium.cli.answering import WAITS_FOR_USER
from podium.cli.compose import open_podium
from podium.cli.following import check_pool, choose_progress, follow
from podium.cli.invocation import Invocation, pass_invocation
from podium.cli.questions import STDIN, read_named, read_stdin
from podium.cli.ranges import Whole, filled
from podium.cli.saying import say
from podium.cli.signals import stoppable
from podium.cli.wording import as_json, one_line, put, put_json
from podium.errors import QuestionError, StepError
from podium.inputs import from_bytes
from podium.orchestrator import Orchestrator
from podium.plan import Access
from podium.revision import edit_step, run_step
from podium.trace import Observer, Run, StepResult, Waiting
from podium_workers.worker import Frozen


class Edit(Frozen):
    """What is to be done with a step."""

    number: int | None
    worker: str | None
    subtask: str | None
    access: Access | None
    result: str | None

    @property
    def changes(self) -> dict[str, object]:
        """The parts of the step that change."""
        parts = {"worker": self.worker, "subtask": self.subtask, "access": self.access}
        return {name: value for name, value in parts.items() if value is not None}


class Walked(Frozen):
    """What became of a step, and what is left."""

    run_id: str
    outcome: StepResult | Waiting
    recorded: bool
    """Whether it had been done before, and so was not done again."""
    left: tuple[int, ...]
    """Steps that have not been done."""
    stale: tuple[int, ...]
    """Of these, the ones that were done before something that they rest on was changed."""


def _access(ctx: click.Context, option: click.Parameter, value: str | None) -> Access | None:
    if value is None or value == "all":
        return value
    if value == "none":
        return ()
    try:
        return tuple(int(part) for part in value.split(","))
    except ValueError:
        raise click.BadParameter(
            "write a list of earlier step numbers such as 0,2, or all, or none."
        ) from None


@click.command(
    epilog="""\b
Examples:
  podium step 6a53c0                         (the next step)
  podium step 6a53c0 1                       (step 1; it is not run twice)
  podium step 6a53c0 1 --worker qwen-1.5b --access 0
  podium step 6a53c0 0 --subtask "List the facts only."
  podium step 6a53c0 2 --result @notes.txt   (your own result for step 2)"""
)
@click.argument("run_id", metavar="RUN")
@click.argument("number", metavar="[N]", required=False, type=Whole(min=0))
@click.option("--worker", callback=filled, metavar="NAME", help="Change who does it.")
@click.option("--subtask", callback=filled, metavar="TEXT", help="Change what is to be done.")
@click.option(
    "--access", callback=_access, metavar="STEPS", help="Change what it reads: all, none or 0,1."
)
@click.option(
    "--result", metavar="TEXT", help="Your own result for it: a text, @FILE, or @- for stdin."
)
@click.option("--json", "json_", is_flag=True, help="One JSON object on stdout.")
@click.option("--quiet", is_flag=True, help="No progress on stderr.")
@pass_invocation
@click.pass_context
def step(
    ctx: click.Context,
    invocation: Invocation,
    *,
    run_id: str,
    number: int | None,
    worker: str | None,
    subtask: str | None,
    access: Access | None,
    result: str | None,
    json_: bool,
    quiet: bool,
) -> None:
    """Run one step of a planned run.

    That is step N or the next one, as it was planned or as you change it. Changing a finished step
    makes the steps that rest on it stale, to be run again; old replies stay in the record.
    """
    given = None if result is None else _result(result)
    edit = Edit(number=number, worker=worker, subtask=subtask, access=access, result=given)
    if edit.changes and number is None:
        raise click.UsageError("--worker, --subtask and --access need the number of the step.")
    if edit.changes and given is not None:
        raise click.UsageError("give either your own --result or changes to the step, not both.")
    walked = anyio.run(stoppable, partial(_step, invocation, run_id, edit, quiet))
    if json_:
        put_json(as_json(walked))
    elif isinstance(walked.outcome, StepResult) and walked.outcome.finished:
        put(walked.outcome.reply)
    ctx.exit(_tell(walked, quiet=quiet))


async def _step(invocation: Invocation, run_id: str, edit: Edit, quiet: bool) -> Walked:
    settings = invocation.settings
    async with open_podium(settings, invocation.environment, quiet=quiet) as podium:
        run = await podium.runs.of(run_id, settings.principal)
        check_pool(podium, run)
        before = await podium.store.steps(run.run_id)
        outcomes: list[StepResult | Waiting] = []

        async def work(held: Orchestrator, run: Run, observer: Observer) -> None:
            outcomes.append(await _walk(held, run, edit, observer))

        await follow(podium, run, work, choose_progress(quiet=quiet, brief=True))
        steps = {step.number: step for step in await podium.store.steps(run.run_id)}
        plans = [found.plan for found in await podium.store.rounds(run.run_id) if found.plan]
        planned = [number for plan in plans for number in plan.numbers]
        return Walked(
            run_id=run.run_id,
            outcome=outcomes[0],
            recorded=outcomes[0] in before,
            left=tuple(n for n in planned if n not in steps or not steps[n].finished),
            stale=tuple(n for n in planned if n in steps and steps[n].status == "stale"),
        )


async def _walk(
    orchestrator: Orchestrator, run: Run, edit: Edit, observer: Observer
) -> StepResult | Waiting:
    await orchestrator.plan(run, observer)
    if edit.changes and edit.number is not None:
        await edit_step(orchestrator, run, edit.number, edit.changes)
        run = await orchestrator.store.run(run.run_id)
    return await run_step(orchestrator, run, edit.number, observer, result=edit.result)


def _result(given: str) -> str:
    if not given.startswith("@"):
        text = given
    elif given[1:] == STDIN:
        text = from_bytes("stdin", read_stdin()).text
    else:
        text = read_named(given[1:], "--result")
    if not text.strip():
        raise QuestionError("result", "is empty; write what the step gives.")
    return text


def _tell(walked: Walked, *, quiet: bool) -> int:
    """Say on stderr what became of the step and what comes next; the exit code.

    Raises:
        StepError: the step failed.
    """
    outcome = walked.outcome
    if isinstance(outcome, Waiting):
        say(f"Step {outcome.step} is yours: {outcome.ask}")
        say(f"Give your result:  podium step {walked.run_id} {outcome.step} --result @FILE")
        return WAITS_FOR_USER
    if not outcome.finished:
        why = "; ".join(f"{failed.worker}: {failed.message}" for failed in outcome.failures)
        again = f"podium step {walked.run_id} {outcome.number} --worker NAME"
        raise StepError(
            f"Step {outcome.number} failed. {one_line(why, 500)} (`{again}` tries another.)"
        )
    if not quiet:
        if walked.recorded:
            say(f"Step {outcome.number} had been done; this is its reply from the record.")
        say(_next(walked))
    return 0


def _next(walked: Walked) -> str:
    if not walked.left:
        return f"Every step is done; the answer: podium resume {walked.run_id}"
    stale = f" (again: {', '.join(map(str, walked.stale))})" if walked.stale else ""
    left = ", ".join(map(str, walked.left))
    return f"To be done: {left}{stale}; the next: podium step {walked.run_id}"
