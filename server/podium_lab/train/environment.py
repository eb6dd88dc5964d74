"""The environment: a policy's text in, its reward out. Knows no training library.

A rollout is the policy's text, read by the server's own parser, carried out by the server's own
executor on a pool, judged, and rewarded as in the Conductor paper (papers.md 1.5). Trainers are
thin adapters around `Environment.score`.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from pydantic import Field

from podium.calls import Caller
from podium.errors import PlanError, PodiumError
from podium.orchestrator import Orchestrator
from podium.plan import Plan, Proposal
from podium.plan_text import parse_plan
from podium.policy import Ask, State, accept_last
from podium.policy.conductor import conductor_prompt, team
from podium.store import Store
from podium.trace import Run, RunRequest, StepResult, ignore
from podium_lab.train.items import Item
from podium_lab.train.judging import JudgeError, Judges
from podium_lab.train.purse import Purse, Share
from podium_workers.pool import Pool
from podium_workers.worker import Frozen, Usage, WorkerCard

STRATEGY = "written"
"""Under which name the text of a rollout is a policy."""
PRINCIPAL = "training"
OF_THE_PLAN = frozenset({"refused", "context_too_long"})
"""Failures of a worker that are the plan's own fault: they count as a wrong answer."""


class Rewards(Frozen):
    """What a rollout earns; the paper's values (papers.md 1.5)."""

    unreadable: float = 0.0
    wrong: float = 0.5
    """For a plan that can be read and whose answer is wrong."""
    right: float = 1.0
    per_step: float = Field(default=0.0, ge=0)
    """Taken off for each step after the first; off in the paper."""
    per_usd: float = Field(default=0.0, ge=0)
    """Taken off for each US dollar that the workers cost; off in the paper."""

    def of(self, *, right: bool, steps: int, cost_usd: float | None) -> float:
        """The reward of a plan that was carried out; never below that of an unreadable one."""
        earned = self.right if right else self.wrong
        earned -= self.per_step * max(0, steps - 1) + self.per_usd * (cost_usd or 0.0)
        return max(self.unreadable, earned)


class Score(Frozen):
    """What became of one rollout."""

    item: str
    reward: float | None
    """None when the rollout is dropped: something failed that is no fault of the plan."""
    valid: bool = False
    """Whether a plan could be read."""
    right: bool | None = None
    """None when nothing was carried out, or it could not be judged."""
    workers: tuple[str, ...] = ()
    """Who was planned for each step."""
    access: tuple[tuple[int, ...], ...] = ()
    """What each step may read."""
    subtasks: tuple[str, ...] = ()
    problem: str = ""
    """Why the text could not be read, or why the rollout was dropped."""
    answer: str = ""
    usage: Usage = Usage()
    run_id: str = ""
    """The run in the ledger; empty when none was begun."""


@dataclass(frozen=True)
class Written:
    """A policy whose plan has been written already; its last step's reply is accepted."""

    text: str
    max_steps: int

    async def propose(self, state: State, ask: Ask) -> Proposal:
        """The plan of the text.

        Raises:
            PlanError: no plan can be read in it.
        """
        if state.rounds:
            return Proposal(next=accept_last(state), source="fixed")
        plan = parse_plan(self.text, team(state), max_steps=self.max_steps)
        assert plan is not None, "a first plan cannot accept"
        return Proposal(next=plan, source="model", raw_text=self.text)


