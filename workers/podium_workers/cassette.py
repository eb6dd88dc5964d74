"""Cassettes: what a pool replied while it was recorded, to be given again later for nothing.

A cassette is a file of JSON Lines: its version, the pool, then a line for each reply or failure,
under a key of all that shaped it. Runs mark their prompts with random tags and seeds; a key is made
without them, and a reply that repeats its prompt's marks is given again with the new prompt's.
"""

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path

import anyio
from anyio import to_thread
from pydantic import Field, JsonValue, ValidationError

from podium_workers.asked import Asked
from podium_workers.errors import ManifestError, WorkerError
from podium_workers.pool import Pool
from podium_workers.worker import Frozen, ModelSettings, Prompt, Reply, Shape, Text, WorkerCard

VERSION = 2
"""Of the file's form: its first line, and another one where a newer Podium went on with it. Keys of
the first form left out what a worker's own settings shape."""

_MARK = re.compile(r"[<‹]/?[a-z_]+_([0-9a-f]{12,})(?=[\s>])")
"""A tag that ends in a random mark, or what is left of one that was made harmless."""


def marks_of(prompt: Prompt) -> tuple[str, ...]:
    """The random marks of the tags in a prompt, each once, in order."""
    found = (mark for message in prompt.messages for mark in _MARK.findall(message.text))
    return tuple(dict.fromkeys(found))


def key_of(
    card: WorkerCard, prompt: Prompt, settings: ModelSettings, shape: Shape | None = None
) -> str:
    """Identity of what a worker was asked, and of how it replies: all but random marks and seed."""
    return _hash([*_asked(card, prompt, settings), dict(shape or {})])


def _asked(card: WorkerCard, prompt: Prompt, settings: ModelSettings) -> list[JsonValue]:
    plain = {mark: f"mark {place}" for place, mark in enumerate(marks_of(prompt))}
    messages: list[JsonValue] = [
        [said.role, with_marks(said.text, plain)] for said in prompt.messages
    ]
    asked = settings.model_dump(mode="json", exclude={"seed"}, exclude_defaults=True)
    return [card.name, card.model, messages, asked]


