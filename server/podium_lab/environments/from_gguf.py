"""Turns a GGUF file into a folder that vLLM serves; run by the Python of vLLM's environment.

python from_gguf.py FILE FOLDER
"""

import importlib
import sys
from pathlib import Path
from typing import Protocol, cast


class _Saved(Protocol):
    def save_pretrained(self, folder: str) -> None: ...


class _Config(Protocol):
    __dict__: dict[str, object]


class _Model(_Saved, Protocol):
    config: _Config


class _Loader(Protocol):
    def from_pretrained(self, folder: str, **options: object) -> object: ...


class _Transformers(Protocol):
    """What is used of transformers."""

    AutoModelForCausalLM: _Loader
    AutoTokenizer: _Loader

    def GgufConfig(self, *, dequantize: bool) -> object: ...


class _Torch(Protocol):
    bfloat16: object


def convert(file: Path, folder: Path) -> None:
    """Write the model in *file* to *folder*, its weights unpacked to bfloat16."""
    torch = cast("_Torch", importlib.import_module("torch"))
    transformers = cast("_Transformers", importlib.import_module("transformers"))
    where = {"gguf_file": file.name}
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(file.parent), **where)
    loaded = transformers.AutoModelForCausalLM.from_pretrained(
        str(file.parent),
        dtype=torch.bfloat16,
        # Kept packed, they could not be saved.
        quantization_config=transformers.GgufConfig(dequantize=True),
        **where,
    )
    model = cast("_Model", loaded)
    model.config.__dict__.pop("quantization_config", None)
    part = folder.with_name(f"{folder.name}.part")
    model.save_pretrained(str(part))
    cast("_Saved", tokenizer).save_pretrained(str(part))
    part.rename(folder)


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
