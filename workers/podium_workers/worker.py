"""The seam between Podium and models: a `Worker` answers a `Prompt` with a `Reply`.

A worker learns about the world above only through `Call`, which the server implements on its
ledger; so a worker knows neither plans nor storage.
"""

import re
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Annotated, Literal, Protocol

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue

ATTACHED_TO = "attached_to"
"""Key in the record of an attempt that pays for nothing new: it reads on in the earlier request of
that id, which was recorded and reserved when it was made."""

REPLAYED = "replayed"
"""Key in the record of an attempt that sends nothing: its reply was recorded earlier."""

Shape = Mapping[str, JsonValue]
"""Settings of a worker's own that shape its replies and stand not on its card, such as effort."""

FinishReason = Literal["stop", "length"]
"""Why a usable reply ended. Filtered, empty and broken ones are errors, not replies."""


_SURROGATE = re.compile("[\ud800-\udfff]")


def mend(text: str) -> str:
    """*text* with surrogate pairs joined and lone ones (half an emoji) replaced by U+FFFD."""
    if not _SURROGATE.search(text):
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


Text = Annotated[
    str, BeforeValidator(lambda value: mend(value) if isinstance(value, str) else value)
]
"""Text from outside: half an emoji (a lone surrogate) would break storage and protocol."""


class Frozen(BaseModel):
    """Base of all data that crosses a boundary: immutable, unknown fields refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Usage(Frozen):
    """Tokens and money of one or more calls. Tokens are counts; money is US dollars."""

    input_tokens: int = 0
    """All prompt tokens, cached ones included."""
    cached_tokens: int = 0
    """The part of `input_tokens` that the provider read from its cache."""
    output_tokens: int = 0
    """All generated tokens, reasoning included."""
    reasoning_tokens: int = 0
    """The part of `output_tokens` that was reasoning."""
    cost_usd: float | None = 0.0
    """Price in US dollars; None when a price is unknown (never shown as zero)."""

    def __add__(self, other: "Usage") -> "Usage":
        unknown = self.cost_usd is None or other.cost_usd is None
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
            cost_usd=None if unknown else (self.cost_usd or 0.0) + (other.cost_usd or 0.0),
        )


class _Rates(Frozen):
    """US dollars per million tokens."""

    input: float = Field(ge=0)
    output: float = Field(ge=0)
    cached_input: float | None = Field(default=None, ge=0)
    """Price of cached input; the full input price when not given."""
    cache_write: float | None = Field(default=None, ge=0)
    """Price of input that the provider writes to its cache; the input price when not given."""
    cache_write_long: float | None = Field(default=None, ge=0)
    """Price of input that is to stay in the cache for an hour or more; `cache_write` if absent."""

    def _cost(self, usage: Usage, written: int, written_long: int) -> float:
        cached_rate = self.input if self.cached_input is None else self.cached_input
        write_rate = self.input if self.cache_write is None else self.cache_write
        long_rate = write_rate if self.cache_write_long is None else self.cache_write_long
        fresh = usage.input_tokens - usage.cached_tokens - written - written_long
        total = fresh * self.input + usage.cached_tokens * cached_rate
        total += written * write_rate + written_long * long_rate
        return (total + usage.output_tokens * self.output) / 1_000_000


class LongPrice(_Rates):
    """What every token of a request costs whose prompt is longer than a threshold."""

    above: int = Field(gt=0)
    """Tokens of the prompt, cached ones included, that must be exceeded."""


class Price(_Rates):
    """US dollars per million tokens."""

    long: Annotated[tuple[LongPrice, ...], Field(strict=False)] = ()
    """Rates for long prompts, for the whole request: the highest threshold exceeded counts."""

    @property
    def is_free(self) -> bool:
        rates = (self, *self.long)
        return not any(
            rate.input or rate.output or rate.cached_input or rate.cache_write for rate in rates
        )

    def cost(self, usage: Usage, *, written_tokens: int = 0, written_long_tokens: int = 0) -> float:
        """The price in US dollars of *usage*, one request's; each token is priced once.

        *written_tokens* and *written_long_tokens* are the parts of the fresh input that the
        provider wrote to its cache, for minutes and for an hour or more.
        """
        met = [rates for rates in self.long if usage.input_tokens > rates.above]
        rates = max(met, key=lambda rates: rates.above) if met else self
        return rates._cost(usage, written_tokens, written_long_tokens)


class Message(Frozen):
    role: Literal["system", "user", "assistant"]
    text: Text
    shared_prefix: int = Field(default=0, ge=0, exclude=True)
    """Characters of the beginning of `text` with which other prompts of the run begin too: a hint
    for providers that cache what they are told to. Neither stored nor part of what is said."""


class Prompt(Frozen):
    """What a worker is given: messages in order."""

    messages: tuple[Message, ...]

    @classmethod
    def of(cls, text: str, *, system: str = "", shared_prefix: int = 0) -> "Prompt":
        """One user message, behind an optional system message."""
        head = (Message(role="system", text=system),) if system else ()
        asked = Message(role="user", text=text, shared_prefix=shared_prefix)
        return cls(messages=(*head, asked))


class ModelSettings(Frozen):
    """How a reply is generated. Unset means the provider's default."""

    max_output_tokens: int | None = Field(default=None, ge=1)
    temperature: float | None = Field(default=None, ge=0)
    seed: int | None = None
    response_schema: dict[str, JsonValue] | None = None
    """JSON Schema that the reply must satisfy; adapters use the provider's structured output."""
    grammar: str | None = None
    """Grammar, in GBNF, that the reply must satisfy; for workers of the kinds `vllm` and `local`
    only, and in place of a schema. Others leave it out, so the reply has to be read with care."""


