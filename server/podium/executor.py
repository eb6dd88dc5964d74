"""Carries out a plan: every step as soon as the steps that it reads are done.

The order is the plan's data, an event for each step; nothing else schedules. One worker's failure
falls back to another worker and is recorded; it never sinks steps that have finished.
"""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import anyio

from podium.calls import Caller, Purpose, failure
from podium.errors import LeaseLostError, LimitError, PodiumError, StoreError
from podium.material import material
from podium.paid import paid_reply
from podium.plan import CALLER, PODIUM, Plan
from podium.prompting import prompt_hash, unfenced
from podium.store import Store, text_hash
from podium.trace import Event, EventKind, Failure, Observer, Run, RunRequest, StepResult, Waiting
from podium.window import fit_to, prompt_budget, reply_limit
from podium_workers.errors import WorkerError
from podium_workers.pool import Pool
from podium_workers.worker import ModelSettings, Prompt, Worker, WorkerCard

LASTING = frozenset({"authentication", "out_of_credit", "unknown_model", "model_file"})
"""Codes of failures that will not mend during a run: such a worker is not asked again."""


MOST_FAILURES = 3
"""Steps of one run on which a worker may fail before it is not asked any more."""
_WORN_OUT = "worn_out"


@dataclass(frozen=True)
class NestedAnswer:
    """What a nested run gave."""

    run_id: str
    text: str
    note: str = ""
    """What the reader has to know of how it came."""


Nest = Callable[[Run, str, float], Awaitable[NestedAnswer]]
"""Answers a question as a child of the given run before the deadline; raises PodiumError."""


def too_many_steps(request: RunRequest) -> LimitError:
    """The error of a run that may not be given another step."""
    text = f"The limit of {request.max_steps} steps struck. Raise max_steps to go on."
    return LimitError("steps", text)


def is_done(result: StepResult | None) -> bool:
    """Whether a step has ended, well or badly, and is not stale."""
    return result is not None and result.status in ("finished", "failed")


