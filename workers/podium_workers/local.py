"""Workers that run on this machine: llama.cpp models, served by the shared engine.

Weights that are missing are pulled when a worker is first asked. Loading, unloading and the
processes behind them are the engine's matter.
"""

import importlib.util
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread
from pydantic import JsonValue

from podium_workers.engine.client import Engine
from podium_workers.engine.state import ModelSpec
from podium_workers.errors import (
    ContextTooLongError,
    EmptyReplyError,
    MalformedReplyError,
    ModelFileError,
    UnreachableError,
    UnsupportedParameterError,
    WorkerError,
)
from podium_workers.hosted.schemas import spaced
from podium_workers.weights.local_file import LocalFile
from podium_workers.weights.pulling import Notify, find, is_present, megabytes
from podium_workers.weights.sources import Source
from podium_workers.wire import (
    ApiKey,
    Patience,
    Said,
    TimeLimits,
    add_text,
    entries,
    failure,
    items,
    messages_of,
    words_in,
)
from podium_workers.worker import (
    Attempt,
    Call,
    ModelSettings,
    Prompt,
    Reply,
    Usage,
    WorkerCard,
)

if TYPE_CHECKING:
    from httpx2 import Response

_NO_KEY = ApiKey()
_LIMITS = TimeLimits(first_byte_s=900, idle_s=180)
"""Generous: the first word waits for a model to load and for the calls before this one, and on a
busy machine a large model reads a hundred tokens a minute."""
_OWN_ERRORS: dict[str, type[WorkerError]] = {
    error.code: error for error in (ModelFileError, UnreachableError)
}


@dataclass(frozen=True)
class LocalWorker:
    """A GGUF model on this machine."""

    card: WorkerCard
    gguf: str
    """A name of the catalogue, or the path of a file."""
    engine: Engine
    models_dir: Path
    threads: int = 1
    temperature: float = 0.0
    """Used where a call asks for none. Greedy by default: small models lose arithmetic when they
    sample."""
    notify: Notify = lambda text: None
    """Told, in one sentence each, what a pull of missing weights does."""
    sources: Sequence[Source] | None = None
    """Where missing weights come from; None for the usual places."""
    limits: TimeLimits = _LIMITS

    async def reply(self, prompt: Prompt, settings: ModelSettings, call: Call) -> Reply:
        """Answer *prompt*.

        Raises:
            WorkerError: no usable reply; the class says at which boundary.
        """
        if settings.response_schema is not None:
            _check_schema(settings.response_schema)
        path = await self._file.path()
        spec = ModelSpec(
            path=path,
            context=self.card.context_window,
            slots=self.card.parallel,
            threads=self.threads,
        )
        parameters = self._parameters(settings)
        request: dict[str, JsonValue] = {
            "model": self.card.model,
            **parameters,
            "messages": [
                {"role": message.role, "content": message.text}
                for message in messages_of(prompt, self.card)
            ],
        }
        async with call.attempt({"model": self.card.model, **parameters}) as attempt:
            reply = await self._ask(spec, request, attempt, call.deadline)
            if settings.response_schema is not None and reply.finish_reason == "stop":
                _check_reply(reply.text, settings.response_schema)
            await attempt.settle(reply)
            return reply

    async def check(self) -> str:
        """Whether the engine is installed and the weights are here; starts and loads nothing.

        Raises:
            ModelFileError: something is missing that a call could not get by itself.
        """
        if importlib.util.find_spec("xllamacpp") is None:
            raise ModelFileError(
                "The engine of local models (xllamacpp) is not installed: "
                "`podium doctor` says what to type."
            )
        weights = self._file.weights
        if weights and not is_present(weights, self.models_dir):
            return f"its weights ({megabytes(weights.size)}) are pulled when it is first asked"
        path = await to_thread.run_sync(find, self.gguf, self.models_dir)
        return f"its weights are here: {path}"

    def _parameters(self, settings: ModelSettings) -> dict[str, JsonValue]:
        asked = settings.max_output_tokens or self.card.max_output_tokens
        wanted: dict[str, JsonValue] = {
            "max_tokens": min(asked, self.card.max_output_tokens),
            "temperature": (
                self.temperature if settings.temperature is None else settings.temperature
            ),
            "seed": settings.seed,
            "stream": True,
            "stream_options": {"include_usage": True},
            # Bytes flow while the prompt is read: otherwise llama.cpp would not notice before the
            # prompt's end, a minute for a long one, that its caller has gone.
            "return_progress": True,
            "timings_per_token": True,
            "cache_prompt": True,
        }
        if settings.grammar is not None:
            wanted["grammar"] = settings.grammar
        elif settings.response_schema is not None:
            wanted["grammar"] = held_to(settings.response_schema)
        return {name: value for name, value in wanted.items() if value is not None}

    async def _ask(
        self,
        spec: ModelSpec,
        request: Mapping[str, JsonValue],
        attempt: Attempt,
        deadline: float,
    ) -> Reply:
        from podium_workers.hosted.transport import BROKEN, meaning_of_broken

        patience = Patience(self.limits, deadline)
        streamed = _Streamed()
        try:
            with patience.hold():
                async with self.engine.chat(spec, request) as response:
                    await _read(response, streamed, attempt, patience)
        except BROKEN as error:
            raise meaning_of_broken(error, _NO_KEY) from error
        finally:
            if streamed.usage.input_tokens:
                with anyio.move_on_after(1, shield=True):
                    await attempt.usage(self.card.priced(streamed.usage))
        return self._finished(streamed)

    def _finished(self, streamed: "_Streamed") -> Reply:
        text = "".join(streamed.text)
        if not streamed.finish:
            raise MalformedReplyError("The reply broke off: its stream ended without an end mark.")
        if not text.strip():
            raise EmptyReplyError(_why_empty(streamed), used_up=streamed.finish == "length")
        return Reply(
            text=text,
            usage=self.card.priced(streamed.usage),
            model=self.card.model,
            finish_reason="length" if streamed.finish == "length" else "stop",
            reasoning="".join(streamed.reasoning),
        )

    @property
    def _file(self) -> LocalFile:
        return LocalFile(self.gguf, self.models_dir, self.notify, self.sources)


