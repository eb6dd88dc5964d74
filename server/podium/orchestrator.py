"""The one loop: propose, execute, again, until the policy accepts. Knows nothing of MCP.

Starting and going on are the same: the run is replayed from the ledger, finished steps are not
called again, and the loop continues from where the record ends.
"""

import math
import secrets
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace

import anyio

from podium.admission import Admission
from podium.calls import Caller, Purpose
from podium.ending import Ending, save
from podium.errors import (
    LeaseLostError,
    LimitError,
    PodiumError,
    PoolError,
    QuestionError,
    RunError,
)
from podium.executor import Execution, Nest, NestedAnswer, is_done
from podium.flow import dependents
from podium.inputs import told_apart
from podium.leases import Lease
from podium.nesting import Children, nested_request
from podium.paid import paid_replies, prompt_sha
from podium.plan import Accept, Plan, Proposal
from podium.policy import Paced, Policy, State
from podium.store import Store
from podium.trace import (
    Event,
    Failure,
    Observer,
    Round,
    Run,
    RunRequest,
    StepResult,
)
from podium_workers.errors import WorkerError
from podium_workers.pool import Pool
from podium_workers.worker import ModelSettings, Prompt, Reply


@dataclass(frozen=True)
class Orchestrator:
    """Answers questions with a pool, a ledger and policies by name."""

    store: Store
    pool: Pool
    caller: Caller
    policies: Mapping[str, Policy]

    def held(self, lease: Lease) -> "Orchestrator":
        """This orchestrator for the holder of *lease*: once that is lost, it can write no more."""
        store = self.store.held(lease)
        return replace(self, store=store, caller=replace(self.caller, store=store))

    async def create(
        self, request: RunRequest, *, principal: str, parent_id: str | None = None
    ) -> Run:
        """Check a request and store it as a run, before anything is paid.

        Raises:
            QuestionError, PoolError, RunError: the request cannot be done as it is.
        """
        run = await self.prepare(request, principal=principal, parent_id=parent_id)
        await self.store.create_run(run)
        return run

    async def prepare(
        self, request: RunRequest, *, principal: str, parent_id: str | None = None
    ) -> Run:
        """Check a request and make it a run that is not stored yet.

        Raises:
            QuestionError, PoolError, RunError: the request cannot be done as it is.
        """
        if request.strategy not in self.policies:
            known = ", ".join(sorted(self.policies))
            unset = " 'trinity' needs the setting coordinator." * (request.strategy == "trinity")
            raise QuestionError(
                "strategy", f"{request.strategy!r} is unknown; use one of {known}.{unset}"
            )
        pool = self.allowed(request)
        self._admission.check_size(request)
        request = await self._with_earlier(request, principal)
        if isinstance(policy := self.policies[request.strategy], Paced):
            request = request.model_copy(update={"rounds": policy.rounds})
        request = request.model_copy(update={"files": told_apart(request.files)})
        # An unguessable id, of which the first six characters will mostly do; a fence; a seed.
        random = secrets.token_bytes(8 + 6 + 4)
        return Run(
            run_id=random[:8].hex(),
            principal=principal,
            request=request,
            pool=pool.cards,
            planner=pool.planner.card if pool.planner else None,
            fence=random[8:14].hex(),
            seed=int.from_bytes(random[14:]) & (2**31 - 1),
            status="planned",
            created_at=time.time(),
            parent_id=parent_id,
        )

    async def plan(self, run: Run, observer: Observer) -> Round:
        """The first plan of a run, without executing it; the recorded one if there is one.

        Raises:
            PodiumError: no plan could be made; the run is stored as failed.
        """
        rounds = await self.store.rounds(run.run_id)
        if rounds:
            return rounds[0]
        try:
            async with self.timed(run):
                return await self._propose(run, (), observer, deadline_of(run))
        except (PodiumError, WorkerError) as error:
            await self._ending(run, observer).failed(await self.store.run(run.run_id), error)
            raise _as_podium(error) from error

    @asynccontextmanager
    async def timed(self, run: Run) -> AsyncGenerator[None]:
        """Count the time of work that does not carry the run to its end."""
        now, current = time.time(), await self.store.run(run.run_id)
        await save(self.store, current, resumed_at=now, started_at=current.started_at or now)
        try:
            yield
        finally:
            with anyio.CancelScope(shield=True), suppress(LeaseLostError):
                current = await self.store.run(run.run_id)
                await save(self.store, current, status=current.status)

    async def answer(self, run: Run, observer: Observer, *, deadline: float | None = None) -> Run:
        """Carry a run on to its answer, or to where outside help is needed.

        *deadline* is that of the run which this one is a step of; else it has its own.

        A failure is stored and returned as the run's status, not raised. Cancelled, the run is
        stored as `interrupted` and can be carried on later.
        """
        deadline = deadline_of(run) if deadline is None else deadline
        now, ending = time.time(), self._ending(run, observer)
        try:
            run = await save(
                self.store,
                run,
                status="running",
                started_at=run.started_at or now,
                resumed_at=now,
                finished_at=None,
                error=None,
                limit=None,
            )
            with anyio.move_on_at(deadline):
                return await self._loop(run, observer, deadline)
            return await ending.partial(run, _out_of_time(run))
        except LeaseLostError:
            raise
        except LimitError as error:
            return await ending.partial(run, error)
        except (PodiumError, WorkerError) as error:
            if anyio.current_time() >= deadline:
                return await ending.partial(run, _out_of_time(run))
            return await ending.failed(run, error)
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True), suppress(LeaseLostError):
                current = await self.store.run(run.run_id)
                if current.status == "running":  # not if somebody took it over and finished it
                    await save(self.store, current, status="interrupted", finished_at=time.time())
            raise

    async def _loop(self, run: Run, observer: Observer, deadline: float) -> Run:
        rounds = await self._with_failed_stale(run, await self.store.rounds(run.run_id))
        broken: dict[str, Failure] = {}
        while True:
            if rounds and run.request.waits_for_approval:
                waits = "the plan waits for the user's yes"
                await observer(Event(kind="waiting", run_id=run.run_id, text=waits))
                return await save(self.store, run, status="planned", notes=())
            unfinished = next((n for n, found in enumerate(rounds) if _pending(found)), None)
            if unfinished is not None:
                execution = self.execution(run, rounds, unfinished, observer, deadline, broken)
                if await execution.run_pending():
                    return await save(self.store, run, status="needs_caller")
                rounds = tuple(_with_results(found, execution.done) for found in rounds)
            elif rounds and isinstance(rounds[-1].proposal.next, Accept):
                return await self._ending(run, observer).accepted(run, rounds)
            else:
                rounds = (*rounds, await self._propose(run, rounds, observer, deadline))

    async def _with_failed_stale(self, run: Run, rounds: tuple[Round, ...]) -> tuple[Round, ...]:
        """A step that failed when the run was last worked on is tried again.

        Not if a finished step was done without it: that one would have to be paid again.
        """
        plans = [found.plan for found in rounds if found.plan]
        results = [result for found in rounds for result in found.results]
        finished = {result.number for result in results if result.finished}
        failed = [
            result.number
            for result in results
            if result.status == "failed" and finished.isdisjoint(dependents(plans, result.number))
        ]
        if not failed:
            return rounds
        await self.store.mark_stale(run.run_id, failed)
        return await self.store.rounds(run.run_id)

    async def _propose(
        self, run: Run, rounds: tuple[Round, ...], observer: Observer, deadline: float
    ) -> Round:
        number = len(rounds)
        pool = self.allowed(run.request)
        state = State(run.request, pool, run.fence, run.seed, rounds)
        purpose = Purpose.of(run, number, again=True)
        paid = await paid_replies(self.store, run.run_id, number)

        async def ask(name: str, prompt: Prompt, settings: ModelSettings) -> Reply:
            if before := paid.get((name, prompt_sha(prompt))):
                return before
            worker = pool.get(name)
            return await self.caller.ask(worker, prompt, settings, purpose, deadline=deadline)

        await observer(Event(kind="planning", run_id=run.run_id, text=f"planning round {number}"))
        proposal = await self.policies[run.request.strategy].propose(state, ask)
        # What is accepted is durable with the answer, which comes next.
        is_plan = isinstance(proposal.next, Plan)
        await self.store.save_round(run.run_id, number, proposal, wait=is_plan)
        await observer(_told(run, proposal))
        return Round(number=number, proposal=proposal)

    def execution(
        self,
        run: Run,
        rounds: tuple[Round, ...],
        number: int,
        observer: Observer,
        deadline: float,
        broken: dict[str, Failure] | None = None,
    ) -> Execution:
        """The plan of round *number*, ready to be carried out.

        *broken* is shared by the rounds of one piece of work: workers not to be asked again.
        """
        plan = rounds[number].plan
        assert plan is not None, "only a round with a plan can be executed"
        return Execution(
            run=run,
            plan=plan,
            round=number,
            pool=self.allowed(run.request),
            caller=self.caller,
            store=self.store,
            nest=self._nested(observer),
            observer=observer,
            deadline=deadline,
            done={result.number: result for found in rounds for result in found.results},
            broken={} if broken is None else broken,
        )

    def _nested(self, observer: Observer) -> Nest:
        """The conductor as its own worker: a run of its own, one level less deep."""

        async def create(request: RunRequest, parent: Run) -> Run:
            return await self.create(request, principal=parent.principal, parent_id=parent.run_id)

        children = Children(self.store, create)

        async def nest(parent: Run, question: str, deadline: float) -> NestedAnswer:
            child = await children.take(parent, nested_request(parent, question))
            if child.status != "finished":
                child = await self.answer(child, observer, deadline=deadline)
            if child.answer is None:
                why = child.error.message if child.error else "The nested run gave nothing."
                raise LimitError(child.limit, why) if child.limit else PoolError(why)
            note = child.notes[0] if child.status == "partial" else ""
            return NestedAnswer(run_id=child.run_id, text=child.answer, note=note)

        return nest

    def _ending(self, run: Run, observer: Observer) -> Ending:
        return Ending(self.store, observer, self._admission.left_out(run.request))

    @property
    def _admission(self) -> Admission:
        return Admission(self.pool, money_is_limited=self.caller.day_usd is not None)

    def allowed(self, request: RunRequest) -> Pool:
        """The workers that a request allows.

        Raises:
            PoolError: an unknown name, or nothing left.
        """
        return self._admission.allowed(request)

    def has_pool_of(self, run: Run) -> bool:
        """Whether this process has the workers that a run was made for, and their keys."""
        return self._admission.has_pool_of(run)

    async def _with_earlier(self, request: RunRequest, principal: str) -> RunRequest:
        if request.follow_up is None:
            return request
        try:
            before = await self.store.run(request.follow_up, principal=principal)
        except RunError as error:
            raise QuestionError("follow_up", str(error)) from None
        if before.answer is None:
            raise QuestionError("follow_up", f"run {before.run_id} has no answer to follow up.")
        exchange = f"{before.request.question}\n\nAnswer: {before.answer}"
        earlier = f"{before.request.earlier}\n\nQuestion: {exchange}".strip()
        return request.model_copy(update={"earlier": earlier, "follow_up": before.run_id})


