"""What is wrong with a manifest, in one sentence: where it is, what it is, what to type."""

import difflib
from collections.abc import Mapping, Sequence

from pydantic_core import ErrorDetails

from podium_workers.wire import entries, items, scrub

_SECRET_KEYS = frozenset({"api_key", "apikey", "key", "token", "secret", "password"})
_LONGEST_VALUE = 60


def explain(
    error: ErrorDetails,
    data: Mapping[str, object],
    source: str,
    keys: Mapping[str, Sequence[str]],
) -> str:
    """The first thing wrong with *data*, the manifest from *source*.

    *keys* has the keys that each kind of table may have; the one under "" is the manifest itself.
    Values are shown only where they cannot be a key.
    """
    path = [str(part) if isinstance(part, int) else part for part in error["loc"]]
    return scrub(f"{source}: {_place(path, data)}{_problem(error, path, keys)}.")


def _place(path: Sequence[str], data: Mapping[str, object]) -> str:
    if path[:1] != ["worker"] or len(path) < 2:
        return f"{'.'.join(path)}: " if path else ""
    number = int(path[1])
    listed = items(data.get("worker"))
    name = entries(listed[number]).get("name") if number < len(listed) else None
    named = f" ({str(name)[:_LONGEST_VALUE]!r})" if name else ""
    inner = ".".join(path[3:])
    return f"worker {number + 1}{named}, {inner}: " if inner else f"worker {number + 1}{named}: "


def _problem(error: ErrorDetails, path: Sequence[str], keys: Mapping[str, Sequence[str]]) -> str:
    match error["type"]:
        case "extra_forbidden":
            return _unknown_key(path, keys)
        case "missing" if not path[1:]:
            return "the manifest names no worker; add a [[worker]] table"
        case "missing":
            return "this key is missing"
        case "too_short" if path == ["worker"]:
            return "the manifest names no worker; add a [[worker]] table"
        case "union_tag_not_found":
            return f"kind is missing; add kind = one of {', '.join(_kinds(keys))}"
        case "union_tag_invalid":
            given = str(entries(error["input"]).get("kind"))
            return f"there is no kind {given[:_LONGEST_VALUE]!r}{_near(given, _kinds(keys))}"
        case "string_pattern_mismatch":
            return (
                "use letters, digits, '.', '_' and '-', a letter or digit first, at most 64 "
                f"characters{_value(error, path)}"
            )
        case "tuple_type":
            return f"this must be a list{_value(error, path)}"
        case "value_error":
            return str(error["msg"]).removeprefix("Value error, ")
        case _:
            return f"{error['msg'][:1].lower()}{error['msg'][1:]}{_value(error, path)}"


def _unknown_key(path: Sequence[str], keys: Mapping[str, Sequence[str]]) -> str:
    key = path[-1]
    if key.lower() in _SECRET_KEYS:
        return (
            "a key does not belong in a manifest; name the environment variable that holds it, "
            'as in api_key_env = "OPENAI_API_KEY"'
        )
    return f"there is no such key{_near(key, keys[_table(path, keys)])}"


def _table(path: Sequence[str], keys: Mapping[str, Sequence[str]]) -> str:
    """Which table the last key of *path* stands in: the innermost one that is known."""
    return next((part for part in reversed(path[:-1]) if part in keys), "")


def _kinds(keys: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    return tuple(kind for kind, known in keys.items() if "kind" in known)


def _near(given: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(given, known, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else ";"
    return f"{hint} Known are {', '.join(known)}"


def _value(error: ErrorDetails, path: Sequence[str]) -> str:
    if path[-1:] == ["api_key_env"] or isinstance(error["input"], dict | list):
        return ""
    return f" (found {repr(error['input'])[:_LONGEST_VALUE]})"
