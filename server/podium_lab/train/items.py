"""Items: questions with a known answer, what it takes to answer them, and who may see which.

Which part an item belongs to follows from its id alone, or from the fact that it asks for, so that
it never changes: not with the order of a file, nor with what is added to it later.
"""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Literal

from pydantic import Field

from podium_workers.worker import Frozen, Text

JudgeName = Literal["number", "text", "choice", "code", "program", "math"]
"""How replies are judged; `judging` has the rules."""
Part = Literal["train", "validation", "test"]
PARTS: tuple[Part, ...] = ("train", "validation", "test")
SHARES: tuple[float, float, float] = (0.6, 0.2, 0.2)
"""Shares of the three parts: those of the Conductor's authors (papers.md 1.8)."""


class Goal(Frozen):
    """One thing that an item asks for."""

    kind: str
    """The skill that it takes: arithmetic, facts, …"""
    answer: Text
    """What is right."""


class Check(Frozen):
    """One run of a program that an answer has to pass."""

    stdin: str = ""
    stdout: str


class Item(Frozen):
    """A question whose answer can be judged by a machine."""

    id: str = Field(min_length=1)
    taskset: str
    question: Text = Field(min_length=1)
    judge: JudgeName
    answer: Text
    """What is right, in the form that its judge takes; for `code`, the checks to run."""
    goals: tuple[Goal, ...] = ()
    """What has to be found, in this order, to come to the answer; known of generated items only."""
    checks: tuple[Check, ...] = ()
    """For `program`: what the program has to print."""
    part: Part | None = None
    """The part that the item's source puts it into, all items about one fact into the same; None
    leaves it to its id."""

    @property
    def kind(self) -> str:
        """The skills that it takes, one word; items of one kind are balanced against others."""
        return "+".join(goal.kind for goal in self.goals) or self.taskset


def part_of(item: Item, *, salt: str = "podium") -> Part:
    """The part that an item belongs to."""
    if item.part is not None:
        return item.part
    return part_by(item.taskset, item.id, salt=salt)


def part_by(kind: str, name: str, *, salt: str = "podium") -> Part:
    """The part of whatever has that name among others of its kind."""
    digest = hashlib.sha256(f"{salt}:{kind}:{name}".encode()).digest()
    place = int.from_bytes(digest[:8]) / 2**64
    if place < SHARES[0]:
        return "train"
    return "validation" if place < SHARES[0] + SHARES[1] else "test"


def in_part(items: Iterable[Item], part: Part, *, salt: str = "podium") -> tuple[Item, ...]:
    """The items of one part, in their order."""
    return tuple(item for item in items if part_of(item, salt=salt) == part)


def balanced(items: Sequence[Item], count: int, *, salt: str) -> tuple[Item, ...]:
    """*count* items with as many of each kind as of the others, chosen by their ids alone.

    Kinds that run out leave their places to the others; fewer come back where there are no more.
    """
    by_kind: dict[str, list[Item]] = {}
    for item in sorted(items, key=lambda item: _rank(item, salt)):
        by_kind.setdefault(item.kind, []).append(item)
    queues = [by_kind[kind] for kind in sorted(by_kind)]
    chosen: list[Item] = []
    for place in range(max(map(len, queues), default=0)):
        chosen += [queue[place] for queue in queues if place < len(queue)]
    return tuple(chosen[:count])


def _rank(item: Item, salt: str) -> str:
    return hashlib.sha256(f"{salt}:{item.taskset}:{item.id}".encode()).hexdigest()


def fingerprint(items: Iterable[Item]) -> str:
    """Identity of a set of items, whatever their order: for records of what was trained on."""
    lines = sorted(item.model_dump_json() for item in items)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
