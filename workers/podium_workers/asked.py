"""How a conductor is asked for its plans: the same in a pool, a cassette, and a training."""

from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field

from podium_workers.worker import Frozen

Form = Literal["json", "lists"]
Shows = Literal["cards", "ordinals"]
ExampleSet = Literal["general", "tasks", "apart"]
"""Sets of example plans; `podium.policy.examples` says what they are."""
MOST_PROSE = 1999
"""Characters before a plan; the grammars of the engine for local models count no further."""


class Asked(Frozen):
    """How a conductor is asked. A prompted one is asked as the defaults say."""

    model_config = ConfigDict(strict=True)

    form: Form = "json"
    """How plans are written; a trained conductor writes lists."""
    shows: Shows = "cards"
    """How workers are shown to it; a trained conductor may know only ordinals."""
    prompt: Literal["full", "brief"] = "full"
    """Whether it is told what a plan is; a small trained one knows, and is asked briefly."""
    prices: bool = False
    """Whether it is told what each worker costs."""
    examples: ExampleSet = "general"
    """Which examples a full prompt shows."""
    max_steps: int | None = Field(default=None, ge=1, le=20)
    """Steps at most in one of its plans; None leaves that to whoever asks for them."""
    prose: int | None = Field(default=None, ge=0, le=MOST_PROSE)
    """Characters of reasoning that its decoding may give before the lists, where it is held to
    them; None leaves that to whoever asks for them."""
    team: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """The workers of its training in their order, in which it is shown the team; empty when it was
    not trained, or none knows."""

    @classmethod
    def of(cls, asked: "Asked") -> Self:
        """No more of *asked* than this class knows."""
        return cls(**{name: getattr(asked, name) for name in cls.model_fields})
