"""What a GGUF file says of itself: the few facts that are needed before it is loaded."""

import struct
from pathlib import Path
from typing import BinaryIO

from podium_workers.errors import ModelFileError
from podium_workers.worker import Frozen

MAGIC = b"GGUF"
_STRING, _ARRAY = 8, 9
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q"}
_NUMBERS[12] = "d"
_MOST_ENTRIES = 65_536
_LONGEST_STRING = 1 << 24
_BYTES_PER_KV_VALUE = 2
"""llama.cpp keeps keys and values as 16-bit floats unless told otherwise."""

_Value = str | float | list[float]


class GgufFacts(Frozen):
    """Facts of one model file."""

    size: int
    """Bytes of the file."""
    kv_bytes_per_token: int
    """Memory that one token of context takes."""
    context_length: int | None = None
    """Tokens that the model was made for, where the file says so."""


def is_gguf(path: Path) -> bool:
    """Whether the file starts as a GGUF file does."""
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def read_gguf(path: Path) -> GgufFacts:
    """The facts in the header of *path*.

    Raises:
        ModelFileError: the file is missing, is no GGUF file, or its header is damaged.
    """
    try:
        with path.open("rb") as file:
            entries = _entries(file, path)
        return _facts(path, entries)
    except OSError as error:
        raise ModelFileError(f"{path}: the model file cannot be read: {error.strerror}.") from error
    except (struct.error, UnicodeDecodeError, KeyError, ValueError) as error:
        raise ModelFileError(
            f"{path}: the header of the model file is damaged: fetch the file again."
        ) from error


def _entries(file: BinaryIO, path: Path) -> dict[str, _Value]:
    if file.read(len(MAGIC)) != MAGIC:
        raise ModelFileError(f"{path}: this is not a GGUF file: name a file in GGUF form.")
    _version, _tensors, count = struct.unpack("<IQQ", file.read(20))
    if count > _MOST_ENTRIES:
        raise ValueError(count)
    entries: dict[str, _Value] = {}
    for _ in range(count):
        key = _read_string(file)
        # The vocabulary follows the facts about the network, and is large.
        if key.startswith("tokenizer.") and "general.architecture" in entries:
            break
        entries[key] = _read_value(file, int(_read_number(file, "I")))
    return entries


def _read_number(file: BinaryIO, kind: str) -> float:
    layout = struct.Struct("<" + kind)
    return layout.unpack(file.read(layout.size))[0]


def _read_string(file: BinaryIO) -> str:
    length = int(_read_number(file, "Q"))
    if length > _LONGEST_STRING:
        raise ValueError(length)
    return file.read(length).decode()


def _read_value(file: BinaryIO, kind: int) -> _Value:
    if kind == _STRING:
        return _read_string(file)
    if kind == _ARRAY:
        return _read_array(file)
    return _read_number(file, _NUMBERS[kind])


def _read_array(file: BinaryIO) -> list[float]:
    """The numbers of an array; strings are skipped, nothing here needs them."""
    kind, length = int(_read_number(file, "I")), int(_read_number(file, "Q"))
    values = (_read_value(file, kind) for _ in range(length))
    return [value for value in values if isinstance(value, int | float)]


def _facts(path: Path, entries: dict[str, _Value]) -> GgufFacts:
    architecture = str(entries["general.architecture"])

    def number(key: str, default: int = 0) -> int:
        value = entries.get(f"{architecture}.{key}", default)
        if isinstance(value, list):
            return int(max(value, default=0))
        return int(value)

    heads = max(1, number("attention.head_count"))
    head_size = number("embedding_length") // heads
    per_head = number("attention.key_length", head_size)
    per_head += number("attention.value_length", head_size)
    kv_heads = number("attention.head_count_kv", heads)
    return GgufFacts(
        size=path.stat().st_size,
        kv_bytes_per_token=number("block_count") * kv_heads * per_head * _BYTES_PER_KV_VALUE,
        context_length=number("context_length") or None,
    )
