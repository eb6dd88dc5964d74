"""A client's file as a whole: read, changed with proof that nothing else changed, saved safely."""

import copy
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path

from pydantic import JsonValue

from podium.cli.installing import jsonc, toml_text
from podium.cli.installing.clients import Syntax
from podium.cli.installing.jsonc import NotChangeableError, NotJsonError
from podium.cli.whole_file import read_whole, write_whole
from podium.errors import SettingsError

Keys = Sequence[str | int]

_READERS: Mapping[Syntax, Callable[[str], JsonValue]] = {
    "json": jsonc.read_plain,
    "jsonc": jsonc.read,
    "toml": toml_text.read,
}


@dataclass(frozen=True)
class Document:
    """A file's text, which can be read."""

    file: Path
    syntax: Syntax
    text: str
    exists: bool

    @property
    def data(self) -> dict[str, JsonValue]:
        """What the text says."""
        data = _READERS[self.syntax](self.text)
        assert isinstance(data, dict), "looked at when the document was opened"
        return data

    def put(self, path: Keys, value: JsonValue) -> "Document":
        """The document with *value* there.

        Raises:
            SettingsError: the text is laid out in a way that would not survive it.
        """
        return self._changed(path, value)

    def remove(self, path: Keys) -> "Document":
        """The document without what stands there.

        Raises:
            SettingsError: the text is laid out in a way that would not survive it.
        """
        return self._changed(path, None)

    def _changed(self, path: Keys, value: JsonValue) -> "Document":
        try:
            new = replace(self, text=self._edited(path, value))
            wanted = _changed_data(self.data, path, value)
            if _filled(new.data, path) != _filled(wanted, path):
                raise NotChangeableError("more than that would change")
        except (NotChangeableError, NotJsonError, tomllib.TOMLDecodeError, ValueError) as error:
            raise SettingsError(
                f"{self.file}: cannot be changed without harm ({error}); edit it by hand, "
                "with what --print shows."
            ) from None
        return new

    def _edited(self, path: Keys, value: JsonValue) -> str:
        if self.syntax != "toml":
            return (
                jsonc.remove(self.text, path)
                if value is None
                else jsonc.put(self.text, path, value)
            )
        keys = [str(key) for key in path]
        return (
            toml_text.remove(self.text, keys)
            if value is None
            else toml_text.put(self.text, keys, value)
        )


def open_document(file: Path, syntax: Syntax) -> Document:
    """The document of *file*; an empty one where there is none.

    Raises:
        SettingsError: the file cannot be read, or is not what the client expects.
    """
    text = read_whole(file)
    document = Document(file, syntax, text or "", exists=text is not None)
    try:
        data = _READERS[syntax](document.text)
    except (NotJsonError, tomllib.TOMLDecodeError) as error:
        kind = "TOML" if syntax == "toml" else "JSON"
        raise SettingsError(f"{file}: this is not valid {kind} ({error}); mend it first.") from None
    if not isinstance(data, dict):
        raise SettingsError(f"{file}: this holds no object; mend it first.")
    return document


def _changed_data(old: dict[str, JsonValue], path: Keys, value: JsonValue) -> dict[str, JsonValue]:
    """What the text has to say afterwards."""
    data = copy.deepcopy(old)
    inner: JsonValue = data
    for key, after in pairwise(path):
        fresh: JsonValue = [] if isinstance(after, int) else {}
        if isinstance(inner, dict):
            inner = inner.setdefault(str(key), fresh)
        elif isinstance(inner, list) and isinstance(key, int):
            inner = inner[key]
    last = path[-1]
    if isinstance(inner, dict):
        inner.pop(str(last), None) if value is None else inner.update({str(last): value})
    elif isinstance(inner, list) and isinstance(last, int):
        inner[last : last + 1] = [] if value is None else [value]
    return data


def _filled(data: dict[str, JsonValue], path: Keys) -> dict[str, JsonValue]:
    """The data without its outer table, if that is empty: in TOML it may go with its last one."""
    return {key: value for key, value in data.items() if key != path[0] or value != {}}


def save(before: Document, after: Document, *, for_others: bool) -> Path | None:
    """Write the file as a whole; the copy that was made of the old one, if there was one.

    *for_others* lets a new file be read by everybody, as files of a project are.

    Raises:
        SettingsError: it cannot be written, or somebody changed it meanwhile.
    """
    file = before.file
    if read_whole(file) != (before.text if before.exists else None):
        raise SettingsError(f"{file}: another program changed it just now; run the command again.")
    backup = _backup_name(file) if before.exists else None
    if backup is not None:
        write_whole(backup, before.text, mode=file.stat().st_mode & 0o777)
    write_whole(file, after.text, mode=0o644 if for_others else 0o600)
    return backup


def _backup_name(file: Path) -> Path:
    """A name beside the file that is not taken, with the time in it."""
    moment = datetime.now().strftime("%Y%m%d-%H%M%S")
    names = [
        f"{file.name}.podium-{moment}{more}.bak" for more in ("", *(f"-{n}" for n in range(2, 99)))
    ]
    return next(path for path in map(file.with_name, names) if not path.exists())
