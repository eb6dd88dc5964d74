"""A worker that answers by a program: a model writes it, a sandbox runs it, errors go back.

It asks another worker of the pool for the program, so it knows no provider; what isolates a program
is the sandbox's matter.
"""

import ast
import re
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from importlib.resources import files
from string import Template
from textwrap import dedent

from pydantic import JsonValue

from podium_workers.plain import plain
from podium_workers.pool import Checkable
from podium_workers.programs.sandbox import OUTPUT_BYTES, Ran, Sandbox
from podium_workers.worker import (
    Attempt,
    Call,
    Message,
    ModelSettings,
    Prompt,
    Reply,
    Usage,
    Worker,
    WorkerCard,
)

REPAIRS = 2
"""How often a program that gave no result goes back to the model."""

_WRITE, _REPAIR = (
    part.strip()
    for part in (files("podium_workers") / "prompts" / "program.md")
    .read_text(encoding="utf-8")
    .split("\n---\n")
)
_LONGEST_COMPLAINT = 1500
"""Characters of an error that the model gets to read: its end, where Python says what it was."""
_CHARACTERS_PER_TOKEN = 3
_BLOCK = re.compile(
    r"^[ \t]*```[ \t]*([\w+-]*)[^\n]*\n(.*?)(?:^[ \t]*```[ \t]*$|\Z)", re.DOTALL | re.MULTILINE
)
_PYTHON = {"python", "py", "python3"}


@dataclass(frozen=True)
class ProgramWorker:
    """Lets *writer* write a program for each prompt, and replies with what it printed."""

    card: WorkerCard
    writer: Worker
    sandbox: Sandbox
    seconds: int = 10
    """Processor time that a program may take."""

    @property
    def asks(self) -> str:
        """Name of the worker that gets this one's prompts."""
        return self.writer.card.name

    async def reply(self, prompt: Prompt, settings: ModelSettings, call: Call) -> Reply:
        """What a program for *prompt* printed, then the program.

        In the model's own words when it writes no program or none that gives a result; the reply's
        note says so. A reply that is held to a schema is the model's own too.

        Raises:
            WorkerError: no usable reply; the class says at which boundary.
        """
        if settings.response_schema is not None:
            return await self.writer.reply(prompt, settings, call)
        await self.sandbox.check()
        spent, tried, added = Usage(), _Tried(), (Message(role="user", text=_WRITE),)
        for number in range(1 + REPAIRS):
            trial = _Trial(call, number, _joined(added))
            reply = await self.writer.reply(_with(prompt, added), settings, trial)
            spent += reply.usage
            tried = await self._try(reply)
            if tried.printed:
                return self._finished(reply, tried, spent, settings)
            if number and not tried.program:
                return _in_words(reply, spent, tried.complaint)
            added = (
                Message(role="user", text=_WRITE),
                Message(role="assistant", text=reply.text),
                Message(role="user", text=Template(_REPAIR).substitute(complaint=tried.complaint)),
            )
        reply = await self.writer.reply(prompt, settings, _Trial(call, 1 + REPAIRS, ""))
        return _in_words(reply, spent + reply.usage, tried.complaint)

    async def check(self) -> str:
        """What isolates programs, and what the writer's own check says.

        Raises:
            WorkerError: programs cannot be isolated here, or the writer would not answer.
        """
        isolated = await self.sandbox.check()
        if not isinstance(self.writer, Checkable):
            return f"{isolated}; {self.asks} writes them"
        return f"{isolated}; {self.asks} writes them: {await self.writer.check()}"

    async def _try(self, reply: Reply) -> "_Tried":
        """Run the programs in *reply* until one gives a result; the first one's fault otherwise."""
        programs = programs_in(reply.text)
        first: _Tried | None = None
        for program in programs:
            ran = await self.sandbox.run(program, seconds=self.seconds)
            printed = plain(ran.output).strip() if ran.status == "finished" else ""
            tried = _Tried(program, printed, complaint(ran, self.seconds))
            if printed:
                return tried
            first = first or tried
        if first is None:
            return _Tried(complaint="There was no block that begins with ```python in your reply.")
        if reply.finish_reason == "length":
            return _Tried(first.program, complaint="It was cut off: write a shorter one.")
        return first

    def _finished(
        self, reply: Reply, tried: "_Tried", spent: Usage, settings: ModelSettings
    ) -> Reply:
        tokens = settings.max_output_tokens or self.card.max_output_tokens
        most = tokens * _CHARACTERS_PER_TOKEN
        printed, note = tried.printed, ""
        if len(printed) > most:
            note = f"The program printed {len(printed)} characters; the first {most} are given."
            printed = f"{printed[:most]}\n[{note}]"
        shown = f"This was printed by the following program.\n\n```python\n{tried.program}\n```"
        return Reply(
            text=f"{printed}\n\n{shown}",
            usage=spent,
            model=reply.model,
            reasoning=reply.reasoning,
            note=note,
        )


