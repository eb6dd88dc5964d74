"""Workers behind Anthropic's Messages interface."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import anyio
from pydantic import JsonValue

from podium_workers.errors import (
    AuthenticationError,
    EmptyReplyError,
    MalformedReplyError,
    OverloadedError,
    RefusedError,
    UnsupportedParameterError,
    WorkerError,
)
from podium_workers.hosted import HostedWorker, translated
from podium_workers.wire import (
    ApiKey,
    Patience,
    Said,
    failure,
    is_loopback,
    retry_after_s,
    words_in,
)
from podium_workers.worker import (
    Attempt,
    Call,
    FinishReason,
    Message,
    ModelSettings,
    Reply,
    Usage,
    WorkerCard,
)

if TYPE_CHECKING:
    from anthropic import AnthropicError, APIStatusError, AsyncAnthropic, AsyncStream
    from anthropic.types import MessageDeltaUsage, MessageParam, RawMessageStreamEvent
    from anthropic.types import Usage as WireUsage

API_VERSION = "2023-06-01"

_FINISHED: dict[str, FinishReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
}


class AnthropicWorker(HostedWorker["AsyncAnthropic"]):
    """A Claude model at Anthropic, or at an address that speaks the same."""

    check_names_model = True

    def _open(self, secret: str) -> "AsyncAnthropic":
        from anthropic import AsyncAnthropic, DefaultAsyncHttpxClient

        from podium_workers.transport import TIMEOUT

        trust_env = not is_loopback(self._base_url)
        return AsyncAnthropic(
            api_key=secret,
            base_url=self._base_url,
            max_retries=0,  # `retry` is the one place that retries, and each attempt is recorded
            timeout=TIMEOUT,
            http_client=DefaultAsyncHttpxClient(timeout=TIMEOUT, trust_env=trust_env),
        )

    async def _close(self, client: "AsyncAnthropic") -> None:
        await client.close()

    def parameters(self, settings: ModelSettings) -> dict[str, JsonValue]:
        wanted: dict[str, JsonValue] = {"temperature": self._temperature(settings)}
        if settings.response_schema is not None and "output_config" not in self._refused:
            form = {"type": "json_schema", "schema": _closed(settings.response_schema)}
            wanted["output_config"] = {"format": form}
        taken = {
            name: value
            for name, value in wanted.items()
            if value is not None and name not in self._refused
        }
        return {"max_tokens": self._reply_limit(settings), **taken}

    async def _ask(
        self,
        client: "AsyncAnthropic",
        messages: tuple[Message, ...],
        parameters: dict[str, JsonValue],
        call: Call,
    ) -> Reply:
        from anthropic import AnthropicError, omit

        patience = Patience(self._limits, call.deadline)
        streamed = _Streamed(self.card)
        system = "\n\n".join(message.text for message in messages if message.role == "system")
        turns = [_wire_form(message) for message in messages if message.role != "system"]
        record: dict[str, JsonValue] = {"model": self.card.model, "stream": True, **parameters}
        async with call.attempt(record) as attempt:
            with translated(AnthropicError, meaning, self._key, sent=parameters), patience.hold():
                stream = await client.messages.create(
                    model=self.card.model,
                    messages=turns,
                    system=system or omit,
                    max_tokens=self.card.max_output_tokens,  # `parameters` has the real limit
                    stream=True,
                    extra_body=parameters,
                )
                async with stream:
                    await self._read(stream, streamed, attempt, patience)
            reply = self._finished(streamed)
            await attempt.settle(reply)
            return reply

    async def _read(
        self,
        stream: "AsyncStream[RawMessageStreamEvent]",
        streamed: "_Streamed",
        attempt: Attempt,
        patience: Patience,
    ) -> None:
        from podium_workers.transport import listen

        listen(stream.response, patience.hear)
        request_id = stream.response.headers.get("request-id", "")
        if request_id:
            await attempt.sent(request_id)
        try:
            async for event in stream:
                streamed.add(event)
                if event.type == "message_start":
                    if not request_id:
                        await attempt.sent(event.message.id)
                    await attempt.usage(streamed.usage)
                elif streamed.text or streamed.reasoning:
                    patience.begin()
        finally:
            if streamed.started:
                with anyio.move_on_after(1, shield=True):
                    await attempt.usage(streamed.usage)

    def _finished(self, streamed: "_Streamed") -> Reply:
        text = "".join(streamed.text)
        match streamed.stop_reason:
            case "refusal":
                why = " ".join(self._key.scrub(streamed.why_stopped).split())
                raise RefusedError(f"The model declined: {why or 'it gave no reason.'}")
            case "tool_use" | "pause_turn":
                raise MalformedReplyError("The model called a tool, but none was offered.")
            case "":
                raise MalformedReplyError(
                    "The reply broke off: its stream ended without an end mark."
                )
            case reason if reason not in _FINISHED:
                raise MalformedReplyError(f"The reply ended for an unknown reason: {reason!r}.")
            case reason:
                finish = _FINISHED[reason]
        if not text.strip():
            raise EmptyReplyError(
                "The model used up its whole limit of output tokens without a word of reply; "
                "raise max_output_tokens."
                if finish == "length"
                else "The reply is empty."
            )
        return Reply(
            text=self._key.struck_from(text),
            usage=streamed.usage,
            model=streamed.model or self.card.model,
            finish_reason=finish,
            reasoning=self._key.struck_from("".join(streamed.reasoning)),
        )

    def _check_request(self, secret: str) -> tuple[str, dict[str, str]]:
        headers = {"Authorization": f"Bearer {secret}", "anthropic-version": API_VERSION}
        return f"{self._base_url}/v1/models/{self.card.model}", headers

    def _seen(self, body: Mapping[str, object]) -> str:
        return f"{self._base_url} answers and has {self.card.model!r}"


@dataclass
class _Streamed:
    """A reply as far as it has arrived."""

    card: WorkerCard
    text: list[str] = field(default_factory=list[str])
    reasoning: list[str] = field(default_factory=list[str])
    stop_reason: str = ""
    why_stopped: str = ""
    model: str = ""
    started: bool = False
    fresh: int = 0
    read: int = 0
    written: int = 0
    made: int = 0
    thought: int = 0

    def add(self, event: "RawMessageStreamEvent") -> None:
        match event.type:
            case "message_start":
                self.started = True
                self.model = event.message.model
                self._count(event.message.usage)
            case "content_block_start":
                if event.content_block.type == "text":
                    self.text.append(event.content_block.text)
            case "content_block_delta":
                if event.delta.type == "text_delta":
                    self.text.append(event.delta.text)
                elif event.delta.type == "thinking_delta":
                    self.reasoning.append(event.delta.thinking)
            case "message_delta":
                self.stop_reason = event.delta.stop_reason or ""
                details = event.delta.stop_details
                self.why_stopped = (details and (details.explanation or details.category)) or ""
                self._count(event.usage)
            case "content_block_stop" | "message_stop":
                pass

    def _count(self, said: "WireUsage | MessageDeltaUsage") -> None:
        """Counts are of the whole message so far; the later ones name only what is new."""
        self.fresh = said.input_tokens or self.fresh
        self.read = said.cache_read_input_tokens or self.read
        self.written = said.cache_creation_input_tokens or self.written
        self.made = said.output_tokens or self.made
        if said.output_tokens_details:
            self.thought = said.output_tokens_details.thinking_tokens

    @property
    def usage(self) -> Usage:
        if not self.started:
            return Usage(cost_usd=None)
        usage = Usage(
            input_tokens=self.fresh + self.read + self.written,
            cached_tokens=self.read,
            output_tokens=self.made,
            reasoning_tokens=min(self.thought, self.made),
        )
        return self.card.priced(usage, written_tokens=self.written)


def _wire_form(message: Message) -> "MessageParam":
    if message.role == "assistant":
        return {"role": "assistant", "content": message.text}
    return {"role": "user", "content": message.text}


def _closed(schema: dict[str, JsonValue]) -> JsonValue:
    """*schema* as Anthropic takes it; what it cannot express becomes part of a description."""
    from anthropic import transform_schema

    try:
        return transform_schema(schema)
    except ValueError as error:
        raise UnsupportedParameterError(
            f"The reply's schema cannot be expressed for Anthropic: {error}"
        ) from error


def meaning(error: "AnthropicError", key: ApiKey, sent: Collection[str]) -> WorkerError | None:
    """The error of this package for one of the library; None for one that it had not before."""
    import anthropic
    from anthropic.lib.credentials import WorkloadIdentityError

    from podium_workers.transport import meaning_of_broken

    match error:
        case anthropic.APIConnectionError():
            return meaning_of_broken(error, key)
        case anthropic.APIResponseValidationError() | anthropic.APIWebhookValidationError():
            return MalformedReplyError("The endpoint answered with something that is no reply.")
        case anthropic.APIStatusError():
            return failure(_said(error), key, sent=sent)
        case anthropic.CredentialsError() | WorkloadIdentityError():
            return AuthenticationError(key.scrub(str(error)))
        case anthropic.RetryableError():
            return OverloadedError("The provider cannot serve now.")
        case anthropic.APIError():
            return failure(Said(words_in(error.body, error.message)), key, sent=sent)
        case _ if type(error) is anthropic.AnthropicError:
            return MalformedReplyError(f"The client library gave up: {key.scrub(str(error))}")
        case _:
            return None


def _said(error: "APIStatusError") -> Said:
    # An error inside a stream comes with the status of a reply that began well.
    in_stream = error.status_code < 400
    return Said(
        words_in(error.body, error.message),
        status=None if in_stream else error.status_code,
        code=error.type or "",
        retry_after_s=retry_after_s(error.response.headers),
    )
