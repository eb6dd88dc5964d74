"""What can go wrong above the workers. Every text is one sentence: what is wrong, what to do.

PodiumError
├── PlanError       a plan that cannot be read or is not allowed; `rule` says why
├── QuestionError   a question, file or argument that cannot be used; `field` says which
├── PoolError       no worker left to do the work, or an unknown one was named
│   └── UnpricedError   money is limited, but what the workers cost is unknown
├── StepError       a step that cannot be run (unknown, not ready, already running)
├── RunError        a run that cannot do what was asked of it (unknown, running elsewhere)
├── LimitError      a limit of the run or of the day is reached; `limit` says which
├── LeaseLostError  another process has taken the run over; this one may not go on with it
├── StoreError      the ledger cannot be opened, read or written
└── SettingsError   the configuration is wrong
"""

from collections.abc import Sequence
from typing import ClassVar, Literal

PlanRule = Literal[
    "not_found", "decode", "shape", "length", "worker", "subtask", "access", "empty", "too_long"
]


class PodiumError(Exception):
    """An expected failure: its text may be shown to any user or model."""

    code: ClassVar[str] = "podium"


class PlanError(PodiumError):
    """A plan that cannot be read or is not allowed."""

    code = "plan"

    def __init__(self, rule: PlanRule, message: str) -> None:
        super().__init__(message)
        self.rule = rule


class QuestionError(PodiumError):
    code = "question"

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field


class PoolError(PodiumError):
    code = "pool"


class UnpricedError(PoolError):
    """Money is limited, and the price of the workers that would do it is unknown."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        super().__init__(
            f"workers: the price of {', '.join(names)} is unknown, so that no limit in money can "
            "be kept; set allow_unpriced, or give a price in the pool manifest."
        )


class StepError(PodiumError):
    code = "step"


class RunError(PodiumError):
    code = "run"


LimitName = Literal["usd", "day_usd", "tokens", "steps", "seconds"]


class LimitError(PodiumError):
    """What is asked for would pass a limit. Nothing was sent to a provider for it."""

    code = "limit"

    def __init__(self, limit: LimitName, message: str) -> None:
        super().__init__(message)
        self.limit: LimitName = limit


class LeaseLostError(PodiumError):
    code = "lease_lost"


class StoreError(PodiumError):
    code = "store"


class SettingsError(PodiumError):
    code = "settings"
