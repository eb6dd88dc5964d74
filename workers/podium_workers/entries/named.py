"""The workers that a pool manifest may name, each with the card that it gives."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, JsonValue, field_validator, model_validator

from podium_workers.scripted import Rule
from podium_workers.wire import (
    scrub,
)
from podium_workers.worker import Price, Shape, WorkerCard

if TYPE_CHECKING:
    from podium_workers.prices import PriceTable

from podium_workers.entries.common import (
    FREE,
    UNKNOWN_WINDOW,
    VARIABLE,
    ModelEntry,
    NamedEntry,
    OwnEntry,
    StatedPrice,
    Where,
)
from podium_workers.entries.hosted import LONGEST_REPLY, AnthropicEntry, OpenAIEntry, VllmEntry

ASSISTANT_WINDOW = 128_000
"""Tokens that a command-line assistant's model has at least, less what it needs for itself."""
PROGRAM_TOKENS = 1000
"""Tokens that instructions and complaints add to the prompt of a worker that writes programs."""


class LocalEntry(ModelEntry):
    """A model that Podium runs itself on this machine."""

    kind: Literal["local"]
    gguf: str = Field(min_length=1)
    """A name that `podium models list` shows, or the path of a .gguf file; a relative one starts
    at the manifest's folder."""
    threads: int | None = Field(default=None, ge=1)
    """Processor threads; the setting `local_threads` when not given."""
    parallel: int = Field(default=2, ge=1)

    @property
    def card(self) -> WorkerCard:
        window = self.context_window or UNKNOWN_WINDOW
        return WorkerCard(
            name=self.name,
            kind="local",
            model=self.gguf,
            where="local",
            context_window=window,
            max_output_tokens=self.reply_limit(window, 1024),
            price=FREE,
            good_at=self.good_at,
            role=self.role,
            parallel=self.parallel,
        )


