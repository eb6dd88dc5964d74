"""Calling a worker on behalf of a run: every attempt stands in the ledger before and after.

`Caller` is the one way from planning and execution to a model. It implements the workers' `Call`
protocol, keeps each worker's number of parallel calls, holds the deadline and the limits in money
and tokens, and learns how far the token estimate is off for each worker.
"""

import secrets
import time
from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from itertools import count

import anyio
from pydantic import JsonValue

from podium.attempts import LedgerAttempt
from podium.budget import Account, Amount, longest_reply, prompt_bound, refusal, worst
from podium.errors import LeaseLostError, LimitError
from podium.store import Store, text_hash
from podium.tokens import estimate_tokens
from podium.trace import CallRecord, Failure, Run
from podium_workers.errors import (
    EmptyReplyError,
    RateLimitedError,
    SlowReplyError,
    WorkerError,
)
from podium_workers.retry import LONGEST_WAIT_S, reply_with_retry, roomier
from podium_workers.worker import (
    ATTACHED_TO,
    REPLAYED,
    ModelSettings,
    Prompt,
    RateLimits,
    Reply,
    Usage,
    Worker,
    WorkerCard,
)

_ASK_MORE = frozenset({"command", "program"})
"""Kinds of workers whose usage covers more than the prompt that they were given."""


@dataclass(frozen=True)
class Purpose:
    """What a call is for: a proposal of a round, or a version of a step."""

    run_id: str
    round: int
    step: int | None = None
    version: int | None = None
    allow_unpriced: bool = False
    """Whether the worker's price may be unknown although money is limited."""
    again: bool = False
    """Whether work on the same may have broken off before."""
    limited: bool = True
    """Whether there are limits to look at before; without, one that was set meanwhile is met."""

    @classmethod
    def of(
        cls,
        run: Run,
        round_number: int,
        *,
        step: int | None = None,
        version: int | None = None,
        again: bool = False,
    ) -> "Purpose":
        """What a call of *run* is for; later versions of a step are the same again."""
        request = run.request
        return cls(
            run.run_id,
            round_number,
            step,
            version,
            allow_unpriced=request.allow_unpriced,
            again=again or bool(version),
            limited=request.max_usd is not None or request.max_tokens is not None,
        )


def failure(worker: str, error: WorkerError) -> Failure:
    """*error* as data, with the worker that it happened to."""
    return Failure(worker=worker, code=error.code, message=error.message, status=error.status)


@dataclass
class Shared:
    """What all calls of one process share."""

    limiters: dict[str, anyio.CapacityLimiter] = field(
        default_factory=dict[str, anyio.CapacityLimiter]
    )
    ratios: dict[str, float] = field(default_factory=dict[str, float])
    """Reported prompt tokens over estimated ones, by worker."""
    prefix: str = field(default_factory=lambda: secrets.token_hex(12))
    """What the ids of this process's calls begin with: randomness is slow to come by."""
    numbers: Iterator[int] = field(default_factory=count)
    at_work: Counter[str] = field(default_factory=Counter[str])
    """Attempts that have been opened and not closed, by the account that they are made with."""
    closed: anyio.Event = field(default_factory=anyio.Event)
    """Set when the next attempt is closed; then there is a new one."""

    @asynccontextmanager
    async def attempt(self, account: str) -> AsyncGenerator[None]:
        """One attempt runs for as long as the block does."""
        self.at_work[account] += 1
        try:
            yield
        finally:
            self.at_work[account] -= 1
            self.closed.set()
            self.closed = anyio.Event()


