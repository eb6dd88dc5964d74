"""The environment: a policy's text in, its reward out. Knows no training library.

A rollout is the policy's text, read by the server's own parser, carried out by the server's own
executor on a pool, judged, and rewarded as in the Conductor paper (papers.md 1.5). A second text,
asked for with what came of the first in view, carries the same run on. Trainers are thin adapters
around `Environment.score`.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
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
from podium.trace import Round, Run, RunRequest, StepResult, ignore
from podium.window import reply_limit
from podium_lab.train.items import Item
from podium_lab.train.judging import JudgeError, Judges
from podium_lab.train.purse import Purse, PurseEmptyError, Share, sharing
from podium_workers.pool import Pool
from podium_workers.worker import Frozen, Usage, WorkerCard

STRATEGY = "written"
"""Under which name the text of a rollout is a policy."""
PRINCIPAL = "training"
OF_THE_PLAN = frozenset({"refused", "context_too_long"})
"""Failures of a worker that are the plan's own fault: they count as a wrong answer, whatever the
worker says that then does the step."""


class Rewards(Frozen):
    """What a rollout earns; the paper's values (papers.md 1.5).

    Steps and money are taken off right plans only. In a group whose plans are all wrong they would
    be all that differs, and GRPO, which divides by a group's spread, would teach to be cheap there
    as strongly as it teaches to be right: plans end with one step before two have been found out.
    """

    unreadable: float = 0.0
    wrong: float = 0.5
    """For a plan that can be read and whose answer is wrong."""
    right: float = 1.0
    per_step: float = Field(default=0.0, ge=0)
    """Taken off a right plan for each step after the first; off in the paper."""
    per_usd: float = Field(default=0.0, ge=0)
    """Taken off a right plan for each US dollar that its workers cost at the prices of their cards,
    whether it was paid for or a kept reply was given again; off in the paper."""

    def of(self, *, right: bool, steps: int, price_usd: float | None) -> float:
        """The reward of a plan that was carried out; never below that of an unreadable one."""
        if not right:
            return self.wrong
        cost = self.per_step * max(0, steps - 1) + self.per_usd * (price_usd or 0.0)
        return max(self.unreadable, self.right - cost)


class Score(Frozen):
    """What became of one rollout."""

    item: str
    reward: float | None
    """None when the rollout is dropped: something failed that is no fault of the plan."""
    round: int = 0
    """Of its run, counted as in the ledger: 0 is the first."""
    before: bool | None = None
    """In a later round, whether the answer before it was right."""
    asked: bool = True
    """False where nothing came of the round before: then there was no rollout at all."""
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
    """Of its own round."""
    price_usd: float | None = 0.0
    """What that costs at the prices of the workers' cards, whether it was paid for or a kept reply
    was given again; None where a price is unknown."""
    shown: tuple[str, ...] = ()
    """The workers that the policy could choose from."""
    run_id: str = ""
    """The run in the ledger; empty when none was begun."""

    @property
    def accepted(self) -> bool:
        """Whether it lets the answer before it stand."""
        return self.valid and self.round > 0 and not self.workers


@dataclass(frozen=True)
class Outcome:
    """What has come of a run so far: what its next round is asked about."""

    run: Run
    rounds: tuple[Round, ...]
    """Those with a plan, and the results of all of its steps."""
    right: bool
    """Whether its answer so far is right."""
    usage: Usage


@dataclass(frozen=True)
class Written:
    """A policy whose rounds have been written already; then its last step's reply is accepted."""

    texts: tuple[str, ...]
    """One for each round."""
    max_steps: int

    async def propose(self, state: State, ask: Ask) -> Proposal:
        """What the text of the next round plans, or that it accepts.

        Raises:
            PlanError: no plan can be read in it.
        """
        if len(state.rounds) == len(self.texts):
            return Proposal(next=accept_last(state), source="fixed")
        text, most = self.texts[len(state.rounds)], self.max_steps
        again = bool(state.rounds)
        plan = parse_plan(
            text, team(state), first=state.next_step, max_steps=most, may_accept=again
        )
        return Proposal(next=plan or accept_last(state), source="model", raw_text=text)


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

    def prompt(
        self, item: Item, pool: Pool, card: WorkerCard, *, before: Outcome | None = None
    ) -> str:
        """What the policy is asked: the very text that the server sends to its conductor.

        *card* says how large the conductor's window is; *before* is what the rounds before came to.
        """
        state = State(request=self._request(item), pool=pool, fence="", seed=0)
        if before:
            run = before.run
            state = State(run.request, pool, run.fence, run.seed, before.rounds)
        return conductor_prompt(state, card, max_steps=self.max_steps)[0]

    def read(self, text: str, pool: Pool, *, before: Outcome | None = None) -> Plan | None:
        """The plan in a policy's text; None where it accepts the answer *before*.

        Raises:
            PlanError: none can be read, or it is not allowed; its rule and text say why.
        """
        first = before.rounds[-1].plan if before else None
        return parse_plan(
            text,
            pool.names,
            first=first.numbers.stop if first else 0,
            max_steps=self.max_steps,
            may_accept=before is not None,
        )

    async def score(
        self, text: str, item: Item, pool: Pool, *, before: Outcome | None = None
    ) -> Score:
        """Carry out what *text* plans for *item* on *pool*, and say what it earns.

        With *before* it is the next round of that run, which is carried on: what was done before
        is not paid for again, nor charged to the reward. Accepting earns what that answer earns.

        Raises:
            PurseEmptyError: the job has spent what it may.
        """
        score = Score(item=item.id, reward=None, shown=pool.names)
        if before:
            known = {"round": len(before.rounds), "before": before.right}
            score = score.model_copy(update={**known, "run_id": before.run.run_id})
        try:
            plan = self.read(text, pool, before=before)
        except PlanError as error:
            problem = f"{error.rule}: {error}"
            update = {"reward": self.rewards.unreadable, "problem": problem}
            return score.model_copy(update=update)
        score = score.model_copy(update={"valid": True, **(_planned(plan) if plan else {})})
        try:
            async with sharing(self.purse) as share:
                run, usage = await self._carried_out(text, item, pool, share, before)
        except PurseEmptyError:
            raise
        except PodiumError as error:
            return score.model_copy(update={"problem": str(error)})
        score = score.model_copy(update={"run_id": run.run_id, "usage": usage})
        return score.model_copy(update=await self._judged(item, pool, run, score))

    async def outcome(self, score: Score) -> Outcome | None:
        """What the next round of a rollout is asked about.

        None where nothing was carried out, or could be judged, or where a step failed: a run that
        is carried on tries it again, so that its round would not stay what the policy was shown.
        """
        if score.right is None:
            return None
        run = await self.store.run(score.run_id)
        rounds = tuple(found for found in await self.store.rounds(run.run_id) if found.plan)
        done = all(result.finished for found in rounds for result in found.results)
        if run.status != "finished" or not done:
            return None
        return Outcome(run, rounds, score.right, await self.store.usage(run.run_id))

    async def _carried_out(
        self, text: str, item: Item, pool: Pool, share: Share | None, before: Outcome | None
    ) -> tuple[Run, Usage]:
        """The run with its newest round carried out, and what that round used."""
        earlier = (found.proposal.raw_text for found in before.rounds) if before else ()
        policies = {STRATEGY: Written((*earlier, text), self.max_steps)}
        orchestrator = Orchestrator(self.store, pool, Caller(self.store), policies)
        if before:
            run = await self._reopened(before, share)
        else:
            request = self._request(item, share.usd if share else None)
            run = await orchestrator.prepare(request, principal=PRINCIPAL)
            run = run.model_copy(update={"fence": _mark(item.id, text, *pool.names)})
            await self.store.create_run(run)
        run = await orchestrator.answer(run, ignore)
        usage = _since(before, await self.store.usage(run.run_id))
        if share:
            share.spent = usage.cost_usd
        return run, usage

    async def _reopened(self, before: Outcome, share: Share | None) -> Run:
        """The run with its acceptance taken back, and what another round may take."""
        run_id, rounds = before.run.run_id, len(before.rounds)
        await self.store.drop_round(run_id, rounds)
        limits = {"rounds": rounds + 1, "max_seconds": before.run.worked_s + self.max_seconds}
        if share:
            limits["max_usd"] = (before.usage.cost_usd or 0.0) + share.usd
        await self.store.set_limits(run_id, limits)
        return await self.store.run(run_id)

    async def _judged(self, item: Item, pool: Pool, run: Run, score: Score) -> Mapping[str, object]:
        """What is known of a rollout once it was carried out."""
        steps = [it for it in await self.store.steps(run.run_id) if it.round == score.round]
        if problem := _no_fault_of_the_plan(run, steps) or cut_by_money(run, steps, pool):
            return {"problem": problem}
        answer = run.answer or ""
        try:
            done = run.status == "finished" and _as_planned(steps)
            right = done and await self._is_right(item, answer, score)
        except JudgeError as error:
            return {"problem": str(error), "answer": answer}
        price = _price(steps, pool)
        reward = self.rewards.of(right=right, steps=len(score.workers), price_usd=price)
        return {"right": right, "reward": reward, "answer": answer, "price_usd": price}

    async def _is_right(self, item: Item, answer: str, score: Score) -> bool:
        """An answer that was accepted has been judged already."""
        if score.accepted:
            return bool(score.before)
        return await self.judges.is_right(item, answer)

    def _request(self, item: Item, max_usd: float | None = None) -> RunRequest:
        return RunRequest(
            question=item.question,
            strategy=STRATEGY,
            max_seconds=self.max_seconds,
            max_usd=max_usd,
        )