@dataclass(frozen=True)
class Execution:
    """One plan of one run being carried out."""

    run: Run
    plan: Plan
    round: int
    pool: Pool
    caller: Caller
    store: Store
    nest: Nest
    observer: Observer
    deadline: float
    done: dict[int, StepResult]
    """Newest result of every step of the run so far, by number; grows while steps finish."""
    broken: dict[str, Failure] = field(default_factory=dict[str, Failure])
    """Workers that failed in a lasting way since work on this run began, and how."""

    async def run_pending(self) -> tuple[Waiting, ...]:
        """Run every step that is not done; return what outside help is waited for.

        A step that fails is a result like any other, and done. When a limit strikes, steps at
        work are finished and no others begun.

        Raises:
            LimitError: a limit has struck, of time as of money, tokens or steps.
            LeaseLostError: another process has taken the run over.
            StoreError: a result could not be recorded.
        """
        settled = {number: anyio.Event() for number in self.plan.numbers}
        blocked: set[int] = set()
        waiting: list[Waiting] = []
        limits: list[LimitError] = []

        async def when_ready(number: int) -> None:
            reads = self.plan.reads(number)
            for read in reads:
                if read in settled:
                    await settled[read].wait()
            if limits or not blocked.isdisjoint(reads):
                blocked.add(number)
            else:
                try:
                    outcome = await self.run_step(number)
                except LimitError as limit:
                    limits.append(limit)
                    blocked.add(number)
                else:
                    if isinstance(outcome, Waiting):
                        waiting.append(outcome)
                        blocked.add(number)
            settled[number].set()

        faults: list[PodiumError] = []
        try:
            async with anyio.create_task_group() as group:
                for number in self.plan.numbers:
                    if is_done(self.done.get(number)):
                        settled[number].set()
                    else:
                        group.start_soon(when_ready, number)
        except* PodiumError as failed:
            faults += [fault for fault in failed.exceptions if isinstance(fault, PodiumError)]
        for raised in (*faults, *limits):
            raise raised
        return tuple(waiting)

    async def run_step(self, number: int) -> StepResult | Waiting:
        """Run one step whose reads are done: by its worker, else by the next one that can."""
        most = self.run.request.max_steps
        if most is not None and number >= most:
            raise too_many_steps(self.run.request)
        blank = self._blank(number)
        if paid := await self._recorded(number, blank):
            return paid
        if blank.planned_worker == CALLER:
            if number not in self.done or self.done[number].status != "waiting":
                await self._keep(blank.model_copy(update={"status": "waiting"}))
            await self._tell("waiting", f"step {number} waits for the caller", number)
            return Waiting(kind="caller", step=number, ask=blank.subtask)
        reads = self.plan.reads(number)
        if reads and not any(self._finished(read) for read in reads):
            nothing = Failure(
                worker=blank.worker, code="no_input", message="None of the steps it reads finished."
            )
            return await self._failed(blank, (nothing,))
        return await self._by_someone(blank)

    async def _recorded(self, number: int, blank: StepResult) -> StepResult | None:
        """The step with a reply that was paid before work on it broke off, if there is one."""
        before = self.done.get(number)
        if before is None or before.status not in _BROKEN_OFF or not _is_same(before, blank):
            return None
        if not (paid := await paid_reply(self.store, self.run.run_id, number, before.version)):
            return None
        call, reply = paid
        finished = before.model_copy(
            update={
                "worker": call.worker,
                "status": "finished",
                "reply": unfenced(reply.text, self.run.fence),
                "finish_reason": reply.finish_reason,
                "note": reply.note,
                "usage": reply.usage,
                "seconds": call.seconds,
            }
        )
        await self._keep(finished)
        await self._tell("step_finished", finished.reply, number, finished.worker, finished)
        return finished

    async def take_result(self, number: int, result: str) -> StepResult:
        """Record what the caller did for a step as that step's reply."""
        taken = self._blank(number).model_copy(
            update={"worker": CALLER, "status": "finished", "reply": result}
        )
        await self._keep(taken)
        await self._tell("step_finished", result, number, CALLER, taken)
        return taken

    async def _by_someone(self, blank: StepResult) -> StepResult:
        failures: list[Failure] = []
        planned = blank.planned_worker
        for name in (planned, *(name for name in self.pool.names if name != planned)):
            if anyio.current_time() >= self.deadline:
                failures.append(_late(name))
                break
            if reason := self._passed_over(name):
                failures.append(reason)
                continue
            try:
                return await self._by(name, blank, tuple(failures))
            except WorkerError as error:
                failures.append(failure(name, error))
                if error.code in LASTING:
                    self.broken[name] = failures[-1]
            except (StoreError, LimitError, LeaseLostError):
                raise
            except PodiumError as error:
                failures.append(Failure(worker=name, code=error.code, message=str(error)))
            await self._tell("fallback", failures[-1].message, blank.number, name)
        return await self._failed(blank, tuple(failures))

    def _passed_over(self, name: str) -> Failure | None:
        """Why a worker is not even asked: it is broken, or the pool has changed since the plan."""
        if name in (PODIUM, *self.pool.names):
            return self.broken.get(name) or self._worn_out(name)
        return Failure(worker=name, code="pool", message="It is not in the pool any more.")

    def _worn_out(self, name: str) -> Failure | None:
        """Why a worker that has failed again and again is not asked any more in this run."""
        failed = [
            found
            for result in self.done.values()
            for found in result.failures
            if found.worker == name and found.code != _WORN_OUT and result.status != "stale"
        ]
        if len(failed) < MOST_FAILURES:
            return None
        text = f"It has failed {len(failed)} times in this run, the last time: {failed[-1].message}"
        return Failure(worker=name, code=_WORN_OUT, message=text)

    async def _by(self, name: str, blank: StepResult, failures: tuple[Failure, ...]) -> StepResult:
        worker = None if name == PODIUM else self.pool.get(name)
        card = worker.card if worker else self.pool.cards[0]
        ratio = self._ratio(card, blank)
        shown = material(self.run, self.plan, blank.number, self.done)
        # A nested run puts this prompt, whole, into prompts of its own.
        budget = prompt_budget(card) if worker else prompt_budget(card) // 2
        fitted = fit_to(shown, card, budget, ratio)
        # Writing to a provider's cache costs more than reading from it saves on one prompt.
        shared = fitted.shared if worker and self._has_more_steps(name) else 0
        prompt = Prompt.of(fitted.text, system=card.role if worker else "", shared_prefix=shared)
        stored = prompt.model_dump_json()
        started = anyio.current_time()
        running = blank.model_copy(
            update={
                "worker": name,
                "failures": failures,
                "cuts": fitted.cuts,
                "template": prompt_hash("worker"),
                "final": shown.final,
                "window": (fitted.budget, ratio),
                "prompt": text_hash(stored),
                "started_at": time.time(),
            }
        )
        try:
            # Durable with the record of the first call, which comes next.
            await self._keep(running, stored, wait=worker is None)
            place = self.caller.queue_of(worker.card) if worker else 0
            queued = f"place {place} in the queue of {name}: " if place else ""
            await self._tell("step_started", queued + blank.subtask, blank.number, name)
            gained = await (
                self._reply(worker, prompt, running) if worker else self._nested(fitted.text)
            )
        except (LimitError, anyio.get_cancelled_exc_class()):
            with anyio.CancelScope(shield=True):
                await self._keep(running.model_copy(update={"status": "stopped"}))
            raise
        seconds = anyio.current_time() - started
        finished = running.model_copy(update=gained | {"status": "finished", "seconds": seconds})
        await self._keep(finished)
        await self._tell("step_finished", finished.reply, blank.number, running.worker, finished)
        return finished

    def _has_more_steps(self, name: str) -> bool:
        """Whether a worker does several steps whose replies do not go to the user."""
        inner = [step for number, step in self.plan.numbered() if number != self.plan.numbers[-1]]
        return sum(step.worker == name for step in inner) > 1

    def _ratio(self, card: WorkerCard, blank: StepResult) -> float:
        """Tokens per estimated token: as recorded, where the step is begun again as it was."""
        before = self.done.get(blank.number)
        if before and before.window and before.worker == card.name and _is_same(before, blank):
            return before.window[1]
        return self.caller.tokens_per_estimate(card)

    async def _reply(
        self, worker: Worker, prompt: Prompt, running: StepResult
    ) -> dict[str, object]:
        settings = ModelSettings(
            max_output_tokens=reply_limit(worker.card), seed=self.run.seed + running.number
        )
        purpose = Purpose.of(self.run, self.round, step=running.number, version=running.version)
        reply = await self.caller.ask(worker, prompt, settings, purpose, deadline=self.deadline)
        return {
            "reply": unfenced(reply.text, self.run.fence),
            "finish_reason": reply.finish_reason,
            "note": reply.note,
            "usage": reply.usage,
        }

    async def _nested(self, question: str) -> dict[str, object]:
        answer = await self.nest(self.run, question, self.deadline)
        usage = await self.store.usage(answer.run_id)
        nested: dict[str, object] = {"nested_run": answer.run_id, "usage": usage}
        return nested | {"reply": answer.text, "note": answer.note}

    async def _failed(self, blank: StepResult, failures: tuple[Failure, ...]) -> StepResult:
        failed = blank.model_copy(update={"status": "failed", "failures": failures})
        await self._keep(failed)
        why = "; ".join(f"{found.worker}: {found.message}" for found in failures)
        await self._tell("step_failed", why, blank.number, blank.worker)
        return failed

    def _blank(self, number: int) -> StepResult:
        step = self.plan.step(number)
        before = self.done.get(number)
        return StepResult(
            number=number,
            version=before.version + 1 if before else 0,
            round=self.round,
            worker=step.worker,
            planned_worker=step.worker,
            subtask=step.subtask,
            access=step.access,
            status="running",
        )

    def _finished(self, number: int) -> bool:
        return number in self.done and self.done[number].finished

    async def _keep(self, result: StepResult, *texts: str, wait: bool = True) -> None:
        await self.store.save_step(self.run.run_id, result, texts, wait=wait)
        self.done[result.number] = result

    async def _tell(
        self,
        kind: EventKind,
        text: str,
        step: int,
        worker: str | None = None,
        result: StepResult | None = None,
    ) -> None:
        event = Event(
            kind=kind,
            run_id=self.run.run_id,
            text=text,
            step=step,
            worker=worker,
            usage=result.usage if result else None,
            seconds=result.seconds if result else None,
        )
        await self.observer(event)


_BROKEN_OFF = ("running", "stopped")
"""What a step is left as when work on it ends without a result."""


def _is_same(before: StepResult, blank: StepResult) -> bool:
    """Whether a step is asked for as it was before."""
    return (before.planned_worker, before.subtask, before.access) == (
        blank.planned_worker,
        blank.subtask,
        blank.access,
    )


def _late(name: str) -> Failure:
    return Failure(
        worker=name, code="timeout", message="The time limit struck before it was asked."
    )