@dataclass(frozen=True)
class Caller:
    """Calls workers and keeps the record."""

    store: Store
    day_usd: float | None = None
    """What one principal's runs may cost on one day, over all processes; None for any amount."""
    _shared: Shared = field(default_factory=Shared)

    def tokens_per_estimate(self, card: WorkerCard) -> float:
        """Reported prompt tokens over estimated ones for this worker; 1 until it has reported."""
        return self._shared.ratios.get(card.name, 1.0)

    def queue_of(self, card: WorkerCard) -> int:
        """The place that one more call of this worker would have in its queue; 0 if none waits."""
        limiter = self._shared.limiters.get(card.name)
        if limiter is None or limiter.available_tokens > 0:
            return 0
        return limiter.statistics().tasks_waiting + 1

    async def ask(
        self,
        worker: Worker,
        prompt: Prompt,
        settings: ModelSettings,
        purpose: Purpose,
        *,
        deadline: float = float("inf"),
    ) -> Reply:
        """The worker's reply, retried where that helps.

        It is recorded when this returns, or for a purpose without limits with the next write.

        Raises:
            WorkerError: no usable reply before the deadline.
            LimitError: the call could pass a limit in money or tokens.
        """
        card = worker.card
        limiter = self._shared.limiters.setdefault(card.name, anyio.CapacityLimiter(card.parallel))
        with anyio.move_on_at(deadline):
            async with limiter:
                reply = await self._within_limits(worker, prompt, settings, purpose, deadline)
            self._learn(card, prompt, reply.usage)
            return reply
        raise SlowReplyError(
            f"{card.name!r} had not replied when the time limit of the run struck.", limit="total"
        )

    async def _within_limits(
        self,
        worker: Worker,
        prompt: Prompt,
        settings: ModelSettings,
        purpose: Purpose,
        deadline: float,
    ) -> Reply:
        """Call with a reply as long as the limits leave room for.

        When calls that are running hold what is left, wait for one of them to end: it mostly takes
        much less than it could. What the worker adds to the prompt shows only when the call is
        refused; the next round leaves room for it.
        """
        card, stored = worker.card, prompt.model_dump_json()
        sha = text_hash(stored)
        wanted, with_more_room, added = _longest_wanted(card, settings), False, 0
        limited = purpose.limited or self.day_usd is not None
        while True:
            closed = self._shared.closed
            accounts: tuple[Account, ...] = ()
            if limited:
                accounts = await self.store.accounts(purpose.run_id, self.day_usd)
            _check_priced(card, accounts, purpose)
            bound = self._bound(card, prompt, accounts)
            length = longest_reply(card, bound + added, wanted, accounts)
            if not length:
                # What was read may have changed since, when a call has ended meanwhile.
                if not closed.is_set() and not self._may_wait(accounts):
                    raise refusal(card, worst(card, bound + added, wanted), accounts)
                await closed.wait()
                continue
            fitted = settings.model_copy(update={"max_output_tokens": length})
            earlier = await self._broken_off(purpose, card, sha)
            call = LedgerCall(self, purpose, card, stored, (bound, length), deadline, earlier)
            try:
                return await reply_with_retry(worker, prompt, fitted, call)
            except LimitError:
                if call.paid:  # to start over would be to pay that again
                    raise
                # Another call was faster, an attempt that broke off has taken what was left, there
                # is a limit since a moment ago, or the worker has added to the prompt.
                limited, added = True, call.added
            except EmptyReplyError as error:
                more = None if with_more_room else roomier(fitted, card, error)
                if more is None or more.max_output_tokens is None:
                    raise
                wanted, with_more_room = more.max_output_tokens, True

    async def _broken_off(self, purpose: Purpose, card: WorkerCard, sha: str) -> CallRecord | None:
        """An earlier call for the same that went on at the provider when work on it broke off."""
        if not purpose.again:
            return None
        for call in reversed(await self.store.calls(purpose.run_id)):
            same = (call.round, call.step, call.worker, call.model, call.prompt)
            open_ended = call.status in ("running", "stopped") and call.request.get("background")
            if open_ended and same == (purpose.round, purpose.step, card.name, card.model, sha):
                return call
        return None

    async def wait_for_room(self, card: WorkerCard, purpose: Purpose, amount: Amount) -> None:
        """Wait until *amount* fits the limits, while calls that are running hold what it lacks.

        Raises:
            LimitError: it does not fit, and no call will give anything back.
        """
        while True:
            closed = self._shared.closed
            accounts = await self.store.accounts(purpose.run_id, self.day_usd)
            if all(account.part(amount) <= account.left for account in accounts):
                return
            if not closed.is_set() and not self._may_wait(accounts):
                raise refusal(card, amount, accounts)
            await closed.wait()

    def _may_wait(self, accounts: Sequence[Account]) -> bool:
        return self._shared.at_work.total() > 0 and any(account.held for account in accounts)

    def _bound(self, card: WorkerCard, prompt: Prompt, accounts: Sequence[Account]) -> int:
        """Tokens that the prompt has at most; 0 where that does not matter."""
        unpriced = card.price is None or card.price.is_free
        if not accounts and unpriced and card.rates is None:
            return 0
        estimate = sum(estimate_tokens(message.text) for message in prompt.messages)
        characters = sum(len(message.text) for message in prompt.messages)
        return prompt_bound(estimate, self.tokens_per_estimate(card), characters)

    def new_id(self) -> str:
        """An id that no other call has."""
        return f"{self._shared.prefix}{next(self._shared.numbers):08x}"

    def attempt(self, card: WorkerCard) -> AbstractAsyncContextManager[None]:
        """Count an attempt as running."""
        return self._shared.attempt(card.rates.account if card.rates else "")

    def closing(self, account: str) -> anyio.Event | None:
        """What is set when the next attempt ends; None while none with that account is running."""
        return self._shared.closed if self._shared.at_work[account] else None

    def _learn(self, card: WorkerCard, prompt: Prompt, usage: Usage) -> None:
        if card.kind in _ASK_MORE or not usage.input_tokens:
            return
        estimate = sum(estimate_tokens(message.text) for message in prompt.messages)
        if estimate >= 100:
            ratio = min(4.0, max(0.5, usage.input_tokens / estimate))
            known = self.tokens_per_estimate(card)
            self._shared.ratios[card.name] = round((known + ratio) / 2, 3)


def _longest_wanted(card: WorkerCard, settings: ModelSettings) -> int:
    """Tokens that a reply may have: what is asked for, and what the model reasons at least."""
    asked = (settings.max_output_tokens or card.max_output_tokens) + card.reasoning_floor
    return min(asked, card.max_output_tokens, card.context_window)


