"""Workers behind OpenAI's Chat Completions, at OpenAI or any address that speaks the same."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import anyio
from pydantic import JsonValue

from podium_workers.errors import (
    AuthenticationError,
    EmptyReplyError,
    MalformedReplyError,
    OverloadedError,
    RefusedError,
    UnknownModelError,
    UnreachableError,
    WorkerError,
)
from podium_workers.hosted import HostedWorker, translated
from podium_workers.schemas import strict_schema
from podium_workers.wire import (
    OPENAI_URL,
    ApiKey,
    Patience,
    Said,
    add_text,
    entries,
    failure,
    is_loopback,
    items,
    retry_after_s,
    words_in,
)
from podium_workers.worker import Attempt, Call, Message, ModelSettings, Reply, Usage

if TYPE_CHECKING:
    from httpx2 import Response
    from openai import APIError, AsyncOpenAI, AsyncStream, OpenAIError
    from openai.types import CompletionUsage
    from openai.types.chat import ChatCompletionChunk, ChatCompletionMessageParam

_FILTERS = frozenset(
    {"content_filter", "safety", "recitation", "blocklist", "prohibited_content", "spii",
     "sensitive", "refusal"}
)  # fmt: skip
"""Finish reasons, of OpenAI and of those that speak its language, that mean: held back."""
_BROKEN_OFF = frozenset({"error", "insufficient_system_resource", "abort"})
"""Finish reasons that mean: the provider failed in the middle."""


class OpenAIWorker(HostedWorker["AsyncOpenAI"]):
    """A model at an OpenAI-compatible address."""

    def _open(self, secret: str) -> "AsyncOpenAI":
        from openai import AsyncOpenAI, DefaultAsyncHttpxClient

        from podium_workers.transport import TIMEOUT

        trust_env = not is_loopback(self._base_url)
        return AsyncOpenAI(
            api_key=secret,
            base_url=self._base_url,
            max_retries=0,  # `retry` is the one place that retries, and each attempt is recorded
            timeout=TIMEOUT,
            http_client=DefaultAsyncHttpxClient(timeout=TIMEOUT, trust_env=trust_env),
        )

    async def _close(self, client: "AsyncOpenAI") -> None:
        await client.close()

    def parameters(self, settings: ModelSettings) -> dict[str, JsonValue]:
        wanted: dict[str, JsonValue] = {
            self._limit_name(): self._reply_limit(settings),
            "stream_options": {"include_usage": True},
            "temperature": self._temperature(settings),
            "seed": settings.seed,
        }
        if settings.response_schema is not None:
            at_openai = _is_openai(self._base_url)
            schema = settings.response_schema
            wanted["response_format"] = {
                "type": "json_schema",
                "json_schema": {
                    "name": "reply",
                    "strict": True,
                    "schema": strict_schema(schema) if at_openai else schema,
                },
            }
        return {
            name: value
            for name, value in wanted.items()
            if value is not None and name not in self._refused - _LIMIT_NAMES
        }

    def _limit_name(self) -> str:
        """OpenAI's newer models take one name of the limit, most others the other one."""
        at_openai = _is_openai(self._base_url)
        first, second = ("max_completion_tokens", "max_tokens")[:: 1 if at_openai else -1]
        return second if first in self._refused else first

    async def _ask(
        self,
        client: "AsyncOpenAI",
        messages: tuple[Message, ...],
        parameters: dict[str, JsonValue],
        call: Call,
    ) -> Reply:
        from openai import OpenAIError

        patience = Patience(self._limits, call.deadline)
        streamed = _Streamed()
        record: dict[str, JsonValue] = {"model": self.card.model, "stream": True, **parameters}
        async with call.attempt(record) as attempt:
            with translated(OpenAIError, meaning, self._key, sent=parameters), patience.hold():
                stream = await client.chat.completions.create(
                    model=self.card.model,
                    messages=[_wire_form(message) for message in messages],
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
        stream: "AsyncStream[ChatCompletionChunk]",
        streamed: "_Streamed",
        attempt: Attempt,
        patience: Patience,
    ) -> None:
        from podium_workers.transport import listen

        listen(stream.response, patience.hear)
        request_id = stream.response.headers.get("x-request-id", "")
        if request_id:
            await attempt.sent(request_id)
        kind = stream.response.headers.get("content-type", "text/event-stream")
        if "json" in kind:
            raise await _unstreamed(stream, self._key)
        try:
            async for chunk in stream:
                if not request_id and chunk.id:
                    request_id = chunk.id
                    await attempt.sent(request_id)
                streamed.add(chunk)
                if streamed.text or streamed.reasoning:
                    patience.begin()
        finally:
            if streamed.usage is not None:
                with anyio.move_on_after(1, shield=True):
                    await attempt.usage(self._usage(streamed.usage))

    def _usage(self, said: "CompletionUsage | None") -> Usage:
        """The endpoint's count in our terms; zero tokens at an unknown price without one."""
        if said is None:
            return Usage(cost_usd=None)
        given = said.prompt_tokens or 0
        inside = said.prompt_tokens_details
        cached = min((inside and inside.cached_tokens) or 0, given)
        written = min((inside and inside.cache_write_tokens) or 0, given - cached)
        # Some endpoints count reasoning only in the total; each token is to be counted once.
        made = max(said.completion_tokens or 0, (said.total_tokens or 0) - given)
        details = said.completion_tokens_details
        reasoned = (details and details.reasoning_tokens) or made - (said.completion_tokens or 0)
        usage = Usage(
            input_tokens=given,
            cached_tokens=cached,
            output_tokens=made,
            reasoning_tokens=min(reasoned, made),
        )
        usage = self.card.priced(usage, written_tokens=written)
        stated = (said.model_extra or {}).get("cost")
        if usage.cost_usd is None and _host(self._base_url) == "openrouter.ai":
            # OpenRouter states what a request cost, in US dollars.
            cost = float(stated) if isinstance(stated, int | float) else None
            return usage.model_copy(update={"cost_usd": cost})
        return usage

    def _finished(self, streamed: "_Streamed") -> Reply:
        text, refusal, finish = (
            "".join(streamed.text),
            "".join(streamed.refusal),
            streamed.finish.lower(),
        )
        if refusal:
            raise RefusedError(f"The model declined: {' '.join(self._key.scrub(refusal).split())}")
        if finish.split(":")[0] in _FILTERS:
            raise RefusedError(f"The provider held the reply back (finish reason {finish!r}).")
        if finish in _BROKEN_OFF:
            raise OverloadedError(f"The provider broke the reply off (finish reason {finish!r}).")
        if finish in {"tool_calls", "function_call"} or streamed.calls_tool:
            raise MalformedReplyError("The model called a tool, but none was offered.")
        if not finish:
            raise MalformedReplyError("The reply broke off: its stream ended without an end mark.")
        if finish not in {"stop", "length"}:
            raise MalformedReplyError(f"The reply ended for an unknown reason: {finish!r}.")
        if not text.strip():
            raise EmptyReplyError(_why_empty(streamed, finish))
        return Reply(
            text=self._key.struck_from(text),
            usage=self._usage(streamed.usage),
            model=streamed.model or self.card.model,
            finish_reason="stop" if finish == "stop" else "length",
            reasoning=self._key.struck_from("".join(streamed.reasoning)),
        )

    def _check_request(self, secret: str) -> tuple[str, dict[str, str]]:
        keyed = self._key.secret is not None
        headers = {"Authorization": f"Bearer {secret}"} if keyed else {}
        return f"{self._base_url}/models", headers

    def _seen(self, body: Mapping[str, object]) -> str:
        names = [entries(item).get("id") for item in items(body.get("data"))]
        model = self.card.model
        if names and not any(str(name).removeprefix("models/") == model for name in names):
            raise UnknownModelError(
                f"{self._base_url} answers, but does not list {model!r} among its models."
            )
        return f"{self._base_url} answers" + (f" and has {model!r}" if names else "")


