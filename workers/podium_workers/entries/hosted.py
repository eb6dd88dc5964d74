"""Workers of a pool manifest that stand behind a provider's interface."""

from typing import TYPE_CHECKING, Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from podium_workers.entries.vllm_options import OWN_WINDOW, VllmOptions
from podium_workers.wire import (
    ANTHROPIC_URL,
    OPENAI_URL,
    TimeLimits,
    is_loopback,
    is_openai,
    scrub,
)
from podium_workers.worker import Price, RateLimits, WorkerCard

if TYPE_CHECKING:
    from podium_workers.prices import PriceTable

from podium_workers.entries.common import (
    FREE,
    UNKNOWN_WINDOW,
    VARIABLE,
    ModelEntry,
    StatedPrice,
    Where,
)

LONGEST_REPLY = 16_384
"""Output tokens unless a manifest says otherwise: room for a model that reasons."""


class HostedEntry(ModelEntry):
    """A worker behind a provider's interface."""

    model: str = Field(min_length=1)
    """As the provider names it."""
    base_url: str | None = None
    """Address of the interface; the provider's own when not given."""
    api_key_env: str | None = None
    """Name of the environment variable that holds the key."""
    where: Where | None = None
    """Whether prompts stay on this machine; an address on this machine means local, unless a
    gateway to providers is known to listen there."""
    price: StatedPrice | None = None
    """When it is not that of the shipped table."""
    first_byte_s: float = Field(default=TimeLimits().first_byte_s, gt=0)
    """Seconds of silence before the model's first words."""
    idle_s: float = Field(default=TimeLimits().idle_s, gt=0)
    """Seconds of silence after them."""

    account: str | None = Field(default=None, min_length=1)
    """Workers with the same account share its limits; the address, key and model when not given."""
    requests_per_minute: int | None = Field(default=None, ge=1)
    tokens_per_minute: int | None = Field(default=None, ge=1)
    """What the account allows; every Podium process on this machine keeps to it."""

    @field_validator("api_key_env")
    @classmethod
    def _is_a_name(cls, variable: str | None) -> str | None:
        if variable is None or (VARIABLE.fullmatch(variable) and scrub(variable) == variable):
            return variable
        raise ValueError(
            "this must be the name of an environment variable that holds the key, such as "
            '"OPENAI_API_KEY", never the key itself'
        )

    @field_validator("base_url")
    @classmethod
    def _is_an_address(cls, url: str | None) -> str | None:
        if url is None:
            return None
        try:
            parts = urlsplit(url)
            usable = parts.scheme in {"http", "https"} and bool(parts.hostname)
            _ = parts.port
        except ValueError:
            usable, parts = False, urlsplit("")
        if not usable or not url.isascii() or not url.isprintable() or " " in url:
            raise ValueError('this must be an address such as "http://127.0.0.1:8000/v1"')
        if parts.username or parts.password or parts.query:
            raise ValueError("keys do not belong in an address; use api_key_env")
        return url

    @property
    def limits(self) -> TimeLimits:
        return TimeLimits(first_byte_s=self.first_byte_s, idle_s=self.idle_s)

    def _card(
        self, kind: str, own_url: str, prices: "PriceTable | None", *, effort: str | None = None
    ) -> WorkerCard:
        from podium_workers.prices import row_of
        from podium_workers.quirks import quirks_of

        url = self.base_url or own_url
        known = row_of(self.model, base_url=url, table=prices)
        quirks = quirks_of(self.model, url)
        stays = is_loopback(url) and not quirks.endpoint.relays
        where = self.where or ("local" if stays else "hosted")
        window = self.context_window or (known and known.window) or quirks.window or UNKNOWN_WINDOW
        price: Price | None = FREE if where == "local" else None
        if self.price:
            price = Price.model_validate(self.price.model_dump())
        elif known and window <= (known.priced_up_to or window):
            price = known.price
        most = (known and known.max_output) or quirks.max_output
        longest = min(LONGEST_REPLY, most or LONGEST_REPLY)
        return WorkerCard(
            name=self.name,
            kind=kind,
            model=self.model,
            where=where,
            context_window=window,
            max_output_tokens=self.reply_limit(window, longest),
            reasoning_floor=quirks.floor(effort),
            price=price,
            good_at=self.good_at,
            role=self.role,
            parallel=self.parallel,
            rates=None if where == "local" and not self._has_rates else self._rates(url),
        )

    @property
    def _has_rates(self) -> bool:
        return self.requests_per_minute is not None or self.tokens_per_minute is not None

    def _rates(self, url: str) -> RateLimits:
        of_its_own = f"{urlsplit(url).hostname} {self.api_key_env or ''} {self.model}"
        return RateLimits(
            account=self.account or of_its_own,
            requests_per_minute=self.requests_per_minute,
            tokens_per_minute=self.tokens_per_minute,
        )


