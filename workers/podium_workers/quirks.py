"""What models and endpoints are known to take: a dated table with its sources.

Knows nothing of requests; the adapters ask it what to send. What it does not hold is learned from
an endpoint's refusal (`learned`).
"""

import tomllib
from collections.abc import Mapping
from datetime import date
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import Field

from podium_workers.worker import Frozen

LimitName = Literal["max_tokens", "max_completion_tokens"]
"""The two names that Chat Completions has for the limit of output tokens."""


class Family(Frozen):
    """Models that take the same."""

    pattern: str
    """Names of the models, with `*` for anything."""
    source: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    """Where `window` and `max_output` hold: a reseller's or a local server's are its own."""
    limit: LimitName | None = None
    temperature: Literal["taken", "refused", "without_reasoning"] = "taken"
    efforts: tuple[str, ...] = ()
    """Names that the effort of reasoning may have; none when they are not known."""
    reasoning_floor: int = Field(default=0, ge=0)
    """Output tokens that reasoning may take before the reply begins."""
    summaries: bool = False
    """Whether OpenAI's Responses show a summary of the reasoning."""
    window: int | None = Field(default=None, gt=0)
    max_output: int | None = Field(default=None, gt=0)


class Endpoint(Frozen):
    """An address, or a server that is known by its usual port."""

    name: str
    source: str = ""
    hosts: tuple[str, ...] = ()
    ports: tuple[int, ...] = ()
    limit: LimitName | None = None
    omits: frozenset[str] = frozenset()
    """Parameters that it does not take."""
    states_cost: bool = False
    """Whether its usage says what a request cost, in US dollars."""
    relays: bool = False
    """Whether it hands prompts on to whatever providers it is set up for, wherever it runs."""
    cuts: bool = False
    """Whether it is known to cut long prompts in silence."""
    advice: str = ""
    """What a user can do when it cut one."""


class Quirks(Frozen):
    """What is known of one model at one address; nothing is the normal case."""

    family: Family
    endpoint: Endpoint
    at_home: bool
    """Whether the family's window and size of replies hold at that address."""

    @property
    def window(self) -> int | None:
        return self.family.window if self.at_home else None

    @property
    def max_output(self) -> int | None:
        return self.family.max_output if self.at_home else None

    def takes_temperature(self, effort: str | None) -> bool:
        """Whether a temperature may be sent along with that effort of reasoning."""
        match self.family.temperature:
            case "taken":
                return True
            case "refused":
                return False
            case "without_reasoning":
                return effort == "none"

    def floor(self, effort: str | None) -> int:
        """Output tokens to add for reasoning of that effort."""
        return 0 if effort == "none" else self.family.reasoning_floor


class QuirksTable(Frozen):
    """All that is known, and when it was read."""

    read: date
    sources: Mapping[str, str]
    """Pages of the providers, by a short name."""
    family: Annotated[tuple[Family, ...], Field(strict=False)]
    endpoint: Annotated[tuple[Endpoint, ...], Field(strict=False)]

    def find(self, model: str, base_url: str) -> Quirks:
        """What is known of *model* at that address."""
        parts = urlsplit(base_url)
        host = (parts.hostname or "").lower()
        name = plain_name(model)
        family = next((row for row in self.family if fnmatchcase(name, row.pattern)), _NO_FAMILY)
        endpoint = next(
            (row for row in self.endpoint if host in row.hosts or parts.port in row.ports),
            _NO_ENDPOINT,
        )
        at_home = any(host == home or host.endswith(f".{home}") for home in family.hosts)
        return Quirks(family=family, endpoint=endpoint, at_home=at_home)


_NO_FAMILY = Family(pattern="")
_NO_ENDPOINT = Endpoint(name="")


def plain_name(model: str) -> str:
    """*model* without the provider before it and the variant behind it, in small letters."""
    return model.rsplit("/", 1)[-1].split(":")[0].lower()


@cache
def quirks_table() -> QuirksTable:
    """The table that comes with the package."""
    text = (files("podium_workers") / "quirks.toml").read_text(encoding="utf-8")
    return QuirksTable.model_validate(tomllib.loads(text))


def quirks_of(model: str, base_url: str) -> Quirks:
    """What is known of *model* at that address; everything is as usual where nothing is."""
    return quirks_table().find(model, base_url)