class RateLimits(Frozen):
    """What an account at a provider allows; workers of one account share it."""

    account: str
    """Names the account without any secret."""
    requests_per_minute: int | None = Field(default=None, ge=1)
    tokens_per_minute: int | None = Field(default=None, ge=1)
    """Of prompts and replies together."""


class WorkerCard(Frozen):
    """What is known of a worker: shown to the conductor, to users and in receipts."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")
    """The name that plans and arguments use."""
    kind: str
    """How it is reached: local, openai, anthropic, scripted."""
    model: str
    where: Literal["local", "hosted"]
    """Whether prompts stay on this machine."""
    context_window: int = Field(ge=256)
    """Tokens of prompt and reply together."""
    max_output_tokens: int = Field(default=2048, ge=1)
    """Tokens that a reply may have at most."""
    reasoning_floor: int = Field(default=0, ge=0)
    """Output tokens that reasoning may eat before the reply begins; whoever asks for a short reply
    adds them, since the limit of a request is for both."""
    price: Price | None = None
    """None when unknown; local models cost nothing."""
    good_at: str = ""
    """One line for the conductor: what this worker does well and what it does not."""
    role: str = ""
    """Standing instructions, sent as the system message of every prompt."""
    parallel: int = Field(default=4, ge=1)
    """Calls at the same time."""
    rates: RateLimits | None = None
    """What its account allows, where it has one."""

    @property
    def told_price(self) -> str:
        """What its tokens cost, in words; unknown is never free."""
        if self.price is None:
            return "price unknown"
        if self.price.is_free:
            return "free"
        return f"${self.price.input:g} in, ${self.price.output:g} out per million tokens"

    def priced(
        self, usage: Usage, *, written_tokens: int = 0, written_long_tokens: int = 0
    ) -> Usage:
        """*usage*, one request's, with its cost filled in from this card's price."""
        cost = None
        if self.price:
            cost = self.price.cost(
                usage, written_tokens=written_tokens, written_long_tokens=written_long_tokens
            )
        return usage.model_copy(update={"cost_usd": cost})


class Reply(Frozen):
    """A usable reply: text that is not empty."""

    text: Text = Field(min_length=1)
    usage: Usage
    model: str
    """The model as the provider names it."""
    finish_reason: FinishReason = "stop"
    reasoning: Text = ""
    """Reasoning text when the provider shows it; recorded, never given to another worker."""
    note: Text = ""
    """What a reader of the record should know of how this reply was read; mostly nothing."""


class Attempt(Protocol):
    """One request to a provider, as the ledger sees it."""

    async def sent(self, request_id: str) -> None:
        """Record the provider's own id of this request, before its reply is waited for."""
        ...

    async def usage(self, usage: Usage) -> None:
        """Record what was used so far; called again when more is known."""
        ...

    async def settle(self, reply: Reply) -> None:
        """Record the finished request: durable before what is made of its reply."""
        ...


class Call(Protocol):
    """What a worker may ask of the server during one `reply`; implemented on the ledger."""

    @property
    def deadline(self) -> float:
        """When the call must have ended, on `anyio.current_time()`'s clock; inf for never."""
        ...

    @property
    def resume_id(self) -> str | None:
        """A provider's id of an earlier request of this call, to attach to; None for a new one.

        A worker that attaches opens an attempt whose request names that id under `ATTACHED_TO`:
        both attempts are one paid request. A worker that cannot attach makes a new request.
        """
        ...

    def attempt(self, request: Mapping[str, JsonValue]) -> AbstractAsyncContextManager[Attempt]:
        """Open one paid request: reserve before, record *request* (without secrets), settle.

        A `WorkerError` or a cancellation that leaves the block is recorded with the attempt.
        """
        ...


class Worker(Protocol):
    """Carries out one subtask."""

    @property
    def card(self) -> WorkerCard: ...

    async def reply(self, prompt: Prompt, settings: ModelSettings, call: Call) -> Reply:
        """Answer *prompt*.

        Raises:
            WorkerError: no usable reply; the class says at which boundary.
        """
        ...