def held_to(schema: Mapping[str, JsonValue]) -> str:
    """A grammar for llama.cpp that holds a reply to *schema* and fixes the spaces in it.

    `response_format` would leave the spaces free.
    """
    return "%llguidance {}\nstart: %json " + json.dumps(spaced(schema))


def _check_schema(schema: Mapping[str, JsonValue]) -> None:
    """Refuse what is no schema: the engine would ignore the grammar made of it without a word."""
    from jsonschema import Draft202012Validator, SchemaError

    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        raise UnsupportedParameterError(
            f"The schema of the reply is no JSON Schema: {error.message}",
            parameter="response_schema",
        ) from error
    _check_references(schema)


def _check_references(schema: Mapping[str, JsonValue]) -> None:
    """Refuse a schema that refers to what is no schema inside it; nothing is fetched."""
    from jsonschema import Draft202012Validator, SchemaError
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012, EMPTY_REGISTRY

    root = DRAFT202012.create_resource(schema)
    left = [(root, EMPTY_REGISTRY.resolver_with_root(root))]
    while left:
        part, resolver = left.pop()
        fields = entries(part.contents)
        for reference in (fields[word] for word in ("$ref", "$dynamicRef") if word in fields):
            try:
                Draft202012Validator.check_schema(resolver.lookup(str(reference)).contents)
            except (Unresolvable, SchemaError, ValueError, TypeError) as error:
                # The last two for a pointer into what is neither an object nor a list.
                raise UnsupportedParameterError(
                    f"The schema of the reply refers to {reference!r}, which is no part of it.",
                    parameter="response_schema",
                ) from error
        left += [(inner, resolver.in_subresource(inner)) for inner in part.subresources()]


