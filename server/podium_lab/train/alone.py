"""What is known of each worker alone, and what plans are measured against it.

*Regret* asks what was possible: how much less often plans are right than some worker alone is,
chosen anew for every item. *Gain* asks what they are worth: how much more often they are right than
the best single worker at equal spend, chosen once for a pool. *Routing* asks who is chosen, apart
from what comes of it. All three count the workers that were shown to the policy, no others.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet

from pydantic import Field

from podium_lab.train.environment import Score
from podium_workers.worker import Frozen


class Spend(Frozen):
    """What so many calls of workers take."""

    calls: float = 0.0
    tokens: float = 0.0
    usd: float | None = 0.0
    """At the prices of the workers' cards, also where a kept reply is given again; None where a
    price is unknown."""

    @classmethod
    def of(cls, scores: Iterable[Score]) -> "Spend":
        """Of plans that were carried out."""
        return sum(
            (
                cls(
                    calls=len(score.workers),
                    tokens=score.usage.input_tokens + score.usage.output_tokens,
                    usd=score.price_usd,
                )
                for score in scores
            ),
            cls(),
        )

    def __add__(self, other: "Spend") -> "Spend":
        unknown = self.usd is None or other.usd is None
        return Spend(
            calls=self.calls + other.calls,
            tokens=self.tokens + other.tokens,
            usd=None if unknown else (self.usd or 0.0) + (other.usd or 0.0),
        )

    def share(self, count: float) -> "Spend":
        """One of *count* equal parts."""
        usd = None if self.usd is None else self.usd / count
        return Spend(calls=self.calls / count, tokens=self.tokens / count, usd=usd)


class Reference(Frozen):
    """What is known before training: which workers answer an item alone, and what that takes."""

    right: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Workers that are right alone, by item; items that are not named are not profiled."""
    asked: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Workers that were asked about an item; of items that are not named, all in `names` were."""
    voted: dict[str, dict[str, tuple[bool, ...]]] = Field(default_factory=dict)
    """By item and worker, whether the answer that its first one, two, three … replies give most
    often is right; only where each was asked several times."""
    spent: dict[str, Spend] = Field(default_factory=dict)
    """What the calls of each worker took, all together; empty for simulated workers, who cost
    calls."""
    goals: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """The skills that an item takes, in order; known of generated items only."""
    skills: dict[str, dict[str, float]] = Field(default_factory=dict)
    """How much of a kind of work each worker can do; known of simulated workers only."""

    @property
    def names(self) -> tuple[str, ...]:
        """The workers of which anything is known."""
        able = {name for names in self.right.values() for name in names}
        return tuple(sorted(able | set(self.spent) | set(self.skills)))

    def is_known(self, item: str, workers: Sequence[str]) -> bool:
        """Whether each of *workers* was asked about an item."""
        return item in self.right and set(workers) <= set(self.asked.get(item, workers))

    def is_right(self, item: str, worker: str, calls: int = 1) -> bool:
        """Whether a worker alone is right on an item when it is asked so often, at most as often as
        it was profiled."""
        votes = self.voted.get(item, {}).get(worker, ())
        return votes[min(calls, len(votes)) - 1] if votes else worker in self.right[item]

    def most_calls(self, worker: str) -> int:
        """How often a worker was asked about each item when it was profiled."""
        counts = [len(votes[worker]) for votes in self.voted.values() if worker in votes]
        return max(counts, default=1)

    def best_single(
        self,
        items: Iterable[str],
        among: Sequence[str] = (),
        calls: Mapping[str, int] | None = None,
    ) -> tuple[str, float]:
        """The worker that is right alone most often on *items*, and how often; ("", 0) of none.

        *among* are those to choose from, all when empty; *calls* how often each may be asked.
        """
        names = tuple(among) or self.names
        known = [item for item in items if self.is_known(item, names)]
        if not known or not names:
            return "", 0.0
        shares = [
            (sum(self.is_right(item, name, (calls or {}).get(name, 1)) for item in known), name)
            for name in names
        ]
        count, name = max(shares)
        return name, count / len(known)

    def fit(self, kind: str, shown: Sequence[str]) -> frozenset[str]:
        """The workers for a kind of work: of those shown, the ones that can do most of it."""
        able = {name: self.skills.get(name, {}).get(kind, 0.0) for name in shown or self.names}
        best = max(able.values(), default=0.0)
        return frozenset(name for name, share in able.items() if best and share == best)

    def is_routed(self, score: Score) -> bool | None:
        """Whether a plan gives every skill that its item takes to a worker for it, in order.

        Whether the later step then reads the earlier one, and whether the worker succeeds, is not
        asked: that is what right answers tell. None where skills are not known, where nobody shown
        has one of them, or where no plan could be read.
        """
        kinds = self.goals.get(score.item, ())
        wanted: list[AbstractSet[str]] = [self.fit(kind, score.shown) for kind in kinds]
        if not score.valid or not all(wanted) or not wanted:
            return None
        for name in score.workers:
            while wanted and name in wanted[0]:
                wanted = wanted[1:]
        return not wanted


class Against(Frozen):
    """How plans compare with workers alone, on items of which that is known."""

    regret: float
    gain: float
    single: str
    """The best single worker; of several pools, the one that is best in most of the plans'."""
    single_calls: int
    """How often it was asked about each item."""
    spend_ratio: float
    """What plans spend, as a multiple of what one call of it takes."""
    unit: str
    """What is spent: USD, tokens or calls."""