def _planned(plan: Plan) -> Mapping[str, object]:
    return {
        "workers": tuple(step.worker for step in plan.steps),
        "access": tuple(plan.reads(number) for number in plan.numbers),
        "subtasks": tuple(step.subtask for step in plan.steps),
    }


def _mark(*content: str) -> str:
    """The mark of a run's fences, from what the run is about and not by chance.

    A later round's prompt shows it, and a job that goes on has to be asked the very same.
    """
    return hashlib.sha256("\0".join(content).encode()).hexdigest()[:12]


def _price(results: Sequence[StepResult], pool: Pool) -> float | None:
    """What steps cost at the prices of their workers' cards; None where one is unknown."""
    total = 0.0
    for result in results:
        price = pool.get(result.worker).card.price
        if price is None:
            return None
        total += price.cost(result.usage)
    return total


def _since(before: Outcome | None, usage: Usage) -> Usage:
    """What of a run's *usage* is of its newest round."""
    if before is None:
        return usage
    counts = ("input_tokens", "cached_tokens", "output_tokens", "reasoning_tokens")
    left = {name: getattr(usage, name) - getattr(before.usage, name) for name in counts}
    spent, known = usage.cost_usd, before.usage.cost_usd
    cost = None if spent is None or known is None else max(0.0, spent - known)
    return Usage(**left, cost_usd=cost)


def _as_planned(results: Iterable[StepResult]) -> bool:
    """Whether each step was done by the worker that the plan gave it to."""
    return all(result.worker == result.planned_worker for result in results)


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


def cut_by_money(run: Run, results: Iterable[StepResult], pool: Pool) -> str:
    """Which step's reply ended early since the run's part of the money left no room; else empty."""
    for result in results:
        is_short = result.finish_reason == "length" and run.request.max_usd is not None
        if is_short and result.usage.output_tokens < reply_limit(pool.get(result.worker).card):
            return (
                f"step {result.number}, {result.worker}: its reply was cut, since what is left of "
                "max_usd pays for no longer one."
            )
    return ""


def shuffled(pool: Pool, names: Sequence[str]) -> Pool:
    """The pool with only the workers *names*, in that order: what one rollout may use.

    Raises:
        PoolSelectionError: an unknown name, or none.
    """
    chosen = pool.allowed(workers=names)
    return replace(chosen, workers=tuple(chosen.get(name) for name in names))
