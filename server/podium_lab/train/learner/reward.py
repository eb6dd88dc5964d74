"""The environment as TRL's one combined, asynchronous reward; of two rounds where a job has them.

Scores are given by the environment's own event loop, in a thread: its ledger lives there for the
whole job, whatever loop TRL asks from.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import anyio
from anyio.from_thread import BlockingPortal

from podium_lab.train.draws import Draw
from podium_lab.train.environment import Outcome, Score, shuffled
from podium_lab.train.opening import Ground, policy_card
from podium_lab.train.recursion import pairs, unasked


@dataclass(frozen=True)
class First:
    """A first round that has been scored already, and what its second is asked about."""

    score: Score
    outcome: Outcome | None
    """None where there is no second round."""
    prompt: str = ""
    """Of the second round."""


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
        first: Sequence[First] = (),
        **_: object,
    ) -> list[float | None]:
        """The reward of each completion; the column `draw` says what it was asked.

        *first* is given where half of the rows are second rounds: the first round of each row.
        """
        texts = [completion[-1]["content"] for completion in completions]
        drawn = [Draw.model_validate_json(text) for text in draw]
        score = self._two_rounds if first else self._all
        scores = await anyio.to_thread.run_sync(self.portal.call, score, texts, drawn, first)
        self.latest += scores
        return [score.reward for score in scores]

    def score(self, texts: Sequence[str], drawn: Sequence[Draw]) -> list[Score]:
        """Scores of texts that are no part of the training."""
        return self.portal.call(self._all, texts, drawn)

    def firsts(self, texts: Sequence[str], drawn: Sequence[Draw]) -> list[First]:
        """Scores of first rounds, and what their second ones are asked."""
        return self.portal.call(self._firsts, texts, drawn)

    def seconds(
        self, texts: Sequence[str], drawn: Sequence[Draw], firsts: Sequence[First]
    ) -> list[Score]:
        """Scores of the second rounds of *firsts*; texts of those that have none do not count."""
        return self.portal.call(self._all, texts, drawn, firsts)

    def take(self) -> list[Score]:
        """What was scored since the last call of this."""
        scores, self.latest = self.latest, []
        return scores

    async def _firsts(self, texts: Sequence[str], drawn: Sequence[Draw]) -> list[First]:
        environment = self.ground.environment
        card, found = policy_card(self.ground.job), list[First]()
        for score, asked in zip(await self._all(texts, drawn), drawn, strict=True):
            outcome, prompt = await environment.outcome(score), ""
            if outcome:
                pool = shuffled(self.ground.pool, asked.workers)
                prompt = environment.prompt(asked.item, pool, card, before=outcome)
            found.append(First(score, outcome, prompt))
        return found

    async def _two_rounds(
        self, texts: Sequence[str], drawn: Sequence[Draw], first: Sequence[First]
    ) -> list[Score]:
        """Scores of groups of first rounds, each before a group of their second ones."""
        job = self.ground.job
        assert job.recursion is not None, "only such a job has second rounds"
        scores, paired = [it.score for it in first], list(pairs(len(texts), job.group))
        later = [place for _, place in paired]
        seconds = await self._all(
            [texts[place] for place in later],
            [drawn[place] for place in later],
            [first[place] for place in later],
        )
        for place, score in zip(later, seconds, strict=True):
            scores[place] = score
        for one, other in paired:
            scores[one] = job.recursion.credited(scores[one], scores[other])
        return scores

    async def _all(
        self, texts: Sequence[str], drawn: Sequence[Draw], firsts: Sequence[First] = ()
    ) -> list[Score]:
        found: list[Score | None] = [None] * len(texts)
        limiter = anyio.CapacityLimiter(self.ground.job.workers.parallel)

        async def score(place: int) -> None:
            async with limiter:
                first = firsts[place] if firsts else None
                found[place] = await self._scored(texts[place], drawn[place], first)

        async with anyio.create_task_group() as group:
            for place in range(len(texts)):
                group.start_soon(score, place)
        return [score for score in found if score is not None]

    async def _scored(self, text: str, asked: Draw, first: First | None) -> Score:
        pool = shuffled(self.ground.pool, asked.workers)
        score = self.ground.environment.score
        if first is None:
            return await score(text, asked.item, pool)
        if first.outcome is None:
            return unasked(first.score)
        return await score(text, asked.item, pool, before=first.outcome)