def against(scores: Sequence[Score], reference: Reference) -> Against | None:
    """First rounds that were not dropped against workers alone; None where nothing is known.

    Equal spend: a single worker may be asked about each item as often as what plans spend on the
    mean pays for, rounded down, but once at least. Spend is in US dollars where the prices of all
    are known and not zero, else in the workers' tokens, else in calls; the policy's own tokens are
    not counted. Of several answers of one worker the most frequent counts, the earliest of equals
    (self-consistency); where answers cannot be compared, as programs, and for simulated workers,
    who repeat themselves, asking again changes nothing. No worker is asked more often than it was
    profiled (`podium train profile --repeats`): a ratio above the calls says that it was not.

    The best single worker is chosen for each pool by all items that are known, not by those that
    are looked at here: so it is chosen as a user would, and with more knowledge than the policy.
    """
    known = [score for score in scores if reference.is_known(score.item, score.shown)]
    if not known:
        return None
    spent, unit = _spent(known, reference)
    calls = {
        name: max(1, min(reference.most_calls(name), _times(spent, reference, name, unit)))
        for name in {*reference.names, *(name for score in known for name in score.shown)}
    }
    pools = {score.shown for score in known}
    best = {pool: reference.best_single(reference.right, pool, calls)[0] for pool in pools}
    singles = [best[score.shown] for score in known]
    found = sum(bool(score.right) for score in known)
    alone = sum(
        bool(name) and reference.is_right(score.item, name, calls[name])
        for score, name in zip(known, singles, strict=True)
    )
    possible = sum(_any_right(score, reference) for score in known)
    single = max(sorted(set(singles)), key=singles.count)
    return Against(
        regret=(possible - found) / len(known),
        gain=(found - alone) / len(known),
        single=single,
        single_calls=calls.get(single, 1),
        spend_ratio=sum(_ratio(spent, reference, name, unit) for name in singles) / len(known),
        unit=unit,
    )


def routed(scores: Iterable[Score], reference: Reference) -> float | None:
    """Share of the readable plans that give every skill to a worker for it; None of none."""
    known = [is_so for score in scores if (is_so := reference.is_routed(score)) is not None]
    return sum(known) / len(known) if known else None


def _any_right(score: Score, reference: Reference) -> bool:
    shown = score.shown or reference.names
    return any(reference.is_right(score.item, name) for name in shown)


def _spent(scores: Sequence[Score], reference: Reference) -> tuple[Spend, str]:
    """What a plan spends on the mean, unreadable ones among them, and in what it is to be told."""
    spent, alone = Spend.of(scores).share(len(scores)), reference.spent.values()
    if alone and spent.usd and all(it.usd for it in alone):
        return spent, "USD"
    return spent, "tokens" if alone and all(it.tokens for it in alone) else "calls"


def _times(spent: Spend, reference: Reference, name: str, unit: str) -> int:
    return math.floor(_ratio(spent, reference, name, unit) + 1e-9)


def _ratio(spent: Spend, reference: Reference, name: str, unit: str) -> float:
    """What a plan spends, in calls of one worker."""
    known = reference.spent.get(name)
    one = known.share(known.calls) if known else Spend(calls=1)
    if unit == "USD" and one.usd:
        return (spent.usd or 0.0) / one.usd
    return spent.tokens / one.tokens if unit == "tokens" and one.tokens else spent.calls
