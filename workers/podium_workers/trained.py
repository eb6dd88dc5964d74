"""A conductor that is given by its path: which worker it becomes, and how it is asked.

What lies there is a GGUF file, a model's folder or adapters; beside it may lie how it was trained.
"""

import json
import os
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from pydantic import Field, ValidationError

from podium_workers.asked import Asked
from podium_workers.entries.common import RESERVED, UNKNOWN_WINDOW
from podium_workers.entries.hosted import VllmEntry
from podium_workers.entries.named import LocalEntry, ProgramEntry
from podium_workers.entries.vllm_options import find_python
from podium_workers.errors import ManifestError, ModelFileError, NotInstalledError
from podium_workers.manifest import PoolManifest
from podium_workers.weights.gguf import read_gguf
from podium_workers.wire import entries
from podium_workers.worker import Frozen

TRAINING = "conductor.json"
"""File beside a trained model that says how it was asked."""
_SMALLEST_WINDOW = 256
_LORA_RANKS = (32, 64, 128, 256, 320, 512)
"""What vLLM takes for the greatest rank of adapters, above its own 16."""
_GPUS = ("/dev/nvidia0", "/dev/nvidiactl", "/dev/kfd", "/dev/dxg")


class Training(Frozen):
    """How a conductor was asked while it was trained, and so how it is to be asked."""

    asked: Asked
    context_window: int = Field(ge=_SMALLEST_WINDOW)
    """Tokens of a prompt and its plan together."""
    max_tokens: int = Field(ge=1)
    """Tokens of a plan at most, with its reasoning."""


@dataclass(frozen=True)
class GivenConductor:
    """A conductor at a path, as a worker that does no steps."""

    path: Path
    entry: LocalEntry | VllmEntry
    training: Training | None
    """None for a model that was not trained for this, and is prompted."""

    def leading(self, manifest: PoolManifest) -> PoolManifest:
        """*manifest* with this conductor, in the place of one that does nothing else there."""
        changes = {
            "workers": (*manifest.doers, self.entry),
            "conductor": self.entry.name,
            "asked": self.training.asked if self.training else Asked(),
        }
        return manifest.model_copy(update=changes)

    @property
    def told(self) -> str:
        """Where it lies and how it is asked."""
        if self.training is None:
            return f"{self.path}, prompted, since no {TRAINING} lies beside it"
        return f"{self.path}, asked as in its training with {', '.join(self.training.asked.team)}"


def is_path(conductor: str) -> bool:
    """Whether a conductor is given by its path, whatever the pool's workers are called."""
    return conductor.startswith((".", "~")) or bool(re.search(r"[/\\]|\.gguf$", conductor))


def with_conductor(manifest: PoolManifest, conductor: str) -> tuple[PoolManifest, str]:
    """*manifest* led by a worker of its own or by the model at a path, and how that is asked.

    A name without a slash is a worker's where the pool has it, else a file or folder here.

    Raises:
        ManifestError: it is neither, or what lies there cannot write plans.
    """
    if not is_path(conductor):
        if conductor in manifest.names:
            return _led_by(manifest, conductor), conductor
        if not Path(conductor).exists():
            raise ManifestError(
                f"conductor: {conductor!r} is no worker of this pool, which has "
                f"{', '.join(manifest.names)}, and there is no such file or folder."
            )
    given = conductor_at(Path(conductor), taken=[entry.name for entry in manifest.doers])
    return given.leading(manifest), given.told


def _led_by(manifest: PoolManifest, name: str) -> PoolManifest:
    if any(isinstance(entry, ProgramEntry) and entry.name == name for entry in manifest.workers):
        raise ManifestError(f"conductor: {name!r} writes programs, not plans; choose another one.")
    if manifest.planner is None or manifest.planner.name == name:
        return manifest.model_copy(update={"conductor": name})
    changes = {"workers": manifest.doers, "conductor": name, "asked": Asked()}
    return manifest.model_copy(update=changes)


def conductor_at(path: Path, *, taken: Collection[str] = ()) -> GivenConductor:
    """The conductor at *path*, under a name that is none of *taken*.

    Raises:
        ManifestError: nothing lies there that could be one, or its files are damaged.
    """
    path = Path(os.path.abspath(path.expanduser()))
    folder = path if path.is_dir() else path.parent
    training = read_training(folder)
    name = _name(path.stem if path != folder and training is None else folder.name, taken)
    if path.is_file():
        entry = _of_gguf(name, path, training)
    elif not path.is_dir():
        raise ManifestError(f"conductor: {path}: there is no such file or folder.")
    elif files := sorted(path.glob("*.gguf")):
        if len(files) > 1:
            names = ", ".join(file.name for file in files)
            raise ManifestError(f"conductor: {path} has several models; name one: {names}.")
        entry = _of_gguf(name, files[0], training)
    else:
        entry = _of_folder(name, path, training)
    return GivenConductor(path, entry, training)


