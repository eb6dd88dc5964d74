"""A worker that is a program on this machine: a command-line assistant as the user is logged in.

Nothing goes through a shell: the prompt is the program's standard input, and its reply is read
from its standard output, in the JSON of the assistants that Podium knows or as plain text.
"""

import math
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import anyio
from anyio.abc import ByteReceiveStream, Process
from pydantic import JsonValue

from podium_workers.errors import (
    AuthenticationError,
    EmptyReplyError,
    NotInstalledError,
    RefusedError,
    SlowReplyError,
    WorkerError,
)
from podium_workers.plain import plain
from podium_workers.programs.assistants import (
    ASSISTANTS,
    Assistant,
    Output,
    Said,
    has_begun,
    has_ended,
    is_sign_of_life,
    read,
)
from podium_workers.programs.complaints import meaning
from podium_workers.programs.process_group import (
    give,
    kill_group,
    open_group,
    run_briefly,
    working_folder,
)
from podium_workers.wire import Patience, TimeLimits, messages_of, scrub
from podium_workers.worker import Attempt, Call, ModelSettings, Prompt, Reply, Usage, WorkerCard

if TYPE_CHECKING:
    from podium_workers.entries.named import CommandEntry

NESTED = "PODIUM_NESTED"
"""Set for every program that is started. A Podium that finds it in its own environment was started
by an assistant that works for another Podium, and starts no assistants of its own."""
PASSED_ON = (
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "TZ", "TMPDIR",
    "LANG", "LC_ALL", "LC_CTYPE", "LC_MESSAGES",
    "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR",
    "DBUS_SESSION_BUS_ADDRESS",
    "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY",
    "http_proxy", "https_proxy", "no_proxy", "all_proxy",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS",
    "SYSTEMROOT", "USERPROFILE", "APPDATA", "LOCALAPPDATA", "PATHEXT", "COMSPEC",
)  # fmt: skip
"""What a program gets of the environment; beside it only what its login needs and what the manifest
names. Keys of providers are not among it: an assistant would spend them instead of its login."""
OUTPUT_BYTES = 4 << 20
"""What is kept of an output: the beginning of a text, the end of JSON."""
ERROR_BYTES = 4 << 10
DRAIN_S = 1.0
"""Seconds that output may still come after a program's end, from whatever it left behind; and that
an assistant may still run after it has printed its end."""
CHECK_TIMEOUT_S = 15.0

_SCHEMA = (
    "Reply with one JSON object and nothing else. It has to satisfy this JSON Schema:\n{schema}"
)


