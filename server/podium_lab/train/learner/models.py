"""Loads the model that is trained, and gives it adapters where only those are trained."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.modeling_utils import PreTrainedModel
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from podium.errors import SettingsError
from podium_lab.train.config import Model

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
    """Where the base lies: a name of `podium models list` is a folder under *models_dir*."""
    unpacked = models_dir / "unpacked" / base
    return str(unpacked) if "/" not in base and unpacked.is_dir() else base


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
