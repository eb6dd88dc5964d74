"""Opening the sealed test part of a job for answers that are given live: once, for one conductor.

A look is noted in the job's `looks.jsonl` before anything is asked; a file of results that is gone
on with is the same look.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from podium_lab.train.environment import Score
from podium_lab.train.errors import TrainingError
from podium_lab.train.records import Look, Records
from podium_lab.train.watch import summed

_LIVE = "live: "


@dataclass(frozen=True)
class Seal:
    """The sealed part of the job in *folder*, for a conductor and the file of its results."""

    folder: Path
    conductor: str
    """A worker's name, or a path."""
    out: Path

    @property
    def name(self) -> str:
        """Of the look."""
        path = Path(self.conductor)
        conductor = path.resolve() if path.exists() else self.conductor
        return f"{_LIVE}{conductor}{self._into}"

    @property
    def _into(self) -> str:
        return f" into {self.out.resolve()}"

    def check(self, *, again: bool) -> None:
        """See that the part may be looked at; *again* allows another look than the first.

        Raises:
            TrainingError: it was looked at already, or the file belongs to another look.
        """
        before = [look.name for look in self._looks]
        if any(name.endswith(self._into) and name != self.name for name in before):
            raise TrainingError(
                f"{self.out}: it holds the answers with another conductor; name another --out."
            )
        if self.name in before and self.out.exists():
            return
        if before and not again:
            raise TrainingError(
                f"{self.folder}: the sealed test part was opened already ({before[-1]}); go on "
                "with that conductor and file, or open it once more with --again."
            )

    def open(self) -> None:
        """Note that the part is looked at from now on."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.out.touch()
        if self.name not in {look.name for look in self._looks}:
            self._note(())

    def note(self, scores: Sequence[Score]) -> None:
        """Note what the look came to, unless that is known."""
        if scores:
            self._note(scores)

    @property
    def _looks(self) -> tuple[Look, ...]:
        looks = Records(self.folder).looks()
        return tuple(it for it in looks if it.part == "test" and it.name.startswith(_LIVE))

    def _note(self, scores: Sequence[Score]) -> None:
        step = summed(0, [[score] for score in scores])
        look = Look(name=self.name, part="test", temperature=0, items=len(scores), step=step)
        if look not in self._looks:
            Records(self.folder).look(look, scores)
