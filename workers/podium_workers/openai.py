"""Workers behind OpenAI's Chat Completions, at OpenAI or any address that speaks the same."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import anyio
from pydantic import JsonValue

from podium_workers.errors import (
    EmptyReplyError,
    MalformedReplyError,
    OverloadedError,
    RefusedError,
    UnknownModelError,
    UnsupportedParameterError,
)
from podium_workers.hosted.common import translated, uncounted
from podium_workers.hosted.finish import meaning_of_finish
from podium_workers.hosted.openai_client import (
    Counts,
    OpenAIClientWorker,
    meaning,
    said_in,
    unstreamed,
)
from podium_workers.hosted.reasoning import reply_within, split_thinking
from podium_workers.hosted.schemas import strict_schema
from podium_workers.hosted.silent_cut import check_all_read
from podium_workers.wire import Patience, Said, add_text, entries, failure, is_openai
from podium_workers.worker import Attempt, Call, Message, ModelSettings, Reply, Usage

if TYPE_CHECKING:
    from openai import AsyncOpenAI, AsyncStream
    from openai.types import CompletionUsage
    from openai.types.chat import ChatCompletionChunk, ChatCompletionMessageParam
    from openai.types.chat.chat_completion_chunk import Choice


class OpenAIWorker(OpenAIClientWorker):
    """A model at an OpenAI-compatible address."""

    effort_name = "reasoning_effort"

    def parameters(self, settings: ModelSettings) -> dict[str, JsonValue]:
        wanted: dict[str, JsonValue] = {
            self._limit_name(): self._reply_limit(settings),
            "stream_options": {"include_usage": True},
            "temperature": self._temperature(settings),
            "seed": settings.seed,
            self.effort_name: self._effort,
        }
        if settings.response_schema is not None:
            at_openai = is_openai(self._base_url)
            schema = settings.response_schema
            wanted["response_format"] = {
                "type": "json_schema",
                "json_schema": {
                    "name": "reply",
                    "strict": True,
                    "schema": strict_schema(schema) if at_openai else schema,
                },
            }
        left_out = (self._refused | self._quirks.endpoint.omits) - _LIMIT_NAMES
        return {
            name: value
            for name, value in wanted.items()
            if value is not None and name not in left_out
        }

    def _limit_name(self) -> str:
        """As the model's family has it; else OpenAI takes the newer name, most others the other."""
        usual = "max_completion_tokens" if is_openai(self._base_url) else "max_tokens"
        first = self._quirks.family.limit or self._quirks.endpoint.limit or usual
        (second,) = _LIMIT_NAMES - {first}
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
            try:
                with translated(OpenAIError, meaning, self._key, sent=parameters), patience.hold():
                    stream = await client.chat.completions.create(
                        model=self.card.model,
                        messages=[_wire_form(message) for message in messages],
                        stream=True,
                        extra_body=parameters,
                    )
                    async with stream:
                        await self._read(stream, streamed, attempt, patience)
            except (UnknownModelError, UnsupportedParameterError) as error:
                raise self._narrowed(_with_remedy(error)) from None
            reply = self._finished(streamed, messages, parameters)
            await attempt.settle(reply)
            return reply

    async def _read(
        self,
        stream: "AsyncStream[ChatCompletionChunk]",
        streamed: "_Streamed",
        attempt: Attempt,
        patience: Patience,
    ) -> None:
        from podium_workers.hosted.transport import listen

        listen(stream.response, patience.hear)
        request_id = stream.response.headers.get("x-request-id", "")
        if request_id:
            await attempt.sent(request_id)
        kind = stream.response.headers.get("content-type", "text/event-stream")
        if "json" in kind:
            raise await unstreamed(stream.response, self._key)
        try:
            async for chunk in stream:
                if not request_id and chunk.id:
                    request_id = chunk.id
                    await attempt.sent(request_id)
                streamed.add(chunk)
                if streamed.text or streamed.reasoning:
                    patience.begin()
        finally:
            # Also without a count: what was generated before a stream broke off is billed.
            with anyio.move_on_after(1, shield=True):
                await attempt.usage(self._usage(streamed.usage))

    def _usage(self, said: "CompletionUsage | None") -> Usage:
        """The endpoint's count in our terms; zero tokens at an unknown price without one."""
        if said is None:
            return uncounted(self.card)
        inside, details = said.prompt_tokens_details, said.completion_tokens_details
        usage = Counts(
            given=said.prompt_tokens or 0,
            made=said.completion_tokens or 0,
            total=said.total_tokens or 0,
            cached=(inside and inside.cached_tokens) or 0,
            written=(inside and inside.cache_write_tokens) or 0,
            reasoned=(details and details.reasoning_tokens) or 0,
        ).usage(self.card)
        if usage.cost_usd is None and self._quirks.endpoint.states_cost:
            return usage.model_copy(update={"cost_usd": _stated_cost(said.model_extra or {})})
        return usage

    def _finished(
        self,
        streamed: "_Streamed",
        messages: tuple[Message, ...],
        parameters: Mapping[str, JsonValue],
    ) -> Reply:
        usage = self._usage(streamed.usage)
        note = check_all_read(messages, usage.input_tokens, self._quirks.endpoint)
        self._check_end(streamed)
        thinking, text = split_thinking("".join(streamed.text))
        reasoning = "\n\n".join(filter(None, ("".join(streamed.reasoning), thinking)))
        length = meaning_of_finish(streamed.finish) == "length"
        if not text.strip() and reasoning and not length:
            text = reply_within(reasoning, wants_json=self._wants_json(parameters)) or ""
            note = note or (_IN_REASONING if text else "")
        if not text.strip():
            raise EmptyReplyError(_why_empty(streamed, reasoning, length), used_up=length)
        return Reply(
            text=self._key.struck_from(text),
            usage=usage,
            model=streamed.model or self.card.model,
            finish_reason="length" if length else "stop",
            reasoning=self._key.struck_from(reasoning),
            note=note,
        )

    def _wants_json(self, parameters: Mapping[str, JsonValue]) -> bool:
        """Whether a request with these asks for JSON."""
        return "response_format" in parameters

    def _check_end(self, streamed: "_Streamed") -> None:
        """Raise unless the reply ended as a usable one does, with a stop or at its limit."""
        if streamed.error is not None:
            raise failure(streamed.error, self._key)
        refusal = " ".join(self._key.scrub("".join(streamed.refusal)).split())
        if refusal:
            raise RefusedError(f"The model declined: {refusal}")
        shown = f"finish reason {streamed.shown_finish}"
        match meaning_of_finish(streamed.finish):
            case "filtered":
                raise RefusedError(f"The provider held the reply back ({shown}).")
            case "broken":
                raise OverloadedError(f"The provider broke the reply off ({shown}).")
            case "tool":
                raise MalformedReplyError("The model called a tool, but none was offered.")
            case _ if streamed.calls_tool:
                raise MalformedReplyError("The model called a tool, but none was offered.")
            case "unknown" if not streamed.finish:
                raise MalformedReplyError(
                    "The reply broke off: its stream ended without an end mark."
                )
            case "unknown":
                raise MalformedReplyError(f"The reply ended for an unknown reason: {shown}.")
            case "stop" | "length":
                return


