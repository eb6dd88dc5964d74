"""Asks at the terminal whether a plan is to be carried out, where the user wants to be asked."""

from dataclasses import dataclass

import anyio
import click

from podium.asks import Ask, pending, respond
from podium.cli.compose import Podium, open_podium
from podium.cli.following import answer, choose_progress
from podium.cli.invocation import Invocation
from podium.cli.questions import is_terminal
from podium.cli.record import Record, record
from podium.cli.saying import say
from podium.cli.signals import stoppable
from podium.revision import change_limits
from podium.trace import Run
from podium_workers.worker import Frozen


class Left(Frozen):
    """A run as work on it has left it, and the plan that waits for a yes, if one does."""

    record: Record
    plan: Ask | None


async def left(podium: Podium, run: Run) -> Left:
    """How *run* stands; whoever sees it has been told its end."""
    await podium.store.mark_told(run.run_id)
    ask = await pending(podium.runs, run)
    plan = ask if ask and ask.kind == "plan" else None
    return Left(record=await record(podium.store, run), plan=plan)


async def take_as_yes(podium: Podium, run: Run) -> Run:
    """To carry on a run whose plan is there to be seen is a yes to it."""
    if not run.request.waits_for_approval or not await podium.store.rounds(run.run_id):
        return run
    return await change_limits(podium.orchestrator, run, {"approved": True})


def settled(invocation: Invocation, found: Left, *, quiet: bool) -> Record:
    """The end of a run: if its plan waits for a yes, it is shown, and asked for at a terminal.

    Raises:
        click.Abort: the user has left instead of answering; the plan stays.
    """
    if found.plan is None:
        return found.record
    say(found.plan.message)
    if not is_terminal():
        return found.record
    yes = click.confirm("Carry it out?", default=True, err=True)
    return anyio.run(stoppable, _Said(invocation, found.record.run_id, found.plan, yes, quiet).run)


@dataclass(frozen=True)
class _Said:
    invocation: Invocation
    run_id: str
    plan: Ask
    yes: bool
    quiet: bool

    async def run(self) -> Record:
        settings, environment = self.invocation.settings, self.invocation.environment
        async with open_podium(settings, environment, quiet=self.quiet) as podium:
            run = await podium.store.run(self.run_id)
            if self.yes:
                run = await take_as_yes(podium, run)
                run = await answer(podium, run, choose_progress(quiet=self.quiet))
            else:
                run = await respond(podium.runs, run, self.plan, None)
            await podium.store.mark_told(run.run_id)
            return await record(podium.store, run)
