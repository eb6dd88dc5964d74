"""Where heads play: a table of outcomes and the states of its views, as arrays.

All heads of a generation play all episodes at once: a turn is a look-up.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from podium.policy.head import ROLES, Head
from podium_lab.train.items import Item
from podium_lab.train.trinity.table import RIGHT, Table, views_of

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]
_VERIFIER = ROLES.index("verifier")


@dataclass(frozen=True)
class Played:
    """What became of episodes: one row for each head, one column for each episode."""

    right: NDArray[np.bool_]
    turns: Whole
    places: Whole
    """Where each turn was chosen, by turn; below 0 where the episode was over."""
    workers: Whole
    roles: Whole


@dataclass(frozen=True)
class OwnModel:
    """A model that belongs to one head alone."""

    file: Path
    sha256: str
    states: list[list[float]]
    """Of the table's views: what reads them where it is served need not be here."""


class Arena:
    """Episodes of a table's items."""

    def __init__(
        self, table: Table, states: Sequence[Sequence[float]] | Floats, training: Sequence[Item]
    ) -> None:
        """*states* are those of the table's views; *training* says which set the scale."""
        self.table = table
        raw = np.asarray(states, dtype=np.float64)
        own = raw[sorted(views_of(table, training))]
        self.mean: Floats = own.mean(axis=0)
        self.deviation: Floats = np.maximum(own.std(axis=0), 1e-6)
        self.features: Floats = self.scaled(raw)
        self.view_of: Whole = np.asarray(table.view_of)
        self.leads: Whole = np.asarray(table.leads)
        self.right = np.asarray(table.right)
        self.forced: Whole = np.asarray(table.forced)
        self.may_verify = np.asarray(table.may_verify)

    @property
    def rows(self) -> int:
        """Rows of a head: a logit each."""
        return len(self.table.workers) + len(ROLES)

    @property
    def size(self) -> int:
        """Numbers of a head."""
        return self.rows * self.features.shape[1]

    def scaled(self, states: Floats) -> Floats:
        """States as a head reads them."""
        return (states - self.mean) / (self.deviation * np.sqrt(states.shape[1]))

    def steps(self, sigma: float, svf_sigma: float) -> Floats | None:
        """First steps of each number, in parts of *sigma*; None where all are alike."""
        return None

    def write(self, weights: Floats, folder: Path) -> OwnModel | None:
        """The model that belongs to a head, written to *folder*; None where it has none."""
        return None

    def logits(self, heads: Floats, begins: Whole) -> Floats:
        """For each head and view its logits; at least of views that come up from *begins*."""
        of_heads = heads.reshape(len(heads), self.rows, -1)
        return np.einsum("prd,vd->pvr", of_heads, self.features, optimize=True)

    def begins(self, items: Sequence[Item]) -> Whole:
        """Where the episodes of *items* begin."""
        return np.asarray([self.table.begins[item.id] for item in items])

    def play(self, heads: Floats, begins: Whole, chance: Floats | None = None) -> Played:
        """Let each of *heads* play an episode from each of *begins*.

        *chance* has two numbers from 0 to 1 for each episode and turn, the same for all heads; each
        choice is the likeliest one without it.
        """
        logits = self.logits(heads, begins)
        which = np.arange(len(heads))[:, None]
        place = np.repeat(begins[None, :], len(heads), axis=0)
        turns = np.zeros_like(place)
        seen: list[tuple[Whole, Whole, Whole]] = []
        for turn in range(self.table.turns):
            goes_on = place >= 0
            at = np.where(goes_on, place, 0)
            found = logits[which, self.view_of[at]]
            drawn = None if chance is None else chance[None, :, turn]
            worker = _chosen(found[..., : -len(ROLES)], None if drawn is None else drawn[..., 0])
            role = self._role(
                at, found[..., -len(ROLES) :], None if drawn is None else drawn[..., 1]
            )
            seen.append((np.where(goes_on, place, -1), worker, role))
            place = np.where(goes_on, self.leads[at, worker, role], place)
            turns += goes_on
        right = (place == RIGHT) | ((place >= 0) & self.right[np.maximum(place, 0)])
        places, workers, roles = (np.stack(parts) for parts in zip(*seen, strict=True))
        return Played(right, turns, places, workers, roles)

    def _role(self, at: Whole, logits: Floats, drawn: Floats | None) -> Whole:
        allowed = logits.copy()
        allowed[..., _VERIFIER] = np.where(self.may_verify[at], allowed[..., _VERIFIER], -np.inf)
        forced = self.forced[at]
        return np.where(forced >= 0, forced, _chosen(allowed, drawn))

    def head(self, weights: Floats, **known: object) -> Head:
        """The head of these numbers, as the server reads it; *known* is all else about it."""
        rows = weights.reshape(self.rows, -1)
        return Head.model_validate(
            {
                **known,
                "workers": self.table.workers,
                "mean": self.mean.tolist(),
                "deviation": self.deviation.tolist(),
                "weights": rows.tolist(),
            }
        )


def softmax(logits: Floats) -> Floats:
    """Along the last axis."""
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def _chosen(logits: Floats, drawn: Floats | None) -> Whole:
    if drawn is None:
        return logits.argmax(axis=-1)
    below = np.cumsum(softmax(logits), axis=-1) < drawn[..., None]
    return np.minimum(below.sum(axis=-1), logits.shape[-1] - 1)
