"""Data made small enough to be sent: what is cut is marked, and says where the whole is.

Some clients hand everything that they get to the model, structured content too.
"""

import json
from typing import NamedTuple

from pydantic import JsonValue

STRUCTURED = 30_000
"""Bytes of structured content in one result, beside at most as much text."""


class _Cut(NamedTuple):
    """How much is left: characters of any text, of those in `_LAST`, and entries of any list."""

    text: int
    answer: int
    entries: int


_CUTS = (
    _Cut(2_000, 20_000, 1_000),
    _Cut(1_000, 20_000, 1_000),
    _Cut(500, 20_000, 1_000),
    _Cut(250, 10_000, 1_000),
    _Cut(120, 10_000, 200),
    _Cut(120, 5_000, 100),
    _Cut(120, 2_000, 40),
    _Cut(80, 500, 10),
    _Cut(80, 80, 3),
)
"""Tried in this order until it fits."""
_LAST = ("answer", "best_so_far")
"""What was asked for is shortened less than the rest."""


def bounded(
    data: dict[str, JsonValue], whole: str, limit: int = STRUCTURED
) -> dict[str, JsonValue]:
    """*data* in at most about *limit* bytes of JSON; what was cut is told under `cut`.

    *whole* says where all of it can be read.
    """
    if _size(data) <= limit:
        return data
    left = data
    for cut in _CUTS:
        left = {key: _shortened(value, key, cut) for key, value in data.items()}
        if _size(left) <= limit:
            break
    marked = f"Long texts end with … and long lists early; {whole}."
    return {**left, "cut": marked}


def _size(data: JsonValue) -> int:
    return len(json.dumps(data, ensure_ascii=False).encode("utf-8", "replace"))


def _shortened(value: JsonValue, key: str, cut: _Cut) -> JsonValue:
    match value:
        case str():
            most = cut.answer if key in _LAST else cut.text
            return value if len(value) <= most else f"{value[: most - 1]}…"
        case list():
            return [_shortened(inner, key, cut) for inner in value[: cut.entries]]
        case dict():
            return {name: _shortened(inner, name, cut) for name, inner in value.items()}
        case _:
            return value
