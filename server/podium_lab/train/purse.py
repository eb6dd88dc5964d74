"""What a whole training job may spend: every rollout takes its share before it begins."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from podium_lab.train.errors import TrainingError

LEAST_SHARE = 1e-6
"""US dollars; a rollout that would get less is not begun."""


class PurseEmptyError(TrainingError):
    """What the job may spend is spent; the text says how to go on."""


@dataclass
class Share:
    """What one rollout may cost, and what it has cost in the end."""

    usd: float
    spent: float | None = None
    """None when unknown: then it counts as all of it."""


@dataclass
class Purse:
    """Money for a job, in US dollars. Rollouts at the same time can never pass it together."""

    usd: float
    parallel: int
    """Rollouts at the same time, between which what is left is shared."""
    spent: float = 0.0
    """By this job before, and now."""
    _held: float = field(default=0.0, init=False)

    @property
    def left(self) -> float:
        return max(0.0, self.usd - self.spent - self._held)

    def rest(self) -> float:
        """All that is left.

        Raises:
            PurseEmptyError: that is too little for anything.
        """
        if self.left / self.parallel < LEAST_SHARE:
            raise PurseEmptyError(
                f"The job has spent ${self.spent:.4f} of its ${self.usd:g}; raise max_usd and go "
                "on: what was trained so far is kept."
            )
        return self.left

    @asynccontextmanager
    async def share(self) -> AsyncGenerator[Share]:
        """One rollout's part of what is left; what it does not use goes back.

        Raises:
            PurseEmptyError: too little is left for another rollout.
        """
        share = Share(self.rest() / self.parallel)
        self._held += share.usd
        try:
            yield share
        finally:
            self._held -= share.usd
            self.spent += share.usd if share.spent is None else share.spent


@asynccontextmanager
async def sharing(purse: Purse | None) -> AsyncGenerator[Share | None]:
    """One rollout's part of a job's money; None where that is not limited.

    Raises:
        PurseEmptyError: too little is left for another rollout.
    """
    if purse is None:
        yield None
        return
    async with purse.share() as share:
        yield share