def _hash(parts: list[JsonValue]) -> str:
    text = json.dumps(parts, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def with_marks(text: str, new: Mapping[str, str]) -> str:
    """*text* with each mark in the place of another."""
    if not new:
        return text
    return re.sub("|".join(map(re.escape, new)), lambda found: new[found[0]], text)


class Failed(Frozen):
    """A `WorkerError` as data."""

    name: str
    """Of its class."""
    code: str
    message: Text
    more: dict[str, JsonValue] = Field(default_factory=dict)
    """What else its class knows, by the name of the attribute."""

    @classmethod
    def of(cls, error: WorkerError) -> "Failed":
        # A wait that the endpoint asked for then is none for a reader of the record.
        known = {name: value for name, value in vars(error).items() if name not in _NOT_KEPT}
        name = type(error).__name__
        return cls(name=name, code=error.code, message=error.message, more=known)

    @property
    def kind(self) -> type[WorkerError]:
        """The error's class; that of its code, or the base of all, where it is not known."""
        known = tuple(_kinds(WorkerError))
        named = (kind for kind in known if kind.__name__ == self.name)
        alike = (kind for kind in known if kind.code == self.code)
        return next(named, None) or next(alike, WorkerError)

    @property
    def error(self) -> WorkerError:
        """The error again, as unpickling would make it: the classes' arguments differ."""
        error = self.kind.__new__(self.kind, self.message)
        plain = {"status": None, "retry_after_s": None}
        vars(error).update(plain | self.more | {"message": self.message})
        return error


_NOT_KEPT = ("message", "retry_after_s")


def _kinds(base: type[WorkerError]) -> Iterable[type[WorkerError]]:
    for kind in base.__subclasses__():
        yield kind
        yield from _kinds(kind)


class Recorded(Frozen):
    """What came of one call: a reply or a failure."""

    key: str
    worker: str
    model: str
    prompt: Prompt
    settings: ModelSettings
    reply: Reply | None = None
    failure: Failed | None = None
    seconds: float = Field(ge=0)
    at: float
    """Unix time."""


class RecordedPool(Frozen):
    """The pool that was recorded: its workers' cards, and how plans were asked for."""

    workers: tuple[WorkerCard, ...] = Field(min_length=1)
    conductor: str
    asked: Asked = Asked()
    asks: dict[str, str] = Field(default_factory=dict)
    """Which worker was given the prompts of another one, by the other one's name."""
    planner: WorkerCard | None = None
    """The conductor, where it did nothing but write plans."""
    shapes: dict[str, dict[str, JsonValue]] = Field(default_factory=dict)
    """Settings of a worker's own that stand not on its card, by its name."""

    @classmethod
    def of(cls, pool: Pool) -> "RecordedPool":
        return cls(
            workers=pool.cards,
            conductor=pool.conductor,
            asked=pool.asked,
            asks=dict(pool.asks),
            planner=pool.planner.card if pool.planner else None,
            shapes={name: dict(shape) for name, shape in pool.shapes.items()},
        )

    @property
    def cards(self) -> tuple[WorkerCard, ...]:
        """Of all that were recorded."""
        return self.workers if self.planner is None else (*self.workers, self.planner)


class _Line(Frozen):
    """A line of the file: one of these."""

    cassette: int | None = None
    pool: RecordedPool | None = None
    call: Recorded | None = None


class Cassette:
    """A cassette being played: every key's replies in order, of which the last one repeats."""

    def __init__(
        self, path: Path, pool: RecordedPool, calls: Iterable[Recorded], version: int = VERSION
    ) -> None:
        self.path = path
        self.pool = pool
        self.version = version
        self._calls: dict[str, list[Recorded]] = {}
        for call in calls:
            self.add(call)

    def add(self, call: Recorded) -> None:
        """One more call, behind those under its key."""
        before = self._calls.setdefault(call.key, [])
        # A failure that was tried again is no news: the retry would only wait once more.
        if before and (failed := before[-1].failure) and failed.kind.transient:
            before.pop()
        before.append(call)

    @property
    def calls(self) -> Iterator[Recorded]:
        """All of them, those under one key together."""
        return chain.from_iterable(self._calls.values())

    def key(
        self, card: WorkerCard, prompt: Prompt, settings: ModelSettings, shape: Shape | None
    ) -> str:
        """The key under which that stands here: one of the first form if there is no other."""
        key = key_of(card, prompt, settings, shape)
        if key in self._calls:
            return key
        first = _hash(_asked(card, prompt, settings))
        return first if first in self._calls else key

    def has(self, key: str) -> bool:
        """Whether anything was recorded under that key."""
        return key in self._calls

    def take(self, key: str) -> Recorded | None:
        """What was recorded next under that key; None when nothing was."""
        calls = self._calls.get(key, [])
        return calls.pop(0) if len(calls) > 1 else next(iter(calls), None)

    def card(self, name: str) -> WorkerCard:
        """The card of a recorded worker.

        Raises:
            ManifestError: there is none of that name.
        """
        for card in self.pool.cards:
            if card.name == name:
                return card
        names = ", ".join(card.name for card in self.pool.cards)
        raise ManifestError(f"{self.path}: it has no worker {name!r}; it was recorded of {names}.")


def load_cassette(path: Path) -> Cassette:
    """The cassette in that file.

    Raises:
        ManifestError: it is missing, or is no cassette.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ManifestError(f"{path}: there is no such cassette.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ManifestError(f"{path}: the cassette cannot be read: {error}.") from None
    # The rest behind the last line end was torn off by a crash.
    lines = [_parsed(path, n, line) for n, line in enumerate(text.split("\n")[:-1], start=1)]
    if not lines or lines[0].cassette is None:
        raise ManifestError(f"{path}: this is no cassette; `record` makes one.")
    pools = [line.pool for line in lines if line.pool]
    if not pools:
        raise ManifestError(f"{path}: the cassette does not say which pool it is of; record again.")
    version = max(line.cassette or 0 for line in lines)
    return Cassette(path, pools[-1], [line.call for line in lines if line.call], version)


def _parsed(path: Path, number: int, text: str) -> _Line:
    try:
        line = _Line.model_validate_json(text)
    except ValidationError as error:
        why = error.errors()[0]["msg"]
        raise ManifestError(
            f"{path}, line {number}: this is no line of a cassette ({why}); take it out, or "
            "record again."
        ) from None
    if line.cassette is not None and line.cassette > VERSION:
        raise ManifestError(
            f"{path}: the cassette is of a newer Podium (form {line.cassette}, this one reads "
            f"{VERSION}); update Podium, or record again."
        )
    return line


class Recorder:
    """Writes a cassette; several processes may write the same one."""

    def __init__(self, path: Path, notify: Callable[[str], None]) -> None:
        self._path = path
        self._notify = notify
        self._one_at_a_time = anyio.CapacityLimiter(1)
        self._broken = False

    async def begin(self, pool: Pool) -> None:
        """Make the file, or see that it is a cassette, and note whom it is of.

        Raises:
            ManifestError: it is something else, or cannot be written.
        """
        try:
            await to_thread.run_sync(self._begin, RecordedPool.of(pool))
        except OSError as error:
            why = error.strerror or error
            raise ManifestError(f"{self._path}: the cassette cannot be written: {why}.") from None

    async def keep(self, call: Recorded) -> None:
        """Write one line.

        A paid reply is worth more than its recording: that the disk is full is told to the user,
        once, and ends nothing.
        """
        line = _Line(call=call)
        with anyio.CancelScope(shield=True):
            try:
                await to_thread.run_sync(self._append, line, limiter=self._one_at_a_time)
            except OSError as error:
                if not self._broken:
                    why = error.strerror or error
                    self._notify(f"{self._path}: replies are not recorded any more: {why}.")
                self._broken = True

    def _begin(self, pool: RecordedPool) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        if not self._path.exists() or self._path.stat().st_size == 0:
            self._append(_Line(cassette=VERSION), _Line(pool=pool))
            return
        found = load_cassette(self._path)
        self._mend()
        if found.version < VERSION:
            self._append(_Line(cassette=VERSION), _Line(pool=pool))
        elif found.pool != pool:
            self._append(_Line(pool=pool))

    def _mend(self) -> None:
        """Cut off what a crash left of a last line."""
        whole = self._path.read_bytes().rpartition(b"\n")
        if whole[2]:
            os.truncate(self._path, len(whole[0]) + 1)

    def _append(self, *lines: _Line) -> None:
        texts = (line.model_dump_json(exclude_none=True) + "\n" for line in lines)
        with open(self._path, "ab", buffering=0, opener=_private) as file:
            file.write("".join(texts).encode())


def _private(path: str, flags: int) -> int:
    """Prompts and replies are nobody else's business."""
    return os.open(path, flags, 0o600)
