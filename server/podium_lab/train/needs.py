"""What a job needs of memory and disk, reckoned from the shape of its model before it begins.

Estimates, to see beforehand whether a card or a disk is far too small. Nothing is measured here.
"""

import json
import shutil
import tomllib
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import cast

from pydantic import ConfigDict, ValidationError

from podium_lab.train.config import TINY, Job
from podium_lab.train.errors import TrainingError
from podium_workers.worker import Frozen

GB = 1e9
SAVED = 2
"""Checkpoints that are kept; while a new one is written there is one more."""
_FLOAT32 = 4


_BFLOAT16 = frozenset({"avx512_bf16", "amx_bf16", "bf16"})
"""As Linux names a processor's instructions for it."""


def calculates_in_bfloat16(job: Job) -> bool:
    """Whether a processor is to do so."""
    return job.launch.device_gb is None and "bfloat16" in (job.model.dtype, job.model.compute)


def lacks_bfloat16(cpuinfo: str) -> bool:
    """Whether a processor has no instructions for it, by Linux's description of it.

    Nothing follows from an empty one.
    """
    return bool(cpuinfo) and not _BFLOAT16 & set(cpuinfo.split())


class Shape(Frozen):
    """What of a model its needs follow from; the names are those of its `config.json`."""

    model_config = ConfigDict(extra="ignore")

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    vocab_size: int
    tie_word_embeddings: bool = False
    head_dim: int | None = None

    @property
    def head(self) -> int:
        return self.head_dim or self.hidden_size // self.num_attention_heads

    @property
    def layer_parameters(self) -> int:
        """Of one layer's matrices."""
        attention = (
            self.hidden_size * self.head * 2 * (self.num_attention_heads + self.num_key_value_heads)
        )
        return attention + 3 * self.hidden_size * self.intermediate_size

    @property
    def parameters(self) -> int:
        """Of the whole model; norms and biases are too small to count."""
        tables = 1 if self.tie_word_embeddings else 2
        return (
            self.num_hidden_layers * self.layer_parameters
            + tables * self.vocab_size * self.hidden_size
        )

    def adapter_parameters(self, rank: int, layers: int | None) -> int:
        """Of adapters on every matrix of the topmost *layers*."""
        wide = self.head * (self.num_attention_heads + self.num_key_value_heads)
        sides = 2 * (2 * self.hidden_size + wide) + 3 * (self.hidden_size + self.intermediate_size)
        return rank * sides * min(layers or self.num_hidden_layers, self.num_hidden_layers)

    def cache_bytes(self, tokens: int) -> int:
        """Keys and values of so many tokens, at two bytes each."""
        return 4 * self.num_hidden_layers * self.num_key_value_heads * self.head * tokens


class Needs(Frozen):
    """Bytes; all for the whole job, before it is shared out between devices."""

    weights: int
    gradients: int
    optimizer: int
    activations: int
    """Of one device's batch, with gradient checkpointing."""
    writing: int
    """Keys and values of the plans that are written together."""
    disk: int


def shape_of(base: str, models_dir: Path) -> Shape | None:
    """The shape of a base, if it can be known here: from its folder, or from the shipped table."""
    if base == TINY:
        return None
    folder = models_dir / "unpacked" / base if "/" not in base else Path(base).expanduser()
    config = folder / "config.json"
    if not config.is_file():
        return _shipped().get(base)
    values = cast("dict[str, object]", json.loads(config.read_text(encoding="utf-8")))
    values.setdefault("num_key_value_heads", values.get("num_attention_heads"))
    try:
        return Shape.model_validate(values)
    except ValidationError:
        return None


def _shipped() -> Mapping[str, Shape]:
    text = (files("podium_lab.train") / "shapes.toml").read_text(encoding="utf-8")
    return {name: Shape.model_validate(values) for name, values in tomllib.loads(text).items()}


def needs(job: Job, shape: Shape) -> Needs:
    """What a job needs with a model of that shape."""
    kept = 2 if job.model.dtype == "bfloat16" else 4
    lora = job.model.lora_rank
    trained = shape.adapter_parameters(lora, job.model.lora_layers) if lora else shape.parameters
    each = _FLOAT32 if lora else kept
    tokens = job.grpo.batch * min(job.asked.context_window, 2 * job.grpo.max_tokens)
    rollouts = job.grpo.questions * job.grpo.rollouts
    saved = trained * each * 3  # weights and two moments
    return Needs(
        weights=shape.parameters * kept + (trained * each if lora else 0),
        gradients=trained * each,
        optimizer=2 * trained * each,
        activations=tokens
        * (2 * shape.num_hidden_layers * shape.hidden_size + 8 * shape.vocab_size),
        writing=shape.cache_bytes(rollouts * 2 * job.grpo.max_tokens),
        disk=(SAVED + 1) * saved + 2 * trained * each,
    )


def check_room(job: Job, shape: Shape | None) -> None:
    """See that checkpoints fit on the disk, before anything is trained.

    Raises:
        TrainingError: they do not; the text says how much is missing.
    """
    if shape is None:
        return
    wanted = needs(job, shape).disk
    free = shutil.disk_usage(_existing(job.folder)).free
    if free < wanted:
        raise TrainingError(
            f"folder: {job.folder} has {free / GB:.1f} GB free, and the checkpoints of this job "
            f"take up to {wanted / GB:.1f} GB; make room, set a `folder` on another disk, or train "
            "adapters only (model.lora_rank)."
        )


def _existing(folder: Path) -> Path:
    return next(path for path in (folder, *folder.absolute().parents) if path.exists())
