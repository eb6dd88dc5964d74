"""Workers behind OpenAI's Responses interface, streamed, or in the background at the provider.

In the background a response belongs to the provider: a connection that breaks is taken up again,
and a process that died attaches again by the response's id instead of paying a second time. What
nobody will read is cancelled there.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

import anyio
from pydantic import JsonValue

from podium_workers.errors import (
    EmptyReplyError,
    MalformedReplyError,
    RefusedError,
    SlowReplyError,
    UnknownModelError,
    UnreachableError,
    UnsupportedParameterError,
    WorkerError,
)
from podium_workers.hosted.common import translated
from podium_workers.hosted.learned import Learned
from podium_workers.hosted.openai_client import OpenAIClientWorker, meaning, unstreamed
from podium_workers.hosted.response_reading import Reading
from podium_workers.hosted.schemas import strict_schema
from podium_workers.wire import ApiKey, Patience, Said, TimeLimits, failure, is_openai
from podium_workers.worker import (
    ATTACHED_TO,
    Attempt,
    Call,
    FinishReason,
    Message,
    ModelSettings,
    Reply,
    WorkerCard,
)

if TYPE_CHECKING:
    from openai import AsyncOpenAI, AsyncStream
    from openai.types.responses import EasyInputMessageParam, Response, ResponseStreamEvent

LOOKS = 60
"""Times that a background response is looked for again after silence or a broken connection."""
_FIRST_WAIT_S = 0.5
_LONGEST_WAIT_S = 10.0
_CANCEL_WITHIN_S = 1.0
"""Seconds for telling the provider that nobody will read a response."""

_Opening = Callable[[], Awaitable["AsyncStream[ResponseStreamEvent]"]]


class ResponsesWorker(OpenAIClientWorker):
    """A model behind the Responses interface.

    With *background*, which needs the provider to store the response, a call that is resumed
    attaches to its earlier response. The interface has no seed, so none is sent.
    """

    effort_name = "reasoning.effort"

    def __init__(
        self,
        card: WorkerCard,
        *,
        key: ApiKey,
        base_url: str,
        limits: TimeLimits | None = None,
        temperature: float | None = None,
        effort: str | None = None,
        learned: Learned | None = None,
        background: bool = False,
    ) -> None:
        super().__init__(
            card,
            key=key,
            base_url=base_url,
            limits=limits,
            temperature=temperature,
            effort=effort,
            learned=learned,
        )
        self._background = background
        self._useless: set[str] = set()
        """Responses that were attached to and gave no usable reply: not to be tried again."""

    @property
    def _in_background(self) -> bool:
        return self._background and "background" not in self._refused

    def parameters(self, settings: ModelSettings) -> dict[str, JsonValue]:
        reasoning: dict[str, JsonValue] = {
            "effort": self._effort,
            "summary": "auto" if self._quirks.family.summaries else None,
        }
        wanted: dict[str, JsonValue] = {
            "max_output_tokens": self._reply_limit(settings),
            "store": self._in_background,
            "background": True if self._in_background else None,
            "temperature": self._temperature(settings),
            "reasoning": self._taken(reasoning, "reasoning.") or None,
        }
        if settings.response_schema is not None:
            wanted["text"] = {
                "format": {
                    "type": "json_schema",
                    "name": "reply",
                    "strict": True,
                    "schema": strict_schema(settings.response_schema),
                }
            }
        return self._taken(wanted)

    def _taken(self, wanted: Mapping[str, JsonValue], within: str = "") -> dict[str, JsonValue]:
        left_out = self._refused - {"max_output_tokens"}
        return {
            name: value
            for name, value in wanted.items()
            if value is not None and f"{within}{name}" not in left_out
        }

    async def _ask(
        self,
        client: "AsyncOpenAI",
        messages: tuple[Message, ...],
        parameters: dict[str, JsonValue],
        call: Call,
    ) -> Reply:
        earlier = await self._earlier(client, call)
        if earlier is not None:
            return await self._attach(client, earlier, call)

        async def create() -> "AsyncStream[ResponseStreamEvent]":
            return await client.responses.create(
                model=self.card.model,
                input=[_wire_form(message) for message in messages],
                stream=True,
                extra_body=parameters,
            )

        record: dict[str, JsonValue] = {"model": self.card.model, "stream": True, **parameters}
        async with call.attempt(record) as attempt:
            reading = Reading(self.card)
            try:
                await self._follow(client, create, reading, attempt, call, sent=_names(parameters))
            except UnknownModelError as error:
                raise self._with_remedy(error) from None
            except UnsupportedParameterError as error:
                raise self._narrowed(error) from None
            return await self._settled(reading, attempt)

    def _with_remedy(self, error: UnknownModelError) -> UnknownModelError:
        """*error*, with what to type where the whole interface may be missing."""
        if is_openai(self._base_url):
            return error
        text = f'{error.message.rstrip(".")}. If it has no Responses interface, set api = "chat".'
        return UnknownModelError(text, status=error.status)

    async def _earlier(self, client: "AsyncOpenAI", call: Call) -> "Response | None":
        """The earlier response of this call, if the provider still has it and it may be of use."""
        from openai import BadRequestError, NotFoundError, OpenAIError

        if not self._in_background or not call.resume_id or call.resume_id in self._useless:
            return None
        patience = Patience(self._limits, call.deadline)
        with translated(OpenAIError, meaning, self._key), patience.hold():
            try:
                found = await client.responses.retrieve(call.resume_id)
            except (NotFoundError, BadRequestError):  # expired, or not an id of this interface
                return None
        return None if found.status in {"failed", "cancelled"} else found

    async def _attach(self, client: "AsyncOpenAI", earlier: "Response", call: Call) -> Reply:
        """Read on in a response that was paid for before."""
        record: dict[str, JsonValue] = {"model": self.card.model, ATTACHED_TO: earlier.id}
        async with call.attempt(record) as attempt:
            await attempt.sent(earlier.id)
            reading = Reading(self.card)
            reading.found(earlier)
            await attempt.usage(reading.usage)
            try:
                if not reading.ended:
                    again = self._again(client, reading)
                    await self._follow(client, again, reading, attempt, call)
                return await self._settled(reading, attempt)
            except (UnreachableError, SlowReplyError):
                raise
            except WorkerError:
                self._useless.add(earlier.id)
                raise

    def _again(self, client: "AsyncOpenAI", reading: Reading) -> _Opening:
        """Opens the stream of a response behind what was read of it already."""

        async def retrieve() -> "AsyncStream[ResponseStreamEvent]":
            if reading.position is None:
                return await client.responses.retrieve(reading.id, stream=True)
            return await client.responses.retrieve(
                reading.id, stream=True, starting_after=reading.position
            )

        return retrieve

    async def _follow(
        self,
        client: "AsyncOpenAI",
        opening: _Opening,
        reading: Reading,
        attempt: Attempt,
        call: Call,
        *,
        sent: frozenset[str] = frozenset(),
    ) -> None:
        """Read until the response has ended; cancel it at the provider when that is given up."""
        try:
            for look in range(LOOKS):
                try:
                    if look:
                        await self._look(client, reading, call)
                    if not reading.ended:
                        await self._stream(opening, reading, attempt, call, sent)
                except (UnreachableError, SlowReplyError) as error:
                    total = isinstance(error, SlowReplyError) and error.limit == "total"
                    if total or not self._in_background or not reading.id or look == LOOKS - 1:
                        raise
                if reading.ended or not self._in_background or not reading.id:
                    return
                opening = self._again(client, reading)
                await self._wait(look, reading, call)
        finally:
            if self._in_background and reading.id and not reading.ended:
                with anyio.move_on_after(_CANCEL_WITHIN_S, shield=True):
                    await self._cancel(client, reading)
            if reading.started:
                # Also without a count: what was generated before it was given up is billed.
                with anyio.move_on_after(1, shield=True):
                    await attempt.usage(reading.usage)

    async def _look(self, client: "AsyncOpenAI", reading: Reading, call: Call) -> None:
        """See how the response stands now: it may have ended, or been cancelled by somebody."""
        from openai import OpenAIError

        patience = Patience(self._limits, call.deadline)
        with translated(OpenAIError, meaning, self._key), patience.hold():
            reading.found(await client.responses.retrieve(reading.id))

    async def _wait(self, look: int, reading: Reading, call: Call) -> None:
        """Some time before the next look; none where something was read since the last one."""
        seconds = min(_FIRST_WAIT_S * 2**look, _LONGEST_WAIT_S)
        if reading.has_moved():
            return
        if anyio.current_time() + seconds >= call.deadline:
            raise SlowReplyError(
                "The reply had not ended when the time limit struck.", limit="total"
            )
        await anyio.sleep(seconds)

    async def _stream(
        self,
        opening: _Opening,
        reading: Reading,
        attempt: Attempt,
        call: Call,
        sent: frozenset[str],
    ) -> None:
        from openai import OpenAIError

        from podium_workers.hosted.transport import listen

        patience = Patience(self._limits, call.deadline)
        with translated(OpenAIError, meaning, self._key, sent=sent), patience.hold():
            stream = await opening()
            async with stream:
                listen(stream.response, patience.hear)
                if "json" in stream.response.headers.get("content-type", ""):
                    raise await unstreamed(stream.response, self._key)
                async for event in stream:
                    if reading.add(event):
                        await attempt.sent(reading.id)
                    if reading.begun:
                        patience.begin()
                    if reading.ended:
                        break

    async def _cancel(self, client: "AsyncOpenAI", reading: Reading) -> None:
        """Tell the provider to stop, and read what it says of the tokens so far."""
        from openai import OpenAIError

        try:
            with translated(OpenAIError, meaning, self._key):
                reading.found(await client.responses.cancel(reading.id))
        except WorkerError:
            return  # it has ended by itself, or cannot be reached: why we gave up is what counts

    async def _settled(self, reading: Reading, attempt: Attempt) -> Reply:
        reply = self._finished(reading)
        await attempt.settle(reply)
        return reply

    def _finished(self, reading: Reading) -> Reply:
        finish = self._finish(reading)
        if reading.refusal:
            declined = " ".join(self._key.scrub(reading.refusal).split())
            raise RefusedError(f"The model declined: {declined}")
        if reading.calls_tool:
            raise MalformedReplyError("The model called a tool, but none was offered.")
        if not reading.text.strip():
            raise EmptyReplyError(_why_empty(reading, finish), used_up=finish == "length")
        return Reply(
            text=self._key.struck_from(reading.text),
            usage=reading.usage,
            model=reading.model or self.card.model,
            finish_reason=finish,
            reasoning=self._key.struck_from(reading.reasoning),
        )

    def _finish(self, reading: Reading) -> FinishReason:
        """How it ended, if that leaves a usable reply."""
        match reading.status, reading.why_incomplete:
            case "completed", _:
                return "stop"
            case "incomplete", "max_output_tokens" | "max_messages":
                return "length"
            case "incomplete", "content_filter":
                raise RefusedError(
                    "The provider held the reply back (incomplete: 'content_filter')."
                )
            case "incomplete", why:
                raise MalformedReplyError(f"The reply ended for an unknown reason: {why!r}.")
            case "failed", _:
                raise failure(reading.error or Said("it gave no reason"), self._key)
            case "cancelled", _:
                raise MalformedReplyError("The reply broke off: it was cancelled at the provider.")
            case _:
                raise MalformedReplyError(
                    "The reply broke off: its stream ended without an end mark."
                )


def _why_empty(reading: Reading, finish: FinishReason) -> str:
    if finish == "length":
        return (
            "The model used up its whole limit of output tokens without a word of reply; "
            "raise max_output_tokens."
        )
    if reading.reasoning:
        return "The model reasoned, but gave no reply (status 'completed')."
    return "The reply is empty (status 'completed')."


def _names(parameters: Mapping[str, JsonValue]) -> frozenset[str]:
    """What a complaint of the provider may name: the parameters, and the parts of `reasoning`."""
    reasoning = parameters.get("reasoning")
    parts = reasoning if isinstance(reasoning, dict) else {}
    return frozenset({*parameters, *(f"reasoning.{part}" for part in parts)})


def _wire_form(message: Message) -> "EasyInputMessageParam":
    return {"role": message.role, "content": message.text}
