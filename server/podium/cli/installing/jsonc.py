"""JSON as clients keep it, with comments and trailing commas: read, and changed in one place only.

Every character that the change does not concern stays as its owner wrote it.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import JsonValue

Path = Sequence[str | int]
"""Keys of objects and numbers of list items, from the outside in."""

DEEPEST = 100
_SKIPPED = re.compile(r"(?:\s+|\ufeff|//[^\r\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_OTHER = re.compile(r"-?\d[\d.eE+-]*|true|false|null")
_REST_OF_LINE = re.compile(r"[ \t]*(?://[^\r\n]*|/\*[^\r\n]*?\*/)?[ \t]*(?=\r?\n|\Z)")
_LINE_END = re.compile(r"[ \t]*\r?\n")


class NotJsonError(ValueError):
    """The text cannot be read; says where and what is wrong."""

    def __init__(self, what: str, text: str, at: int) -> None:
        line = text.count("\n", 0, at) + 1
        super().__init__(f"line {line}, column {at - text.rfind(chr(10), 0, at)}: {what}")


class NotChangeableError(ValueError):
    """The text can be read, but what has to be changed is laid out in another way."""


@dataclass(frozen=True)
class Node:
    """A value and where it stands."""

    start: int
    end: int
    value: JsonValue
    members: tuple["Member", ...] = ()
    """Of an object or a list."""
    opens: str = ""
    """`{`, `[`, or nothing for a plain value."""


@dataclass(frozen=True)
class Member:
    """One part of an object or a list, from its key on."""

    key: str | int
    start: int
    node: Node


def read(text: str) -> JsonValue:
    """The value; an empty text, or one with comments alone, is an empty object.

    Raises:
        NotJsonError: it is no JSON, not even with comments.
    """
    return {} if _is_blank(text) else _parsed(text).value


def read_plain(text: str) -> JsonValue:
    """As `read`, for clients that take neither comments nor commas at the end.

    Raises:
        NotJsonError: it is no plain JSON.
    """
    if not text.strip():
        return {}
    try:
        value: JsonValue = json.loads(text.removeprefix("\ufeff"))
    except json.JSONDecodeError as error:
        raise NotJsonError(error.msg, text, error.pos) from None
    return value


def put(text: str, path: Path, value: JsonValue) -> str:
    """The text with *value* at *path*; what is missing on the way there is made.

    A number of a list item may be the list's length: the value is added at its end.

    Raises:
        NotJsonError: the text cannot be read.
        NotChangeableError: something on the way is no object, or is there twice.
    """
    if _is_blank(text):
        lead = text.rstrip()
        return f"{lead}{_newline(text) if lead else ''}{_dumped(_nested(path, value), '  ')}\n"
    node, depth = _parsed(text), 0
    while depth < len(path):
        found = _member(node, path, depth)
        if found is None:
            missing = _nested(path[depth + 1 :], value)
            return _with_member(text, node, path[depth], missing)
        node, depth = found.node, depth + 1
    new = _dumped(value, _unit(text))
    indented = new.replace("\n", f"{_newline(text)}{_line_indent(text, node.start)}")
    return text[: node.start] + indented + text[node.end :]


def remove(text: str, path: Path) -> str:
    """The text without what stands at *path*, which has to be there.

    Raises:
        NotJsonError: the text cannot be read.
        NotChangeableError: it is not there, or is there twice.
    """
    node = _parsed(text)
    for depth in range(len(path) - 1):
        found = _member(node, path, depth)
        if found is None:
            raise NotChangeableError(f"{_shown(path)} is not there")
        node = found.node
    member = _member(node, path, len(path) - 1)
    if member is None:
        raise NotChangeableError(f"{_shown(path)} is not there")
    return _without(text, node, node.members.index(member))


def _is_blank(text: str) -> bool:
    found = _SKIPPED.match(text)
    return found is not None and found.end() == len(text)


def _parsed(text: str) -> Node:
    node = _value(text, _skip(text, 0), 0)
    end = _skip(text, node.end)
    if end != len(text):
        raise NotJsonError("more text after the end", text, end)
    return node


def _skip(text: str, at: int) -> int:
    found = _SKIPPED.match(text, at)
    return found.end() if found else at


def _value(text: str, at: int, depth: int) -> Node:
    opens = text[at : at + 1]
    if opens and opens in "{[":
        if depth == DEEPEST:
            raise NotJsonError(f"more than {DEEPEST} levels", text, at)
        return _container(text, at, depth + 1)
    if opens == '"':
        value, end = _string(text, at)
        return Node(at, end, value)
    found = _OTHER.match(text, at)
    if not found:
        raise NotJsonError("a value is expected", text, at)
    return Node(at, found.end(), _loaded(found[0], text, at))


def _string(text: str, at: int) -> tuple[str, int]:
    found = _STRING.match(text, at)
    if not found:
        raise NotJsonError("a text in double quotes is expected", text, at)
    return str(_loaded(found[0], text, at)), found.end()


def _loaded(token: str, text: str, at: int) -> JsonValue:
    try:
        value: JsonValue = json.loads(token)
    except ValueError:
        raise NotJsonError(f"{token[:40]!r} is no value", text, at) from None
    return value


def _container(text: str, start: int, depth: int) -> Node:
    opens = text[start]
    closes = "}" if opens == "{" else "]"
    members: list[Member] = []
    at = _skip(text, start + 1)
    while text[at : at + 1] != closes:
        member = _next_member(text, at, depth, len(members) if opens == "[" else None)
        members.append(member)
        at = _skip(text, member.node.end)
        if text[at : at + 1] == ",":
            at = _skip(text, at + 1)
        elif text[at : at + 1] != closes:
            raise NotJsonError(f"a comma or {closes!r} is expected", text, at)
    value: JsonValue = [member.node.value for member in members]
    if opens == "{":
        value = {str(member.key): member.node.value for member in members}
    return Node(start, at + 1, value, tuple(members), opens)


def _next_member(text: str, at: int, depth: int, number: int | None) -> Member:
    if number is not None:
        return Member(number, at, _value(text, at, depth))
    key, after = _string(text, at)
    colon = _skip(text, after)
    if text[colon : colon + 1] != ":":
        raise NotJsonError("a colon is expected", text, colon)
    return Member(key, at, _value(text, _skip(text, colon + 1), depth))


def _member(node: Node, path: Path, depth: int) -> Member | None:
    """The member that *path* names at *depth*; None where it is still to be made."""
    wanted = "[" if isinstance(path[depth], int) else "{"
    if node.opens != wanted:
        kind = "a list" if wanted == "[" else "an object"
        raise NotChangeableError(f"{_shown(path[:depth]) or 'the whole'} is not {kind}")
    found = [member for member in node.members if member.key == path[depth]]
    if len(found) > 1:
        raise NotChangeableError(f"{_shown(path[: depth + 1])} is there twice")
    return found[0] if found else None


def _nested(path: Path, value: JsonValue) -> JsonValue:
    for key in reversed(path):
        value = [value] if isinstance(key, int) else {key: value}
    return value


def _shown(path: Path) -> str:
    return ".".join(map(str, path))


def _with_member(text: str, node: Node, key: str | int, value: JsonValue) -> str:
    """The text with one more member at the end; where the last one has a comma, it has one too."""
    newline, unit = _newline(text), _unit(text)
    lead = "" if isinstance(key, int) else f"{json.dumps(key, ensure_ascii=False)}: "
    if not node.members:
        outer = _line_indent(text, node.start)
        inner = f"{newline}{outer}{unit}"
        new = inner + lead + _dumped(value, unit).replace("\n", inner)
        within = text[node.start + 1 : node.end - 1].rstrip()
        closing = f"{newline}{outer}{text[node.end - 1]}"
        return text[: node.start + 1] + within + new + closing + text[node.end :]
    last = node.members[-1]
    at = _comma_after(text, last.node.end)
    after = last.node.end if at is None else at + 1
    comma, last_comma = (",", "") if at is None else ("", ",")
    if "\n" not in text[node.start : last.start]:
        new = f"{comma} {lead}{json.dumps(value, ensure_ascii=False)}{last_comma}"
        return text[:after] + new + text[after:]
    inner = f"{newline}{_line_indent(text, last.start)}"
    new = inner + lead + _dumped(value, unit).replace("\n", inner) + last_comma
    rest = _REST_OF_LINE.match(text, after)
    beyond = rest.end() if rest else after
    return text[:after] + comma + text[after:beyond] + new + text[beyond:]


def _without(text: str, node: Node, number: int) -> str:
    """The text without one member, its comma, and the comment behind it on its line."""
    member = node.members[number]
    comma = _comma_after(text, member.node.end)
    start, end = member.start, member.node.end if comma is None else comma + 1
    if comma is None and number:
        before = _comma_after(text, node.members[number - 1].node.end)
        assert before is not None, "members are divided by commas"
        text = text[:before] + text[before + 1 :]
        start, end = start - 1, end - 1
    line_start = text.rfind("\n", 0, start) + 1
    rest = _REST_OF_LINE.match(text, end)
    if rest and not text[line_start:start].strip():
        line_end = _LINE_END.match(text, rest.end())
        return text[:line_start] + text[line_end.end() if line_end else rest.end() :]
    if member is node.members[-1]:
        return text[:start].rstrip(" \t") + text[end:]
    return text[:start] + text[end:].lstrip(" \t")


def _comma_after(text: str, at: int) -> int | None:
    comma = _skip(text, at)
    return comma if text[comma : comma + 1] == "," else None


def _dumped(value: JsonValue, unit: str) -> str:
    return json.dumps(value, ensure_ascii=False, indent=unit)


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _unit(text: str) -> str:
    """What the text indents with."""
    found = re.search(r'^([ \t]+)["{\[]', text, re.MULTILINE)
    return found[1] if found else "  "


def _line_indent(text: str, at: int) -> str:
    line_start = text.rfind("\n", 0, at) + 1
    found = re.match(r"[ \t]*", text[line_start:at])
    return found[0] if found else ""