@dataclass(frozen=True)
class CommandWorker:
    """A program that gets the prompt and gives the reply."""

    card: WorkerCard
    command: tuple[str, ...]
    """The program and its arguments."""
    environment: Mapping[str, str]
    """All that it gets."""
    output: Output = "text"
    assistant: Assistant | None = None
    """Which one it is, if it is one that Podium knows."""
    folder: str | None = None
    """Where it works; a folder of its own that is empty, and removed afterwards, when not given."""
    limits: TimeLimits = field(default_factory=TimeLimits)
    secrets: tuple[str, ...] = ()
    """Texts that must not be in replies and errors."""
    is_nested: bool = False
    """Whether this Podium was itself started by an assistant of another one."""

    async def reply(self, prompt: Prompt, settings: ModelSettings, call: Call) -> Reply:
        """What the program answers.

        Raises:
            WorkerError: no usable reply; the class says at which boundary.
        """
        if self.is_nested:
            raise RefusedError(
                f"This Podium was started by an assistant of another Podium ({NESTED} is set), so "
                "it starts no assistants of its own: they could call each other for ever."
            )
        command = (self.program(), *self.command[1:])
        request: dict[str, JsonValue] = {
            "model": self.card.model,
            "command": [self._clean(part) for part in command],
        }
        async with call.attempt(request) as attempt:
            heard = _Heard(self.output, Patience(self.limits, call.deadline), attempt)
            try:
                await self._ask(command, _text_of(prompt, settings, self.card), heard)
            except SlowReplyError:
                if not has_ended(self.output, heard.text):
                    raise
                heard.was_slow = True
            finally:
                said = read(self.output, heard.text)
                usage = self._usage(said)
                if said.usage is not None:
                    with anyio.move_on_after(1, shield=True):
                        await attempt.usage(usage)
            reply = self._reply(said, heard, usage)
            await attempt.settle(reply)
            return reply

    async def check(self) -> str:
        """Whether the program is here and, where it can tell, logged in; it asks no model.

        Raises:
            NotInstalledError: it is not here.
            AuthenticationError: it is not logged in.
        """
        program = self.program()
        if self.assistant is None or not self.assistant.login:
            return f"{program} is here"
        with anyio.move_on_after(CHECK_TIMEOUT_S):
            code, said = await run_briefly((program, *self.assistant.login), self.environment)
            if code:
                raise AuthenticationError(
                    f"{self.assistant.title} is not logged in: {self.assistant.log_in}."
                )
            return f"{program} is here: {self._clean(said)}"
        raise SlowReplyError(
            f"{self._title} did not say within {CHECK_TIMEOUT_S:g} s whether it is logged in.",
            limit="total",
        )

    @property
    def _title(self) -> str:
        return self.assistant.title if self.assistant else self.command[0]

    def program(self) -> str:
        """Where the program is.

        Raises:
            NotInstalledError: it is not here; the text says what to install.
        """
        found = shutil.which(self.command[0], path=self.environment.get("PATH"))
        if found is not None:
            return found
        if self.assistant is None:
            raise NotInstalledError(f"There is no program {self.command[0]!r} on this machine.")
        raise NotInstalledError(
            f"{self._title} is not installed on this machine: {self.assistant.install}, then "
            f"{self.assistant.log_in}."
        )

    async def _ask(self, command: tuple[str, ...], asked: str, heard: "_Heard") -> None:
        """Run the program to its end."""
        async with working_folder(self.folder) as folder:
            with heard.patience.hold():
                async with open_group(command, folder, self.environment) as process:
                    await heard.converse(process, asked)

    def _reply(self, said: Said, heard: "_Heard", usage: Usage) -> Reply:
        code = heard.code
        finished = said.ended and said.text and not said.error
        if not finished and (code or said.error):
            raise self._failure(said, heard)
        if self.output == "text" and code:
            raise self._failure(said, heard)
        text, note = said.text, ""
        if not finished:
            text = said.text or plain(heard.text).strip()
            note = (
                f"The output of {self._title} could not be read to its end; this is what it holds."
            )
        elif code:
            note = f"{self._title} had replied when it ended with exit code {code}."
        elif heard.was_slow:
            note = f"{self._title} had replied, but was still running when a time limit struck."
        if not text:
            raise EmptyReplyError(f"{self._title} ended without a reply.")
        if heard.was_cut and self.output == "text":
            note = f"The reply was longer than {OUTPUT_BYTES} bytes; the rest is left out."
        return Reply(
            text=self._struck(text),
            usage=usage,
            model=said.model or self.card.model,
            finish_reason="length" if note.startswith("The reply was longer") else said.finish,
            note=note,
        )

    def _failure(self, said: Said, heard: "_Heard") -> WorkerError:
        code = heard.code
        printed = plain(heard.errors).strip() or plain(heard.text).strip()
        how = f"ended by signal {-code}" if code < 0 else f"exit code {code}"
        words = self._clean(said.error or printed[-ERROR_BYTES:]) or how
        log_in = self.assistant.log_in if self.assistant else "log in to it"
        return meaning(said, words, title=f"{self._title} ({how})", log_in=log_in)

    def _usage(self, said: Said) -> Usage:
        """What was used; its cost by the assistant's own account, else by the card's price."""
        if said.usage is None:
            free = self.card.price is not None and self.card.price.is_free
            return Usage(cost_usd=0.0 if free else None)
        return said.usage if said.usage.cost_usd is not None else self.card.priced(said.usage)

    def _struck(self, text: str) -> str:
        for secret in self.secrets:
            text = text.replace(secret, "[key]")
        return text

    def _clean(self, text: str) -> str:
        return scrub(self._struck(text))


