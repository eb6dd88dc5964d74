"""One attempt at a worker as the ledger has it: a row of `calls`, from open to settled."""

from collections.abc import Sequence

import anyio

from podium.store import Store, text_hash
from podium.trace import CallRecord, Failure
from podium_workers.worker import Reply, Usage, WorkerCard

_BEFORE_GENERATION = frozenset(
    {
        "authentication", "out_of_credit", "rate_limited", "overloaded", "unreachable",
        "context_too_long", "unsupported_parameter", "unknown_model", "model_file",
    }
)  # fmt: skip
"""Failures that a provider does not bill, unless its worker tells that a reply had begun: some of
them are also how a connection breaks off in the middle of one."""


class LedgerAttempt:
    """One row of `calls`, from open to settled."""

    def __init__(
        self, store: Store, card: WorkerCard, record: CallRecord, started: float, *, wait: bool
    ) -> None:
        self._store = store
        self._wait = wait
        self._card = card
        self._record = record
        self._started = started
        self._open = True
        self.tokens: int | None = 0
        """Tokens that it has taken, once it is closed; None when that is unknown.

        A reply's own count is final, whatever its price. What was counted of an attempt that broke
        off is the least that it took, unless it has a price as well.
        """

    @property
    def is_paid(self) -> bool:
        """Whether it has brought a reply."""
        return self._record.reply is not None

    async def sent(self, request_id: str) -> None:
        self._record = self._record.model_copy(update={"request_id": request_id})
        if self._record.request.get("background"):  # only such a request can be found again by it
            await self._store.save_call(self._record)

    async def usage(self, usage: Usage) -> None:
        self._record = self._record.model_copy(update={"usage": usage})

    async def settle(self, reply: Reply) -> None:
        self.tokens = _counted(reply.usage) or None
        with anyio.CancelScope(shield=True):  # what is here has been paid
            await self._close(
                (reply.text, reply.reasoning) if reply.reasoning else (reply.text,),
                wait=self._wait,
                status="finished",
                reply=text_hash(reply.text),
                reasoning=text_hash(reply.reasoning) if reply.reasoning else None,
                served_by=reply.model,
                usage=reply.usage,
                finish_reason=reply.finish_reason,
                note=reply.note,
            )

    async def end(self, status: str, error: Failure | None = None) -> None:
        """Close an attempt that was not settled; does nothing to a settled one."""
        if self._open:
            known = self._known(error)
            self.tokens = None if known.cost_usd is None else _counted(known)
            with anyio.CancelScope(shield=True):
                await self._close((), status=status, error=error, usage=self._paid(known))

    def forget(self) -> None:
        """Close an attempt that was never opened."""
        self._open = False

    def _known(self, error: Failure | None) -> Usage:
        """What is known of an attempt that broke off: nothing, unless nothing was generated.

        What its worker reports counts more than how it broke off.
        """
        if self._record.usage == Usage() and not (error and error.code in _BEFORE_GENERATION):
            return Usage(cost_usd=None)
        return self._record.usage

    def _paid(self, known: Usage) -> Usage:
        """What an attempt that broke off has cost: a free one nothing."""
        is_free = self._card.price is not None and self._card.price.is_free
        if is_free and known.cost_usd is None:
            return known.model_copy(update={"cost_usd": 0.0})
        return known

    async def _close(self, texts: Sequence[str], *, wait: bool = True, **changes: object) -> None:
        self._open = False
        seconds = anyio.current_time() - self._started
        self._record = self._record.model_copy(update={**changes, "seconds": seconds})
        await self._store.close_call(self._record, texts, wait=wait)


def _counted(usage: Usage) -> int:
    return usage.input_tokens + usage.output_tokens
