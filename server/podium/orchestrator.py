"""The one loop: propose, execute, again, until the policy accepts. Knows nothing of MCP.

Starting and going on are the same: the run is replayed from the ledger, finished steps are not
called again, and the loop continues from where the record ends.
"""

import math
import secrets
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio

from podium.calls import Caller, Purpose
from podium.errors import PodiumError, PoolError, QuestionError, RunError
from podium.executor import Execution, Nest, NestedAnswer, is_done
from podium.flow import dependents
from podium.inputs import told_apart
from podium.plan import Accept, Plan, Proposal
from podium.policy import Policy, State
from podium.receipt import notes
from podium.store import Store
from podium.tokens import estimate_tokens
from podium.trace import (
    Event,
    Failure,
    Observer,
    Round,
    Run,
    RunRequest,
    StepResult,
    seconds_of,
)
from podium.window import prompt_budget
from podium_workers.errors import PoolSelectionError, WorkerError
from podium_workers.pool import Pool
from podium_workers.worker import ModelSettings, Prompt, Reply

_AROUND = 200
"""Tokens that instructions and a subtask take around a question."""
_LONGEST_TOKEN = 16
"""Characters that a token has at most, on the average of any text."""


@dataclass(frozen=True)
class Orchestrator:
    """Answers questions with a pool, a ledger and policies by name."""

    store: Store
    pool: Pool
    caller: Caller
    policies: Mapping[str, Policy]

    async def create(
        self, request: RunRequest, *, principal: str, parent_id: str | None = None
    ) -> Run:
        """Check a request and store it as a run, before anything is paid.

        Raises:
            QuestionError, PoolError, RunError: the request cannot be done as it is.
        """
        if request.strategy not in self.policies:
            known = ", ".join(sorted(self.policies))
            raise QuestionError("strategy", f"{request.strategy!r} is unknown; use one of {known}.")
        pool = self.allowed(request)
        _check_size(request, pool)
        request = await self._with_earlier(request, principal)
        request = request.model_copy(update={"files": told_apart(request.files)})
        run = Run(
            run_id=_new_id(),
            principal=principal,
            request=request,
            pool=pool.cards,
            fence=secrets.token_hex(6),
            seed=secrets.randbelow(2**31),
            status="planned",
            created_at=time.time(),
            parent_id=parent_id,
        )
        await self.store.create_run(run)
        return run

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
                return await self._propose(run, (), observer, deadline_of(run.request))
        except (PodiumError, WorkerError) as error:
            await self._failed(await self.store.run(run.run_id), error, observer)
            raise _as_podium(error) from error

    @asynccontextmanager
    async def timed(self, run: Run) -> AsyncGenerator[None]:
        """Count the time of work that does not carry the run to its end."""
        now, current = time.time(), await self.store.run(run.run_id)
        await self._save(current, resumed_at=now, started_at=current.started_at or now)
        try:
            yield
        finally:
            with anyio.CancelScope(shield=True):
                current = await self.store.run(run.run_id)
                await self._save(current, status=current.status)

    async def answer(self, run: Run, observer: Observer) -> Run:
        """Carry a run on to its answer, or to where outside help is needed.

        A failure is stored and returned as the run's status, not raised. Cancelled, the run is
        stored as `interrupted` and can be carried on later.
        """
        deadline = deadline_of(run.request)
        now = time.time()
        try:
            run = await self._save(
                run,
                status="running",
                started_at=run.started_at or now,
                resumed_at=now,
                finished_at=None,
                error=None,
            )
            with anyio.move_on_at(deadline):
                return await self._loop(run, observer, deadline)
            return await self._partial(run, observer)
        except (PodiumError, WorkerError) as error:
            if anyio.current_time() >= deadline:
                return await self._partial(run, observer)
            return await self._failed(run, error, observer)
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                current = await self.store.run(run.run_id)
                if current.status == "running":  # not if somebody took it over and finished it
                    await self._save(current, status="interrupted", finished_at=time.time())
            raise

    async def _loop(self, run: Run, observer: Observer, deadline: float) -> Run:
        await self._retry_failed(run)
        broken: dict[str, Failure] = {}
        while True:
            rounds = await self.store.rounds(run.run_id)
            unfinished = next((n for n, found in enumerate(rounds) if _pending(found)), None)
            if unfinished is not None:
                execution = self.execution(run, rounds, unfinished, observer, deadline, broken)
                if await execution.run_pending():
                    return await self._save(run, status="needs_caller")
            elif rounds and isinstance(rounds[-1].proposal.next, Accept):
                return await self._accepted(run, rounds, observer)
            else:
                await self._propose(run, rounds, observer, deadline)

    async def _retry_failed(self, run: Run) -> None:
        """A step that failed when the run was last worked on is tried again.

        Not if a finished step was done without it: that one would have to be paid again.
        """
        rounds = await self.store.rounds(run.run_id)
        plans = [found.plan for found in rounds if found.plan]
        results = [result for found in rounds for result in found.results]
        finished = {result.number for result in results if result.finished}
        failed = [
            result.number
            for result in results
            if result.status == "failed" and finished.isdisjoint(dependents(plans, result.number))
        ]
        await self.store.mark_stale(run.run_id, failed)

    async def _propose(
        self, run: Run, rounds: tuple[Round, ...], observer: Observer, deadline: float
    ) -> Round:
        number = len(rounds)
        pool = self.allowed(run.request)
        state = State(run.request, pool, run.fence, run.seed, rounds)

        async def ask(name: str, prompt: Prompt, settings: ModelSettings) -> Reply:
            purpose = Purpose(run.run_id, number)
            return await self.caller.ask(
                pool.get(name), prompt, settings, purpose, deadline=deadline
            )

        await observer(Event(kind="planning", run_id=run.run_id, text=f"planning round {number}"))
        proposal = await self.policies[run.request.strategy].propose(state, ask)
        await self.store.save_round(run.run_id, number, proposal)
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
        children = _Children(self)

        async def nest(parent: Run, question: str, deadline: float) -> NestedAnswer:
            left = deadline - anyio.current_time()
            changes: dict[str, object] = {
                "question": question,
                "files": (),
                "earlier": "",
                "follow_up": None,
                "depth": parent.request.depth - 1,
                "max_seconds": None if math.isinf(left) else max(left, 0.001),
            }
            child = await children.take(parent, parent.request.model_copy(update=changes))
            if child.status != "finished":
                child = await self.answer(child, observer)
            if child.answer is None:
                raise PoolError(
                    child.error.message if child.error else "The nested run gave nothing."
                )
            return NestedAnswer(run_id=child.run_id, text=child.answer)

        return nest

    # How a run ends.

    async def _accepted(self, run: Run, rounds: tuple[Round, ...], observer: Observer) -> Run:
        proposal = rounds[-1].proposal.next
        assert isinstance(proposal, Accept), "only called when the policy has accepted"
        best = _best(rounds, proposal.step)
        if best is None:
            raise PoolError(_why_nothing(rounds))
        run = await self._save(
            run,
            status="finished",
            answer=best.reply,
            answer_step=best.number,
            notes=notes(rounds, best),
            error=None,
            finished_at=time.time(),
        )
        await observer(Event(kind="finished", run_id=run.run_id, text=best.reply, step=best.number))
        return run

    async def _partial(self, run: Run, observer: Observer) -> Run:
        """The time limit struck: the best answer so far, or a failure when there is none."""
        rounds = await self.store.rounds(run.run_id)
        limit = f"The limit of {run.request.max_seconds or 0:g} seconds struck"
        best = _best(rounds, None)
        if best is None:
            error = RunError(f"{limit} before any step had finished.")
            return await self._failed(run, error, observer)
        planned = sum(len(found.plan.steps) for found in rounds if found.plan)
        finished = sum(result.finished for found in rounds for result in found.results)
        left = planned - finished
        undone = "1 planned step was" if left == 1 else f"{left} planned steps were"
        note = f"{limit}; {undone} not done. This is the best answer so far."
        run = await self._save(
            run,
            status="partial",
            answer=best.reply,
            answer_step=best.number,
            notes=(note, *notes(rounds, best)),
            finished_at=time.time(),
        )
        await observer(Event(kind="finished", run_id=run.run_id, text=note, step=best.number))
        return run

    async def _failed(self, run: Run, error: PodiumError | WorkerError, observer: Observer) -> Run:
        status = error.status if isinstance(error, WorkerError) else None
        why = Failure(worker="", code=error.code, message=str(error), status=status)
        run = await self._save(run, status="failed", error=why, finished_at=time.time())
        await observer(Event(kind="failed", run_id=run.run_id, text=str(error)))
        return run

    async def _save(self, run: Run, **changes: object) -> Run:
        """Store a changed run. Unless it is set to run, its clock stands still from now on."""
        if "resumed_at" not in changes:
            worked = seconds_of(run.worked_s, run.resumed_at, time.time())
            changes |= {"worked_s": worked, "resumed_at": None}
        run = run.model_copy(update=changes)
        await self.store.save_run(run)
        return run

    def allowed(self, request: RunRequest) -> Pool:
        """The workers that a request allows.

        Raises:
            PoolError: an unknown name, or nothing left.
        """
        try:
            pool = self.pool.allowed(
                workers=request.workers, exclude=request.exclude, local_only=request.local_only
            )
        except PoolSelectionError as error:
            raise PoolError(str(error)) from None
        if request.conductor and request.conductor not in pool.names:
            allowed = ", ".join(pool.names)
            raise PoolError(
                f"conductor: {request.conductor!r} is not in this run's pool; it has {allowed}."
            )
        return pool

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


