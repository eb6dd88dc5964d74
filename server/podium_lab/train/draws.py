"""What a policy is asked in each iteration: items of all kinds, and for each a pool to plan for.

Everything is drawn from the seed, so that a job that was stopped goes on with the very questions
that it would have had.
"""

import random
from collections.abc import Iterator, Sequence

from pydantic import Field

from podium_lab.train.items import Item
from podium_workers.worker import Frozen


class Pools(Frozen):
    """Which workers an item's policy is shown (papers.md 1.9)."""

    fewest: int | None = Field(default=None, ge=1)
    """Workers at least, of which as many as chance wills are shown; None shows all of them."""
    shuffled: bool = False
    """Whether their order is drawn anew for each item; only for a policy that is told who they
    are: where workers are mere numbers, a number has to stay the same worker."""

    def draw(self, names: Sequence[str], chance: random.Random) -> tuple[str, ...]:
        """The workers for one item, in the order in which they are shown."""
        shown = list(names)
        if self.fewest is not None and self.fewest < len(shown):
            count = chance.randint(self.fewest, len(shown))
            kept = set(chance.sample(range(len(shown)), count))
            shown = [name for place, name in enumerate(shown) if place in kept]
        if self.shuffled:
            chance.shuffle(shown)
        return tuple(shown)


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


def _endless(items: Sequence[Item], chance: random.Random) -> Iterator[Item]:
    while True:
        yield from chance.sample(items, len(items))