@dataclass(frozen=True)
class _Tried:
    """What came of one reply."""

    program: str = ""
    """Empty when there was none."""
    printed: str = ""
    """Empty when it gave no result."""
    complaint: str = ""
    """What was wrong, said to the model."""


@dataclass(frozen=True)
class _Trial:
    """One request of several in a call; its record says what was added to the call's prompt."""

    call: Call
    number: int
    added: str

    @property
    def deadline(self) -> float:
        return self.call.deadline

    @property
    def resume_id(self) -> str | None:
        return None if self.number else self.call.resume_id

    def attempt(self, request: Mapping[str, JsonValue]) -> AbstractAsyncContextManager[Attempt]:
        return self.call.attempt({**request, "trial": self.number, "added": self.added})


def programs_in(text: str) -> tuple[str, ...]:
    """The programs in a reply, the likeliest first.

    Of several blocks that is the last one, which mostly corrects the others; then all together,
    since some models spread one program over several blocks.
    """
    blocks = [(found[1].lower(), dedent(found[2]).strip("\n")) for found in _BLOCK.finditer(text)]
    marked = [code for language, code in blocks if language in _PYTHON and code.strip()]
    unmarked = [code for language, code in blocks if not language and _is_program(code)]
    programs = marked or unmarked
    if not blocks and _is_program(text):
        return (text.strip(),)
    if len(programs) > 1:
        return (programs[-1], "\n".join(programs))
    return tuple(programs)


def _is_program(text: str) -> bool:
    """Whether *text*, of which nobody said so, is Python that prints something."""
    if "print(" not in text:
        return False
    try:
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def complaint(ran: Ran, seconds: int) -> str:
    """What was wrong with a program that gave no result, as its author is told."""
    match ran.status:
        case "too_slow":
            return f"It had not ended after {seconds} seconds."
        case "too_much":
            return f"It printed more than {OUTPUT_BYTES} bytes."
        case "failed":
            said = plain(ran.errors).strip()[-_LONGEST_COMPLAINT:]
            return f"It ended with this error:\n\n{said}\n" if said else "It ended with an error."
        case "finished":
            return "It printed nothing."


def _with(prompt: Prompt, added: tuple[Message, ...]) -> Prompt:
    """*prompt* with messages behind it; the first of them joins its last one."""
    *before, last = prompt.messages
    first, *further = added
    joined = last.model_copy(update={"text": f"{last.text}\n\n{first.text}"})
    return Prompt(messages=(*before, joined, *further))


def _joined(messages: tuple[Message, ...]) -> str:
    return "\n\n".join(message.text for message in messages)


def _in_words(reply: Reply, spent: Usage, why: str) -> Reply:
    """The model's own words, as the worker's reply."""
    note = f"No program gave a result, so this is the model's own text. {why}"
    return reply.model_copy(update={"usage": spent, "note": " ".join(note.split())[:300]})
