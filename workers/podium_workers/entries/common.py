"""What every worker in a pool manifest has, however it is reached."""

import re
from typing import TYPE_CHECKING, Literal

from pydantic import ConfigDict, Field, field_validator

from podium_workers.worker import Frozen, Price

if TYPE_CHECKING:
    pass

RESERVED = frozenset({"podium", "caller"})
"""Names that plans use for steps that no worker of a pool does."""
UNKNOWN_WINDOW = 8192
"""Tokens assumed for a model of which nothing is known: better a prompt that is cut and marked as
cut than one that an endpoint cuts in silence (user report T22)."""
FREE = Price(input=0, output=0)
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
Where = Literal["local", "hosted"]


class StatedPrice(Price):
    """A price that a manifest states, in US dollars per million tokens."""

    model_config = ConfigDict(strict=True)


class NamedEntry(Frozen):
    """What every kind of worker has."""

    model_config = ConfigDict(strict=True)

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")
    """As plans and arguments name it."""
    steps: bool = True
    """Whether plans may give it steps; a conductor that may not be given any only writes plans."""

    @field_validator("name")
    @classmethod
    def _is_not_reserved(cls, name: str) -> str:
        if name in RESERVED:
            raise ValueError(f"{name!r} has a meaning of its own in plans; choose another name")
        return name


class OwnEntry(NamedEntry):
    """What every kind of worker has that is not recorded."""

    good_at: str = ""
    """One line for the conductor: what it does well, and what it does not."""
    role: str = ""
    """Standing instructions: the system message of every prompt."""
    context_window: int | None = Field(default=None, ge=256)
    """Tokens of prompt and reply together."""
    max_output_tokens: int | None = Field(default=None, ge=1)
    parallel: int = Field(default=4, ge=1)
    """Calls at the same time."""

    def reply_limit(self, window: int, longest: int) -> int:
        return self.max_output_tokens or min(longest, window // 2)


class ModelEntry(OwnEntry):
    """A worker that asks a model."""

    temperature: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Used where a call asks for none."""
