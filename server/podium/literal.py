"""Reads one literal value (list, object, string, number) at a place in a text, as models write it.

It first reads strictly: JSON and Python literals, where the first unescaped quote ends a string.
If that fails it reads once more leniently: typographic quotes as delimiters, quotes inside strings
that nobody escaped, words without quotes. It never evaluates anything, never nests deeper than
`MAX_DEPTH`, and looks at each character a bounded number of times.
"""

import math
import re
from dataclasses import dataclass

from pydantic import JsonValue

from podium_workers.worker import mend

MAX_DEPTH = 8
"""Brackets inside brackets; a plan needs four."""

_CLOSES = {"[": "]", "(": ")", "{": "}"}
_WORDS: dict[str, JsonValue] = {
    "null": None, "None": None, "none": None, "true": True, "True": True, "false": False,
    "False": False, "NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf,
}  # fmt: skip
_ESCAPES = {
    "n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "\n": "",
    '"': '"', "'": "'", "\\": "\\", "/": "/", "`": "`",
}  # fmt: skip

_SPACE = re.compile(r"(?:\s|#[^\n]*)*")
_LOOSE_SPACE = re.compile(r"(?:\s|#[^\n]*|// [^\n]*|[-*•] (?=[\"'“‘]))*")
_KEY = re.compile(r"[A-Za-z_][\w -]{0,40}")
_WORD = re.compile(r"[-+.\w]+")
_LOOSE_WORD = re.compile(r"[^,\[\]{}\n]+")
_WHOLE = re.compile(r"-?[0-9]{1,18}")
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|x([0-9a-fA-F]{2})|(.))", re.S)

_STRICT_END = {
    quote: re.compile(rf"[^{quote}\\]*(?:\\.[^{quote}\\]*)*{quote}", re.S) for quote in "\"'"
}
_DOUBLE, _SINGLE = '"“”„«»', "'‘’‚"
_LOOSE_QUOTE = {
    **{opening: re.compile(rf"\\.|[{_DOUBLE}]", re.S) for opening in '"“„«'},
    **{opening: re.compile(rf"\\.|[{_SINGLE}]", re.S) for opening in "'‘‚"},
    "`": re.compile(r"\\.|`", re.S),
}
# A quote ends a string when what follows it could follow a string there.
_NEXT_ITEM = r"\s*,\s*(?:[\[\](){}\"'“„«‘‚`\d-]|(?:null|none|true|false)\b)"
_NEXT_PAIR = r"\s*,\s*(?:\}|[\"'“„«‘‚`]?[A-Za-z_][\w -]{0,40}[\"'”“»’`]?\s*:)"
# And a bracket that ends a list has no more of a sentence behind it, as in "fix d['k'] first".
_LABEL = r",?\s{0,9}[\"'`*-]{0,6}(?:and\s{1,9})?(?:model|sub|access|steps)"
_LIST_END = r"\s*\](?=[ \t`*.;]{0,9}(?:$|[\n\]}]|#\s|,\s*[\[\]{}\"'“„«‘‚`]|" + _LABEL + "))"
_FOLLOWS = {
    "]": re.compile(rf"{_LIST_END}|{_NEXT_ITEM}", re.I),
    ")": re.compile(rf"\s*\)|{_NEXT_ITEM}", re.I),
    "}": re.compile(rf"\s*\}}|{_NEXT_PAIR}"),
    ":": re.compile(r"\s*:"),
}


class UnreadableError(Exception):
    """No value can be read; `at` is how far the reading came."""

    def __init__(self, at: int) -> None:
        super().__init__(at)
        self.at = at


@dataclass(frozen=True)
class Literal:
    """A value and how it was read."""

    value: JsonValue
    end: int
    """Where the text goes on."""
    effort: int
    """Characters looked at."""
    loose: bool
    """Whether it took the lenient reading, which guesses."""


def read_literal(text: str, start: int) -> Literal:
    """The value whose opening bracket stands at *start*.

    Raises:
        UnreadableError: neither the strict nor the lenient reading comes to its end.
    """
    strict = _Reader(text, start, loose=False)
    try:
        value = strict.value("]", 0)
    except UnreadableError as failure:
        tried = failure.at - start
    else:
        return Literal(value, strict.at, strict.at - start, loose=False)
    loose = _Reader(text, start, loose=True)
    try:
        value = loose.value("]", 0)
    except UnreadableError as failure:
        raise UnreadableError(max(failure.at, start + tried)) from failure
    return Literal(value, loose.at, tried + loose.at - start, loose=True)


