"""What a client is told when something is wrong: short sentences that say what to type.

Knows the SDK's errors and pydantic's; turns them into text and never into anything else.
"""

import difflib
import json
import re
from collections.abc import Collection, Mapping, Sequence

from pydantic import JsonValue, ValidationError
from pydantic_core import ErrorDetails

from podium.app.schemas import at, brief, expected
from podium.errors import PodiumError
from podium_workers.errors import WorkerError
from podium_workers.worker import mend

EXPECTED = (PodiumError, WorkerError, ValidationError, TimeoutError)
"""Failures whose text is written for the caller."""
LONGEST = 8_000
"""Characters of an error at most: a widespread client cuts at 11,000."""
_FOUND = 60
"""Characters that are repeated of what was found."""
_PROBLEMS = 3
"""Wrong arguments that are named at once."""


def sentence(error: BaseException, schema: Mapping[str, JsonValue] | None = None) -> str:
    """What is wrong, for whoever asked; never blank and never long.

    *schema* is that of the arguments, if it is about them.
    """
    if isinstance(error, ValidationError):
        return short(" ".join(_problem(found, schema) for found in _first(error)))
    said = str(error).strip()
    if not said and isinstance(error, TimeoutError):
        return "It took too long and was given up; ask again."
    return short(said or f"It failed ({type(error).__name__}), and nothing more is known.")


def short(text: str) -> str:
    """*text*, cut where clients would cut it, fit for every wire."""
    text = mend(text)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}… [cut: {len(text)} characters]"


def unknown(what: str, name: str, known: Collection[str]) -> str:
    """That there is no such tool, prompt or argument, and which one was meant."""
    near = difflib.get_close_matches(name, known, n=1)
    there = f"There are: {', '.join(known)}."
    if near:
        return f"There is no {what} {_cut(name)!r}; did you mean {near[0]!r}? {there}"
    return f"There is no {what} {_cut(name)!r}. {there}"


def unknown_argument(tool: str, arguments: Collection[str], known: Sequence[str]) -> str:
    """What is wrong with the names of *arguments*; empty when nothing is."""
    all_of_them = ", ".join(sorted(known)) or "none"
    for name in sorted(set(arguments).difference(known)):
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"it has {all_of_them}."
        return mend(f"{_cut(name)}: {tool} has no such argument; {hint}")
    return ""


def _first(error: ValidationError) -> list[ErrorDetails]:
    """The first problems, each place once: a union complains about every one of its kinds."""
    found = {problem["loc"]: problem for problem in reversed(error.errors(include_url=False))}
    return list(reversed(found.values()))[:_PROBLEMS]


def _problem(found: ErrorDetails, schema: Mapping[str, JsonValue] | None) -> str:
    where = _path(found["loc"])
    match found["type"]:
        case "missing":
            return f"{where}: is missing; write {_expected(found['loc'], schema)}."
        case "extra_forbidden":
            return _extra(found["loc"], schema)
        case "value_error":
            return f"{where}: {found['msg'].removeprefix('Value error, ')}"
        case _:
            wanted = f"write {_expected(found['loc'], schema)}" if schema else _wish(found["msg"])
            return f"{where}: {wanted} (found {_found(found['input'])})."


def _expected(place: tuple[int | str, ...], schema: Mapping[str, JsonValue] | None) -> str:
    return expected(at(brief(schema), place)) if schema else "a value"


def _extra(place: tuple[int | str, ...], schema: Mapping[str, JsonValue] | None) -> str:
    holder = at(brief(schema), place[:-1]) if schema else None
    known: list[str] = []
    match holder:
        case {"properties": {**properties}}:
            known = list(properties)
        case _:
            pass
    near = difflib.get_close_matches(str(place[-1]), known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known) or 'none'}."
    return f"{_path(place)}: there is no such field; {hint}"


def _path(place: tuple[int | str, ...]) -> str:
    """The place as it is written in code: `plan[0].worker`."""
    parts = [f"[{part}]" if isinstance(part, int) else f".{_cut(part)}" for part in place]
    return "".join(parts).removeprefix(".") or "arguments"


def _wish(message: str) -> str:
    """What pydantic says, as a wish."""
    return re.sub(r"^Input should be", "has to be", message)


def _found(value: object) -> str:
    try:
        return _cut(json.dumps(value, ensure_ascii=False))
    except (TypeError, ValueError):
        return _cut(repr(value))


def _cut(text: str) -> str:
    return text if len(text) <= _FOUND else f"{text[: _FOUND - 1]}…"