@dataclass(frozen=True)
class Environment:
    """Scores texts of a policy: one for a whole training job.

    Scores may be asked for at the same time; workers keep their own limits.
    """

    store: Store
    """The ledger: every rollout that is carried out is a run like any other."""
    judges: Judges = field(default_factory=Judges)
    rewards: Rewards = field(default_factory=Rewards)
    max_steps: int = 5
    max_seconds: float = 600.0
    """Seconds that one rollout may take; then it is dropped."""
    purse: Purse | None = None
    """What the whole job may spend; None for any amount."""

    def prompt(self, item: Item, pool: Pool, card: WorkerCard) -> str:
        """What the policy is asked: the very text that the server sends to its conductor.

        *card* says how large the conductor's window is.
        """
        text, _ = conductor_prompt(self._state(item, pool), card, max_steps=self.max_steps)
        return text

    def read(self, text: str, pool: Pool) -> Plan:
        """The plan in a policy's text.

        Raises:
            PlanError: none can be read, or it is not allowed; its rule and text say why.
        """
        plan = parse_plan(text, pool.names, max_steps=self.max_steps)
        assert plan is not None, "a first plan cannot accept"
        return plan

    async def score(self, text: str, item: Item, pool: Pool) -> Score:
        """Carry out what *text* plans for *item* on *pool*, and say what it earns.

        Raises:
            PurseEmptyError: the job has spent what it may.
        """
        try:
            plan = self.read(text, pool)
        except PlanError as error:
            unreadable = self.rewards.unreadable
            return Score(item=item.id, reward=unreadable, problem=f"{error.rule}: {error}")
        score = Score(
            item=item.id,
            reward=None,
            valid=True,
            workers=tuple(step.worker for step in plan.steps),
            access=tuple(plan.reads(number) for number in plan.numbers),
            subtasks=tuple(step.subtask for step in plan.steps),
        )
        try:
            async with self._share() as share:
                run, results = await self._carried_out(text, item, pool, share)
        except PodiumError as error:
            return score.model_copy(update={"problem": str(error)})
        known = {"run_id": run.run_id, "usage": await self.store.usage(run.run_id)}
        judged = await self._judged(item, run, results, plan)
        return score.model_copy(update={**known, **judged})

    @asynccontextmanager
    async def _share(self) -> AsyncGenerator[Share | None]:
        """One rollout's part of the job's money; None where that is not limited."""
        if self.purse is None:
            yield None
            return
        async with self.purse.share() as share:
            yield share

    async def _carried_out(
        self, text: str, item: Item, pool: Pool, share: Share | None
    ) -> tuple[Run, Sequence[StepResult]]:
        policies = {STRATEGY: Written(text, self.max_steps)}
        orchestrator = Orchestrator(self.store, pool, Caller(self.store), policies)
        request = self._request(item, share.usd if share else None)
        run = await orchestrator.create(request, principal=PRINCIPAL)
        run = await orchestrator.answer(run, ignore)
        if share:
            share.spent = (await self.store.usage(run.run_id)).cost_usd
        return run, await self.store.steps(run.run_id)

    async def _judged(
        self, item: Item, run: Run, results: Sequence[StepResult], plan: Plan
    ) -> Mapping[str, object]:
        """What is known of a rollout once it was carried out."""
        if problem := _no_fault_of_the_plan(run, results):
            return {"problem": problem}
        answer = run.answer or ""
        try:
            right = run.status == "finished" and await self.judges.is_right(item, answer)
        except JudgeError as error:
            return {"problem": str(error), "answer": answer}
        usage = await self.store.usage(run.run_id)
        reward = self.rewards.of(right=right, steps=len(plan.steps), cost_usd=usage.cost_usd)
        return {"right": right, "reward": reward, "answer": answer}

    def _request(self, item: Item, max_usd: float | None = None) -> RunRequest:
        return RunRequest(
            question=item.question,
            strategy=STRATEGY,
            max_seconds=self.max_seconds,
            max_usd=max_usd,
        )

    def _state(self, item: Item, pool: Pool) -> State:
        return State(request=self._request(item), pool=pool, fence="", seed=0)


def _no_fault_of_the_plan(run: Run, results: Sequence[StepResult]) -> str:
    """Why a rollout says nothing about its plan; empty when it does.

    A step that another worker has done is such a case too: that was not planned.
    """
    for result in results:
        for failed in result.failures:
            if failed.code not in OF_THE_PLAN:
                return f"step {result.number}, {failed.worker}: {failed.message}"
    if run.limit is not None or run.status == "partial":
        return run.notes[0] if run.notes else f"The limit of {run.limit} struck."
    return run.error.message if run.error and not results else ""


def shuffled(pool: Pool, names: Sequence[str]) -> Pool:
    """The pool with only the workers *names*, in that order: what one rollout may use.

    Raises:
        PoolSelectionError: an unknown name, or none.
    """
    chosen = pool.allowed(workers=names)
    return replace(chosen, workers=tuple(chosen.get(name) for name in names))
