"""Probe items: short questions in six skills, and how a reply to one is judged.

Judges run nothing and read a reply kindly: what counts is whether the answer is right, not how it
is dressed, except where the dress is what was asked for.
"""

import json
import re
import tomllib
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Annotated, Literal

from pydantic import Field

from podium_workers.worker import Frozen

Skill = Literal["arithmetic", "facts", "choice", "code", "extraction", "format"]

_JUDGES = 1
"""To be raised when replies are read in another way."""
_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")
_CHOSEN = re.compile(
    r"^[\W_]*([A-D])\b(?! [a-z])|\b(?i:answer|option|letter)\b\W*(?:is\b)?\W*([A-D])\b"
)
_QUOTED = re.compile(r"`+([^`]+?)`+")
_FENCE = re.compile(r"^```\w*\n(.*?)\n?```$", re.DOTALL)


class Item(Frozen):
    """A question, its right answers, and how a reply is read."""

    skill: Skill
    ask: str
    judge: Literal["number", "letter", "words", "output", "form", "json"]
    answers: Annotated[tuple[str, ...], Field(min_length=1)]
    wrong: tuple[str, ...] = ()
    """Words that no right reply has."""

    def is_right(self, reply: str) -> bool:
        """Whether *reply* gives one of the answers."""
        match self.judge:
            case "number":
                return _last_number(reply) in [float(answer) for answer in self.answers]
            case "letter":
                return _letter(reply) in self.answers
            case "words":
                said = any(_says(reply, answer) for answer in self.answers)
                return said and not any(_says(reply, word) for word in self.wrong)
            case "output":
                return not _ways_to_read(reply).isdisjoint(map(_plain, self.answers))
            case "form":
                return any(re.fullmatch(answer, reply.strip()) for answer in self.answers)
            case "json":
                return any(_json(reply) == json.loads(answer) for answer in self.answers)


class _Items(Frozen):
    item: tuple[Item, ...]


@cache
def probes() -> tuple[Item, ...]:
    """The items that come with the package."""
    return _Items.model_validate(tomllib.loads(_text())).item


@cache
def probes_hash() -> str:
    """Identity of items and judges: profiles are comparable if they were made with the same."""
    return sha256(f"{_JUDGES} {_text()}".encode()).hexdigest()[:12]


def _text() -> str:
    return (files("podium_workers") / "probes.toml").read_text(encoding="utf-8")


def _last_number(reply: str) -> float | None:
    found = _NUMBER.findall(reply)
    return float(found[-1].replace(",", "")) if found else None


def _letter(reply: str) -> str | None:
    found = _CHOSEN.search(reply.strip())
    return (found[1] or found[2]) if found else None


def _says(reply: str, words: str) -> bool:
    return bool(re.search(rf"(?<![\w@]){re.escape(words)}(?!\w|@)", reply, re.IGNORECASE))


def _ways_to_read(reply: str) -> set[str]:
    """What a reply may mean as output: all of it, a line of it, what it quotes."""
    unfenced = _unfenced(reply)
    return {_plain(part) for part in (unfenced, *unfenced.splitlines(), *_QUOTED.findall(reply))}


def _plain(text: str) -> str:
    """*text* without what people put around a quoted output."""
    bare = text.strip().strip("`").removesuffix(".").strip()
    quoted = len(bare) > 1 and bare[0] == bare[-1] and bare[0] in "\"'"
    return bare[1:-1] if quoted else bare


def _unfenced(reply: str) -> str:
    found = _FENCE.match(reply.strip())
    return found[1] if found else reply.strip()


def _json(reply: str) -> object:
    try:
        value: object = json.loads(_unfenced(reply))
    except ValueError:
        return None
    return value
