"""What a comparison of heads came to: its figures with intervals, and the table of them."""

import random
from collections.abc import Sequence
from typing import Literal, get_args

from podium_workers.worker import Frozen

COMPARISON = "comparison.json"
"""File of a job's folder that a comparison is kept in."""
Method = Literal[
    "evolved", "evolved with scales", "SFT on the whole table", "SFT on the best worker",
    "REINFORCE", "random search", "best single worker",
]  # fmt: skip
METHODS: tuple[Method, ...] = get_args(Method)
RESAMPLES = 2000


class Measured(Frozen):
    """One head on held-out items."""

    method: Method
    seed: int | None
    """None where chance has no part in it."""
    train: float
    """Share that it has right of what it was made from."""
    right: list[bool]
    """For each held-out item."""
    turns: float
    """Of an episode, on the mean."""
    note: str = ""
    """Shares of the roles Thinker, Worker and Verifier in its turns, or which worker it is."""

    @property
    def share(self) -> float:
        return sum(self.right) / len(self.right)


class Comparison(Frozen):
    """All heads of a comparison."""

    label: str
    """live, replay or simulated: what the workers are."""
    model: str
    train: int
    test: int
    episodes: int
    """That each way with chance in it was given."""
    states: int
    asked: int
    """Replies of workers in the table."""
    best: list[bool]
    """For each held-out item, whether any play of it ends right."""
    measured: tuple[Measured, ...]

    def of(self, method: Method) -> tuple[Measured, ...]:
        return tuple(found for found in self.measured if found.method == method)

    def interval(self, method: Method, over: Method | None = None) -> tuple[float, float, float]:
        """Mean share over the seeds, or by how much it is above another way's, with 95 % limits.

        Items are drawn anew, each with what all seeds made of it: the seeds share the items.
        """
        own = _by_item(self.of(method))
        if over is not None:
            own = [a - b for a, b in zip(own, _by_item(self.of(over)), strict=True)]
        chance = random.Random(0)
        means = sorted(_mean(chance.choices(own, k=len(own))) for _ in range(RESAMPLES))
        return _mean(own), means[RESAMPLES // 40], means[-1 - RESAMPLES // 40]

    @property
    def table(self) -> str:
        """As Markdown."""
        lines = [
            f"Workers: {self.label}. Coordinator: {self.model}. {self.train} items to learn from, "
            f"{self.test} held out; {self.states} states, {self.asked} replies; "
            f"{self.episodes} episodes for each way and seed. Any play at all is right on "
            f"{_mean([float(one) for one in self.best]):.3f}.",
            "",
            "| way | held out, 95 % | by seed | learned from | turns | evolved better by, 95 % |",
            "|---|---|---|---|---|---|",
        ]
        lines += [self._line(method, self.of(method)) for method in METHODS if self.of(method)]
        return "\n".join(lines)

    def _line(self, method: Method, found: Sequence[Measured]) -> str:
        seeds = " ".join(f"{one.share:.3f}" for one in found)
        learned = _mean([one.train for one in found])
        turns = _mean([one.turns for one in found])
        better = "" if method == "evolved" else _told(self.interval("evolved", method), sign=True)
        own = _told(self.interval(method))
        return f"| {method} | {own} | {seeds} | {learned:.3f} | {turns:.1f} | {better} |"


def _told(interval: tuple[float, float, float], *, sign: bool = False) -> str:
    mean, low, high = (f"{value:+.3f}" if sign else f"{value:.3f}" for value in interval)
    return f"{mean} ({low} to {high})"


def _by_item(found: Sequence[Measured]) -> list[float]:
    items = zip(*(one.right for one in found), strict=True)
    return [_mean([float(right) for right in seeds]) for seeds in items]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
