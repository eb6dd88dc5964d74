"""Full-text search over questions, answers, subtasks and replies, newest run first.

Words are found by their beginning (`plan` finds `planning`), several words must all occur in the
same text. Scripts that write without spaces (Chinese, Japanese, Korean, Thai and others) are
indexed character by character, so any part of a sentence is found; signs alone (`=>`, emoji) are
looked for as they stand.
"""

import itertools
import re
import sqlite3
import unicodedata
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from podium.database import Value, select
from podium_workers.worker import mend

_SLOTS = 1 << 20
"""Rows that a run has room for; a row's id is the run's id times this, plus its slot."""
_QUESTION_SLOT = 0
_FIRST_STEP_SLOT = 1

_EDGE = "\x1f"
"""Set around characters of scripts without spaces; the index takes it for a space."""
_SPACELESS = re.compile(
    "["
    "\u0e00-\u0eff"  # Thai, Lao
    "\u1000-\u109f\u1780-\u17ff"  # Burmese, Khmer
    "\u1100-\u11ff\uac00-\ud7af"  # Korean
    "\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f"  # Japanese syllables
    "\u2e80-\u2fdf\u3005-\u3007\u3100-\u312f"  # Chinese: parts, marks, phonetic letters
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Chinese
    "]"
)
_QUOTED_OR_WORD = re.compile(r'"([^"]+)"|(\S+)')
_SHORTEST_BEGINNING = 3
"""Shorter words are found whole only: nearly every text has a word that begins with `a`."""
_MOST_TERMS = 32
"""Of a longer query only the beginning counts; SQLite bounds how much one expression may hold."""
_EXCERPT = 160


class Found(NamedTuple):
    """A run in which something was found."""

    run_id: str
    excerpt: str


def put_question(connection: sqlite3.Connection, run: int, question: str, answer: str) -> None:
    """Make question and answer of the run with that row id findable."""
    _put(connection, run * _SLOTS + _QUESTION_SLOT, f"{question}\n{answer}")


def put_step(
    connection: sqlite3.Connection, run: int, number: int, subtask: str, reply: str
) -> None:
    """Make a step of the run with that row id findable, instead of its earlier version."""
    _put(connection, run * _SLOTS + _FIRST_STEP_SLOT + number, f"{subtask}\n{reply}")


def find(
    connection: sqlite3.Connection,
    text: str,
    where: str,
    parameters: Mapping[str, Value],
    *,
    whole: bool = False,
) -> Iterator[Found]:
    """The runs that have all of *text* in one place, newest first, one by one.

    With *whole* only whole words count. Such rows come from the index one by one, while the
    beginning of a word makes SQLite gather all rows that have it before it gives the first.

    *where* is a condition on `runs`. Nothing in *text* is taken for an operator but double
    quotes, which keep words together.
    """
    terms = _terms(text)
    words = [term for term in terms if _has_letters(term)]
    signs = [term for term in terms if not _has_letters(term)]
    conditions, values = [where], dict(parameters)
    if words:
        conditions.append("search MATCH :words")
        values["words"] = " AND ".join(_phrase(word, whole) for word in words)
    for number, sign in enumerate(signs):
        conditions.append(f"instr(search.text, :sign{number})")
        values[f"sign{number}"] = sign
    # Cross join: walk the index from its newest row on, and look up the run of each row, so that
    # the first page of a common word costs as little as that of a rare one.
    query = (
        "SELECT runs.run_id, search.text FROM search "
        f"CROSS JOIN runs ON runs.id = search.rowid >> 20 WHERE {' AND '.join(conditions)} "
        "ORDER BY search.rowid DESC"
    )
    last: Value = None
    for row in select(connection, query, values):
        if row["run_id"] != last:
            last = row["run_id"]
            yield Found(str(last), _excerpt(str(row["text"]), terms))


def _put(connection: sqlite3.Connection, slot: int, text: str) -> None:
    connection.execute(
        "INSERT OR REPLACE INTO search (rowid, text) VALUES (?, ?)", (slot, _spaced(text))
    )


def _spaced(text: str) -> str:
    text = mend(text)
    if text.isascii():
        return text
    # Composed first: an accent or a voicing mark typed apart is the same letter.
    return _SPACELESS.sub(rf"{_EDGE}\g<0>{_EDGE}", unicodedata.normalize("NFC", text))


def _terms(text: str) -> list[str]:
    readable = mend(text).replace("\x00", " ")  # SQLite ends an expression there
    parts = itertools.islice(_QUOTED_OR_WORD.finditer(readable), _MOST_TERMS)
    return [part[1] or part[2] for part in parts]


def _has_letters(term: str) -> bool:
    return any(map(str.isalnum, term))


def _phrase(term: str, whole: bool) -> str:
    quoted = '"' + _spaced(term).replace('"', '""') + '"'
    whole = whole or len(term) < _SHORTEST_BEGINNING or not term[-1].isalnum()
    return quoted if whole else quoted + " *"


def _excerpt(text: str, terms: list[str]) -> str:
    text = " ".join(text.replace(_EDGE, "").split())
    places = (re.search(_pattern(term), text, re.IGNORECASE) for term in terms)
    first = min((place.start() for place in places if place), default=0)
    start = max(0, first - _EXCERPT // 4)
    end = start + _EXCERPT
    return ("…" if start else "") + text[start:end].strip() + ("…" if end < len(text) else "")


def _pattern(term: str) -> str:
    words = re.findall(r"\w+", term)  # what stands between them matters as little as to the index
    return r"\W+".join(words) or re.escape(term)