_LIMIT_NAMES = frozenset({"max_tokens", "max_completion_tokens"})
"""Never left out, only swapped: without a limit a reply may cost anything."""


@dataclass
class _Streamed:
    """A reply as far as it has arrived."""

    text: list[str] = field(default_factory=list[str])
    reasoning: list[str] = field(default_factory=list[str])
    refusal: list[str] = field(default_factory=list[str])
    finish: str = ""
    model: str = ""
    calls_tool: bool = False
    usage: "CompletionUsage | None" = None

    def add(self, chunk: "ChatCompletionChunk") -> None:
        self.model = chunk.model or self.model
        self.usage = chunk.usage or self.usage
        for choice in chunk.choices or ():
            self.finish = choice.finish_reason or self.finish
            delta = choice.delta
            self.calls_tool = self.calls_tool or bool(delta.tool_calls)
            extra = delta.model_extra or {}
            add_text(self.text, delta.content)
            add_text(self.refusal, delta.refusal)
            add_text(self.reasoning, extra.get("reasoning_content") or extra.get("reasoning"))


def _why_empty(streamed: _Streamed, finish: str) -> str:
    if finish == "length":
        return (
            "The model used up its whole limit of output tokens without a word of reply; "
            "raise max_output_tokens."
        )
    if streamed.reasoning:
        return "The model reasoned, but gave no reply."
    return "The reply is empty."


