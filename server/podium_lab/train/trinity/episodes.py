"""Episodes through the server: a head plays an item by the server's own policy and executor.

The pool may be live, recorded or simulated; every episode is a run in the ledger.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import anyio

from podium.calls import Caller, Purpose
from podium.errors import PodiumError
from podium.orchestrator import Orchestrator
from podium.plan import Plan
from podium.policy.fixed import Single
from podium.policy.head import Head, Role
from podium.policy.trinity import HiddenStates, Trinity
from podium.policy.turns import TURNS, role_of
from podium.prompting import Material
from podium.store import Store
from podium.trace import Round, Run, RunRequest, ignore
from podium.window import fit, reply_limit
from podium_lab.train.environment import cut_by_money
from podium_lab.train.items import Item
from podium_lab.train.judging import JudgeError, Judges
from podium_lab.train.purse import Purse, PurseEmptyError, sharing
from podium_lab.train.trinity.table import AskRole
from podium_workers.pool import Pool
from podium_workers.worker import Frozen, ModelSettings, Prompt, Usage

STRATEGY = "trinity"
PRINCIPAL = "training"


class Episode(Frozen):
    """What became of one episode."""

    item: str
    right: bool | None
    """None when the episode is dropped: something failed that is no fault of the head."""
    turns: tuple[tuple[str, Role], ...] = ()
    ended: bool = True
    """Whether it came to its end by itself; one that did not is wrong, whatever was said then."""
    problem: str = ""
    usage: Usage = Usage()
    run_id: str = ""


@dataclass(frozen=True)
class Episodes:
    """Plays items on a pool."""

    store: Store
    pool: Pool
    states: HiddenStates
    judges: Judges = field(default_factory=Judges)
    max_seconds: float = 600.0
    parallel: int = 8
    turns: int = TURNS
    """Of an episode at most."""
    purse: Purse | None = None
    """What the whole job may spend; None for any amount."""

    async def play(self, head: Head, items: Sequence[Item]) -> list[Episode]:
        """The episodes of *head* on *items*, in their order.

        Raises:
            PurseEmptyError: the job has spent what it may.
        """
        found: list[Episode | None] = [None] * len(items)
        limiter = anyio.CapacityLimiter(self.parallel)

        async def one(place: int) -> None:
            async with limiter:
                found[place] = await self._episode(head, items[place])

        async with anyio.create_task_group() as group:
            for place in range(len(items)):
                group.start_soon(one, place)
        return [episode for episode in found if episode is not None]

    async def _episode(self, head: Head, item: Item) -> Episode:
        policies = {STRATEGY: Trinity(head, self.states, self.turns)}
        orchestrator = Orchestrator(self.store, self.pool, Caller(self.store), policies)
        try:
            async with sharing(self.purse) as share:
                request = RunRequest(
                    question=item.question, strategy=STRATEGY, max_seconds=self.max_seconds,
                    max_usd=share.usd if share else None,
                )  # fmt: skip
                run = await orchestrator.create(request, principal=PRINCIPAL)
                run = await orchestrator.answer(run, ignore)
                rounds = await self.store.rounds(run.run_id)
                usage = await self.store.usage(run.run_id)
                if share:
                    share.spent = usage.cost_usd
        except PurseEmptyError:
            raise
        except PodiumError as error:
            return Episode(item=item.id, right=None, problem=str(error))
        ended = not any(found.proposal.source == "fallback" for found in rounds)
        episode = Episode(
            item=item.id, right=None, turns=_turns(rounds), ended=ended, usage=usage,
            run_id=run.run_id,
        )  # fmt: skip
        failed = run.error.message if run.error else ""
        steps = [result for found in rounds for result in found.results]
        short = cut_by_money(run, steps, self.pool)
        if problem := _no_fault_of_the_head(run, rounds) or failed or short:
            return episode.model_copy(update={"problem": problem})
        try:
            right = ended and await self.judges.is_right(item, run.answer or "")
        except JudgeError as error:
            return episode.model_copy(update={"problem": str(error)})
        return episode.model_copy(update={"right": right})


def _turns(rounds: Sequence[Round]) -> tuple[tuple[str, Role], ...]:
    plans = [found.plan for found in rounds if isinstance(found.plan, Plan)]
    return tuple((step.worker, role_of(step.subtask)) for plan in plans for step in plan.steps)


def _no_fault_of_the_head(run: Run, rounds: Sequence[Round]) -> str:
    """Why an episode says nothing about its head: a worker failed, another one did its step, or
    the money ended."""
    if run.limit == "usd":
        return run.notes[0] if run.notes else "The limit of money struck."
    failures = (
        f"step {result.number}, {failed.worker}: {failed.message}"
        for found in rounds
        for result in found.results
        for failed in result.failures
    )
    return next(failures, "")


async def asking(store: Store, pool: Pool, max_usd: float | None = None) -> AskRole:
    """Asks the workers of a pool for a table: calls of one run in the ledger, under its limit.

    Raises (when it asks):
        WorkerError: the worker gave no reply.
        LimitError: it could cost more than *max_usd* together with what was asked before.
    """
    caller = Caller(store)
    orchestrator = Orchestrator(store, pool, caller, {"single": Single()})
    about = "What would each worker reply in each role, at every place of every item?"
    request = RunRequest(question=about, strategy="single", max_usd=max_usd)
    run = await orchestrator.create(request, principal=PRINCIPAL)

    async def ask(name: str, item: Item, material: Material) -> str:
        worker = pool.get(name)
        text = fit(material, worker.card).text
        settings = ModelSettings(max_output_tokens=reply_limit(worker.card), seed=0)
        prompt = Prompt.of(text, system=worker.card.role)
        purpose = Purpose.of(run, 0)
        reply = await caller.ask(worker, prompt, settings, purpose, deadline=float("inf"))
        return reply.text

    return ask
