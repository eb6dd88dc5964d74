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
class CachedStates:
    """States of one model, from a file where they are there, else from *inner*."""

    inner: HiddenStates
    path: Path
    known: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    computed: int = 0
    """States that were not there."""

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

    @property
    def model(self) -> str:
        return self.inner.model

    async def __call__(self, text: str) -> list[float]:
        """The state after *text*.

        Raises:
            WorkerError: it is not known, and the model cannot be asked.
        """
        key = hashlib.sha256(f"{self.model}\0{text}".encode()).hexdigest()[:32]
        if key not in self.known:
            packed = _packed(await self.inner(text))
            with self.path.open("a", encoding="ascii") as file:
                file.write(json.dumps([key, packed]) + "\n")
            self.known[key] = _unpacked(packed)
            self.computed += 1
        return self.known[key]


def _packed(state: list[float]) -> str:
    """The state in single precision, which is what the engine has."""
    return base64.b64encode(array("f", state).tobytes()).decode()


def _unpacked(text: str) -> list[float]:
    state = array("f")
    state.frombytes(base64.b64decode(text))
    return state.tolist()