class ScriptedEntry(OwnEntry):
    """A worker that answers from a script: for dry runs of a pool, and tests."""

    kind: Literal["scripted"]
    replies: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Given in order; the last one repeats."""
    rules: Annotated[tuple[Rule, ...], Field(strict=False, alias="rule")] = ()
    """Tried before the replies: the first whose text stands in the prompt is given."""
    where: Where = "local"

    @model_validator(mode="after")
    def _has_something_to_say(self) -> Self:
        if not self.replies and not self.rules:
            raise ValueError("a scripted worker needs replies or a [[worker.rule]]")
        return self

    @property
    def card(self) -> WorkerCard:
        window = self.context_window or UNKNOWN_WINDOW
        return WorkerCard(
            name=self.name,
            kind="scripted",
            model="scripted",
            where=self.where,
            context_window=window,
            max_output_tokens=self.reply_limit(window, 2048),
            price=FREE,
            good_at=self.good_at,
            role=self.role,
            parallel=self.parallel,
        )


class CassetteEntry(NamedEntry):
    """A worker that gives again what was recorded of one."""

    kind: Literal["cassette"]
    file: str = Field(min_length=1)
    """The cassette's path; a relative one starts at the manifest's folder."""
    worker: str | None = None
    """Its name when it was recorded, if that was another."""

    @property
    def card(self) -> WorkerCard:
        """The card that was recorded.

        Raises:
            ManifestError: the file is no cassette, or none of that worker.
        """
        from podium_workers.replay import ReplayWorker

        return ReplayWorker.of(self.file, self.worker or self.name, name=self.name).card


class CommandEntry(OwnEntry):
    """A program on this machine, mostly a command-line assistant as the user is logged in."""

    kind: Literal["command"]
    preset: Literal["claude", "codex", "gemini"] | None = None
    """An assistant that Podium knows how to call."""
    command: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Any other program and its arguments; the prompt is its standard input. A path that begins
    with a dot starts at the manifest's folder."""
    output: Literal["text", "claude", "codex", "gemini"] | None = None
    """What it prints: its reply, or the JSON of an assistant; that of the preset, else text."""
    args: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Arguments behind those of the preset."""
    model: str = ""
    """The model to use; the assistant's own choice when not given."""
    env: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Names of environment variables that it gets beside what everybody gets."""
    folder: str | None = None
    """Where it works, then with its own tools; else an empty folder, and without tools where the
    preset can. A relative one starts at the manifest's folder."""
    where: Where = "hosted"
    """Whether prompts stay on this machine."""
    price: StatedPrice | None = None
    """Of its tokens, where it reports tokens but no cost."""
    first_byte_s: float = Field(default=600, gt=0)
    """Seconds of silence before the model's first words."""
    idle_s: float = Field(default=300, gt=0)
    """Seconds of silence after them."""
    parallel: int = Field(default=2, ge=1)

    @field_validator("env")
    @classmethod
    def _are_names(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if not VARIABLE.fullmatch(name) or scrub(name) != name:
                raise ValueError(
                    'these must be names of environment variables, such as "MY_TOKEN", never '
                    "their values"
                )
        return names

    @model_validator(mode="after")
    def _is_one_thing(self) -> Self:
        if bool(self.preset) == bool(self.command):
            raise ValueError(
                'name either a preset ("claude", "codex" or "gemini") or a command, such as '
                'command = ["my-assistant", "--quiet"]'
            )
        if self.command and self.args:
            raise ValueError("args belong to a preset; put them into command")
        return self

    @property
    def card(self) -> WorkerCard:
        window = self.context_window or (ASSISTANT_WINDOW if self.preset else UNKNOWN_WINDOW)
        price: Price | None = FREE if self.where == "local" else None
        if self.price:
            price = Price.model_validate(self.price.model_dump())
        return WorkerCard(
            name=self.name,
            kind="command",
            model=self.model or self.preset or Path(self.command[0]).name,
            where=self.where,
            context_window=window,
            max_output_tokens=self.reply_limit(window, LONGEST_REPLY),
            price=price,
            good_at=self.good_at,
            role=self.role,
            parallel=self.parallel,
        )


class ProgramEntry(NamedEntry):
    """A worker that lets another one write a program, and runs it in a sandbox."""

    kind: Literal["program"]
    by: str
    """Name of the worker that writes the programs."""
    seconds: int = Field(default=10, ge=1, le=600)
    """Processor time that a program may take."""
    good_at: str = "arithmetic, counting: writes a Python program and runs it; knows no facts"
    """One line for the conductor: what it does well, and what it does not."""
    role: str = ""
    """Standing instructions: the system message of every prompt."""

    @property
    def card(self) -> WorkerCard:
        """The card, without what only the worker that writes the programs knows."""
        return WorkerCard(
            name=self.name,
            kind="program",
            model=self.by,
            where="hosted",
            context_window=UNKNOWN_WINDOW,
            good_at=self.good_at,
            role=self.role,
        )

    def card_over(self, writer: WorkerCard) -> WorkerCard:
        """The card, with what is that of *writer*; its window leaves room for repairs."""
        room = writer.context_window - writer.max_output_tokens - PROGRAM_TOKENS
        update = {
            "name": self.name,
            "kind": "program",
            "good_at": self.good_at,
            "role": self.role or writer.role,
            "context_window": max(room, writer.context_window // 2),
        }
        return writer.model_copy(update=update)


Direct = (
    OpenAIEntry
    | AnthropicEntry
    | VllmEntry
    | LocalEntry
    | ScriptedEntry
    | CassetteEntry
    | CommandEntry
)
"""Workers that ask no other one of the pool."""
Entry = Direct | ProgramEntry


def card_of(entry: Entry, prices: "PriceTable | None" = None) -> WorkerCard:
    """The entry's card: its price is the manifest's, else that of *prices*, else unknown.

    *prices* is the shipped table unless given.
    """
    if isinstance(entry, OpenAIEntry | AnthropicEntry):
        return entry.card_by(prices)
    return entry.card


_SHAPING = {
    "base_url", "api", "temperature", "effort", "thinking", "quantization", "dtype", "lora",
    "adapter", "seconds",
}  # fmt: skip
"""Keys of entries, of any kind, that shape replies and that no card shows."""


def shapes_of(entries: Sequence[Entry]) -> dict[str, Shape]:
    """What of each entry shapes its worker's replies, as far as it is not left to the defaults.

    Who writes programs has also what shapes those of the worker that it asks.
    """
    found: dict[str, dict[str, JsonValue]] = {
        entry.name: entry.model_dump(mode="json", include=_SHAPING, exclude_defaults=True)
        for entry in entries
    }
    for entry in entries:
        if isinstance(entry, ProgramEntry):
            found[entry.name]["by"] = found[entry.by]
    return {name: shape for name, shape in found.items() if shape}
