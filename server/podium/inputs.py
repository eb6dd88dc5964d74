"""What users hand in beside words: files, read whole as text or refused by name (T31), and dates.

Knows nothing of who asks: the command line gives no roots, a server gives the folders it allows.
"""

import os
import re
import stat
import time
from collections.abc import Sequence
from datetime import MINYEAR, UTC, datetime, timedelta
from pathlib import Path

from podium.errors import QuestionError
from podium.trace import TextFile

MAX_BYTES = 10_000_000
"""Bytes that one file may have."""
_LONGEST_NAME = 255
_AGO = re.compile(r"(\d{1,6})\s*([mhdw])")
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def read_file(path: Path, roots: Sequence[Path] = ()) -> TextFile:
    """The text file at *path*; with *roots*, only if it really lies below one of them.

    A symbolic link counts as the file that it leads to.

    Raises:
        QuestionError: missing, a folder, empty, too large, not UTF-8 text, or outside the roots.
    """
    try:
        real = path.expanduser().resolve()
        _check_place(path, real, roots)
        with real.open("rb") as opened:
            data = opened.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise _refused(path, "does not exist; check the path") from None
    except (OSError, RuntimeError, ValueError) as error:  # unreadable, a loop of links, a NUL
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise _refused(path, f"cannot be read ({why})") from None
    name = (path.name or real.name)[-_LONGEST_NAME:]
    return TextFile(name=name, text=_text(path, data), bytes=len(data))


def read_files(paths: Sequence[Path], roots: Sequence[Path] = ()) -> tuple[TextFile, ...]:
    """As `read_file`, for several: the same file counts once, and no two have the same name.

    Raises:
        QuestionError: one of them cannot be used.
    """
    apart = {Path(os.path.abspath(path.expanduser())): path for path in paths}
    names = _shortest_names(tuple(apart))
    return tuple(
        read_file(path, roots).model_copy(update={"name": name})
        for path, name in zip(apart.values(), names, strict=True)
    )


def from_bytes(name: str, data: bytes) -> TextFile:
    """What was read, as a file of that name.

    Raises:
        QuestionError: it is empty, too large, or not UTF-8 text.
    """
    return TextFile(name=name[-_LONGEST_NAME:], text=_text(name, data), bytes=len(data))


def from_text(name: str, text: str) -> TextFile:
    """A text that was handed over, as a file of that name.

    Raises:
        QuestionError: it is empty, too large, or not text.
    """
    return from_bytes(name, text.encode("utf-8", "replace"))


def told_apart(files: Sequence[TextFile]) -> tuple[TextFile, ...]:
    """The files, each under a name of its own: prompts and receipts tell them by it."""
    names: set[str] = set()
    apart: list[TextFile] = []
    for file in files:
        name, count = file.name, 1
        while name in names:
            count += 1
            name = f"{file.name[:240]} ({count})"
        names.add(name)
        apart.append(file.model_copy(update={"name": name}))
    return tuple(apart)


def _text(name: Path | str, data: bytes) -> str:
    if len(data) > MAX_BYTES:
        most = MAX_BYTES // 1_000_000
        raise _refused(name, f"has more than {most} MB; give only the part that the question needs")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise _refused(name, "is not UTF-8 text; convert it to text first")
    if not text:
        raise _refused(name, "is empty (0 bytes), so there is nothing to read in it; leave it out")
    return text


def _check_place(path: Path, real: Path, roots: Sequence[Path]) -> None:
    if roots and not any(real.is_relative_to(root.expanduser().resolve()) for root in roots):
        allowed = ", ".join(str(root) for root in roots)
        raise _refused(
            path,
            f"lies outside the allowed folders ({allowed}); `file_roots` in the settings adds more",
        )
    mode = real.stat().st_mode
    if stat.S_ISDIR(mode):
        raise _refused(path, "is a folder; name a file in it")
    if roots and not stat.S_ISREG(mode):
        raise _refused(path, "is not an ordinary file")


def _shortest_names(paths: Sequence[Path]) -> list[str]:
    """For each path its last parts, as few as tell it from the others."""

    def ending(path: Path, parts: int) -> str:
        return "/".join(path.parts[-parts:])

    names: list[str] = []
    for path in paths:
        parts = 1
        while parts < len(path.parts) and any(
            ending(other, parts) == ending(path, parts) for other in paths if other != path
        ):
            parts += 1
        names.append(ending(path, parts)[-_LONGEST_NAME:])
    return names


def _refused(name: Path | str, why: str) -> QuestionError:
    return QuestionError("file", f"{name} {why}.")


def read_moment(text: str, *, end: bool = False) -> float:
    """A date (and time), or how long ago (`90m`, `12h`, `7d`, `2w`), as Unix time.

    With *end*, a day alone counts to its end. What no clock can tell is the nearest that one can.

    Raises:
        ValueError: it is neither; the text says what to write.
    """
    text = text.strip()
    if ago := _AGO.fullmatch(text):
        return time.time() - timedelta(**{_UNITS[ago[2]]: int(ago[1])}).total_seconds()
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"{text[:80]!r} is not a date; write 2026-11-30, 2026-11-30T14:00, 90m, 12h, 7d or 2w."
        ) from None
    whole_day = end and "T" not in text and ":" not in text
    try:
        return (moment + timedelta(days=1 if whole_day else 0)).timestamp()
    except (ValueError, OverflowError, OSError):  # within a day of the first or the last date
        nearest = datetime.min if moment.year == MINYEAR else datetime.max
        return nearest.replace(tzinfo=UTC).timestamp()
