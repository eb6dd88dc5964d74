"""Makes what a job has trained into a folder that can be served: whole, adapters alone, or GGUF."""

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Literal

from podium_lab.train.card import card
from podium_lab.train.config import Job
from podium_lab.train.errors import TrainingError
from podium_lab.train.profiled import REPLIES
from podium_lab.train.records import Records
from podium_workers.asked import MOST_PROSE, Asked
from podium_workers.cassette import load_cassette
from podium_workers.errors import ManifestError
from podium_workers.trained import TRAINING, Training

Form = Literal["merged", "adapter", "gguf"]
CONVERTER = "convert_hf_to_gguf.py"
"""llama.cpp's own; it is part of its sources, not of its programs."""
GGUF = "model.gguf"
MODEL, OWN_BASE = "model", "base"
"""Folders of a job: what it has trained, and the base that it has made itself, if it has."""
_TOLD: Mapping[Form, str] = {
    "merged": "the whole model, with all that was trained in its weights",
    "adapter": "the adapters alone, to be served beside their base",
    "gguf": "the whole model as a GGUF file for llama.cpp",
}
Merge = Callable[[Path, str, Path], None]
"""Writes a model, with adapters merged into the base that is named, into a new folder."""
ToGguf = Callable[[Path, Path], bool]
"""Writes the model in a folder to a file; False where it cannot write such a model."""


def export(
    folder: Path,
    out: Path,
    form: Form,
    *,
    merge: Merge,
    to_gguf: ToGguf,
    converter: str | None = None,
) -> Path:
    """Write what the job in *folder* has trained to *out*, with a model card and how it is asked;
    the path to serve.

    Raises:
        TrainingError: nothing is trained yet, *out* is taken, or *form* cannot be had here.
    """
    records = Records(folder)
    job = records.conductor().job
    base = job.model
    trained = folder / MODEL
    if not trained.is_dir():
        raise TrainingError(
            f"{folder}: nothing is trained to its end here yet; go on with `podium train grpo`."
        )
    if out.exists():
        raise TrainingError(f"{out}: there is something already; name a folder that is not there.")
    if form == "adapter" and base.lora_rank is None:
        raise TrainingError("--adapter: the job trained all weights; there are no adapters alone.")
    training = training_of(job, folder)
    partial = out.with_name(f"{out.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    if base.lora_rank is None or form == "adapter":
        partial.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(trained, partial)
    else:
        own = folder / OWN_BASE
        merge(trained, str(own) if own.is_dir() else base.base, partial)
    if form == "gguf":
        _packed(partial, to_gguf, converter)
    text = card(records, form=_TOLD[form], workers=training.asked.team)
    (partial / "README.md").write_text(text, encoding="utf-8")
    (partial / TRAINING).write_text(training.model_dump_json(indent=1) + "\n", encoding="utf-8")
    partial.rename(out)
    return next(out.glob("*.gguf"), out) if form == "gguf" else out


def training_of(job: Job, folder: Path) -> Training:
    """How the conductor of a job in *folder* was asked, from what the job has left behind.

    Raises:
        TrainingError: what says which workers it was trained with is not there.
    """
    # What was free in its training has all the room that a grammar can give.
    prose = job.grpo.prose if job.grpo.held else MOST_PROSE
    known = {"team": _workers(job, folder), "prose": prose}
    return Training(
        asked=Asked.of(job.asked).model_copy(update=known),
        context_window=job.asked.context_window,
        max_tokens=job.grpo.max_tokens,
    )


def _workers(job: Job, folder: Path) -> tuple[str, ...]:
    """Names of the workers that were planned for, in the order in which they were shown."""
    if job.workers.simulated:
        return _chosen(job, (skills.name for skills in job.workers.simulated))
    file = job.workers.recorded or (job.workers.profiled or folder) / REPLIES
    try:
        cards = load_cassette(file).pool.workers
    except ManifestError as error:
        raise TrainingError(
            f"The export says which workers the conductor was trained with, and {error} Put that "
            "file back, which the job had."
        ) from None
    return _chosen(job, (card.name for card in cards))


def _chosen(job: Job, names: Iterable[str]) -> tuple[str, ...]:
    only = job.workers.only
    return tuple(name for name in names if not only or name in only)


def _packed(folder: Path, to_gguf: ToGguf, converter: str | None) -> None:
    """Put a GGUF file in the place of what is in *folder*, which goes where that cannot be."""
    file = folder / GGUF
    try:
        if converter or not to_gguf(folder, file):
            _convert(_found(converter), folder, file)
    except TrainingError:
        shutil.rmtree(folder)
        raise
    for path in folder.iterdir():
        if path != file:
            path.unlink()


def _found(named: str | None) -> str:
    script = named or shutil.which(CONVERTER)
    if script is None or not Path(script).is_file():
        needed = f"{named}: there is no such file" if named else "this model needs llama.cpp's own"
        raise TrainingError(
            f"--gguf: {needed}; name its {CONVERTER}, which is part of llama.cpp's sources, with "
            "--converter, or export without --gguf."
        )
    return script


def _convert(script: str, folder: Path, file: Path) -> None:
    command = [sys.executable, script, str(folder), "--outfile", str(file)]
    ran = subprocess.run(command, check=False, capture_output=True, text=True)
    if ran.returncode or not file.is_file():
        said = (ran.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise TrainingError(f"--gguf: {script} could not convert the model: {said}")
