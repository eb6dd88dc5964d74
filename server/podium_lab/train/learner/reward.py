"""The environment as TRL's one combined, asynchronous reward.

Scores are given by the environment's own event loop, in a thread: its ledger lives there for the
whole job, whatever loop TRL asks from.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import anyio
from anyio.from_thread import BlockingPortal

from podium_lab.train.draws import Draw
from podium_lab.train.environment import Score, shuffled
from podium_lab.train.opening import Ground


@dataclass
class PlanReward:
    """Scores the plans of a batch; one object for a whole job.

    A plan is given no reward at all (None), and so no part in its group's mean, where something
    failed that is no fault of the plan.
    """

    ground: Ground
    portal: BlockingPortal
    __name__: str = "plan"
    """Under which TRL logs it."""
    latest: list[Score] = field(default_factory=list[Score])
    """What was scored since `take` was last called, in order."""

    async def __call__(
        self,
        prompts: Sequence[object],
        completions: Sequence[Sequence[dict[str, str]]],
        draw: Sequence[str],
        **_: object,
    ) -> list[float | None]:
        """The reward of each completion; the column `draw` says what it was asked."""
        texts = [completion[-1]["content"] for completion in completions]
        drawn = [Draw.model_validate_json(text) for text in draw]
        scores = await anyio.to_thread.run_sync(self.portal.call, self._all, texts, drawn)
        self.latest += scores
        return [score.reward for score in scores]

    def score(self, texts: Sequence[str], drawn: Sequence[Draw]) -> list[Score]:
        """Scores of texts that are no part of the training."""
        return self.portal.call(self._all, texts, drawn)

    def take(self) -> list[Score]:
        """What was scored since the last call of this."""
        scores, self.latest = self.latest, []
        return scores

    async def _all(self, texts: Sequence[str], drawn: Sequence[Draw]) -> list[Score]:
        found: list[Score | None] = [None] * len(texts)
        limiter = anyio.CapacityLimiter(self.ground.job.workers.parallel)

        async def score(place: int) -> None:
            async with limiter:
                asked = drawn[place]
                pool = shuffled(self.ground.pool, asked.workers)
                found[place] = await self.ground.environment.score(texts[place], asked.item, pool)

        async with anyio.create_task_group() as group:
            for place in range(len(texts)):
                group.start_soon(score, place)
        return [score for score in found if score is not None]
