"""Makes what a job has trained into a folder that can be served: whole, adapters alone, or GGUF."""

import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

from podium_lab.train.card import card
from podium_lab.train.config import TINY
from podium_lab.train.errors import TrainingError
from podium_lab.train.records import Records

Form = Literal["merged", "adapter", "gguf"]
CONVERTER = "convert_hf_to_gguf.py"
"""llama.cpp's own; it is part of its sources, not of its programs."""
MODEL, OWN_BASE = "model", "base"
"""Folders of a job: what it has trained, and the base that it has made itself, if it has."""
_TOLD: Mapping[Form, str] = {
    "merged": "the whole model, with all that was trained in its weights",
    "adapter": "the adapters alone, to be served beside their base",
    "gguf": "the whole model as a GGUF file for llama.cpp",
}
Merge = Callable[[Path, str, Path], None]
"""Writes a model, with adapters merged into the base that is named, into a new folder."""


def export(folder: Path, out: Path, form: Form, *, merge: Merge, converter: str | None) -> Path:
    """Write what the job in *folder* has trained to *out*, with a model card; the path to serve.

    Raises:
        TrainingError: nothing is trained yet, *out* is taken, or *form* cannot be had here.
    """
    records = Records(folder)
    base = records.begun().job.model
    trained = folder / MODEL
    if not trained.is_dir():
        raise TrainingError(
            f"{folder}: nothing is trained to its end here yet; go on with `podium train grpo`."
        )
    if out.exists():
        raise TrainingError(f"{out}: there is something already; name a folder that is not there.")
    if form == "adapter" and base.lora_rank is None:
        raise TrainingError("--adapter: the job trained all weights; there are no adapters alone.")
    script = _found(converter) if form == "gguf" else None
    partial = out.with_name(f"{out.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    if base.lora_rank is None or form == "adapter":
        partial.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(trained, partial)
    else:
        merge(trained, str(folder / OWN_BASE) if base.base == TINY else base.base, partial)
    if script:
        _convert(script, partial)
    (partial / "README.md").write_text(card(records, form=_TOLD[form]), encoding="utf-8")
    partial.rename(out)
    return next(out.glob("*.gguf"), out) if form == "gguf" else out


def _found(named: str | None) -> str:
    script = named or shutil.which(CONVERTER)
    if script is None or not Path(script).is_file():
        raise TrainingError(
            f"--gguf: {named or CONVERTER} is not here; it is part of llama.cpp's sources: name it "
            "with --converter, or export without --gguf."
        )
    return script


def _convert(script: str, folder: Path) -> None:
    """Put a GGUF file in the place of the weights in *folder*."""
    file = folder / "model.gguf"
    command = [sys.executable, script, str(folder), "--outfile", str(file)]
    ran = subprocess.run(command, check=False, capture_output=True, text=True)
    if ran.returncode or not file.is_file():
        said = (ran.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise TrainingError(f"--gguf: {script} could not convert the model: {said}")
    for path in folder.iterdir():
        if path != file:
            path.unlink()
