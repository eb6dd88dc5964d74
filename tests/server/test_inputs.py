"""Files of a question: read whole, or refused by name (T31)."""

from pathlib import Path

import pytest

from podium.errors import QuestionError
from podium.inputs import MAX_BYTES, from_text, read_file, read_files, read_moment


def test_a_file_is_read_whole(tmp_path: Path):
    path = tmp_path / "a.txt"
    path.write_bytes("\ufeffgrüße\r\n".encode())
    file = read_file(path)
    assert (file.name, file.text, file.bytes) == ("a.txt", "grüße\r\n", 12)


def test_t31_a_zero_byte_file_is_refused_by_name(tmp_path: Path):
    path = tmp_path / "empty.txt"
    path.touch()
    with pytest.raises(QuestionError, match=r"empty\.txt is empty \(0 bytes\)") as caught:
        read_file(path)
    assert caught.value.field == "file"


@pytest.mark.parametrize("data", [b"\xff\xfe\x00", b"a\x00b", b"\x89PNG\r\n", b"\xef\xbb\xbf"])
def test_what_is_not_text_is_refused(tmp_path: Path, data: bytes):
    path = tmp_path / "data"
    path.write_bytes(data)
    with pytest.raises(QuestionError):
        read_file(path)


def test_a_file_is_never_read_in_part(tmp_path: Path):
    path = tmp_path / "large"
    path.write_bytes(b"x" * (MAX_BYTES + 1))
    with pytest.raises(QuestionError, match="more than 10 MB"):
        read_file(path)
    path.write_bytes(b"x" * MAX_BYTES)
    assert read_file(path).bytes == MAX_BYTES


@pytest.mark.parametrize("name", [".", "gone", "file/below", "nul\0"])
def test_what_cannot_be_opened_is_refused(tmp_path: Path, name: str):
    (tmp_path / "file").write_text("x")
    with pytest.raises(QuestionError):
        read_file(tmp_path / name)


def test_roots_hold_against_links_and_dots(tmp_path: Path):
    allowed, other = tmp_path / "allowed", tmp_path / "other"
    for folder in (allowed, other):
        folder.mkdir()
        (folder / "a.txt").write_text(folder.name)
    (allowed / "out").symlink_to(other / "a.txt")
    (allowed / "in").symlink_to(allowed / "a.txt")

    assert read_file(allowed / "a.txt", (allowed,)).text == "allowed"
    assert read_file(allowed / "in", (other, allowed)).text == "allowed"
    for outside in (other / "a.txt", allowed / "out", allowed / ".." / "other" / "a.txt"):
        with pytest.raises(QuestionError, match="outside the allowed folders"):
            read_file(outside, (allowed,))
    with pytest.raises(QuestionError, match="outside the allowed folders"):
        read_file(other / "gone.txt", (allowed,))  # nor does it tell whether it exists


def test_files_of_one_name_are_told_apart(tmp_path: Path):
    paths = [tmp_path / folder / "a.txt" for folder in ("one", "two")]
    for path in paths:
        path.parent.mkdir()
        path.write_text(path.parent.name)
    single = tmp_path / "b.txt"
    single.write_text("b")
    again = tmp_path / "one" / ".." / "b.txt"

    files = read_files([*paths, single, again])

    assert [(file.name, file.text) for file in files] == [
        ("one/a.txt", "one"),
        ("two/a.txt", "two"),
        ("b.txt", "b"),
    ]


def test_text_that_was_handed_over_is_a_file(tmp_path: Path):
    assert from_text("notes", "half \ud800 a character").text == "half ? a character"
    with pytest.raises(QuestionError):
        from_text("notes", "")


@pytest.mark.parametrize("end", [False, True])
def test_the_first_and_the_last_date_are_dates(end: bool):
    first, last = (read_moment(day, end=end) for day in ("0001-01-01", "9999-12-31"))
    assert first < read_moment("1900-01-01") < read_moment("9000-01-01") < last
    assert read_moment("0001-01-01T00:00+14:00") < 0
    with pytest.raises(ValueError, match="'0000-01-01' is not a date"):
        read_moment("0000-01-01")
