"""Tasksets from files (MATH, MMLU, free-form answers as in RLPR, LiveCodeBench) and generated.

A file is JSON Lines, plain or gzip, on this disk or on the Hugging Face hub. A row's own id has its
source before it; a row without one is known by its text. What is evaluated is never trained on:
parts follow from ids, and questions of a held-out file are taken out by their text, since MATH-500
lies inside the test set of MATH.
"""

import base64
import gzip
import hashlib
import io
import json
import pickle
import random
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Literal, cast

from pydantic import AliasChoices, BaseModel, Field, JsonValue, TypeAdapter, ValidationError

from podium.errors import SettingsError
from podium_lab.train.generated import generate
from podium_lab.train.items import Check, Item, balanced, part_of
from podium_workers.worker import Frozen

HUB = "hub:"
"""What the path of a file on the hub begins with: `hub:OWNER/DATASET/FILE`."""
Source = Literal["math", "mmlu", "freeform", "livecodebench", "generated"]


class Taskset(Frozen):
    """Where items come from: an entry of a training configuration."""

    source: Source
    path: str = ""
    """The file; `generated` has none."""
    held_out: tuple[str, ...] = ()
    """Files whose questions are left out, whatever their ids."""
    count: int | None = Field(default=None, ge=1)
    """Items at most; for `generated`, how many are made."""
    seed: int = 0
    """Of the generator, and of the order of choices."""
    kinds: tuple[str, ...] = ()
    """Kinds of generated items; all when empty."""


class _Row(BaseModel):
    """A row of a file, whatever else it holds."""

    id: str = Field(
        default="", validation_alias=AliasChoices("id", "unique_id", "task_id", "question_id")
    )
    question: str = Field(
        validation_alias=AliasChoices("question", "problem", "question_content", "prompt")
    )

    @property
    def content(self) -> tuple[str, ...]:
        """What tells it from other rows."""
        return (self.question,)


class _Answered(_Row):
    answer: str


class _Choice(_Row):
    answer: str | int
    """A letter, or the place in the list."""
    choices: list[str] = Field(min_length=2, max_length=10)
    subject: str = ""

    @property
    def content(self) -> tuple[str, ...]:
        return (self.question, *self.choices)


class _Programmed(_Row):
    public_test_cases: str = "[]"
    private_test_cases: str = "[]"
    starter_code: str = ""
    metadata: str = "{}"


class _Test(BaseModel):
    input: str
    output: str
    testtype: Literal["stdin", "functional"] = "stdin"


def load(taskset: Taskset) -> tuple[Item, ...]:
    """The items of a taskset, all parts together.

    Raises:
        SettingsError: a file is missing or has a row that cannot be used; the text names both.
    """
    if taskset.source == "generated":
        return _generated(taskset)
    if not taskset.path:
        raise SettingsError(f"taskset {taskset.source!r}: `path` is missing; name its file.")
    held_out = {_trace(row) for path in taskset.held_out for row in _questions(path)}
    read = _READERS[taskset.source]
    kept = merged(_read(taskset, read, held_out))
    if not kept:
        raise SettingsError(f"{taskset.path}: no item is left to be used.")
    return kept if taskset.count is None else balanced(kept, taskset.count, salt="count")


def _generated(taskset: Taskset) -> tuple[Item, ...]:
    try:
        return generate(taskset.count or 1000, seed=taskset.seed, kinds=taskset.kinds)
    except ValueError as error:
        raise SettingsError(f"taskset 'generated': {error}") from None


def merged(items: Iterable[Item]) -> tuple[Item, ...]:
    """The items, each of them once.

    Raises:
        SettingsError: two different questions have one id; the text names all three.
    """
    found: dict[str, Item] = {}
    for item in items:
        first = found.setdefault(item.id, item)
        if _trace(first.question) != _trace(item.question):
            one, other = (" ".join(it.question.split())[:_TOLD] for it in (first, item))
            raise SettingsError(
                f"taskset: {item.id!r} is the id of two questions, {one!r} and {other!r}; give "
                "each row an id of its own, or none."
            )
    return tuple(found.values())


_TOLD = 60
"""Characters of a question by which it is told."""


def kept_apart(items: Sequence[Item]) -> tuple[Item, ...]:
    """The items without those to be trained on whose question is evaluated too, under another id.

    Questions are the same whatever their case and spaces.
    """
    parts = [part_of(item) for item in items]
    evaluated = {
        _trace(item.question) for item, part in zip(items, parts, strict=True) if part != "train"
    }
    return tuple(
        item
        for item, part in zip(items, parts, strict=True)
        if part != "train" or _trace(item.question) not in evaluated
    )


def _trace(question: str) -> str:
    """A question without what may differ between copies of it: case, spaces."""
    return hashlib.sha256("".join(question.casefold().split()).encode()).hexdigest()


def _read(
    taskset: Taskset,
    read: Callable[[JsonValue, Taskset], Item],
    held_out: Collection[str],
) -> Iterator[Item]:
    for number, row in enumerate(_rows(taskset.path), start=1):
        try:
            if _trace(_Row.model_validate(row).question) not in held_out:
                yield read(row, taskset)
        except (ValidationError, ValueError) as error:
            why = _first(error) if isinstance(error, ValidationError) else str(error)
            raise SettingsError(f"{taskset.path}, line {number}: {why}") from None


def _first(error: ValidationError) -> str:
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}."


def _questions(path: str) -> Iterator[str]:
    for number, row in enumerate(_rows(path), start=1):
        try:
            yield _Row.model_validate(row).question
        except ValidationError as error:
            raise SettingsError(f"{path}, line {number}: {_first(error)}") from None