_LIMIT_NAMES = frozenset({"max_tokens", "max_completion_tokens"})
"""Never left out, only swapped: without a limit a reply may cost anything."""
_IN_REASONING = "The reply stood in the reasoning channel of the endpoint."


@dataclass
class _Streamed:
    """A reply as far as it has arrived."""

    text: list[str] = field(default_factory=list[str])
    reasoning: list[str] = field(default_factory=list[str])
    refusal: list[str] = field(default_factory=list[str])
    finish: str = ""
    native_finish: str = ""
    """The reason in the words of the model's own provider, where a reseller passes it on."""
    model: str = ""
    calls_tool: bool = False
    usage: "CompletionUsage | None" = None
    error: Said | None = None

    def add(self, chunk: "ChatCompletionChunk") -> None:
        if str(chunk.object) == "error":  # of vLLM, without an `error` around it
            self.error = said_in(chunk.model_extra) or self.error
        self.model = chunk.model or self.model
        self.usage = chunk.usage or self.usage
        for choice in chunk.choices or ():
            self._add_choice(choice)

    def _add_choice(self, choice: "Choice") -> None:
        extra = choice.model_extra or {}
        self.finish = choice.finish_reason or self.finish
        self.native_finish = str(extra.get("native_finish_reason") or self.native_finish)
        self.error = said_in(extra.get("error")) or self.error
        delta = choice.delta
        if not delta:  # of Azure's, which tells what its filter found in a choice of its own
            return
        self.calls_tool = self.calls_tool or bool(delta.tool_calls)
        add_text(self.text, delta.content)
        add_text(self.refusal, delta.refusal)
        more = delta.model_extra or {}
        add_text(self.reasoning, more.get("reasoning_content") or more.get("reasoning"))

    @property
    def shown_finish(self) -> str:
        native = self.native_finish
        differs = native and native.lower() != self.finish.lower()
        return (
            f"{self.finish!r}, of the model's provider {native!r}" if differs else repr(self.finish)
        )


def _why_empty(streamed: _Streamed, reasoning: str, length: bool) -> str:
    if length:
        return (
            "The model used up its whole limit of output tokens without a word of reply; "
            "raise max_output_tokens."
        )
    shown = f"finish reason {streamed.shown_finish}"
    if reasoning:
        return f"The model reasoned, but gave no reply ({shown})."
    return f"The reply is empty ({shown})."


def _stated_cost(usage: Mapping[str, object]) -> float | None:
    """What OpenRouter says a request cost; with the user's own key, the provider's part too."""
    stated = usage.get("cost")
    if not isinstance(stated, int | float):
        return None
    upstream = entries(usage.get("cost_details")).get("upstream_inference_cost")
    if usage.get("is_byok") is True and isinstance(upstream, int | float):
        return float(stated) + float(upstream)
    return float(stated)


def _wire_form(message: Message) -> "ChatCompletionMessageParam":
    match message.role:
        case "system":
            return {"role": "system", "content": message.text}
        case "user":
            return {"role": "user", "content": message.text}
        case "assistant":
            return {"role": "assistant", "content": message.text}


def _with_remedy(
    error: UnknownModelError | UnsupportedParameterError,
) -> UnknownModelError | UnsupportedParameterError:
    """*error*, with what to type when the model wants the other interface."""
    if "v1/responses" not in error.message:
        return error
    text = f'{error.message.rstrip(".")}. Set api = "responses" for this worker.'
    if isinstance(error, UnknownModelError):
        return UnknownModelError(text, status=error.status)
    return UnsupportedParameterError(text, status=error.status)
