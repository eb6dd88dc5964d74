"""Writes the header of a GGUF file, for tests."""

import struct
from pathlib import Path

WORDS = 8
NUMBER = 4
LIST = 9


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def word(key: str, value: str) -> bytes:
    return text(key) + struct.pack("<I", WORDS) + text(value)


def number(key: str, value: int) -> bytes:
    return text(key) + struct.pack("<II", NUMBER, value)


def numbers(key: str, values: list[int]) -> bytes:
    head = text(key) + struct.pack("<IIQ", LIST, NUMBER, len(values))
    return head + b"".join(struct.pack("<I", value) for value in values)


def header(*entries: bytes, count: int | None = None) -> bytes:
    total = len(entries) if count is None else count
    return b"GGUF" + struct.pack("<IQQ", 3, 0, total) + b"".join(entries)


ENTRIES = (
    word("general.architecture", "llama"),
    word("general.name", "Tiny"),
    number("llama.block_count", 2),
    number("llama.context_length", 4096),
    number("llama.embedding_length", 64),
    number("llama.attention.head_count", 8),
)
"""A small network: 2 layers, 8 heads of 8 values."""


def write_gguf(path: Path) -> Path:
    """A file that is all header."""
    path.write_bytes(header(*ENTRIES))
    return path
