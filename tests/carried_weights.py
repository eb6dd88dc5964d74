"""A small model file, cut into wheels that a real pip can download from a folder."""

import hashlib
import zipfile
from dataclasses import dataclass
from pathlib import Path

from podium_workers.weights.catalogue import Carrier, HubFile, Weights

CONTENT = b"GGUF" + bytes(range(256)) * 40
PARTS = 3
RUN = "raise SystemExit('the code of a carrier was run')"


@dataclass(frozen=True)
class Carried:
    """The file's entry of the catalogue, and the folder with the wheels that carry it."""

    weights: Weights
    index: Path

    def wheel(self, number: int) -> Path:
        return self.index / f"fake_part{number}-1.0-py3-none-any.whl"


def make_carried(folder: Path) -> Carried:
    """Write the wheels into *folder*."""
    folder.mkdir()
    size = len(CONTENT) // PARTS + 1
    pieces = [CONTENT[start : start + size] for start in range(0, len(CONTENT), size)]
    carriers = tuple(_write(folder, number, piece) for number, piece in enumerate(pieces))
    weights = Weights(
        name="fake",
        title="A fake",
        file_name="fake.gguf",
        size=len(CONTENT),
        sha256=hashlib.sha256(CONTENT).hexdigest(),
        licence="Apache-2.0",
        notice="Nobody's",
        context_window=1024,
        hub=HubFile(repo="nobody/fake", file="fake.gguf"),
        carriers=carriers,
    )
    return Carried(weights, folder)


def _write(folder: Path, number: int, piece: bytes) -> Carrier:
    name, member = f"fake_part{number}", f"fake_part{number}/data/part.bin"
    wheel = folder / f"{name}-1.0-py3-none-any.whl"
    about = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(f"{name}/__init__.py", RUN)
        archive.writestr(member, piece)
        archive.writestr(
            f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
        )
        archive.writestr(
            f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{about}/RECORD", "")
    return Carrier(
        distribution=name.replace("_", "-"),
        version="1.0",
        member=member,
        sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
    )