class OpenAIEntry(HostedEntry):
    """A model at OpenAI or any address that speaks its Chat Completions or Responses."""

    kind: Literal["openai"]
    api: Literal["responses", "chat"] | None = None
    """Which of the two it is asked by: Responses at OpenAI itself, Chat Completions at every other
    address, unless this says otherwise."""
    background: bool = False
    """Whether replies are made in the background at the provider, so that a process that died can
    take up a reply that is paid for. Needs Responses, and has the provider store each reply."""
    effort: str | None = Field(default=None, min_length=1)
    """How much it reasons before it replies, by the model's own name for it, such as "low"; the
    model's own measure when not given."""

    @model_validator(mode="after")
    def _can_do_that(self) -> Self:
        from podium_workers.quirks import quirks_of

        if self.background and self.interface == "chat":
            raise ValueError(
                'background = true needs the Responses interface; add api = "responses" if the '
                "address has it"
            )
        efforts = quirks_of(self.model, self.url).family.efforts
        if self.effort is not None and efforts and self.effort not in efforts:
            raise ValueError(
                f"{self.model!r} knows no effort {self.effort!r}; choose one of "
                f"{', '.join(efforts)}"
            )
        return self

    @property
    def interface(self) -> Literal["responses", "chat"]:
        return self.api or ("responses" if is_openai(self.url) else "chat")

    @property
    def url(self) -> str:
        return self.base_url or OPENAI_URL

    @property
    def key_variable(self) -> str | None:
        """Which variable holds the key; None where no key is wanted."""
        return self.api_key_env or ("OPENAI_API_KEY" if self.url == OPENAI_URL else None)

    @property
    def card(self) -> WorkerCard:
        return self.card_by(None)

    def card_by(self, prices: "PriceTable | None") -> WorkerCard:
        """The card, with a price that the manifest leaves open from *prices*."""
        return self._card("openai", OPENAI_URL, prices, effort=self.effort)


class AnthropicEntry(HostedEntry):
    """A model at Anthropic or any address that speaks its Messages."""

    kind: Literal["anthropic"]
    thinking: Literal["off", "adaptive"] | Annotated[int, Field(ge=1024)] | None = None
    """Whether it thinks before it replies: "off", "adaptive" (as much as it finds right), or at
    most so many tokens on models that take a number; the model's own way when not given."""
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    """How much it puts into thinking and reply; the model's own measure when not given."""

    @property
    def url(self) -> str:
        return self.base_url or ANTHROPIC_URL

    @property
    def key_variable(self) -> str | None:
        """Which variable holds the key; None where no key is wanted."""
        return self.api_key_env or ("ANTHROPIC_API_KEY" if self.url == ANTHROPIC_URL else None)

    @property
    def card(self) -> WorkerCard:
        return self.card_by(None)

    def card_by(self, prices: "PriceTable | None") -> WorkerCard:
        """The card, with a price that the manifest leaves open from *prices*."""
        # With thinking switched off, no reply needs room for it.
        effort = "none" if self.thinking == "off" else None
        return self._card("anthropic", ANTHROPIC_URL, prices, effort=effort)


class VllmEntry(VllmOptions, HostedEntry):
    """A model on vLLM: of the server at `base_url`, or of one that Podium runs itself."""

    kind: Literal["vllm"]
    parallel: int = Field(default=16, ge=1)
    first_byte_s: float = Field(default=600, gt=0)

    @model_validator(mode="after")
    def _is_one_or_the_other(self) -> Self:
        if self.base_url is not None and self.given:
            raise ValueError(
                f"{self.given[0]} is for a server that Podium starts, and base_url names one that "
                "runs already; leave out one of the two"
            )
        if self.base_url is None and (self.api_key_env or self.where):
            raise ValueError("api_key_env and where belong to a server at base_url; leave them out")
        return self

    @property
    def is_own(self) -> bool:
        """Whether Podium runs the server."""
        return self.base_url is None

    @property
    def card(self) -> WorkerCard:
        if not self.is_own:
            return self._card("vllm", "", None)
        window = self.context_window or OWN_WINDOW
        own = self.model_copy(update={"context_window": window})
        return HostedEntry._card(own, "vllm", "http://127.0.0.1", None)
