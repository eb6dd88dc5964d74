"""Finds the plan in a model's text: which piece of it, and as which of the two forms.

The last complete plan wins, since reasoning likes to hold examples and drafts. What stands inside
strings is never mistaken for a plan, and what stands inside think blocks does not count. Knows
nothing of workers or of what a plan means.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from pydantic import JsonValue

from podium.errors import PlanError
from podium.literal import UnreadableError, read_literal

ListName = Literal["model_id", "subtasks", "access_list"]
LIST_NAMES: tuple[ListName, ...] = ("model_id", "subtasks", "access_list")

HOW_TO_WRITE = (
    'write {"steps": [{"subtask": "...", "worker": "...", "access": []}]} '
    "or the three lists model_id, subtasks and access_list"
)
"""What to do when no plan is found; ends a sentence."""


@dataclass(frozen=True)
class ThreeLists:
    """The paper's form, as it was written."""

    model_id: list[JsonValue]
    subtasks: list[JsonValue]
    access_list: list[JsonValue]


@dataclass(frozen=True)
class StepList:
    """The JSON form, as it was written."""

    steps: list[JsonValue]


Written = ThreeLists | StepList


def find_plan(text: str) -> Written:
    """The last complete plan in *text*.

    Raises:
        PlanError: `not_found` when there is none, `decode` when the only ones are broken off or
            tangled, `too_long` when the text is too long and tangled to be searched.
    """
    search = _Search(text)
    search.run()
    return search.last_plan()


def key_of(label: str) -> str:
    """A label or key as written, in the one spelling that the reading goes by."""
    return _SPELLINGS.get(re.sub(r"[\s_-]+", "", label).casefold(), label)


_SPELLINGS: dict[str, str] = {
    "steps": "steps",
    "modelid": "model_id", "modelids": "model_id",
    "subtasks": "subtasks", "subtask": "subtasks",
    "accesslist": "access_list", "accesslists": "access_list", "access": "access_list",
    "worker": "worker", "model": "model",
}  # fmt: skip

_LABEL = r"(?P<label>model[ _-]?ids?|sub[ _-]?tasks?|access(?:[ _-]?lists?)?|steps)"
_TYPE = r"(?:list(?:\[[\w\[\]]{0,20}\])?\s{0,4}=\s{0,4})?"
_FENCE = r"[\s`*]{0,20}(?:(?:python|json)\b[\s`]{0,20})?"
_START = re.compile(
    r"(?P<think><think(?:ing)?\b[^<>]{0,80}>)"
    r"|(?P<thought></think(?:ing)?\s{0,4}>)"
    rf"|(?<!\w){_LABEL}[\"'`*”’]{{0,4}}\s{{0,20}}[:=：]\s{{0,4}}{_TYPE}{_FENCE}\["
    r"|(?P<object>\{)\s{0,80}[\"'“‘`]?[A-Za-z_]"
    r"|(?P<array>\[)\s{0,80}\{",
    re.I,
)
_THOUGHT = re.compile(r"</think(?:ing)?\s{0,4}>", re.I)
_MAX_WRAPPING = 3
"""Objects around a plan, such as {"plan": {"steps": ...}}."""
_EFFORT = 4
"""How often each character may be looked at; stops texts that begin a plan again and again."""
_SPARE_EFFORT = 100_000
_EFFORT_OF_A_START = 40


@dataclass(frozen=True)
class _Part:
    """A list found in the text: a whole plan (`steps`) or one of the three lists."""

    key: str
    items: list[JsonValue]