@dataclass(frozen=True)
class _Children:
    """The nested runs of one plan: each step has its own, also when their questions are alike."""

    orchestrator: Orchestrator
    _taken: set[str] = field(default_factory=set[str])
    _one_at_a_time: anyio.Lock = field(default_factory=anyio.Lock)
    """Held between looking for a nested run and having taken it."""

    async def take(self, parent: Run, request: RunRequest) -> Run:
        """A nested run that was begun, or even paid, but never used; else a new one."""
        async with self._one_at_a_time:
            child = await self._left_over(parent, request) or await self.orchestrator.create(
                request, principal=parent.principal, parent_id=parent.run_id
            )
            self._taken.add(child.run_id)
        return child

    async def _left_over(self, parent: Run, request: RunRequest) -> Run | None:
        store = self.orchestrator.store
        steps = await store.steps(parent.run_id, every_version=True)
        used = self._taken | {step.nested_run for step in steps}
        for child in await store.children(parent.run_id):
            if child.request.question == request.question and child.run_id not in used:
                return child.model_copy(update={"request": request})
        return None


def _new_id() -> str:
    """An unguessable id, of which the first six characters will mostly do."""
    return secrets.token_hex(8)


def deadline_of(request: RunRequest) -> float:
    """When work that starts now has to end, on `anyio.current_time()`'s clock."""
    return anyio.current_time() + (request.max_seconds or float("inf"))