def deadline_of(run: Run) -> float:
    """When work that starts now has to end, on `anyio.current_time()`'s clock.

    What was worked on the run before counts; the time that it stood still does not.
    """
    limit = run.request.max_seconds
    return math.inf if limit is None else anyio.current_time() + limit - run.worked_s


def _out_of_time(run: Run) -> LimitError:
    limit = run.request.max_seconds or 0.0
    text = f"The limit of {limit:g} seconds struck. Raise max_seconds to go on."
    return LimitError("seconds", text)


def _pending(found: Round) -> bool:
    """Whether a round's plan has steps that were not done or are stale."""
    if found.plan is None:
        return False
    done = {result.number for result in found.results if is_done(result)}
    return any(number not in done for number in found.plan.numbers)


def _with_results(found: Round, done: Mapping[int, StepResult]) -> Round:
    """A round with the newest results of its steps."""
    own = sorted(number for number, result in done.items() if result.round == found.number)
    return found.model_copy(update={"results": tuple(done[number] for number in own)})


def _told(run: Run, proposal: Proposal) -> Event:
    if isinstance(proposal.next, Plan):
        count = len(proposal.next.steps)
        text = f"plan of {count} step{'s' if count > 1 else ''} ({proposal.source})"
        return Event(kind="plan", run_id=run.run_id, text=text, plan=proposal.next)
    return Event(kind="accepted", run_id=run.run_id, text="accepted", step=proposal.next.step)


def _as_podium(error: PodiumError | WorkerError) -> PodiumError:
    return error if isinstance(error, PodiumError) else PoolError(str(error))