def read_training(folder: Path) -> Training | None:
    """What the export of a trained conductor says of its training; None where it says nothing.

    Raises:
        ManifestError: the file cannot be read.
    """
    file = folder / TRAINING
    try:
        return Training.model_validate_json(file.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ManifestError(f"{file}: cannot be read: {error.strerror}.") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise ManifestError(
            f"{file}: {where}: {first['msg'].lower()}; export the conductor again."
        ) from None


def need_vllm(path: Path, environments: Path, search: str | None) -> str:
    """Make sure that vLLM can be started for the conductor at *path*; a remark, mostly empty.

    *environments* and *search* are where it may be, as for `find_python`.

    Raises:
        ManifestError: it is not on this machine.
    """
    try:
        find_python(None, environments, search)
    except NotInstalledError as error:
        raise ManifestError(
            f"conductor: {path} is a folder for vLLM. {error.message} A GGUF file, as `podium "
            "train export --gguf` makes it, needs no vLLM."
        ) from None
    if any(Path(gpu).exists() for gpu in _GPUS):
        return ""
    return (
        "No GPU is seen on this machine: vLLM may be slow here or not start; a GGUF file "
        "(podium train export --gguf) runs without."
    )


def _of_gguf(name: str, file: Path, training: Training | None) -> LocalEntry:
    try:
        facts = read_gguf(file)
    except ModelFileError as error:
        raise ManifestError(f"conductor: {error}") from None
    return LocalEntry(
        kind="local",
        name=name,
        gguf=str(file),
        steps=False,
        context_window=_window(training, facts.context_length),
        max_output_tokens=training and training.max_tokens,
    )


def _of_folder(name: str, folder: Path, training: Training | None) -> VllmEntry:
    adapter, model = folder / "adapter_config.json", folder / "config.json"
    limit = training and training.max_tokens
    if adapter.is_file():
        said = _json(adapter)
        base, rank = said.get("base_model_name_or_path"), said.get("r")
        if not isinstance(base, str) or not base:
            raise ManifestError(
                f"conductor: {adapter} names no base model; export it again without --adapter."
            )
        if base.startswith((".", "~", "/")) and not Path(base).expanduser().is_dir():
            raise ManifestError(
                f"conductor: {adapter} belongs to {base}, which is not on this machine; put that "
                "model there, or export the conductor again without --adapter."
            )
        return VllmEntry(
            kind="vllm",
            name=name,
            model=base,
            lora={name: str(folder)},
            flags=tuple(_rank_flags(rank)),
            steps=False,
            context_window=_window(training, None),
            max_output_tokens=limit,
        )
    if not model.is_file():
        raise ManifestError(
            f"conductor: {folder} holds no model: neither a .gguf file nor a config.json nor an "
            "adapter_config.json; name what `podium train export` made."
        )
    trained_for = _json(model).get("max_position_embeddings")
    return VllmEntry(
        kind="vllm",
        name=name,
        model=str(folder),
        steps=False,
        context_window=_window(training, trained_for if isinstance(trained_for, int) else None),
        max_output_tokens=limit,
    )


def _rank_flags(rank: object) -> Iterator[str]:
    if isinstance(rank, int) and (larger := [it for it in _LORA_RANKS if it >= rank > 16]):
        yield from ("--max-lora-rank", str(larger[0]))


def _window(training: Training | None, most: int | None) -> int:
    """Tokens of prompt and plan: as in the training, and never more than the model can read."""
    wanted = training.context_window if training else UNKNOWN_WINDOW
    return max(_SMALLEST_WINDOW, min(wanted, most or wanted))


def _json(file: Path) -> Mapping[str, object]:
    try:
        return entries(json.loads(file.read_bytes()))
    except (OSError, ValueError, RecursionError) as error:
        raise ManifestError(f"conductor: {file}: cannot be read as JSON: {error}.") from None


def _name(text: str, taken: Collection[str]) -> str:
    """A worker's name made of a file's."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", text).lstrip("._-")[:60] or "conductor"
    if plain not in taken and plain not in RESERVED:
        return plain
    return next(name for n in count(2) if (name := f"{plain}-{n}") not in taken)
