"""What a job leaves behind: a line of JSON for every iteration and rollout, and what it came to."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import BaseModel, JsonValue, ValidationError

from podium_lab.bench.scoring import wilson
from podium_lab.train.config import Job
from podium_lab.train.draws import Which
from podium_lab.train.environment import Score
from podium_lab.train.errors import TrainingError
from podium_lab.train.items import PARTS, Item, fingerprint, in_part
from podium_lab.train.stopwatch import Time
from podium_lab.train.watch import Step
from podium_workers.worker import Frozen

BEGUN, ENDED = "job.json", "outcome.json"
STEPS, ROLLOUTS, LEARNER, LOOKS = "steps.jsonl", "rollouts.jsonl", "learner.jsonl", "looks.jsonl"
SEEN, TIMES, GENERATIONS = "looked_at.jsonl", "times.jsonl", "generations.jsonl"
TRAINED, UNTRAINED = "trained", "untrained"
"""Names of the looks of an evaluation: at the end of the job, and before any reinforcement."""
MAY_CHANGE = frozenset(
    {"folder", "stop", "max_usd", "checkpoint_every", "validate_every", "validation_items",
     "rollout_seconds", "judge_seconds", "launch"}
)  # fmt: skip
"""Settings that may differ when a job goes on: what is learned does not hang on them."""
_MAY_CHANGE_OF_EVOLUTION = {"generations", "checkpoint_every"}
Kind = Literal["grpo", "trinity"]
"""What is trained: a conductor, or a coordinator's head. Named as the command that does it."""

_M = TypeVar("_M", bound=BaseModel)


class Begun(Frozen):
    """What a job was begun with."""

    job: Job
    kind: Kind = "grpo"
    label: str
    """What its workers are: live, replay or simulated."""
    data: dict[str, str]
    """Hash of the items of each part."""
    counts: dict[str, dict[str, int]]
    """Items of each part, by kind."""


class Rollout(Score):
    """A rollout of the training."""

    iteration: int


class Learned(Frozen):
    """What the learner says of one iteration."""

    iteration: int
    loss: float | None = None
    grad_norm: float | None = None
    learning_rate: float | None = None
    entropy: float | None = None
    """Of the policy's next token, in nats."""
    plan_tokens: float | None = None
    """Of a plan with its reasoning, on the mean."""


class Generation(Frozen):
    """What the heads of one generation came to, on the mean."""

    number: int
    right: float


class Look(Frozen):
    """A look at items that are not trained on."""

    name: str
    """When: before, after, or the iteration; of an evaluation, untrained or trained; of an
    evolved head, trinity."""
    part: str
    pools: Which = "whole"
    """Which workers the policy was shown."""
    temperature: float
    items: int
    iterations: int | None = None
    """Of an evaluation, how many the model had been trained for, or generations of an evolved head;
    None where that is not known."""
    step: Step

    @property
    def kept(self) -> int:
        """First rounds that were not dropped."""
        readable = sum(self.step.lengths.values())
        # Second rounds are among the dropped too, but there are none where no plan could be read.
        valid = self.step.valid
        return round(readable / valid) if valid else self.step.rollouts - self.step.dropped

    @property
    def right_between(self) -> tuple[float, float]:
        """The limits of what is right, with 95 %: by the answers that were not dropped."""
        return wilson(round(self.step.right * self.kept), self.kept)

    @property
    def without(self) -> str:
        """How many answers were dropped, in brackets; empty where none was."""
        count = self.items - self.kept
        return f" ({count} dropped)" if count else ""


class Seen(Score):
    """What became of one item in a look."""

    name: str
    part: str
    pools: Which = "whole"


class Ended(Frozen):
    """What a job came to."""

    iterations: int
    stopped: str = ""
    """What collapsed, if a rule ended the job."""


