import struct
from pathlib import Path

import pytest
from tests.gguf_writer import ENTRIES, LIST, WORDS, header, number, numbers, text, word

from podium_workers.errors import ModelFileError
from podium_workers.weights.gguf import is_gguf, read_gguf


def test_the_header_tells_what_a_token_of_context_takes(tmp_path: Path) -> None:
    file = tmp_path / "tiny.gguf"
    file.write_bytes(header(*ENTRIES, number("llama.attention.head_count_kv", 4)) + b"weights")

    facts = read_gguf(file)

    assert facts.size == file.stat().st_size
    # 2 layers, 4 heads of 8 values, for keys and for values, 2 bytes each
    assert facts.kv_bytes_per_token == 2 * 4 * (8 + 8) * 2


def test_heads_that_differ_between_layers_count_as_the_widest(tmp_path: Path) -> None:
    file = tmp_path / "tiny.gguf"
    file.write_bytes(header(*ENTRIES, numbers("llama.attention.head_count_kv", [2, 4])))

    assert read_gguf(file).kv_bytes_per_token == 2 * 4 * (8 + 8) * 2


def test_the_vocabulary_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "tiny.gguf"
    endless = text("tokenizer.ggml.tokens") + struct.pack("<IIQ", LIST, WORDS, 2**60)
    file.write_bytes(header(*ENTRIES, endless))

    assert read_gguf(file).kv_bytes_per_token == 2 * 8 * (8 + 8) * 2


@pytest.mark.parametrize(
    "content",
    [
        header(*ENTRIES)[:60],
        header(word("general.name", "Tiny")),
        header(count=2**40),
        b"GGUF",
        b"PK\x03\x04 this is an archive",
        b"",
    ],
    ids=["cut off", "without architecture", "absurd count", "magic alone", "archive", "empty"],
)
def test_a_damaged_header_is_said_to_be_one(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "tiny.gguf"
    file.write_bytes(content)

    with pytest.raises(ModelFileError, match=r"tiny\.gguf"):
        read_gguf(file)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"absent\.gguf"):
        read_gguf(tmp_path / "absent.gguf")


def test_the_form_shows_in_the_first_bytes(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(header(*ENTRIES))
    (tmp_path / "b").write_bytes(b"GG")

    assert is_gguf(tmp_path / "a")
    assert not is_gguf(tmp_path / "b")