def open_command(entry: "CommandEntry", env: Mapping[str, str]) -> CommandWorker:
    """The worker of *entry*, which gets of *env* what it may have."""
    assistant = ASSISTANTS[entry.preset] if entry.preset else None
    names = (*PASSED_ON, *(assistant.variables if assistant else ()), *entry.env)
    passed = {name: env[name] for name in names if env.get(name)}
    settings = dict(assistant.settings) if assistant else {}
    return CommandWorker(
        card=entry.card,
        command=_command(entry, assistant),
        environment={**passed, **settings, NESTED: "1"},
        output=entry.output or entry.preset or "text",
        assistant=assistant,
        folder=entry.folder,
        limits=TimeLimits(first_byte_s=entry.first_byte_s, idle_s=entry.idle_s),
        secrets=_secrets(entry.env, env),
        is_nested=bool(env.get(NESTED)),
    )


def _command(entry: "CommandEntry", assistant: Assistant | None) -> tuple[str, ...]:
    if assistant is None:
        return entry.command
    pure = () if entry.folder else assistant.pure
    model = (assistant.model, entry.model) if entry.model else ()
    return (*assistant.command, *pure, *model, *entry.args)


def _secrets(names: Iterable[str], env: Mapping[str, str]) -> tuple[str, ...]:
    """Values of the variables that a manifest passes on, longest first."""
    found = {value for name in names if len(value := env.get(name, "").strip()) >= 8}
    return tuple(sorted(found, key=len, reverse=True))


def _text_of(prompt: Prompt, settings: ModelSettings, card: WorkerCard) -> str:
    """The messages as one text; a program has no other way to be told its role."""
    parts = [message.text for message in messages_of(prompt, card)]
    if settings.response_schema is not None:
        import json

        parts.append(_SCHEMA.format(schema=json.dumps(settings.response_schema)))
    return "\n\n".join(parts)


@dataclass
class _Heard:
    """What a program has printed so far."""

    output: Output
    patience: Patience
    attempt: Attempt
    code: int = 0
    """Its exit code; a negative one is the signal that ended it."""
    errors: str = ""
    """The end of its standard error."""
    was_cut: bool = False
    was_slow: bool = False
    """Whether a time limit struck after its output's end."""
    _kept: bytearray = field(default_factory=bytearray)
    _line: str = ""
    _session: str = ""
    _silent: anyio.Event = field(default_factory=anyio.Event)
    _running: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    """The wait for the program's end, bounded once its output has come to its own."""

    @property
    def text(self) -> str:
        return self._kept.decode("utf-8", "replace")

    async def converse(self, process: Process, asked: str) -> None:
        """Give the program its prompt and hear it to its end."""
        async with anyio.create_task_group() as group:
            group.start_soon(give, process, asked)
            group.start_soon(self._read_errors, process.stderr)
            group.start_soon(self._read, process.stdout)
            with self._running:  # what is left when that strikes, ends with `open_group`
                self.code = await process.wait()
                kill_group(process)
            if not self._running.cancelled_caught:
                with anyio.move_on_after(DRAIN_S):
                    await self._silent.wait()
            group.cancel_scope.cancel()

    async def _read(self, stream: ByteReceiveStream | None) -> None:
        assert stream is not None
        async for piece in stream:
            self._keep(piece)
            for line in self._lines(piece.decode("utf-8", "replace")):
                await self._hear(line)
        self._silent.set()

    def _lines(self, text: str) -> list[str]:
        """The lines that *text* completes; of plain text every piece is as good as a line, and
        Gemini's document is one."""
        if self.output == "text":
            return [text]
        if self.output == "gemini":
            return [self.text]
        *lines, self._line = (self._line + text).split("\n")
        return lines

    async def _read_errors(self, stream: ByteReceiveStream | None) -> None:
        assert stream is not None
        kept = b""
        async for piece in stream:
            kept = (kept + piece)[-ERROR_BYTES:]
            self.errors = kept.decode("utf-8", "replace")

    async def _hear(self, line: str) -> None:
        if has_begun(self.output, line):
            self.patience.begin()
        elif is_sign_of_life(self.output, line):
            self.patience.hear()
        if line.strip():  # after an end, any other line says that it was not the last one
            ended = has_ended(self.output, line)
            self._running.deadline = anyio.current_time() + DRAIN_S if ended else math.inf
        if not self._session and (session := read(self.output, line).session):
            self._session = session
            await self.attempt.sent(session)

    def _keep(self, piece: bytes) -> None:
        self._kept += piece
        if over := max(0, len(self._kept) - OUTPUT_BYTES):
            self.was_cut = True
            if self.output == "text":
                del self._kept[OUTPUT_BYTES:]
            else:
                del self._kept[:over]
