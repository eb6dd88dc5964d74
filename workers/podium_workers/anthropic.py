"""Workers behind Anthropic's Messages interface.

Thinking is kept as the reply's reasoning and never becomes its text, also when there is no other:
what arrives is a summary by another model, or nothing. Its signature is not kept at all, since a
reply goes to other workers (user reports T19 and T21).
"""

import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Literal

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
from podium_workers.hosted.anthropic_stream import Streamed
from podium_workers.hosted.common import HostedWorker, translated
from podium_workers.hosted.learned import Learned
from podium_workers.hosted.silent_cut import check_all_read
from podium_workers.prices import row_of
from podium_workers.wire import (
    ApiKey,
    Patience,
    Said,
    TimeLimits,
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
    WorkerCard,
)

if TYPE_CHECKING:
    from anthropic import AnthropicError, APIStatusError, AsyncAnthropic, AsyncStream
    from anthropic.types import MessageParam, RawMessageStreamEvent, TextBlockParam

API_VERSION = "2023-06-01"
CACHE_FROM = 4_096
"""Tokens of a beginning that are marked for the cache where the model's own minimum is not known:
the largest minimum of any model. A mark on less would have no effect and cost nothing."""
_BYTES_PER_TOKEN = 4
LEAST_THINKING = 1_024
"""Tokens: the smallest number for thinking that the interface takes."""
Thinking = Literal["off", "adaptive"] | int
Effort = Literal["low", "medium", "high", "xhigh", "max"]
_OFF = {"claude-sonnet-5-5": "between_tools"}
"""What switches thinking off where it is not "disabled" (migration guides, October 2026)."""

_FINISHED: dict[str, FinishReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
}


