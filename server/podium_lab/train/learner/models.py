"""Loads the model that is trained, and gives it adapters where only those are trained.

A base may be what another job has trained: its weights whole, or adapters, which are merged first.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.modeling_utils import PreTrainedModel
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from podium.errors import SettingsError
from podium_lab.train.config import Job, Model
from podium_lab.train.exporting import OWN_BASE
from podium_lab.train.learner.export import merge

ADAPTERS = "adapter_config.json"
"""In a folder that holds adapters alone; it names their base."""
PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""Linear layers that adapters go to, as the families of Llama and Qwen name them."""


def load_tokenizer(base: str, *, only_here: bool = False) -> PreTrainedTokenizerBase:
    """The tokenizer, with a pad token that is not the end of a text: that one has to be learned.

    With *only_here* nothing is fetched from a hub.

    Raises:
        SettingsError: there is none under that name, or it has no template for chats.
    """
    try:
        tokenizer = AutoTokenizer.from_pretrained(base, local_files_only=only_here)
    except (OSError, ValueError) as error:
        raise SettingsError(f"model.base: {base!r} has no tokenizer: {_first(error)}") from None
    if tokenizer.chat_template is None:
        raise SettingsError(
            f"model.base: {base!r} has no chat template; the server could not ask it for plans."
        )
    if tokenizer.pad_token is None or tokenizer.pad_token == tokenizer.eos_token:
        others = ("<|endoftext|>", "<pad>", "<|finetune_right_pad_id|>", "<unk>")
        known = tokenizer.get_vocab()
        free = (token for token in others if token in known and token != tokenizer.eos_token)
        tokenizer.pad_token = next(free, tokenizer.eos_token)
    tokenizer.padding_side = "left"
    return tokenizer


def load_model(model: Model) -> PreTrainedModel:
    """The model's weights, in the type that they are kept in while it is trained.

    Raises:
        SettingsError: there are none under that name.
    """
    try:
        return AutoModelForCausalLM.from_pretrained(model.base, dtype=dtype_of(model))
    except (OSError, ValueError) as error:
        raise SettingsError(
            f"model.base: {model.base!r} cannot be loaded: {_first(error)}"
        ) from None


def dtype_of(model: Model, *, compute: bool = False) -> torch.dtype:
    """What the weights are kept in, or what is calculated in."""
    name = (model.compute or model.dtype) if compute else model.dtype
    return torch.bfloat16 if name == "bfloat16" else torch.float32


def adapters(model: Model) -> LoraConfig | None:
    """The adapters that are trained; None where all weights are."""
    if model.lora_rank is None:
        return None
    layers: list[int] | None = None
    if model.lora_layers is not None:
        count = AutoConfig.from_pretrained(model.base).num_hidden_layers
        layers = list(range(max(0, count - model.lora_layers), count))
    return LoraConfig(
        r=model.lora_rank,
        lora_alpha=model.lora_alpha or 2 * model.lora_rank,
        target_modules=list(PROJECTIONS),
        layers_to_transform=layers,
        task_type="CAUSAL_LM",
    )


def find_base(base: str, models_dir: Path) -> str:
    """Where the base lies: a name of `podium models list` is a folder under *models_dir*.

    Raises:
        SettingsError: it is a path, and no model is there.
    """
    unpacked = models_dir / "unpacked" / base
    if "/" not in base and unpacked.is_dir():
        return str(unpacked)
    folder = Path(base).expanduser()
    model = folder / "model"
    if model.is_dir() and not (folder / "config.json").exists():
        raise SettingsError(
            f"model.base: {base!r} is the folder of a job; name its model, {str(model)!r}."
        )
    is_path = base.startswith(("/", ".", "~")) or base.count("/") > 1
    if is_path and not folder.is_dir():
        raise SettingsError(
            f"model.base: there is no folder {base!r} here; train the job that it comes from to "
            "its end first, or name another."
        )
    return str(folder) if folder.is_dir() else base


def whole_base(job: Job, models_dir: Path) -> str:
    """Where a job's base lies, with all of its weights.

    Adapters that another job has trained are merged into theirs, once, in this job's folder.

    Raises:
        SettingsError: it is a path, and no model is there; or adapters whose base cannot be had.
    """
    base = find_base(job.model.base, models_dir)
    if not (Path(base) / ADAPTERS).is_file():
        return base
    own = job.folder / OWN_BASE
    if not own.is_dir():
        _merge(job, Path(base), own)
    return str(own)


def _merge(job: Job, trained: Path, own: Path) -> None:
    export = f"{str(trained)!r} holds adapters alone"
    how = "name the folder that `podium train export` makes of its job"
    if job.grpo.vllm == "server":
        raise SettingsError(f"model.base: {export}, and a vLLM server needs all weights; {how}.")
    values: dict[str, Any] = json.loads((trained / ADAPTERS).read_text(encoding="utf-8"))
    named = str(values.get("base_model_name_or_path"))
    partial = own.with_name(f"{own.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        merge(trained, named, partial)
    except (OSError, ValueError) as error:
        raise SettingsError(
            f"model.base: {export}, and their base {named!r} cannot be loaded: {_first(error)} Put "
            f"it back, or {how}."
        ) from None
    partial.rename(own)


def _first(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def counter(base: str, models_dir: Path) -> Callable[[str], int] | None:
    """Counts the tokens of a prompt as the policy gets it; None where there is no tokenizer."""
    try:
        tokenizer = load_tokenizer(find_base(base, models_dir), only_here=True)
    except SettingsError:
        return None

    def count(prompt: str) -> int:
        asked = [{"role": "user", "content": prompt}]
        return len(token_ids(tokenizer, asked))

    return count


def token_ids(tokenizer: PreTrainedTokenizerBase, messages: list[dict[str, str]]) -> list[int]:
    """The token ids of a question to the policy, up to where its reply begins."""
    found: Any = tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, tokenize=True, return_dict=True
    )
    return list(found["input_ids"])
