"""A proof: the same job from several seeds, each measured on the sealed test part, once.

What it runs goes on where it was stopped, and what is there already is not run again. `proof_table`
makes a table of it.
"""

import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from podium_lab.train.alone import Reference
from podium_lab.train.config import Job
from podium_lab.train.draws import WHICH, Which
from podium_lab.train.errors import TrainingError
from podium_lab.train.items import Item
from podium_lab.train.opening import load_items
from podium_lab.train.profiled import REPLIES
from podium_lab.train.records import (
    MAY_CHANGE,
    TRAINED,
    UNTRAINED,
    Begun,
    Ended,
    Look,
    Records,
    Seen,
)
from podium_lab.train.reference import FILE, reference_of
from podium_lab.train.stopwatch import Time

MODELS = (UNTRAINED, TRAINED)
TABLE = "table.md"

Train = Callable[[Job], object]
"""Runs a job to its end, or goes on with it."""
Evaluate = Callable[[Job, str, Which], object]
"""Looks at one of the two models on the test part, with pools of a kind."""


@dataclass(frozen=True)
class Looked:
    """One model of one seed on the sealed test part."""

    seed: int
    look: Look
    scores: tuple[Seen, ...]
    """First rounds that were not dropped."""
    dropped: int

    @property
    def about(self) -> tuple[str, Which]:
        return self.look.name, self.look.pools


@dataclass(frozen=True)
class Ran:
    """How the training of one seed went."""

    seed: int
    ended: Ended
    times: tuple[Time, ...]


@dataclass(frozen=True)
class Proof:
    """All that was measured."""

    begun: Begun
    """Of the first seed; the others differ in seed and in what may change as a job goes on."""
    items: tuple[Item, ...]
    """Of the test part."""
    reference: Reference | None
    ran: tuple[Ran, ...]
    looked: tuple[Looked, ...]

    def of(self, name: str, pools: Which = "whole") -> tuple[Looked, ...]:
        """The looks of all seeds at one of the two models."""
        return tuple(it for it in self.looked if it.about == (name, pools))


def job_of(job: Job, seed: int, out: Path) -> Job:
    """The job as it is run from a seed: what is random in training changes, no item, no worker."""
    return job.model_copy(update={"seed": seed, "folder": out / f"seed-{seed}"})


def pools_of(job: Job) -> tuple[Which, ...]:
    """The kinds of pools that a job is measured with."""
    return WHICH if job.workers.shown.kept_back else ("whole",)


def prove(
    job: Job,
    seeds: Iterable[int],
    out: Path,
    *,
    train: Train,
    evaluate: Evaluate,
    tell: Callable[[str], None],
) -> None:
    """Run what is missing: the training of each seed, and its looks at the sealed test part.

    A job that a stop rule has ended is measured as it is. No look is made twice.
    """
    for seed in seeds:
        own = job_of(job, seed, out)
        records = Records(own.folder)
        if records.ended() is None:
            _take_over(job.folder, own.folder)
            tell(f"seed {seed}: training in {own.folder}")
            train(own)
        for pools in pools_of(own):
            for name in MODELS:
                if not records.has_looked(name, pools):
                    tell(f"seed {seed}: the sealed test part, {name}, {pools} pools")
                    evaluate(own, name, pools)


def _take_over(from_folder: Path, to: Path) -> None:
    """What was profiled for the job itself, so that no live worker is asked again for a seed."""
    to.mkdir(parents=True, exist_ok=True)
    for name in (FILE, REPLIES):
        if (from_folder / name).exists() and not (to / name).exists():
            shutil.copyfile(from_folder / name, to / name)


def gather(job: Job, out: Path) -> Proof:
    """What there is of a proof in a folder; seeds whose looks are not all made are left out.

    Raises:
        TrainingError: there is no seed that is done, one was trained on after it was measured, or
            they were begun with different settings.
    """
    found = sorted((int(path.name.removeprefix("seed-")), path) for path in out.glob("seed-*"))
    done = [(seed, Records(path)) for seed, path in found if _is_done(Records(path))]
    if not done:
        raise TrainingError(f"{out}: no seed is done yet; run `podium train prove` to its end.")
    for _, records in done:
        _see_its_own(records)
    begun = [records.begun() for _, records in done]
    if len({_shared(it) for it in begun}) > 1:
        raise TrainingError(
            f"{out}: its seeds were begun with different settings or items; use a new folder."
        )
    items = load_items(job)
    return Proof(
        begun=begun[0],
        items=tuple(item for item in items if item.id in _asked(done)),
        reference=reference_of(begun[0].job.model_copy(update={"folder": found[0][1]}), items),
        ran=tuple(_ran(seed, records) for seed, records in done),
        looked=tuple(it for seed, records in done for it in _looks(seed, records)),
    )


def _see_its_own(records: Records) -> None:
    """See that what was looked at last is what the seed has come to."""
    ended = records.ended()
    for look in (it for it in _newest(records) if it.name == TRAINED):
        if look.iterations is not None and ended and look.iterations != ended.iterations:
            raise TrainingError(
                f"{records.folder}: this seed was trained on after it was measured, and the sealed "
                "part is opened once; prove it anew in another folder."
            )


def _is_done(records: Records) -> bool:
    if records.ended() is None:
        return False
    pools = pools_of(records.begun().job)
    return all(records.has_looked(name, which) for name in MODELS for which in pools)


def _shared(begun: Begun) -> str:
    """What all seeds have to have in common."""
    return begun.model_dump_json(exclude={"job": {"seed", *MAY_CHANGE}})


def _ran(seed: int, records: Records) -> Ran:
    ended = records.ended()
    assert ended is not None, "only seeds that are done are gathered"
    return Ran(seed, ended, records.times())


def _looks(seed: int, records: Records) -> Sequence[Looked]:
    return [_looked(seed, records, look) for look in _newest(records)]


def _newest(records: Records) -> Sequence[Look]:
    """The newest look of each kind."""
    looks = {(look.name, look.pools): look for look in records.looks() if look.part == "test"}
    return tuple(looks.values())


def _looked(seed: int, records: Records, look: Look) -> Looked:
    scores = [score for score in records.seen(look) if score.round == 0]
    kept = tuple(score for score in scores if score.reward is not None)
    return Looked(seed, look, kept, len(scores) - len(kept))


def _asked(done: Sequence[tuple[int, Records]]) -> frozenset[str]:
    looks = (it for seed, records in done for it in _looks(seed, records))
    return frozenset(score.item for it in looks for score in it.scores)


def only(proof: Proof, kind: str) -> Proof:
    """The proof with the items of one kind alone."""
    items = tuple(item for item in proof.items if item.kind == kind)
    ids = {item.id for item in items}
    looked = tuple(
        replace(it, scores=tuple(score for score in it.scores if score.item in ids))
        for it in proof.looked
    )
    return replace(proof, items=items, looked=looked)