def _check_reply(text: str, schema: Mapping[str, JsonValue]) -> None:
    """Make sure that the grammar did hold the reply."""
    from jsonschema import ValidationError, validate

    try:
        validate(json.loads(text), schema)
    except (ValueError, ValidationError) as error:
        raise MalformedReplyError(
            "The reply does not satisfy the schema it was held to."
        ) from error


@dataclass
class _Streamed:
    """A reply as far as it has arrived."""

    id: str = ""
    text: list[str] = field(default_factory=list[str])
    reasoning: list[str] = field(default_factory=list[str])
    finish: str = ""
    usage: Usage = field(default_factory=Usage)

    def add(self, event: Mapping[str, object]) -> None:
        self.id = self.id or str(event.get("id", ""))
        for choice in map(entries, items(event.get("choices"))):
            self.finish = str(choice.get("finish_reason") or self.finish)
            delta = entries(choice.get("delta"))
            add_text(self.text, delta.get("content"))
            add_text(self.reasoning, delta.get("reasoning_content"))
        self.usage = _usage(event) or self.usage


def _why_empty(streamed: _Streamed) -> str:
    if streamed.finish == "length":
        return (
            "The model used up its whole limit of output tokens without a word of reply; "
            "raise max_output_tokens."
        )
    return "The model reasoned, but gave no reply." if streamed.reasoning else "The reply is empty."


async def _read(
    response: "Response", streamed: _Streamed, attempt: Attempt, patience: Patience
) -> None:
    """Read the events of a reply.

    Raises:
        WorkerError: an error came instead of a reply, or in the middle of it.
    """
    if not response.is_success:
        body: object = json.loads(await response.aread())
        raise engine_error(body, response.status_code)
    async for line in response.aiter_lines():
        patience.hear()
        field_name, _, data = line.partition(":")
        if field_name != "data" or data.strip() == "[DONE]":
            continue
        event = entries(json.loads(data))
        if "error" in event:
            raise engine_error(event, None)
        is_first = not streamed.id
        streamed.add(event)
        if is_first and streamed.id:
            await attempt.sent(streamed.id)
        if streamed.text or streamed.reasoning:
            patience.begin()


def engine_error(body: object, status: int | None) -> WorkerError:
    """The error that the engine, or llama.cpp's server behind it, answered with."""
    said = entries(entries(body).get("error"))
    kind, words = str(said.get("type", "")), words_in(body, "no words")
    if kind in _OWN_ERRORS:
        return _OWN_ERRORS[kind](words, status=status)
    if kind == "exceed_context_size_error":
        return ContextTooLongError(
            f"The prompt takes {said.get('n_prompt_tokens')} tokens and the model's window has "
            f"{said.get('n_ctx')}: shorten it, or raise context_window in the pool.",
            status=status,
        )
    return failure(Said(words, status=status, code=kind), _NO_KEY)


def _usage(event: Mapping[str, object]) -> Usage | None:
    """The tokens that *event* reports: at the end, for each token, or while the prompt is read."""
    if final := entries(event.get("usage")):
        details = entries(final.get("prompt_tokens_details"))
        return Usage(
            input_tokens=_count(final, "prompt_tokens"),
            cached_tokens=_count(details, "cached_tokens"),
            output_tokens=_count(final, "completion_tokens"),
        )
    if so_far := entries(event.get("timings")):
        cached = _count(so_far, "cache_n")
        return Usage(
            input_tokens=cached + _count(so_far, "prompt_n"),
            cached_tokens=cached,
            output_tokens=_count(so_far, "predicted_n"),
        )
    if reading := entries(event.get("prompt_progress")):
        cached = _count(reading, "cache")
        return Usage(input_tokens=_count(reading, "processed"), cached_tokens=cached)
    return None


def _count(fields: Mapping[str, object], name: str) -> int:
    value = fields.get(name)
    return value if isinstance(value, int) else 0
