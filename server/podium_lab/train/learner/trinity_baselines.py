"""Other ways to a head, on the same episodes: random search, REINFORCE, supervised learning."""

from collections.abc import Sequence

import numpy as np

from podium.policy.head import ROLES
from podium.policy.turns import TURNS
from podium_lab.train.items import Item
from podium_lab.train.learner.trinity_arena import Arena, Floats, Whole, softmax
from podium_lab.train.trinity.config import Evolution
from podium_lab.train.trinity.table import RIGHT

_WORK, _CHECK = ROLES.index("worker"), ROLES.index("verifier")
REACH = 0.5
"""Random search draws every number from minus to plus this (papers.md 2.2)."""
FINALISTS = 32
"""Of the heads of a random search, those that play every item before the best one is taken."""


class Adam:
    """Adam's steps, uphill."""

    def __init__(self, size: int, rate: float) -> None:
        self.rate = rate
        self.first, self.second, self.count = np.zeros(size), np.zeros(size), 0

    def step(self, gradient: Floats) -> Floats:
        self.count += 1
        self.first = 0.9 * self.first + 0.1 * gradient
        self.second = 0.999 * self.second + 0.001 * gradient**2
        first = self.first / (1 - 0.9**self.count)
        second = self.second / (1 - 0.999**self.count)
        return self.rate * first / (np.sqrt(second) + 1e-8)


def random_search(arena: Arena, items: Sequence[Item], settings: Evolution, *, seed: int) -> Floats:
    """The best of as many heads as an evolution tries, each on as many episodes."""
    chance = np.random.default_rng(seed)
    begins = arena.begins(items)
    tried: list[tuple[float, Floats]] = []
    for _ in range(settings.generations):
        heads = chance.uniform(-REACH, REACH, (settings.population, arena.size))
        chosen = chance.choice(begins, settings.replications, replace=True)
        shares = arena.play(heads, chosen).right.mean(axis=1)
        tried += [(float(share), head) for share, head in zip(shares, heads, strict=True)]
        tried = sorted(tried, key=lambda found: -found[0])[:FINALISTS]
    finalists = np.stack([head for _, head in tried])
    return finalists[arena.play(finalists, begins).right.mean(axis=1).argmax()]


def reinforce(
    arena: Arena, items: Sequence[Item], settings: Evolution, *, seed: int, rate: float = 0.1
) -> Floats:
    """Policy gradient by the same number of episodes, with the batch's mean as its baseline."""
    chance = np.random.default_rng(seed)
    begins = arena.begins(items)
    weights, adam = np.zeros(arena.size), Adam(arena.size, rate)
    count = settings.population * settings.replications
    for _ in range(settings.generations):
        chosen = chance.choice(begins, count, replace=True)
        drawn = chance.random((count, TURNS, 2))
        played = arena.play(weights[None], chosen, drawn)
        gained = played.right[0] - played.right[0].mean()
        gradient = np.zeros((arena.rows, arena.features.shape[1]))
        for turn in range(arena.table.turns):
            gradient += _towards(
                arena, weights, played.places[turn, 0], played.workers[turn, 0],
                played.roles[turn, 0], gained,
            )  # fmt: skip
        weights = weights + adam.step(gradient.ravel() / count)
    return weights


def _towards(
    arena: Arena, weights: Floats, places: Whole, workers: Whole, roles: Whole, gained: Floats
) -> Floats:
    """Gradient of the likelihood of what was chosen at *places*, times what it has gained."""
    plays = places >= 0
    at = places[plays]
    features = arena.features[arena.view_of[at]]
    logits = features @ weights.reshape(arena.rows, -1).T
    count = len(arena.table.workers)
    of_roles = logits[:, count:].copy()
    of_roles[:, _CHECK] = np.where(arena.may_verify[at], of_roles[:, _CHECK], -np.inf)
    off = -np.concatenate([softmax(logits[:, :count]), softmax(of_roles)], axis=1)
    rows = np.arange(len(at))
    off[rows, workers[plays]] += 1
    off[rows, count + roles[plays]] += 1
    off[arena.forced[at] >= 0, count:] = 0.0  # there the head had no say
    return (off * gained[plays, None]).T @ features


def supervised(
    arena: Arena, items: Sequence[Item], *, everywhere: bool, steps: int = 1000,
    rate: float = 0.3, decay: float = 1e-5,
) -> Floats:  # fmt: skip
    """Learns who is right on each item (papers.md 2.2, SFT on the best worker).

    With *everywhere*, from the whole table: at every place all turns of a shortest right play. That
    needs every turn tried out at every place, which evolution does not, and is no rival but a look
    at what a head can hold.
    """
    views, targets = (_all_plays if everywhere else _first_work)(arena, items)
    features = arena.features[views]
    weights, adam = np.zeros((arena.rows, features.shape[1])), Adam(arena.size, rate)
    count = len(arena.table.workers)
    for _ in range(steps):
        logits = features @ weights.T
        sure = np.concatenate([softmax(logits[:, :count]), softmax(logits[:, count:])], axis=1)
        gradient = (targets - sure).T @ features / len(views) - decay * weights
        weights = weights + adam.step(gradient.ravel()).reshape(weights.shape)
    return weights.ravel()


def _first_work(arena: Arena, items: Sequence[Item]) -> tuple[Whole, Floats]:
    """For the beginnings of items: the workers that are right alone, and the role of a Worker."""
    views: list[int] = []
    targets: list[Floats] = []
    for item in items:
        alone = np.asarray(arena.table.alone(item), dtype=np.float64)
        if alone.any():
            role = np.zeros(len(ROLES))
            role[_WORK] = 1.0
            views.append(arena.table.view_of[arena.table.begins[item.id]])
            targets.append(np.concatenate([alone / alone.sum(), role]))
    return np.asarray(views), np.stack(targets)


def _all_plays(arena: Arena, items: Sequence[Item]) -> tuple[Whole, Floats]:
    """For what may be read in episodes of items: the turns that shortest right plays go on with."""
    far = _distances(arena)
    found: dict[int, list[Floats]] = {}
    for place in sorted(_reached(arena, items)):
        good = _good(arena, far, place)
        if good.any() and arena.forced[place] < 0 and arena.may_verify[place]:
            shared = good / good.sum()
            target = np.concatenate([shared.sum(axis=1), shared.sum(axis=0)])
            found.setdefault(int(arena.view_of[place]), []).append(target)
    return np.asarray(list(found)), np.stack([np.mean(each, axis=0) for each in found.values()])


def _left(leads: Whole, far: Floats) -> Floats:
    """Turns that are left once a turn has led there."""
    return np.where(leads >= 0, far[np.maximum(leads, 0)], np.where(leads == RIGHT, 0.0, np.inf))


def _good(arena: Arena, far: Floats, place: int) -> Floats:
    """Which turns, by worker and role, are among the best at a place."""
    left = _left(arena.leads[place], far)
    is_best = left == left.min() if np.isfinite(left.min()) else np.zeros(left.shape)
    return is_best.astype(np.float64)


def _distances(arena: Arena) -> Floats:
    """Turns that are still needed from each place until a right answer is accepted."""
    far = np.full(len(arena.right), np.inf)
    for _ in range(arena.table.turns):
        far = np.minimum(far, 1 + _left(arena.leads, far).min(axis=(1, 2)))
    return far


def _reached(arena: Arena, items: Sequence[Item]) -> set[int]:
    left = [arena.table.begins[item.id] for item in items]
    seen = set[int]()
    while left:
        place = left.pop()
        if place not in seen:
            seen.add(place)
            left += [int(n) for n in arena.leads[place].ravel() if n >= 0]
    return seen
