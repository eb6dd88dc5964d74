"""What a policy is asked in each iteration: items of all kinds, and for each a pool to plan for.

Everything is drawn from the seed, so that a job that was stopped goes on with the very questions
that it would have had.
"""

import hashlib
import random
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Literal, Self

from pydantic import Field, model_validator

from podium.errors import SettingsError
from podium_lab.train.items import Item
from podium_workers.worker import Frozen

Which = Literal["whole", "seen", "unseen"]
"""Pools that items are looked at with: all workers, or sets of fewer that training draws, or such
as it never does."""
WHICH: tuple[Which, ...] = ("whole", "seen", "unseen")


class Pools(Frozen):
    """Which workers an item's policy is shown (papers.md 1.9)."""

    fewest: int | None = Field(default=None, ge=1)
    """Workers at least, of which as many as chance wills are shown; None shows all of them."""
    shuffled: bool = False
    """Whether their order is drawn anew for each item; only for a policy that is told who they
    are: where workers are mere numbers, a number has to stay the same worker."""
    kept_back: float | tuple[tuple[str, ...], ...] = 0.0
    """Sets of workers that training never shows, so that it can be told how the policy does with
    pools that it has not met: the sets, or what share of all sets, chosen by the hash of their
    names. All workers together are always shown."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.kept_back and self.fewest is None:
            raise ValueError("kept_back needs fewest: all questions show all workers without it")
        if not isinstance(self.kept_back, tuple) and not 0 <= self.kept_back < 1:
            raise ValueError("kept_back: a share from 0 to below 1, or a list of lists of workers")
        return self

    def sets(self, names: Sequence[str], which: Which) -> tuple[tuple[str, ...], ...]:
        """The sets of workers of a kind, each in the pool's order.

        Raises:
            SettingsError: there are none, or one that is kept back cannot be drawn at all.
        """
        if which == "whole":
            return (tuple(names),)
        back = self._kept_back(names)
        found = tuple(it for it in self._smaller(names) if (it in back) == (which == "unseen"))
        if not found:
            raise SettingsError(
                f"workers.shown: there is no {which} pool of fewer than all workers; set fewest, "
                "and kept_back before training."
            )
        return found

    def _smaller(self, names: Sequence[str]) -> tuple[tuple[str, ...], ...]:
        counts = range(self.fewest or len(names), len(names))
        return tuple(some for count in counts for some in combinations(names, count))

    def _kept_back(self, names: Sequence[str]) -> frozenset[tuple[str, ...]]:
        if not self.kept_back:
            return frozenset()
        every = self._smaller(names)
        if not isinstance(self.kept_back, tuple):
            ranked = sorted(every, key=_hash)
            return frozenset(ranked[: max(1, round(self.kept_back * len(every)))])
        back = {tuple(name for name in names if name in some) for some in self.kept_back}
        for given in self.kept_back:
            if set(given) - set(names) or not back.issubset(every):
                raise SettingsError(
                    f"workers.shown.kept_back: {', '.join(given)} is no set of {self.fewest} to "
                    f"{len(names) - 1} workers of the pool, which has {', '.join(names)}."
                )
        return frozenset(back)

    def draw(self, names: Sequence[str], chance: random.Random) -> tuple[str, ...]:
        """The workers for one item of the training, in the order in which they are shown."""
        shown, back = tuple(names), self._kept_back(names)
        if self.fewest is not None and self.fewest < len(names):
            shown = self._some(names, chance)
            while shown in back:
                shown = self._some(names, chance)
        return self._in_order(shown, chance)

    def _some(self, names: Sequence[str], chance: random.Random) -> tuple[str, ...]:
        count = chance.randint(self.fewest or 1, len(names))
        kept = set(chance.sample(range(len(names)), count))
        return tuple(name for place, name in enumerate(names) if place in kept)

    def _in_order(self, shown: tuple[str, ...], chance: random.Random) -> tuple[str, ...]:
        return tuple(chance.sample(shown, len(shown))) if self.shuffled else shown


def _hash(names: Sequence[str]) -> str:
    return hashlib.sha256("\0".join(sorted(names)).encode()).hexdigest()


class Draw(Frozen):
    """One question to a policy, asked as often as a group has rollouts."""

    iteration: int
    item: Item
    workers: tuple[str, ...]


def draws(
    items: Sequence[Item],
    workers: Sequence[str],
    *,
    iterations: int,
    questions: int,
    seed: int,
    pools: Pools | None = None,
) -> Iterator[Draw]:
    """*questions* draws for each of *iterations*, the kinds of items as even as they can be.

    Every kind goes through all of its items before one comes again.
    """
    chance = random.Random(seed)
    kinds = sorted({item.kind for item in items})
    decks = {kind: _endless([it for it in items if it.kind == kind], chance) for kind in kinds}
    order: list[str] = []
    for iteration in range(iterations):
        for _ in range(questions):
            if not order:
                order = chance.sample(kinds, len(kinds))
            item = next(decks[order.pop()])
            shown = (pools or Pools()).draw(workers, chance)
            yield Draw(iteration=iteration, item=item, workers=shown)


def looks(
    items: Sequence[Item], workers: Sequence[str], *, pools: Pools, which: Which
) -> tuple[Draw, ...]:
    """One draw for each item, with a pool of that kind; an item always gets the same one.

    Raises:
        SettingsError: there is no such pool.
    """
    sets = pools.sets(workers, which)
    return tuple(
        Draw(iteration=0, item=item, workers=random.Random(f"{which}:{item.id}").choice(sets))
        for item in items
    )


def _endless(items: Sequence[Item], chance: random.Random) -> Iterator[Item]:
    while True:
        yield from chance.sample(items, len(items))
