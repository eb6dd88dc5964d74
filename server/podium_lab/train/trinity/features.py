"""Hidden states kept on disk, by the text that they are of: each is computed once for ever.

They come from where the server has them, so training and serving see the same numbers.
"""

import base64
import hashlib
import json
from array import array
from dataclasses import dataclass, field
from pathlib import Path

from podium.policy.trinity import HiddenStates

FILE = "states.jsonl"


@dataclass
class KeptStates:
    """States of one model in a file."""

    path: Path
    model: str
    sha256: str = ""
    """Digest of the model's file, where one of the same name may be another tomorrow."""
    known: dict[str, list[float]] = field(default_factory=dict[str, list[float]])

    def __post_init__(self) -> None:
        if not self.path.exists():
            return
        whole = self.path.read_bytes()
        lines = whole[: whole.rfind(b"\n") + 1]
        if len(lines) < len(whole):  # the last one broke off
            with self.path.open("r+b") as file:
                file.truncate(len(lines))
        for line in lines.splitlines():
            key, packed = json.loads(line)
            self.known[key] = _unpacked(packed)

    def get(self, text: str) -> list[float] | None:
        """The state after *text*, if it is there."""
        return self.known.get(self._key(text))

    def keep(self, text: str, state: list[float]) -> list[float]:
        """The state as it is kept from now on."""
        key, packed = self._key(text), _packed(state)
        with self.path.open("a", encoding="ascii") as file:
            file.write(json.dumps([key, packed]) + "\n")
        self.known[key] = _unpacked(packed)
        return self.known[key]

    def _key(self, text: str) -> str:
        named = f"{self.model}\0{self.sha256}" if self.sha256 else self.model
        return hashlib.sha256(f"{named}\0{text}".encode()).hexdigest()[:32]


@dataclass
class CachedStates:
    """States of one model, from a file where they are there, else from *inner*."""

    inner: HiddenStates
    kept: KeptStates
    computed: int = 0
    """States that were not there."""

    @classmethod
    def at(cls, inner: HiddenStates, path: Path, sha256: str = "") -> "CachedStates":
        """Those of *inner*, kept in the file at *path*."""
        return cls(inner, KeptStates(path, inner.model, sha256))

    @property
    def model(self) -> str:
        return self.inner.model

    async def __call__(self, text: str) -> list[float]:
        """The state after *text*.

        Raises:
            WorkerError: it is not known, and the model cannot be asked.
        """
        known = self.kept.get(text)
        if known is None:
            known = self.kept.keep(text, await self.inner(text))
            self.computed += 1
        return known


def _packed(state: list[float]) -> str:
    """The state in single precision, which is what the engine has."""
    return base64.b64encode(array("f", state).tobytes()).decode()


def _unpacked(text: str) -> list[float]:
    state = array("f")
    state.frombytes(base64.b64decode(text))
    return state.tolist()