class _Reader:
    """One reading from one place. `inside` is the bracket that would close what we are in."""

    def __init__(self, text: str, start: int, *, loose: bool) -> None:
        self.text = text
        self.at = start
        self.loose = loose

    def value(self, inside: str, depth: int) -> JsonValue:
        self._skip_space()
        mark = self._mark()
        if mark in _CLOSES and depth >= MAX_DEPTH:
            raise UnreadableError(self.at)
        if mark in ("[", "("):
            return self._items(depth + 1)
        if mark == "{":
            return self._pairs(depth + 1)
        if mark in (_LOOSE_QUOTE if self.loose else _STRICT_END):
            return self._string(inside)
        return self._word()

    def _mark(self) -> str:
        return self.text[self.at : self.at + 1]

    def _skip_space(self) -> None:
        space = (_LOOSE_SPACE if self.loose else _SPACE).match(self.text, self.at)
        self.at = space.end() if space else self.at

    def _expect(self, mark: str) -> None:
        self._skip_space()
        if self._mark() != mark:
            raise UnreadableError(self.at)
        self.at += 1

    def _ends(self, close: str) -> bool:
        """Whether the closing bracket comes next; steps over it if so."""
        self._skip_space()
        found = self._mark() == close
        self.at += found
        return found

    def _items(self, depth: int) -> JsonValue:
        close = _CLOSES[self._mark()]
        self.at += 1
        items: list[JsonValue] = []
        while not self._ends(close):
            items.append(self.value(close, depth))
            if self._ends(close):
                break
            self._expect(",")
        return items

    def _pairs(self, depth: int) -> JsonValue:
        self.at += 1
        pairs: dict[str, JsonValue] = {}
        while not self._ends("}"):
            key = self._key()
            self._expect(":")
            pairs[key] = self.value("}", depth)
            if self._ends("}"):
                break
            self._expect(",")
        return pairs

    def _key(self) -> str:
        self._skip_space()
        if self._mark() in (_LOOSE_QUOTE if self.loose else _STRICT_END):
            return self._string(":")
        bare = _KEY.match(self.text, self.at) if self.loose else None
        if bare is None:
            raise UnreadableError(self.at)
        self.at = bare.end()
        return bare.group().strip()

    def _string(self, inside: str) -> str:
        opening = self._mark()
        width = 3 if self.text.startswith(('"""', "'''"), self.at) else 1
        start = self.at + width
        end = (
            self.text.find(opening * 3, start) if width == 3 else self._end(opening, start, inside)
        )
        if end < 0:
            raise UnreadableError(len(self.text))
        self.at = end + width
        return mend(_ESCAPE.sub(_unescaped, self.text[start:end]))

    def _end(self, opening: str, start: int, inside: str) -> int:
        """Where the closing quote stands, or -1."""
        if not self.loose:
            body = _STRICT_END[opening].match(self.text, start)
            return body.end() - 1 if body else -1
        for quote in _LOOSE_QUOTE[opening].finditer(self.text, start):
            if quote.group()[0] != "\\" and _FOLLOWS[inside].match(self.text, quote.end()):
                return quote.start()
        return -1

    def _word(self) -> JsonValue:
        word = (_LOOSE_WORD if self.loose else _WORD).match(self.text, self.at)
        text = word.group().strip() if word else ""
        if word is None or not text:
            raise UnreadableError(self.at)
        if text in _WORDS:
            value = _WORDS[text]
        elif (number := _number(text)) is not None:
            value = number
        elif self.loose:
            value = mend(text)
        else:
            raise UnreadableError(self.at)
        self.at = word.end()
        return value


def _number(text: str) -> int | float | None:
    if _WHOLE.fullmatch(text):
        return int(text)
    try:
        return float(text)
    except ValueError:
        return None


def _unescaped(escape: re.Match[str]) -> str:
    digits = escape[1] or escape[2] or escape[3]
    if digits:
        code = int(digits, 16)
        return chr(code) if code < 0x110000 else escape[0]
    # An escape that means nothing stays as it stands, so that "\sqrt" survives.
    return _ESCAPES.get(escape[4], escape[0])