@dataclass
class _Search:
    """One walk through a text from left to right."""

    text: str
    parts: list[_Part] = field(default_factory=list[_Part])
    broken: str = ""
    """The last label whose list could not be read."""
    thought: bool = False
    """Whether reasoning was left out."""
    last_thought: int | None = None
    """Where the text's last end of thinking stands, once looked up; -1 when there is none."""

    def run(self) -> None:
        left = _EFFORT * len(self.text) + _SPARE_EFFORT
        at = 0
        while start := _START.search(self.text, at):
            at, effort = self._visit(start)
            left -= effort + _EFFORT_OF_A_START
            if left < 0:
                raise PlanError(
                    "too_long", "The text is too long and tangled to search; write only the plan."
                )

    def _visit(self, start: re.Match[str]) -> tuple[int, int]:
        """Where to go on, and what it took."""
        if start["think"]:
            return self._skip_thinking(start.end()), 0
        if start["thought"]:
            # The chat template opened the block: all before it was reasoning.
            self._forget()
            return start.end(), 0
        bracket = start.end() - 1 if start["label"] else start.start()
        try:
            literal = read_literal(self.text, bracket)
        except UnreadableError as failure:
            self.broken = start["label"] or ("steps" if start["array"] else self.broken)
            return start.end() if start["label"] else bracket + 1, failure.at - bracket
        found = _parts_of(start["label"], literal.value)
        if literal.loose and any(_has_odd_keys(part) for part in found):
            self.broken, found = "steps", []
        self.parts += found
        # A lenient reading that gives nothing may have run over a plan: look inside it, too.
        return literal.end if found or not literal.loose else bracket + 1, literal.effort

    def _skip_thinking(self, at: int) -> int:
        """Behind the end of the think block; *at* itself when the block is never closed."""
        if self.last_thought is None:
            ends = list(_THOUGHT.finditer(self.text))
            self.last_thought = ends[-1].start() if ends else -1
        if at > self.last_thought:
            return at
        end = _THOUGHT.search(self.text, at)
        self.thought = True
        return end.end() if end else at

    def _forget(self) -> None:
        self.parts.clear()
        self.broken = ""
        self.thought = True

    def last_plan(self) -> Written:
        whole = [place for place, part in enumerate(self.parts) if part.key == "steps"]
        behind = self.parts[whole[-1] + 1 :] if whole else self.parts
        if lists := _last_lists(behind):
            return lists
        if whole:
            return StepList(self.parts[whole[-1]].items)
        raise self._not_found()

    def _not_found(self) -> PlanError:
        if self.broken:
            return PlanError(
                "decode",
                f"The list after {self.broken!r} cannot be read; "
                "close every bracket and quote, and escape quotes inside strings.",
            )
        missing = [name for name in LIST_NAMES if name not in {part.key for part in self.parts}]
        if self.parts:
            return PlanError(
                "not_found", f"The plan lacks {' and '.join(missing) or 'a list'}; {HOW_TO_WRITE}."
            )
        where = " after the reasoning" if self.thought else ""
        return PlanError("not_found", f"There is no plan{where}; {HOW_TO_WRITE}.")


def _parts_of(label: str | None, value: JsonValue) -> list[_Part]:
    """The lists that a value read at a label, a `{` or a `[{` gives."""
    if label is None:
        return _inside(value, _MAX_WRAPPING)
    if not isinstance(value, list):
        return []
    key = key_of(label)
    if key == "steps" and value and not isinstance(value[0], dict):
        return []  # prose such as "steps: [1] read, [2] write"
    return [_Part(key, value)]


def _inside(value: JsonValue, wrapping: int) -> list[_Part]:
    if isinstance(value, list):
        return [_Part("steps", value)] if value and _is_step(value[0]) else []
    if not isinstance(value, dict):
        return []
    lists = {key_of(key): item for key, item in value.items() if isinstance(item, list)}
    if "steps" in lists:
        return [_Part("steps", lists["steps"])]
    if all(name in lists for name in LIST_NAMES):
        return [_Part(name, lists[name]) for name in LIST_NAMES]
    for item in value.values() if wrapping else ():
        if found := _inside(item, wrapping - 1):
            return found
    return []


def _is_step(value: JsonValue) -> bool:
    return isinstance(value, dict) and "subtasks" in {key_of(key) for key in value}


def _has_odd_keys(part: _Part) -> bool:
    """Whether a step has a key that plans do not have; where quotes were guessed it is no key."""
    keys = {key_of(key) for step in part.items if isinstance(step, dict) for key in step}
    return part.key == "steps" and not keys <= set(_SPELLINGS.values())


def _last_lists(parts: Sequence[_Part]) -> ThreeLists | None:
    """The last three lists that belong together.

    Prose and drafts leave stray lists, so three in a row in the paper's order go first, then the
    last three in that order, then any three in a row.
    """
    rows = [parts[end - 3 : end] for end in range(len(parts), 2, -1)]
    for row in rows:
        if tuple(part.key for part in row) == LIST_NAMES:
            return _lists(row)
    picked: list[_Part] = []
    for part in reversed(parts):
        if len(picked) < 3 and part.key == LIST_NAMES[2 - len(picked)]:
            picked.append(part)
    if len(picked) == 3:
        return _lists(picked)
    for row in rows:
        if {part.key for part in row} == set(LIST_NAMES):
            return _lists(row)
    return None


def _lists(parts: Sequence[_Part]) -> ThreeLists:
    found = {part.key: part.items for part in parts}
    return ThreeLists(found["model_id"], found["subtasks"], found["access_list"])