def _check_priced(card: WorkerCard, accounts: Sequence[Account], purpose: Purpose) -> None:
    in_money = [account for account in accounts if account.limit != "tokens"]
    if in_money and card.price is None and not purpose.allow_unpriced:
        raise LimitError(
            in_money[0].limit,
            f"The price of {card.name} is unknown, so that no limit in money can be kept; give it "
            "a price in the pool manifest, or allow it with allow_unpriced.",
        )


@dataclass
class LedgerCall:
    """The `Call` of one reply, written to the ledger."""

    caller: Caller
    purpose: Purpose
    card: WorkerCard
    prompt: str
    """As it is stored."""
    most: tuple[int, int]
    """Tokens that prompt and reply of an attempt may have."""
    deadline: float
    earlier: CallRecord | None = None
    """The call that this one may attach to."""
    added: int = 0
    """Tokens that the latest attempt has added to the prompt."""
    paid: bool = False
    """Whether an attempt has brought a reply; a worker may need several of them for its own."""

    @property
    def resume_id(self) -> str | None:
        return self.earlier.request_id if self.earlier else None

    @asynccontextmanager
    async def attempt(self, request: Mapping[str, JsonValue]) -> AsyncGenerator["LedgerAttempt"]:
        record = CallRecord(
            call_id=self.caller.new_id(),
            run_id=self.purpose.run_id,
            round=self.purpose.round,
            step=self.purpose.step,
            version=self.purpose.version,
            worker=self.card.name,
            model=self.card.model,
            prompt=text_hash(self.prompt),
            request=dict(request),
            started_at=time.time(),
        )
        store = self.caller.store
        self.added = _added(request)
        amount = worst(self.card, self.most[0] + self.added, self.most[1])
        if self.paid:
            await self.caller.wait_for_room(self.card, self.purpose, amount)
        rates = None if request.get(REPLAYED) else self.card.rates
        await self._take_turn(rates, amount.tokens)
        async with self.caller.attempt(self.card):
            # Without limits, a settled call is soon enough durable with what is made of its reply;
            # with them, the next call has to see what it has left.
            wait = self.purpose.limited or self.caller.day_usd is not None
            attempt = LedgerAttempt(store, self.card, record, anyio.current_time(), wait=wait)
            try:
                if self.earlier and ATTACHED_TO in request:
                    await store.take_up_call(record, self.earlier.call_id)
                elif not await store.open_call(record, amount, self.caller.day_usd, (self.prompt,)):
                    raise LimitError("usd", "Another call has taken what was left.")
                yield attempt
            except WorkerError as error:
                await attempt.end("failed", failure(self.card.name, error))
                await self._stay_away(error)
                raise
            except (LimitError, LeaseLostError):  # nothing was stored, and nothing sent
                attempt.forget()
                raise
            finally:
                self.paid = self.paid or attempt.is_paid
                await attempt.end("stopped")
                await self._give_back(rates, amount.tokens, attempt.tokens)

    async def _take_turn(self, rates: RateLimits | None, tokens: int) -> None:
        """Wait until the worker's account may be asked again.

        Raises:
            RateLimitedError: that takes too long; another worker may be free.
        """
        given_up = anyio.current_time() + LONGEST_WAIT_S
        while rates:
            closing = self.caller.closing(rates.account) if rates.tokens_per_minute else None
            wait = await self.caller.store.take_turn(rates, tokens)
            if not wait:
                return
            now, at_most = anyio.current_time(), wait
            if wait > LONGEST_WAIT_S and closing and not await self._is_paused(rates):
                at_most = given_up - now  # by then, calls that are running may give tokens back
            if not 0 < at_most <= LONGEST_WAIT_S or now + at_most >= self.deadline:
                raise RateLimitedError(
                    f"The account of {self.card.name!r} may be asked again in {wait:.0f} s only.",
                    retry_after_s=wait,
                )
            with anyio.move_on_after(at_most):
                await (closing.wait() if closing else anyio.sleep(at_most))

    async def _is_paused(self, rates: RateLimits) -> bool:
        """Whether the account's provider has asked for some time, which nothing makes shorter."""
        return await self.caller.store.take_turn(RateLimits(account=rates.account), 0) > 0

    async def _stay_away(self, error: WorkerError) -> None:
        """Keep every process from an account whose provider asks for some time."""
        if self.card.rates and isinstance(error, RateLimitedError) and error.retry_after_s:
            await self.caller.store.stay_away(self.card.rates.account, error.retry_after_s)

    async def _give_back(self, rates: RateLimits | None, tokens: int, used: int | None) -> None:
        if rates and rates.tokens_per_minute and used is not None:
            with anyio.CancelScope(shield=True):
                await self.caller.store.give_back_turn(rates, tokens - used)


def _added(request: Mapping[str, JsonValue]) -> int:
    """Tokens that a worker has added to its prompt, at most: it says what in the request."""
    added = str(request.get("added", ""))
    return prompt_bound(estimate_tokens(added), 1.0, len(added)) if added else 0
