"""Evolves a job's head from what was gathered, and compares it with other ways to one."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from podium.policy.head import Head
from podium.policy.turns import texts_hash
from podium_lab.train.config import Job
from podium_lab.train.items import Item, fingerprint
from podium_lab.train.learner.trinity_arena import Arena, Floats
from podium_lab.train.learner.trinity_baselines import random_search, reinforce, supervised
from podium_lab.train.learner.trinity_evolve import evolve
from podium_lab.train.trinity.features import FILE, KeptStates
from podium_lab.train.trinity.gathering import Gathered, settings_of
from podium_lab.train.trinity.results import Comparison, Measured, Method
from podium_workers.weights.catalogue import weights_named

HEAD = "head.json"
SCALED: Method = "evolved with scales"
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Evolving:
    """A job's items and arena."""

    job: Job
    gathered: Gathered
    arena: Arena

    @classmethod
    def of(cls, job: Job, gathered: Gathered) -> "Evolving":
        """On the states that were gathered."""
        return cls(job, gathered, Arena(gathered.table, gathered.states, gathered.train))

    @classmethod
    def scaling(cls, job: Job, gathered: Gathered, models_dir: Path) -> "Evolving":
        """With a model that is scaled too (SVF).

        Raises:
            SettingsError, TrainingError: that model cannot be used so.
        """
        from podium_lab.train.learner.models import find_base
        from podium_lab.train.learner.quiet import quiet
        from podium_lab.train.learner.trinity_scales import ScaledArena, ScaledModel

        quiet()
        model = ScaledModel(find_base(job.model.base, models_dir), gathered.table.views)
        model.write(job.folder)  # what cannot be served is told before hours of evolution
        return cls(job, gathered, ScaledArena(gathered.table, model, gathered.train))

    def head(self, weights: Floats, folder: Path, **made: object) -> Head:
        """The head of these numbers, with how it was made; a model of its own is in *folder*."""
        model = self.job.model.base
        known = weights_named(model)
        sha256 = known.sha256 if known else ""
        if own := self.arena.write(weights, folder):
            model, sha256 = str(own.file), own.sha256
            kept = KeptStates(self.job.folder / FILE, model, sha256)
            for text, state in zip(self.gathered.table.views, own.states, strict=True):
                kept.keep(text, state)
        return self.arena.head(
            weights,
            model=model,
            sha256=sha256,
            prompts=texts_hash(),
            made={
                "workers": self.gathered.label,
                "items": fingerprint(self.gathered.train),
                "evolution": settings_of(self.job).model_dump(mode="json"),
                **made,
            },
        )

    def right(self, weights: Floats, items: Sequence[Item]) -> list[bool]:
        """Which of *items* a head answers right, as it is served: by its likeliest choices."""
        return self.arena.play(weights[None], self.arena.begins(items)).right[0].tolist()


def run(job: Job, gathered: Gathered, tell: Tell, *, models_dir: Path) -> Path:
    """Evolve the head of a job, going on from its checkpoint; the file that it is in.

    Raises:
        SettingsError, TrainingError: the model is to be scaled, and cannot be.
    """
    evolving = _evolving(job, gathered, models_dir)
    weights, curve = evolve(
        evolving.arena, gathered.train, settings_of(job),
        seed=job.seed, folder=job.folder, tell=tell,
    )  # fmt: skip
    right = round(float(np.mean(evolving.right(weights, gathered.train))), 4)
    made = {"seed": job.seed, "right": {"train": right}, "curve": curve[-1]}
    head = evolving.head(weights, job.folder, **made)
    file = job.folder / HEAD
    file.write_text(head.model_dump_json(), encoding="utf-8")
    return file


def _evolving(job: Job, gathered: Gathered, models_dir: Path) -> Evolving:
    if settings_of(job).svf:
        return Evolving.scaling(job, gathered, models_dir)
    return Evolving.of(job, gathered)


def compare(
    job: Job, gathered: Gathered, seeds: Sequence[int], tell: Tell, *, models_dir: Path
) -> Comparison:
    """Heads of all ways on held-out items, for each seed; the evolved ones are kept.

    Held-out items are touched only once everything is learned.

    Raises:
        SettingsError, TrainingError: the model is to be scaled, and cannot be.
    """
    evolving, settings = Evolving.of(job, gathered), settings_of(job)
    scaling = Evolving.scaling(job, gathered, models_dir) if settings.svf else None
    arena, train, test = evolving.arena, gathered.train, gathered.test
    learned: list[tuple[Method, int, Floats]] = []
    scaled: list[tuple[Method, int, Floats]] = []
    for seed in seeds:
        found: dict[Method, Floats] = {}
        found["evolved"], _ = evolve(arena, train, settings, seed=seed)
        found["random search"] = random_search(arena, train, settings, seed=seed)
        found["REINFORCE"] = reinforce(arena, train, settings, seed=seed)
        for method, weights in found.items():
            learned.append((method, seed, weights))
            share = float(np.mean(evolving.right(weights, train)))
            tell(f"{method}, seed {seed}: {share:.3f} right of what it was made from")
        kept, weights = evolving, found["evolved"]
        if scaling:
            kept, (weights, _) = scaling, evolve(scaling.arena, train, settings, seed=seed)
            scaled.append((SCALED, seed, weights))
            share = float(np.mean(scaling.right(weights, train)))
            tell(f"{SCALED}, seed {seed}: {share:.3f} right of what it was made from")
        head = kept.head(weights, job.folder / f"seed-{seed}", seed=seed)
        (job.folder / f"head-{seed}.json").write_text(head.model_dump_json(), encoding="utf-8")
    measured = [*_fixed(evolving), *(_measured(evolving, *one) for one in learned)]
    if scaling:
        measured += [_measured(scaling, *one) for one in scaled]
    return Comparison(
        label=gathered.label, model=job.model.base, train=len(train), test=len(test),
        episodes=settings.episodes, states=len(gathered.states), asked=gathered.table.asked,
        best=[gathered.table.best(item) for item in test], measured=tuple(measured),
    )  # fmt: skip


def _fixed(evolving: Evolving) -> list[Measured]:
    """What does not hang on a seed."""
    arena, train, test = evolving.arena, evolving.gathered.train, evolving.gathered.test
    supervised_heads: Mapping[Method, Floats] = {
        "SFT on the best worker": supervised(arena, train, everywhere=False),
        "SFT on the whole table": supervised(arena, train, everywhere=True),
    }
    found = [_measured(evolving, how, None, head) for how, head in supervised_heads.items()]
    alone = np.asarray([arena.table.alone(item) for item in train]).mean(axis=0)
    best = int(alone.argmax())
    right = [arena.table.alone(item)[best] for item in test]
    single = Measured(
        method="best single worker", seed=None, train=float(alone[best]), right=right, turns=1.0,
        note=arena.table.workers[best],
    )  # fmt: skip
    return [*found, single]


def _measured(evolving: Evolving, method: Method, seed: int | None, head: Floats) -> Measured:
    test = evolving.gathered.test
    played = evolving.arena.play(head[None], evolving.arena.begins(test))
    shares = np.bincount(played.roles[played.places >= 0].ravel(), minlength=3)
    learned = evolving.right(head, evolving.gathered.train)
    return Measured(
        method=method, seed=seed, train=float(np.mean(learned)), right=played.right[0].tolist(),
        turns=float(played.turns.mean()),
        note=json.dumps((shares / shares.sum()).round(2).tolist()),
    )  # fmt: skip
