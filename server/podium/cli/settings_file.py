"""Changes one setting in the settings' file, and leaves every other line as its owner wrote it."""

import json
import os
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from pydantic import JsonValue, ValidationError

from podium.cli.whole_file import read_whole, write_whole
from podium.config import Settings, expected, listed
from podium.errors import SettingsError
from podium_workers.trained import is_path


def validated(name: str, text: str) -> JsonValue:
    """The value that *text* gives for a setting, as the file holds it.

    Paths are made absolute, since the file is read from any folder.

    Raises:
        SettingsError: there is no such setting, or it does not take that value.
    """
    if name not in Settings.model_fields:
        known = ", ".join(Settings.model_fields)
        raise SettingsError(f"There is no setting {name!r}; known are {known}.")
    given = listed(name, text)
    try:
        value: object = getattr(Settings.model_validate({name: given}), name)
    except ValidationError:
        raise SettingsError(f"{name}: write {expected(name)} (found {text!r}).") from None
    if not text.strip():
        raise SettingsError(f"{name}: the value is empty; `podium config unset {name}` removes it.")
    if isinstance(value, Path):
        return _absolute(value)
    if isinstance(given, tuple):
        return [_absolute(Path(part)) if name == "file_roots" else part for part in given]
    if name == "conductor" and is_path(text):
        return _absolute(Path(text))
    assert isinstance(value, str | int | float), "settings are paths, lists of paths, or plain"
    return value


def read(file: Path) -> dict[str, object]:
    """What the file sets, without judging it.

    Raises:
        SettingsError: it cannot be read as TOML.
    """
    return _parsed(read_whole(file) or "", file)


def change(file: Path, name: str, value: JsonValue) -> None:
    """Set *name* in the file, or take it out with None; makes the file when there is none.

    Raises:
        SettingsError: the file cannot be read or written, or is laid out in a way that would not
            survive the change.
    """
    text = read_whole(file) or ""
    wanted = {key: old for key, old in _parsed(text, file).items() if key != name}
    if value is not None:
        wanted[name] = value
    for candidate in _candidates(text, name, value):
        if _says(candidate, wanted):
            write_whole(file, candidate)
            return
    raise SettingsError(f"{file}: {name!r} cannot be changed without harm; edit the file by hand.")


def _candidates(text: str, name: str, value: JsonValue) -> Iterator[str]:
    """Texts that may be right: the line replaced, with none or more of the lines after it."""
    lines = text.splitlines(keepends=True)
    at = next((n for n, line in enumerate(lines) if _key(line) == name), None)
    if at is None:
        new = f"{name} = {json.dumps(value, ensure_ascii=False)}\n"
        yield text + ("" if not text or text.endswith("\n") else "\n") + new
        yield new + text  # a file that ends in a table
        return
    for after in range(at + 1, len(lines) + 1):
        comment = _comment(lines[after - 1])
        new = (
            "" if value is None else f"{name} = {json.dumps(value, ensure_ascii=False)}{comment}\n"
        )
        yield "".join([*lines[:at], new, *lines[after:]])


def _key(line: str) -> str | None:
    found = re.match(r"""\s*["']?([A-Za-z0-9_-]+)["']?\s*=""", line)
    return found[1] if found else None


def _comment(line: str) -> str:
    """The comment at the end of a line, with the space before it."""
    quote = ""
    for at, character in enumerate(line):
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif character == "#":
            start = len(line[:at].rstrip())
            return line[start:].rstrip()
    return ""


def _says(text: str, wanted: dict[str, object]) -> bool:
    try:
        return tomllib.loads(text) == wanted
    except tomllib.TOMLDecodeError:
        return False


def _parsed(text: str, file: Path) -> dict[str, object]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{file}: cannot be read as TOML: {error}; mend it by hand.") from None


def _absolute(path: Path) -> str:
    return os.path.abspath(path.expanduser())
