"""Calling a worker on behalf of a run: every attempt stands in the ledger before and after.

`Caller` is the one way from planning and execution to a model. It implements the workers' `Call`
protocol, keeps each worker's number of parallel calls, holds the deadline, and learns how far the
token estimate is off for each worker.
"""

import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from uuid import uuid4

import anyio
from pydantic import JsonValue

from podium.store import Store
from podium.tokens import estimate_tokens
from podium.trace import CallRecord, Failure
from podium_workers.errors import SlowReplyError, WorkerError
from podium_workers.retry import reply_with_retry
from podium_workers.worker import ModelSettings, Prompt, Reply, Usage, Worker, WorkerCard

_BEFORE_GENERATION = frozenset(
    {
        "authentication", "out_of_credit", "rate_limited", "overloaded", "unreachable",
        "context_too_long", "unsupported_parameter", "unknown_model", "model_file",
    }
)  # fmt: skip
"""Failures that a provider does not bill, since it has generated nothing."""


@dataclass(frozen=True)
class Purpose:
    """What a call is for: a proposal of a round, or a version of a step."""

    run_id: str
    round: int
    step: int | None = None
    version: int | None = None


def failure(worker: str, error: WorkerError) -> Failure:
    """*error* as data, with the worker that it happened to."""
    return Failure(worker=worker, code=error.code, message=error.message, status=error.status)


@dataclass
class Caller:
    """Calls workers and keeps the record. One per process."""

    store: Store
    _limiters: dict[str, anyio.CapacityLimiter] = field(
        default_factory=dict[str, anyio.CapacityLimiter], init=False
    )
    _ratios: dict[str, float] = field(default_factory=dict[str, float], init=False)

    def tokens_per_estimate(self, card: WorkerCard) -> float:
        """Reported prompt tokens over estimated ones for this worker; 1 until it has reported."""
        return self._ratios.get(card.name, 1.0)

    async def keep(self, prompt: Prompt) -> str:
        """Store *prompt*; its hash."""
        return await self.store.put_text(prompt.model_dump_json())

    async def ask(
        self,
        worker: Worker,
        prompt: Prompt,
        settings: ModelSettings,
        purpose: Purpose,
        *,
        deadline: float = float("inf"),
    ) -> Reply:
        """The worker's reply, retried where that helps; recorded when this returns.

        Raises:
            WorkerError: no usable reply before the deadline.
        """
        card = worker.card
        limiter = self._limiters.setdefault(card.name, anyio.CapacityLimiter(card.parallel))
        call = LedgerCall(self.store, purpose, card, await self.keep(prompt), deadline)
        with anyio.move_on_at(deadline):
            async with limiter:
                reply = await reply_with_retry(worker, prompt, settings, call)
            self._learn(card, prompt, reply.usage)
            return reply
        raise SlowReplyError(
            f"{card.name!r} had not replied when the time limit of the run struck.", limit="total"
        )

    def _learn(self, card: WorkerCard, prompt: Prompt, usage: Usage) -> None:
        estimate = sum(estimate_tokens(message.text) for message in prompt.messages)
        if usage.input_tokens and estimate >= 100:
            ratio = min(4.0, max(0.5, usage.input_tokens / estimate))
            self._ratios[card.name] = round((self.tokens_per_estimate(card) + ratio) / 2, 3)


@dataclass(frozen=True)
class LedgerCall:
    """The `Call` of one reply, written to the ledger."""

    store: Store
    purpose: Purpose
    card: WorkerCard
    prompt: str
    deadline: float
    resume_id: str | None = None

    @asynccontextmanager
    async def attempt(self, request: Mapping[str, JsonValue]) -> AsyncGenerator["LedgerAttempt"]:
        started = time.time()
        record = CallRecord(
            call_id=uuid4().hex,
            run_id=self.purpose.run_id,
            round=self.purpose.round,
            step=self.purpose.step,
            version=self.purpose.version,
            worker=self.card.name,
            model=self.card.model,
            prompt=self.prompt,
            request=dict(request),
            started_at=started,
        )
        attempt = LedgerAttempt(self.store, self.card, record, anyio.current_time())
        try:
            await attempt.save()
            yield attempt
        except WorkerError as error:
            await attempt.end("failed", failure(self.card.name, error))
            raise
        finally:
            await attempt.end("stopped")


class LedgerAttempt:
    """One row of `calls`, from open to settled."""

    def __init__(self, store: Store, card: WorkerCard, record: CallRecord, started: float) -> None:
        self._store = store
        self._card = card
        self._record = record
        self._started = started

    async def sent(self, request_id: str) -> None:
        await self.save(request_id=request_id)

    async def usage(self, usage: Usage) -> None:
        await self.save(usage=usage)

    async def settle(self, reply: Reply) -> None:
        reasoning = await self._store.put_text(reply.reasoning) if reply.reasoning else None
        await self.save(
            status="finished",
            reply=await self._store.put_text(reply.text),
            reasoning=reasoning,
            served_by=reply.model,
            usage=reply.usage,
            finish_reason=reply.finish_reason,
            seconds=anyio.current_time() - self._started,
        )

    async def end(self, status: str, error: Failure | None = None) -> None:
        """Close an attempt that was not settled; does nothing to a settled one."""
        if self._record.status != "running":
            return
        with anyio.CancelScope(shield=True):
            seconds = anyio.current_time() - self._started
            usage = self._paid(error)
            await self.save(status=status, error=error, seconds=seconds, usage=usage)

    def _paid(self, error: Failure | None) -> Usage:
        """What an attempt that broke off has cost: unknown, unless nothing was generated."""
        reported = self._record.usage
        free = self._card.price is not None and self._card.price.is_free
        if reported != Usage() or free or (error and error.code in _BEFORE_GENERATION):
            return reported
        return Usage(cost_usd=None)

    async def save(self, **changes: object) -> None:
        self._record = self._record.model_copy(update=changes)
        await self._store.save_call(self._record)