@dataclass(frozen=True)
class Records:
    """The records of one job, in its folder."""

    folder: Path

    def begin(self, job: Job, items: Sequence[Item], label: str, kind: Kind = "grpo") -> None:
        """Note what the job is begun with, or see that it goes on with the same.

        Raises:
            TrainingError: it was begun with other settings or items; the text names one.
        """
        self.see_kind(kind)
        begun = Begun(
            job=job,
            kind=kind,
            label=label,
            data={part: fingerprint(in_part(items, part)) for part in PARTS},
            counts={part: _kinds(in_part(items, part)) for part in PARTS},
        )
        if (self.folder / BEGUN).exists():
            self._see_the_same(begun)
        else:
            self._whole(BEGUN, begun)

    def see_kind(self, kind: Kind) -> None:
        """See that no job of another kind was begun in the folder.

        Raises:
            TrainingError: one was.
        """
        if (self.folder / BEGUN).exists() and (begun := self.begun().kind) != kind:
            raise TrainingError(
                f"{self.folder}: a job of `podium train {begun}` was begun here; set another "
                "`folder`."
            )

    def _see_the_same(self, now: Begun) -> None:
        before = self.begun()
        if before.data != now.data:
            raise TrainingError(
                f"{self.folder}: this job was begun with other items; put the data back as it was, "
                "or set another `folder` to begin anew."
            )
        apart = dict.fromkeys(MAY_CHANGE, True) | {"trinity": _MAY_CHANGE_OF_EVOLUTION}
        one, other = (it.job.model_dump(mode="json", exclude=apart) for it in (before, now))
        if changed := _difference(one, other):
            raise TrainingError(
                f"{self.folder}: this job was begun with another {changed!r}; set it back, or set "
                "another `folder` to begin anew."
            )

    def begun(self) -> Begun:
        """What the job was begun with.

        Raises:
            TrainingError: there is no job in the folder, or its record is of another version.
        """
        try:
            return Begun.model_validate_json((self.folder / BEGUN).read_bytes())
        except FileNotFoundError:
            raise TrainingError(
                f"{self.folder}: no job was begun here; name the `folder` of its configuration."
            ) from None
        except ValidationError as error:
            raise TrainingError(f"{self.folder / BEGUN}: cannot be read: {error}") from None

    def conductor(self) -> Begun:
        """What the job was begun with, which is to train a conductor.

        Raises:
            TrainingError: there is no such job in the folder.
        """
        begun = self.begun()
        if begun.kind != "grpo":
            raise TrainingError(
                f"{self.folder}: a head was evolved here, no conductor trained; the head is served "
                "with `podium config set coordinator FILE`, and `podium train trinity` tries it."
            )
        return begun

    def keep(self, step: Step, scores: Sequence[Score]) -> None:
        """Add one iteration."""
        number = step.iteration
        rollouts = (Rollout(iteration=number, **score.model_dump()) for score in scores)
        self._append(ROLLOUTS, *rollouts)
        self._append(STEPS, step)

    def learned(self, learned: Learned) -> None:
        """Add what the learner said of an iteration."""
        self._append(LEARNER, learned)

    def look(self, look: Look, scores: Sequence[Score]) -> None:
        """Add a look at other items, with what became of each."""
        about = look.model_dump(include={"name", "part", "pools"})
        self._append(SEEN, *(Seen(**score.model_dump(), **about) for score in scores))
        self._append(LOOKS, look)

    def evolved(self, generations: Sequence[Generation]) -> None:
        """Note all generations so far."""
        self._replace(GENERATIONS, "".join(it.model_dump_json() + "\n" for it in generations))

    def generations(self) -> tuple[Generation, ...]:
        """The generations so far."""
        return self._read(GENERATIONS, Generation)

    def took(self, time: Time) -> None:
        """Add what a piece of work took."""
        self._append(TIMES, time)

    def end(self, ended: Ended) -> None:
        """Note what the job came to."""
        self._whole(ENDED, ended)

    def steps(self) -> tuple[Step, ...]:
        """The iterations so far; a line that was cut off when a job died is left out."""
        return self._read(STEPS, Step)

    def rollouts(self) -> tuple[Rollout, ...]:
        """The rollouts so far."""
        return self._read(ROLLOUTS, Rollout)

    def lessons(self) -> tuple[Learned, ...]:
        """What the learner said of each iteration."""
        return self._read(LEARNER, Learned)

    def looks(self) -> tuple[Look, ...]:
        """The looks at other items so far."""
        return self._read(LOOKS, Look)

    def of(self, look: Look) -> str:
        """At what a look was made: its name, and more where that is not what is there now."""
        ended = self.ended()
        if look.name != TRAINED or (ended and look.iterations == ended.iterations):
            return look.name
        if look.iterations is None:
            return f"{look.name}, of a model not recorded"
        return f"{look.name}, an earlier model of {look.iterations} iterations"

    def has_looked(self, name: str, pools: Which = "whole") -> bool:
        """Whether the sealed test part has been opened for that."""
        return any(
            (look.part, look.name, look.pools) == ("test", name, pools) for look in self.looks()
        )

    def seen(self, look: Look) -> tuple[Seen, ...]:
        """What became of each item in a look, the newest of its name."""
        about = (look.name, look.part, look.pools)
        found = [it for it in self._read(SEEN, Seen) if (it.name, it.part, it.pools) == about]
        return tuple({(it.item, it.round): it for it in found}.values())

    def times(self) -> tuple[Time, ...]:
        """What the work took, that which was done again among it."""
        return self._read(TIMES, Time)

    def marks(self) -> Mapping[str, tuple[int, int]]:
        """Size and time of each file of records: another value says that something was added."""
        names = (BEGUN, STEPS, LEARNER, LOOKS, GENERATIONS, ENDED)
        found = {name: self.folder / name for name in names}
        stats = {name: path.stat() for name, path in found.items() if path.exists()}
        return {name: (stat.st_size, stat.st_mtime_ns) for name, stat in stats.items()}

    def ended(self) -> Ended | None:
        """What the job came to; None while it is not done."""
        path = self.folder / ENDED
        return Ended.model_validate_json(path.read_bytes()) if path.exists() else None

    def reopen(self) -> None:
        """Forget that the job has come to an end: it goes on."""
        (self.folder / ENDED).unlink(missing_ok=True)

    def cut_behind(self, iteration: int) -> None:
        """Forget what came after that iteration: a job goes on from its last checkpoint."""
        self.reopen()
        for name, kind in ((STEPS, Step), (ROLLOUTS, Rollout), (LEARNER, Learned)):
            lines = [it for it in self._read(name, kind) if it.iteration <= iteration]
            self._replace(name, "".join(it.model_dump_json() + "\n" for it in lines))
        for name, kind in ((LOOKS, Look), (SEEN, Seen)):
            looks = [it for it in self._read(name, kind) if not _is_behind(it.name, iteration)]
            self._replace(name, "".join(it.model_dump_json() + "\n" for it in looks))

    def _read(self, name: str, kind: type[_M]) -> tuple[_M, ...]:
        path = self.folder / name
        if not path.exists():
            return ()
        lines = path.read_text(encoding="utf-8").split("\n")[:-1]
        return tuple(kind.model_validate_json(line) for line in lines)

    def _append(self, name: str, *records: BaseModel) -> None:
        with (self.folder / name).open("a", encoding="utf-8") as file:
            file.writelines(record.model_dump_json() + "\n" for record in records)

    def _whole(self, name: str, record: BaseModel) -> None:
        self._replace(name, record.model_dump_json(indent=2, by_alias=False) + "\n")

    def _replace(self, name: str, text: str) -> None:
        partial = self.folder / f"{name}.partial"
        partial.write_text(text, encoding="utf-8")
        os.replace(partial, self.folder / name)


def _is_behind(name: str, iteration: int) -> bool:
    """Whether a look of that name is made again by a job that goes on from an iteration."""
    if name == "before":
        return iteration == 0
    return name == "after" or (name.isdigit() and int(name) > iteration)


def _kinds(items: Sequence[Item]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for item in items:
        counts[item.kind] = counts.get(item.kind, 0) + 1
    return dict(sorted(counts.items()))


def _difference(one: Mapping[str, JsonValue], other: Mapping[str, JsonValue]) -> str:
    """The first key, with its section, whose value differs; empty when none does."""
    for key in one:
        here, there = one[key], other.get(key)
        if here != there:
            if isinstance(here, dict) and isinstance(there, dict):
                return f"{key}.{_difference(here, there)}"
            return key
    return ""
