"""Evolves a head by separable CMA-ES (package `cma`): ask, play, tell, from any checkpoint on."""

import pickle
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from podium.policy.turns import TURNS
from podium_lab.train.errors import TrainingError
from podium_lab.train.items import Item, fingerprint
from podium_lab.train.learner.trinity_arena import Arena, Floats, Whole
from podium_lab.train.records import Generation, Records
from podium_lab.train.trinity.config import Evolution

with warnings.catch_warnings():  # it would like to plot
    warnings.simplefilter("ignore")
    import cma

CHECKPOINT = "evolution.pickle"


@dataclass
class Evolved:
    """How far an evolution has come. It is pickled whole, so that it goes on exactly as it was."""

    job: str
    """What is evolved; nothing else may go on from here."""
    search: Any
    """The library's own state."""
    chance: Any
    """State of numpy's chance, which the library draws from."""
    curve: list[float] = field(default_factory=list[float])
    """Share of right episodes in each generation."""


def evolve(
    arena: Arena,
    items: Sequence[Item],
    settings: Evolution,
    *,
    seed: int,
    folder: Path | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> tuple[Floats, list[float]]:
    """The numbers of the evolved head, the mean of the last generation, and how it came along.

    With *folder*, a checkpoint is kept there, and gone on from.

    Raises:
        TrainingError: the checkpoint is that of something else.
    """
    file = None if folder is None else folder / CHECKPOINT
    at = _begun(arena, items, settings, seed, file)
    begins = arena.begins(items)
    while len(at.curve) < settings.generations:
        heads = np.asarray(at.search.ask())
        rewards = arena.play(heads, *_episodes(begins, settings, seed, len(at.curve))).right
        shares = rewards.mean(axis=1)
        at.search.tell(list(heads), (-shares).tolist())
        at.curve.append(float(shares.mean()))
        if file and len(at.curve) % settings.checkpoint_every == 0:
            at.chance = np.random.get_state()
            _save(file, at)
            _note(file.parent, at.curve)
            tell(f"generation {len(at.curve)}: {at.curve[-1]:.3f} right")
    if folder:
        _note(folder, at.curve)
    return np.asarray(at.search.result.xfavorite), at.curve


def _episodes(
    begins: Whole, settings: Evolution, seed: int, generation: int
) -> tuple[Any, Floats | None]:
    """The episodes of a generation: the same ones, with the same chance, for all of its heads."""
    chance = np.random.default_rng((seed, generation))
    chosen = chance.choice(
        begins, settings.replications, replace=settings.replications > len(begins)
    )
    return chosen, chance.random((len(chosen), TURNS, 2)) if settings.sampled else None


def _begun(
    arena: Arena, items: Sequence[Item], settings: Evolution, seed: int, file: Path | None
) -> Evolved:
    same = settings.model_dump_json(exclude={"generations", "checkpoint_every"})
    job = f"{seed}/{fingerprint(items)}/{arena.size}/{arena.mean.sum():.12g}/{same}"
    if file and file.exists():
        at: Evolved = pickle.loads(file.read_bytes())  # our own, from the job's own folder
        if at.job != job:
            raise TrainingError(
                f"{file}: this evolution was begun with other items, states or settings; set "
                "another `folder`, or put them back."
            )
        np.random.set_state(at.chance)
        return at
    options: dict[str, Any] = {
        "CMA_diagonal": True, "popsize": settings.population, "seed": seed + 1, "verbose": -9,
    }  # fmt: skip
    if (steps := arena.steps(settings.sigma, settings.svf_sigma)) is not None:
        options["CMA_stds"] = steps
    search = cma.CMAEvolutionStrategy(np.zeros(arena.size), settings.sigma, options)
    return Evolved(job, search, np.random.get_state())


def _note(folder: Path, curve: Sequence[float]) -> None:
    generations = (Generation(number=n, right=right) for n, right in enumerate(curve, start=1))
    Records(folder).evolved(tuple(generations))


def _save(file: Path, at: Evolved) -> None:
    part = file.with_suffix(".part")
    part.write_bytes(pickle.dumps(at))
    part.replace(file)
