"""A worker that answers from a script: for tests, users' own tests and dry runs of a pool."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from inspect import isawaitable
from itertools import count

import anyio
from pydantic import JsonValue

from podium_workers.errors import EmptyReplyError, WorkerError
from podium_workers.wire import messages_of
from podium_workers.worker import (
    Call,
    Frozen,
    ModelSettings,
    Price,
    Prompt,
    Reply,
    Usage,
    WorkerCard,
)

Line = str | WorkerError
"""What a script gives for a prompt: the text of a reply, or the error to raise."""
Script = Sequence[Line] | Callable[[Prompt], Line | Awaitable[Line]]
"""Replies in order, of which the last one repeats, or a function of the prompt."""


class Rule(Frozen):
    """A reply for every prompt that holds a certain text."""

    when: str
    reply: str


class ScriptedWorker:
    """Answers from *script*, and keeps the prompts that it saw.

    With a *gate* it replies only once that event is set, so that a test can hold it.
    """

    def __init__(
        self, card: WorkerCard, script: Script, *, gate: anyio.Event | None = None
    ) -> None:
        self._card = card
        self._script = script
        self._gate = gate
        self._numbers = count()
        self.seen: list[Prompt] = []
        """Prompts in the order in which they came."""
        self.asked: list[ModelSettings] = []
        """The settings that came with them."""

    @classmethod
    def named(
        cls, name: str, script: Script, *, gate: anyio.Event | None = None
    ) -> "ScriptedWorker":
        """A worker with a card that suits most tests."""
        card = WorkerCard(
            name=name,
            kind="scripted",
            model="scripted",
            where="local",
            context_window=8192,
            price=Price(input=0, output=0),
        )
        return cls(card, script, gate=gate)

    @property
    def card(self) -> WorkerCard:
        return self._card

    async def reply(self, prompt: Prompt, settings: ModelSettings, call: Call) -> Reply:
        """The script's next reply.

        Raises:
            WorkerError: the script says so, or its reply is empty.
        """
        self.seen.append(prompt)
        self.asked.append(settings)
        number = next(self._numbers)
        given = settings.model_dump(mode="json", exclude_none=True)
        request: dict[str, JsonValue] = {"model": self._card.model, **given}
        async with call.attempt(request) as attempt:
            await attempt.sent(f"{self._card.name}-{number}")
            if self._gate is not None:
                await self._gate.wait()
            line = await self._line(prompt, number)
            if isinstance(line, WorkerError):
                raise line
            usage = self._card.priced(_usage(prompt, line, self._card))
            await attempt.usage(usage)
            if not line.strip():
                raise EmptyReplyError("The reply is empty.")
            reply = Reply(text=line, usage=usage, model=self._card.model)
            await attempt.settle(reply)
            return reply

    async def check(self) -> str:
        return "answers from its script"

    async def _line(self, prompt: Prompt, number: int) -> Line:
        if callable(self._script):
            line = self._script(prompt)
            return await line if isawaitable(line) else line
        return self._script[min(number, len(self._script) - 1)]


def by_rules(rules: Iterable[Rule], replies: Sequence[str]) -> Script:
    """A script that takes the first rule whose text stands in the prompt, else the next reply."""
    ordered = tuple(rules)
    numbers = count()

    def script(prompt: Prompt) -> Line:
        text = "\n".join(message.text for message in prompt.messages)
        for rule in ordered:
            if rule.when in text:
                return rule.reply
        if not replies:
            return EmptyReplyError("No rule of the scripted worker fits this prompt.")
        return replies[min(next(numbers), len(replies) - 1)]

    return script


def _usage(prompt: Prompt, text: str, card: WorkerCard) -> Usage:
    """Plausible counts: about four characters to a token."""
    characters = sum(len(message.text) for message in messages_of(prompt, card))
    return Usage(input_tokens=characters // 4 + 1, output_tokens=len(text) // 4 + 1)