def _host(url: str) -> str:
    return urlsplit(url).hostname or ""


def _is_openai(url: str) -> bool:
    """Whether *url* is OpenAI's own, regional ones included."""
    own = urlsplit(OPENAI_URL).hostname or ""
    return _host(url) == own or _host(url).endswith(f".{own}")


def _wire_form(message: Message) -> "ChatCompletionMessageParam":
    match message.role:
        case "system":
            return {"role": "system", "content": message.text}
        case "user":
            return {"role": "user", "content": message.text}
        case "assistant":
            return {"role": "assistant", "content": message.text}


async def _unstreamed(stream: "AsyncStream[ChatCompletionChunk]", key: ApiKey) -> WorkerError:
    """What a whole document means where a stream was asked for: mostly, an error in a 200."""
    await stream.response.aread()
    try:
        document: object = stream.response.json()
    except ValueError:
        document = None
    error = entries(entries(document).get("error"))
    if not error:
        return MalformedReplyError("The endpoint sent a document where a stream was asked for.")
    code = error.get("code") or error.get("type") or ""
    return failure(Said(words_in(error, "no words"), code=str(code)), key)


def meaning(error: "OpenAIError", key: ApiKey, sent: Collection[str]) -> WorkerError | None:
    """The error of this package for one of the library; None for one that it had not before."""
    import openai

    from podium_workers.transport import meaning_of_broken

    match error:
        case openai.APIConnectionError():
            return meaning_of_broken(error, key)
        case openai.APIResponseValidationError() | openai.LengthFinishReasonError():
            return MalformedReplyError("The endpoint answered with something that is no reply.")
        case openai.ContentFilterFinishReasonError():
            return RefusedError("The provider held the reply back.")
        case openai.APIStatusError():
            return failure(_said(error, error.response), key, sent=sent)
        case openai.APIError():
            return failure(_said(error, None), key, sent=sent)
        case _ if type(error).__name__ == "SubjectTokenProviderError":  # not exported
            return AuthenticationError(key.scrub(str(error)))
        case openai.WebSocketConnectionClosedError() | openai.WebSocketQueueFullError():
            return UnreachableError("The connection was closed.")
        case _ if type(error) is openai.OpenAIError:
            return MalformedReplyError(f"The client library gave up: {key.scrub(str(error))}")
        case _:
            return None


def _said(error: "APIError", response: "Response | None") -> Said:
    return Said(
        words_in(error.body, error.message),
        status=response.status_code if response is not None else None,
        code=error.code or error.type or "",
        parameter=error.param,
        retry_after_s=retry_after_s(response.headers) if response is not None else None,
    )
