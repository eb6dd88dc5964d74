"""Writes a Llama model as a GGUF file, for the engine of local models.

It covers what is trained on small machines: the architecture of Llama with a tokenizer of byte
pairs that parts text as SmolLM2's and that of the model that a job makes itself. Others, Llama 3
and TinyLlama among them, need llama.cpp's own converter.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from safetensors import safe_open

from podium_lab.train.errors import TrainingError

ARCHITECTURE = "LlamaForCausalLM"
_PARTED = {("Digits", "ByteLevel"): "smollm", ("ByteLevel",): "gpt-2"}
"""llama.cpp's names for how text is parted before pairs are made, by the steps of that: those of
SmolLM2 and of a job's own model, and of SmolLM2 where it was unpacked from a GGUF file."""


def to_gguf(folder: Path, file: Path) -> bool:
    """Write the model in *folder* to *file*: matrices in 16 bits, the rest in 32.

    False, and nothing is written, where the model is of another kind.

    Raises:
        TrainingError: it is of that kind, but for some of its weights.
    """
    config = _read(folder / "config.json")
    if config.get("architectures") != [ARCHITECTURE] or not (folder / "tokenizer.json").is_file():
        return False
    parted = _parted(_read(folder / "tokenizer.json"))
    if parted is None or _is_scaled(config):
        return False
    writer = gguf.GGUFWriter(file, "llama")
    _shape(writer, config)
    writer.add_tokenizer_pre(parted)
    _tokens(writer, folder, config["vocab_size"])
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config["num_hidden_layers"])
    for name, values in _tensors(folder, config):
        known = names.get_name(name, try_suffixes=(".weight", ".bias"))
        if known is None:
            raise TrainingError(f"--gguf: Llama's kind has no weights {name!r}, as this model has.")
        writer.add_tensor(known, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return True


def _read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


def _parted(tokenizer: Mapping[str, Any]) -> str | None:
    """llama.cpp's name for how a tokenizer parts text; None for ways that are not known here."""
    model, told = tokenizer["model"], tokenizer.get("pre_tokenizer") or {}
    if model.get("type") != "BPE" or model.get("byte_fallback") or model.get("ignore_merges"):
        return None
    steps = told.get("pretokenizers", [told])
    plain = all(
        step.get("individual_digits", True)
        and step.get("use_regex", True)
        and not step.get("add_prefix_space")
        for step in steps
    )
    known = plain and not tokenizer.get("normalizer")
    return _PARTED.get(tuple(step.get("type") for step in steps)) if known else None


def _is_scaled(config: Mapping[str, Any]) -> bool:
    """Whether positions are turned otherwise than by their distance alone, as Llama 3.1's are."""
    told = [config.get("rope_scaling") or {}, config.get("rope_parameters") or {}]
    kinds = (it.get("rope_type") or it.get("type") for it in told)
    return any(kind not in (None, "default") for kind in kinds)


def _shape(writer: Any, config: Mapping[str, Any]) -> None:
    width, heads = config["hidden_size"], config["num_attention_heads"]
    rope = config.get("rope_parameters") or config
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(width)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(_key_heads(config))
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(rope.get("rope_theta") or 10_000.0)
    writer.add_rope_dimension_count(config.get("head_dim") or width // heads)
    writer.add_vocab_size(config["vocab_size"])


def _key_heads(config: Mapping[str, Any]) -> int:
    return config.get("num_key_value_heads") or config["num_attention_heads"]


def _tokens(writer: Any, folder: Path, size: int) -> None:
    tokenizer, told = _read(folder / "tokenizer.json"), _read(folder / "tokenizer_config.json")
    added = {token["id"]: token for token in tokenizer["added_tokens"]}
    texts = {place: text for text, place in tokenizer["model"]["vocab"].items()}
    texts |= {place: token["content"] for place, token in added.items()}
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([texts.get(place, f"[PAD{place}]") for place in range(size)])
    writer.add_token_types([int(_type(place, texts, added)) for place in range(size)])
    pairs = tokenizer["model"]["merges"]
    writer.add_token_merges([it if isinstance(it, str) else " ".join(it) for it in pairs])
    for kind, add in (
        ("bos_token", writer.add_bos_token_id),
        ("eos_token", writer.add_eos_token_id),
        ("pad_token", writer.add_pad_token_id),
    ):
        wanted = told.get(kind)
        text = wanted["content"] if isinstance(wanted, dict) else wanted
        for place in (place for place, known in texts.items() if known == text):
            add(place)
            break
    writer.add_add_bos_token(False)
    template = folder / "chat_template.jinja"
    writer.add_chat_template(
        template.read_text("utf-8") if template.is_file() else told["chat_template"]
    )


def _type(
    place: int, texts: Mapping[int, str], added: Mapping[int, Mapping[str, Any]]
) -> gguf.TokenType:
    if place in added:
        special = added[place]["special"]
        return gguf.TokenType.CONTROL if special else gguf.TokenType.USER_DEFINED
    return gguf.TokenType.NORMAL if place in texts else gguf.TokenType.UNUSED


def _tensors(folder: Path, config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    heads = {"q_proj.weight": config["num_attention_heads"], "k_proj.weight": _key_heads(config)}
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, framework="pt") as opened:
            for name in opened.keys():  # noqa: SIM118 - it is no mapping
                values = opened.get_tensor(name).float().numpy()
                for ending, count in heads.items():
                    if name.endswith(ending):
                        values = _interleaved(values, count)
                yield name, values.astype(np.float16) if values.ndim > 1 else values


def _interleaved(values: Any, heads: int) -> Any:
    """Rows in llama.cpp's order, which turns neighbours where transformers turns halves."""
    halves = values.reshape(heads, 2, values.shape[0] // heads // 2, *values.shape[1:])
    return halves.swapaxes(1, 2).reshape(values.shape)