def _check_size(request: RunRequest, pool: Pool) -> None:
    if not request.question.strip():
        raise QuestionError("question", "is empty; type what you want to know.")
    roomiest = max(pool.cards, key=prompt_budget)
    most = prompt_budget(roomiest) - min(_AROUND, prompt_budget(roomiest) // 2)
    # Counting millions of characters would hold up the other runs; no token is that long.
    certainly = len(request.question) // _LONGEST_TOKEN
    tokens = certainly if certainly > most else estimate_tokens(request.question)
    if tokens > most:
        raise QuestionError(
            "question",
            f"has about {tokens} tokens, but the roomiest worker ({roomiest.name}) takes {most}; "
            "shorten it, give the long part as a file, or use a worker with a larger window.",
        )


def _pending(found: Round) -> bool:
    """Whether a round's plan has steps that were not done or are stale."""
    if found.plan is None:
        return False
    done = {result.number for result in found.results if is_done(result)}
    return any(number not in done for number in found.plan.numbers)


def _best(rounds: Sequence[Round], accepted: int | None) -> StepResult | None:
    """The accepted step if it finished, else the newest finished step of the newest round."""
    finished = {
        result.number: result
        for found in rounds
        for result in found.results
        if result.finished and found.plan and result.number in found.plan.numbers
    }
    if accepted in finished:
        return finished[accepted]
    return finished[max(finished)] if finished else None


def _why_nothing(rounds: Sequence[Round]) -> str:
    failures = {
        f"{failed.worker}: {failed.message}"
        for found in rounds
        for result in found.results
        for failed in result.failures
    }
    return " ".join(["No step has finished.", *sorted(failures)])


def _told(run: Run, proposal: Proposal) -> Event:
    if isinstance(proposal.next, Plan):
        count = len(proposal.next.steps)
        text = f"plan of {count} step{'s' if count > 1 else ''} ({proposal.source})"
        return Event(kind="plan", run_id=run.run_id, text=text, plan=proposal.next)
    return Event(kind="accepted", run_id=run.run_id, text="accepted", step=proposal.next.step)


def _as_podium(error: PodiumError | WorkerError) -> PodiumError:
    return error if isinstance(error, PodiumError) else PoolError(str(error))