class AnthropicWorker(HostedWorker["AsyncAnthropic"]):
    """A Claude model at Anthropic, or at an address that speaks the same."""

    check_names_model = True

    def __init__(
        self,
        card: WorkerCard,
        *,
        key: ApiKey,
        base_url: str,
        limits: TimeLimits | None = None,
        temperature: float | None = None,
        thinking: Thinking | None = None,
        effort: Effort | None = None,
        learned: Learned | None = None,
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
        self._thinking: Thinking | None = thinking
        known = row_of(card.model, base_url=base_url)
        self._cache_from = (known and known.cache_from) or CACHE_FROM

    def _open(self, secret: str) -> "AsyncAnthropic":
        from anthropic import AsyncAnthropic, DefaultAsyncHttpxClient

        from podium_workers.hosted.transport import TIMEOUT

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
        limit = self._reply_limit(settings)
        thinking = self._thinking_form(limit)
        thinks = thinking is not None and thinking["type"] in {"adaptive", "enabled"}
        wanted: dict[str, JsonValue] = {
            # A model that is told to think takes no temperature but its own.
            "temperature": None if thinks else self._temperature(settings),
            "thinking": thinking,
            "output_config": self._output_form(settings) or None,
        }
        taken = {
            name: value
            for name, value in wanted.items()
            if value is not None and name not in self._refused
        }
        return {"max_tokens": limit, **taken}

    def _thinking_form(self, limit: int) -> dict[str, JsonValue] | None:
        form: dict[str, JsonValue]
        match self._thinking:
            case None:
                return None
            case "off":
                form = {"type": _OFF.get(self.card.model, "disabled")}
            case "adaptive":
                form = {"type": "adaptive", "display": "summarized"}
            case int() as most:
                # A quarter of the limit stays for the reply itself.
                budget = min(most, limit * 3 // 4)
                enough = budget >= LEAST_THINKING
                form = (
                    {"type": "enabled", "budget_tokens": budget} if enough else {"type": "disabled"}
                )
        return None if f"thinking.{form['type']}" in self._refused else form

    def _output_form(self, settings: ModelSettings) -> dict[str, JsonValue]:
        form: dict[str, JsonValue] = {}
        effort = self._reasoning_effort
        if effort and f"effort.{effort}" not in self._refused:
            form["effort"] = effort
        # Not made where it would not be sent: the schema may be one that cannot be expressed.
        if settings.response_schema is not None and "output_config" not in self._refused:
            form["format"] = {"type": "json_schema", "schema": _closed(settings.response_schema)}
        return form

    async def _ask(
        self,
        client: "AsyncAnthropic",
        messages: tuple[Message, ...],
        parameters: dict[str, JsonValue],
        call: Call,
    ) -> Reply:
        marked = 0 if "cache_control" in self._refused else self.to_cache(messages)
        try:
            return await self._attempt(client, messages, parameters, call, marked)
        except UnsupportedParameterError as error:
            if marked and error.parameter == "cache_control":
                self._refused.add("cache_control")
                return await self._attempt(client, messages, parameters, call, 0)
            raise self._narrowed(error, parameters) from None

    def _narrowed(
        self, error: UnsupportedParameterError, sent: Mapping[str, JsonValue]
    ) -> UnsupportedParameterError:
        """*error* with only the refused value as its parameter, so that no more is left out."""
        match error.parameter, sent.get("thinking"):
            case "thinking", {"type": str(form)}:
                parameter = f"thinking.{form}"
            case "output_config", _ if self._reasoning_effort and "effort" in error.message:
                parameter = f"effort.{self._reasoning_effort}"
            case _:
                return error
        return UnsupportedParameterError(error.message, status=error.status, parameter=parameter)

    def to_cache(self, messages: tuple[Message, ...]) -> int:
        """How many characters of the last message end what the provider is to cache; often 0."""
        *before, last = messages
        text = last.text[: last.shared_prefix]
        size = sum(len(message.text.encode()) for message in before) + len(text.encode())
        long_enough = size >= self._cache_from * _BYTES_PER_TOKEN
        return len(text) if long_enough and text.strip() else 0

    async def _attempt(
        self,
        client: "AsyncAnthropic",
        messages: tuple[Message, ...],
        parameters: dict[str, JsonValue],
        call: Call,
        marked: int,
    ) -> Reply:
        from anthropic import AnthropicError, omit

        patience = Patience(self._limits, call.deadline)
        streamed = Streamed(self.card)
        system = "\n\n".join(message.text for message in messages if message.role == "system")
        *turns, last = (message for message in messages if message.role != "system")
        record: dict[str, JsonValue] = {"model": self.card.model, "stream": True, **parameters}
        record |= {"cached_characters": marked} if marked else {}
        sent = (*parameters, "cache_control") if marked else parameters
        async with call.attempt(record) as attempt:
            with translated(AnthropicError, meaning, self._key, sent=sent), patience.hold():
                stream = await client.messages.create(
                    model=self.card.model,
                    messages=[*(_wire_form(turn) for turn in turns), _wire_form(last, marked)],
                    system=system or omit,
                    max_tokens=self.card.max_output_tokens,  # `parameters` has the real limit
                    stream=True,
                    extra_body=parameters,
                )
                async with stream:
                    await self._read(stream, streamed, attempt, patience)
            read = streamed.usage.input_tokens
            note = check_all_read(messages, read, self._quirks.endpoint)
            reply = self._finished(streamed, note)
            await attempt.settle(reply)
            return reply

    async def _read(
        self,
        stream: "AsyncStream[RawMessageStreamEvent]",
        streamed: Streamed,
        attempt: Attempt,
        patience: Patience,
    ) -> None:
        from podium_workers.hosted.transport import listen

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

    def _finished(self, streamed: Streamed, note: str) -> Reply:
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
                else "The reply is empty.",
                used_up=finish == "length",
            )
        return Reply(
            text=self._key.struck_from(text),
            usage=streamed.usage,
            model=streamed.model or self.card.model,
            finish_reason=finish,
            reasoning=self._key.struck_from("".join(streamed.reasoning)),
            note=note,
        )

    def _check_request(self, secret: str) -> tuple[str, dict[str, str]]:
        headers = {"Authorization": f"Bearer {secret}", "anthropic-version": API_VERSION}
        return f"{self._base_url}/v1/models/{self.card.model}", headers

    def _seen(self, body: Mapping[str, object]) -> str:
        return f"{self._base_url} answers and has {self.card.model!r}"


def _wire_form(message: Message, marked: int = 0) -> "MessageParam":
    """*message* on the wire; its first *marked* characters end what is to be cached."""
    if message.role == "assistant":
        return {"role": "assistant", "content": message.text}
    if not marked:
        return {"role": "user", "content": message.text}
    if not message.text[marked:].strip():  # a block of nothing but white space is refused
        marked = len(message.text)
    blocks: list[TextBlockParam] = [
        {
            "type": "text",
            "text": message.text[:marked],
            "cache_control": {"type": "ephemeral"},
        }
    ]
    if rest := message.text[marked:]:
        blocks.append({"type": "text", "text": rest})
    return {"role": "user", "content": blocks}


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

    from podium_workers.hosted.transport import meaning_of_broken

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


# The part of the request that an error speaks of stands first in its words.
_PART = re.compile(r"""["'`]?([a-z_]+(?:\.\w+)*)["'`]?[:\s]""")


def _said(error: "APIStatusError") -> Said:
    # An error inside a stream comes with the status of a reply that began well.
    in_stream = error.status_code < 400
    code = error.type or ""
    words = words_in(error.body, error.message)
    part = _PART.match(words)
    return Said(
        words,
        status=None if in_stream else error.status_code,
        # A limit on spending comes as a limit on the rate, and only this code tells it.
        code=code if in_stream else f"{error.error_code or ''} {code}".strip(),
        parameter=part[1] if part else None,
        retry_after_s=retry_after_s(error.response.headers),
    )