def _rows(path: str) -> Iterator[JsonValue]:
    file = _on_the_hub(path) if path.startswith(HUB) else Path(path).expanduser()
    try:
        data = file.read_bytes()
        text = (gzip.decompress(data) if file.suffix == ".gz" else data).decode("utf-8")
    except FileNotFoundError:
        raise SettingsError(f"{path}: there is no such file; check `path`.") from None
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: cannot be read: {error}.") from None
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            try:
                yield cast("JsonValue", json.loads(line))
            except json.JSONDecodeError as error:
                raise SettingsError(f"{path}, line {number}: is no JSON: {error}.") from None


def _on_the_hub(path: str) -> Path:
    owner, _, rest = path.removeprefix(HUB).partition("/")
    name, _, file = rest.partition("/")
    if not file:
        raise SettingsError(f"path: write {HUB}OWNER/DATASET/FILE, not {path!r}.")
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    hub = import_module("huggingface_hub")  # its types are unknown in part
    download = cast("Callable[..., str]", hub.hf_hub_download)
    try:
        return Path(download(f"{owner}/{name}", file, repo_type="dataset"))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise SettingsError(f"{path}: cannot be had from the hub: {error}") from None


def _named(row: _Row, taskset: Taskset) -> str:
    """An item's id: that of its row, else a hash of what it asks; no other taskset has it."""
    digest = hashlib.sha256("\0".join(row.content).encode()).hexdigest()
    return f"{taskset.source}:{row.id or digest[:16]}"


def _math(row: JsonValue, taskset: Taskset) -> Item:
    read = _Answered.model_validate(row)
    return Item(
        id=_named(read, taskset),
        taskset="math",
        question=f"{read.question}\nPut the final answer in \\boxed{{}}.",
        judge="math",
        answer=read.answer,
    )


def _freeform(row: JsonValue, taskset: Taskset) -> Item:
    """Free-form answers: numbers are compared as numbers, all others as text."""
    read = _Answered.model_validate(row)
    plain = read.answer.replace(",", "").removeprefix("-").replace(".", "", 1)
    return Item(
        id=_named(read, taskset),
        taskset="freeform",
        question=read.question,
        judge="number" if plain.isdecimal() else "text",
        answer=read.answer,
    )


def _mmlu(row: JsonValue, taskset: Taskset) -> Item:
    """Choices in an order of their own for each item: some sources list the right one first."""
    read = _Choice.model_validate(row)
    letters = "ABCDEFGHIJ"[: len(read.choices)]
    place = read.answer if isinstance(read.answer, int) else letters.find(read.answer)
    if not 0 <= place < len(letters) or read.answer == "":
        raise ValueError(f"answer: {read.answer!r} is none of the letters {letters}.")
    right = read.choices[place]
    order = list(read.choices)
    random.Random(f"{taskset.seed}:{read.question}").shuffle(order)
    listed = "\n".join(f"({a}) {text}" for a, text in zip(letters, order, strict=True))
    return Item(
        id=_named(read, taskset),
        taskset="mmlu",
        question=f"{read.question}\n{listed}\nAnswer with the letter of the right choice.",
        judge="choice",
        answer=letters[order.index(right)],
    )


def _livecodebench(row: JsonValue, taskset: Taskset) -> Item:
    read = _Programmed.model_validate(row)
    tests = (*_tests(read.public_test_cases), *_tests(read.private_test_cases))
    if not tests:
        raise ValueError("public_test_cases: there are none to judge by.")
    form = "Write a Python program that reads from stdin and prints to stdout."
    if read.starter_code:
        form = f"Complete this class in Python:\n```python\n{read.starter_code}\n```"
    question = f"{read.question}\n\n{form} Give the whole code in one block."
    functional = tests[0].testtype == "functional"
    return Item(
        id=_named(read, taskset),
        taskset="livecodebench",
        question=question,
        judge="code" if functional else "program",
        answer=_assertions(tests, read.metadata) if functional else "",
        checks=() if functional else tuple(Check(stdin=t.input, stdout=t.output) for t in tests),
    )


def _assertions(tests: Iterable[_Test], metadata: str) -> str:
    """Checks of a class `Solution`: a JSON value on each line of the input is an argument."""
    known = cast("Mapping[str, JsonValue]", json.loads(metadata))
    name = str(known.get("func_name") or "").rpartition(".")[2]
    if not name.isidentifier():
        raise ValueError("metadata: it does not name the function (`func_name`).")
    lines: list[str] = []
    for test in tests:
        arguments = [cast("JsonValue", json.loads(line)) for line in test.input.splitlines()]
        expected = cast("JsonValue", json.loads(test.output))
        given = ", ".join(map(repr, arguments))
        lines += [f"_given = Solution().{name}({given})"]
        lines += ["_given = list(_given) if isinstance(_given, tuple) else _given"]
        lines += [f"assert _given == {expected!r}"]
    return "\n".join(lines)


class _TextOnly(pickle.Unpickler):
    """Reads a pickled text and refuses everything else: a pickle can run any program."""

    def find_class(self, module: str, name: str, /) -> object:
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")


_TESTS = TypeAdapter(list[_Test])


def _tests(text: str) -> tuple[_Test, ...]:
    """Tests as JSON, or packed: base64 of a compressed pickle of the JSON text."""
    if not text.lstrip().startswith("["):
        try:
            packed = zlib.decompress(base64.b64decode(text))
            text = str(_TextOnly(io.BytesIO(packed)).load())
        except (ValueError, zlib.error, pickle.UnpicklingError, EOFError) as error:
            raise ValueError(f"private_test_cases: cannot be unpacked: {error}.") from None
    return tuple(_TESTS.validate_json(text))


_READERS: Mapping[str, Callable[[JsonValue, Taskset], Item]] = {
    "math": _math,
    "mmlu": _mmlu,
    "freeform": _freeform,
    "livecodebench": _livecodebench,
}
