"""The text forms of a plan: read from a model's text, written into prompts, held by a schema.

A text numbers its own steps from 0; a `Plan` has run-wide numbers. Workers are named, or numbered
in the order in which they were shown. Where the plan stands in the text is `scanning`'s business.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from podium.errors import PlanError, PlanRule
from podium.plan import Access, Plan, Step
from podium.scanning import HOW_TO_WRITE, ThreeLists, find_plan, key_of
from podium_workers.worker import mend

MAX_SUBTASK = 8_000
"""Characters that a subtask may have."""
MAX_NUMBER = 999_999
"""Largest number that is believed; step and worker numbers are far smaller."""

_WRAPPING = " \t\r\n\"'`*“”‘’«»„‚.,;:"
_NUMBER = re.compile(r"\+?(\d{1,6})(?:\.0{1,6})?")
_ORDINAL = re.compile(
    r"(?:(?:model|worker|agent)[ _-]?(?:id)?\s{0,4}[#:=]?\s{0,4}|#)?(\d{1,6})", re.I
)
_REMARK = re.compile(r"[(:,—–]|\s-")
_STEP = re.compile(r"step\s{1,4}", re.I)


def parse_plan(
    text: str,
    workers: Sequence[str],
    *,
    first: int = 0,
    max_steps: int = 5,
    may_accept: bool = False,
) -> Plan | None:
    """The last complete plan in *text*, its steps numbered from *first*.

    *workers* are the names that a plan may use, in the order shown to the conductor. None means
    that the text accepts what there is (no steps), which only *may_accept* allows.

    Raises:
        PlanError: no plan, or one that is not allowed; its rule and text say why.
    """
    written = find_plan(text)
    if isinstance(written, ThreeLists):
        entries = _entries_of_lists(written)
    else:
        entries = [_entry_of_step(number, step) for number, step in enumerate(written.steps)]
    if not entries:
        if may_accept:
            return None
        raise PlanError("empty", "The plan has no steps; write at least one.")
    if len(entries) > max_steps:
        raise PlanError("length", f"The plan has {len(entries)} steps; write at most {max_steps}.")
    by_number = isinstance(written, ThreeLists)
    steps = tuple(
        Step(
            worker=_worker(entry.worker, workers, number, by_number=by_number),
            subtask=_subtask(entry.subtask, number),
            access=_access(entry.access, number, first),
        )
        for number, entry in enumerate(entries)
    )
    return Plan(steps=steps, first=first)


def read_number(value: JsonValue, what: str, *, rule: PlanRule) -> int:
    """A number that a model wrote, as a whole number from 0 to `MAX_NUMBER`.

    Every number that comes from a model passes here: `1`, `"1"`, `" 1 "` and `1.0` are one.

    Raises:
        PlanError: with *rule*, naming *what*: true, NaN, "N/A", fractions, negative and huge ones.
    """
    if isinstance(value, float) and value.is_integer() and 0 <= value <= MAX_NUMBER:
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_NUMBER:
        return value
    if isinstance(value, str) and (digits := _NUMBER.fullmatch(value.strip())):
        return int(digits[1])
    raise PlanError(rule, f"{what} is {_shown(value)}; write a whole number there.")


def render_json(plan: Plan, *, first: int | None = None) -> str:
    """The JSON form on one line, with `", "` and `": "` between parts.

    That is how the schema-held decoder of the local engine writes with its spaces fixed, so
    examples in a prompt look like what it will write. *first* is the run-wide number that the text
    calls 0: the plan's own first step when not given.

    Raises:
        PlanError: a step reads a step before *first*, which has no number in the text.
    """
    start = plan.first if first is None else first
    steps: list[JsonValue] = [
        {"subtask": step.subtask, "worker": step.worker, "access": _own_access(number, step, start)}
        for number, step in plan.numbered()
    ]
    return json.dumps({"steps": steps}, ensure_ascii=False)


def render_lists(plan: Plan, workers: Sequence[str]) -> str:
    """The paper's three lists, one a line; workers by their number in *workers*.

    Raises:
        PlanError: a worker that is not in *workers*, or a step that reads an earlier round's step.
    """
    ids: list[JsonValue] = []
    access: list[JsonValue] = []
    for number, step in plan.numbered():
        if step.worker not in workers:
            raise _unknown_worker(step.worker, workers, number - plan.first, by_number=False)
        ids.append(workers.index(step.worker))
        own = _own_access(number, step, plan.first)
        access.append(["all"] if own == "all" else own)
    subtasks: list[JsonValue] = [step.subtask for step in plan.steps]
    lists = {"model_id": ids, "subtasks": subtasks, "access_list": access}
    # A JSON string is a Python string as well.
    return "\n".join(
        f"{name} = {json.dumps(items, ensure_ascii=False)}" for name, items in lists.items()
    )


def plan_schema(
    workers: Sequence[str], *, max_steps: int, may_accept: bool = False, by_position: bool = False
) -> dict[str, JsonValue]:
    """The JSON Schema that holds decoding of the JSON form.

    As it stands it keeps to what OpenAI's strict mode, Anthropic and llama.cpp all take, which has
    no lengths and no bounds. *by_position* is for engines that hold more of JSON Schema, as
    llama.cpp does: each step has its own schema and can name earlier steps only, no more than
    *max_steps* can be written, and subtasks have a length. A plan is checked after decoding anyway.
    """
    fewest = 0 if may_accept else 1
    if by_position:
        places: list[JsonValue] = [
            _step_schema(workers, _earlier(number, may_accept=may_accept), bounded=True)
            for number in range(max_steps)
        ]
        return _closed(
            {"steps": {"anyOf": [_exactly(places[:n]) for n in range(fewest, max_steps + 1)]}}
        )
    items = _step_schema(workers, _any_step(max_steps), bounded=False)
    return _closed({"steps": {"type": "array", "minItems": fewest, "items": items}})


@dataclass(frozen=True)
class _Entry:
    """One step as it was written."""

    worker: JsonValue
    subtask: JsonValue
    access: JsonValue


def _entries_of_lists(lists: ThreeLists) -> list[_Entry]:
    lengths = (len(lists.model_id), len(lists.subtasks), len(lists.access_list))
    if len(set(lengths)) > 1:
        raise PlanError(
            "length",
            f"model_id has {lengths[0]} entries, subtasks {lengths[1]} and access_list "
            f"{lengths[2]}; give the three lists one entry for each step.",
        )
    rows = zip(lists.model_id, lists.subtasks, lists.access_list, strict=True)
    return [_Entry(worker, subtask, access) for worker, subtask, access in rows]


def _entry_of_step(number: int, written: JsonValue) -> _Entry:
    if not isinstance(written, dict):
        raise PlanError(
            "shape", f"Step {number} is {_shown(written)}, not an object; {HOW_TO_WRITE}."
        )
    fields = {key_of(key): value for key, value in written.items()}
    worker = next((key for key in ("worker", "model_id", "model") if key in fields), "worker")
    lacking = [
        name
        for name, key in (("subtask", "subtasks"), ("worker", worker), ("access", "access_list"))
        if key not in fields
    ]
    if lacking:
        raise PlanError(
            "shape", f"Step {number} has no {' and no '.join(lacking)}; give every step all three."
        )
    return _Entry(fields[worker], fields["subtasks"], fields["access_list"])


def _subtask(value: JsonValue, number: int) -> str:
    if not isinstance(value, str) or not value.strip():
        raise PlanError(
            "subtask", f"The subtask of step {number} is {_shown(value)}; say in words what to do."
        )
    text = mend(value.strip())
    if len(text) > MAX_SUBTASK:
        raise PlanError(
            "too_long",
            f"The subtask of step {number} has {len(text)} characters; "
            f"keep it under {MAX_SUBTASK}.",
        )
    return text


def _worker(value: JsonValue, workers: Sequence[str], number: int, *, by_number: bool) -> str:
    """The pool's spelling of the worker meant by *value*: its name, or its place in the list.

    Where both are possible a name goes first, except in the three lists, which hold numbers. What
    follows a name, as in "qwen (the coder)", is left out.
    """
    if not isinstance(value, str):
        value = str(read_number(value, f"The worker of step {number}", rule="worker"))
    if value in workers and not by_number:
        return value
    whole = value.strip(_WRAPPING)
    for name in (whole, _REMARK.split(whole, maxsplit=1)[0].strip(_WRAPPING)):
        named = None if by_number and name.isdecimal() else _by_name(name, workers)
        if found := named or _by_ordinal(name, workers):
            return found
    raise _unknown_worker(value, workers, number, by_number=by_number)


def _by_name(name: str, workers: Sequence[str]) -> str | None:
    """The one worker of that name; case, then spaces and punctuation, are forgiven."""
    if name in workers:
        return name
    for spelling in (str.casefold, _letters):
        alike = [worker for worker in workers if spelling(worker) == spelling(name)]
        if spelling(name) and len(alike) == 1:
            return alike[0]
    return None


def _letters(name: str) -> str:
    return re.sub(r"[\W_]+", "", name).casefold()


def _by_ordinal(name: str, workers: Sequence[str]) -> str | None:
    number = _NUMBER.fullmatch(name) or _ORDINAL.fullmatch(name)
    place = int(number[1]) if number else len(workers)
    return workers[place] if place < len(workers) else None


def _unknown_worker(
    value: JsonValue, workers: Sequence[str], number: int, *, by_number: bool
) -> PlanError:
    # A conductor that was shown numbers only is not to learn names from an error.
    allowed = f"the numbers from 0 to {len(workers) - 1}" if by_number else ", ".join(workers)
    return PlanError(
        "worker",
        f"Step {number} names the worker {_shown(value)}, which is not in the pool; "
        f"use one of {allowed}.",
    )


def _access(value: JsonValue, number: int, first: int) -> Access:
    entries = value if isinstance(value, list) else [value]
    words = [_word(entry) for entry in entries]
    if "all" in words:
        return "all"
    kept = [entry for entry, word in zip(entries, words, strict=True) if word != "none"]
    reads = [
        read_number(_bare(entry), f"The access of step {number}", rule="access") for entry in kept
    ]
    for read in reads:
        if read >= number:
            raise PlanError("access", _not_earlier(number, read))
    return tuple(first + read for read in reads)


def _word(entry: JsonValue) -> str:
    """`all`, `none`, or something else, of one access entry."""
    if entry is None or entry == []:
        return "none"
    word = entry.strip(_WRAPPING).casefold() if isinstance(entry, str) else "a number"
    return word if word not in ("", "null", "[]") else "none"


def _bare(entry: JsonValue) -> JsonValue:
    return _STEP.sub("", entry.strip(_WRAPPING)) if isinstance(entry, str) else entry


def _not_earlier(number: int, read: int) -> str:
    allowed = "[]" if number == 0 else "0" if number == 1 else f"0 to {number - 1}"
    return f"Step {number} reads step {read}, which is not earlier; name only {allowed}."


def _own_access(number: int, step: Step, first: int) -> JsonValue:
    if step.access == "all":
        return "all"
    if any(read < first for read in step.access):
        raise PlanError(
            "access",
            f"Step {number} reads a step before step {first}, which the text of a plan cannot "
            'name; use "all".',
        )
    return [read - first for read in step.access]


def _shown(value: JsonValue) -> str:
    """*value* for an error text: short, and safe to store."""
    text = ascii(value) if isinstance(value, str) and mend(value) != value else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _step_schema(workers: Sequence[str], access: JsonValue, *, bounded: bool) -> JsonValue:
    lengths: dict[str, JsonValue] = {"minLength": 8, "maxLength": 600} if bounded else {}
    return _closed(
        {
            "subtask": {"type": "string", **lengths},
            "worker": {"type": "string", "enum": [*workers]},
            "access": access,
        }
    )


def _closed(properties: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    return {
        "type": "object",
        "properties": {**properties},
        "required": [*properties],
        "additionalProperties": False,
    }


def _exactly(places: list[JsonValue]) -> JsonValue:
    """An array of just these items.

    One for each length, since llama.cpp's chat endpoint takes `prefixItems` for the whole array,
    and ignores it when `items` stands beside it.
    """
    count = len(places)
    if not places:
        return {"type": "array", "items": {"type": "null"}, "maxItems": 0}
    return {"type": "array", "prefixItems": places, "minItems": count, "maxItems": count}


_ALL: JsonValue = {"type": "string", "enum": ["all"]}


def _any_step(max_steps: int) -> JsonValue:
    if max_steps == 1:
        return {"type": "string", "enum": ["none", "all"]}
    numbers: list[JsonValue] = [*range(max_steps - 1)]
    return {"anyOf": [{"type": "array", "items": {"type": "integer", "enum": numbers}}, _ALL]}


def _earlier(number: int, *, may_accept: bool) -> JsonValue:
    """What the step at a place may read; the first one reads only an earlier round, as a whole."""
    items: dict[str, JsonValue] = {"type": "integer"}
    if number:
        items["enum"] = [*range(number)]
    steps: JsonValue = {"type": "array", "items": items, "maxItems": number}
    return {"anyOf": [steps, _ALL]} if number or may_accept else steps
