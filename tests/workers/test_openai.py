import os
from collections.abc import Sequence
from typing import Literal

import anyio
import httpx2
import openai
import pytest
from anyio import to_thread
from pydantic import JsonValue, SecretStr
from tests.provider_simulator import (
    DONE,
    Answer,
    Piece,
    Provider,
    chunk,
    openai_error,
    openai_reply,
)
from tests.recorded_call import RecordedCall

from podium_workers.errors import (
    AuthenticationError,
    ContextTooLongError,
    EmptyReplyError,
    MalformedReplyError,
    OutOfCreditError,
    OverloadedError,
    RateLimitedError,
    RefusedError,
    SlowReplyError,
    UnknownModelError,
    UnreachableError,
    UnsupportedParameterError,
    WorkerError,
)
from podium_workers.openai import OpenAIWorker, translated
from podium_workers.wire import OPENAI_URL, ApiKey, TimeLimits
from podium_workers.worker import (
    Message,
    ModelSettings,
    Price,
    Prompt,
    Reply,
    Usage,
    WorkerCard,
)

SECRET = "sk-proj-abcdef0123456789ABCDEF"
KEY = ApiKey(variable="OPENAI_API_KEY", secret=SecretStr(SECRET))
SCHEMA: dict[str, JsonValue] = {
    "type": "object",
    "properties": {"answer": {"type": "string", "minLength": 1}},
}


def card(*, price: Price | None = None, role: str = "", limit: int = 500) -> WorkerCard:
    return WorkerCard(
        name="gpt",
        kind="openai",
        model="gpt-test",
        where="hosted",
        context_window=8192,
        max_output_tokens=limit,
        price=price,
        role=role,
    )


def worker(
    provider: Provider,
    *,
    price: Price | None = None,
    role: str = "",
    key: ApiKey = KEY,
    limits: TimeLimits | None = None,
) -> OpenAIWorker:
    return OpenAIWorker(
        card(price=price, role=role), key=key, base_url=f"{provider.url}/v1", limits=limits
    )


async def ask(asked: OpenAIWorker, call: RecordedCall | None = None, **settings: object) -> Reply:
    """One reply, with the connections closed behind it."""
    try:
        with anyio.fail_after(10):
            return await asked.reply(
                Prompt.of("What is 6 times 7?"),
                ModelSettings.model_validate(settings),
                call or RecordedCall(),
            )
    finally:
        await asked.aclose()


async def failure(asked: OpenAIWorker, kind: type[WorkerError]) -> WorkerError:
    with pytest.raises(WorkerError) as caught:
        await ask(asked)
    assert type(caught.value) is kind
    return caught.value


async def test_a_streamed_reply_comes_with_its_usage_price_and_model(provider: Provider):
    provider.answers(openai_reply("For", "ty-two"))
    call = RecordedCall()
    price = Price(input=10, output=100, cached_input=1)

    reply = await ask(worker(provider, price=price), call)

    usage = Usage(
        input_tokens=100,
        cached_tokens=40,
        output_tokens=20,
        reasoning_tokens=5,
        cost_usd=(60 * 10 + 40 * 1 + 20 * 100) / 1_000_000,
    )
    assert reply == Reply(text="Forty-two", usage=usage, model="model-as-served")
    (attempt,) = call.attempts
    assert (attempt.request_id, attempt.reply, attempt.usages) == ("req_1", reply, [usage])


async def test_the_record_of_an_attempt_holds_what_was_sent_but_neither_key_nor_messages(
    provider: Provider,
):
    provider.answers(openai_reply("42"))
    call = RecordedCall()

    await ask(worker(provider), call, temperature=0.5, seed=7, max_output_tokens=99)

    (asked,) = provider.requests
    assert asked.path == "/v1/chat/completions"
    assert asked.headers["authorization"] == f"Bearer {SECRET}"
    assert call.attempts[0].request == {
        "model": "gpt-test",
        "stream": True,
        "max_tokens": 99,
        "stream_options": {"include_usage": True},
        "temperature": 0.5,
        "seed": 7,
    }
    assert {**asked.body, "messages": None} == {**call.attempts[0].request, "messages": None}


async def test_the_cards_role_is_the_system_message(provider: Provider):
    provider.answers(openai_reply("42"))
    await ask(worker(provider, role="Answer in one word."))
    assert provider.requests[0].messages == [
        {"role": "system", "content": "Answer in one word."},
        {"role": "user", "content": "What is 6 times 7?"},
    ]


async def test_a_role_that_the_prompt_already_carries_is_sent_once(provider: Provider):
    provider.answers(openai_reply("42"))
    asked = worker(provider, role="Be brief.")
    prompt = Prompt(
        messages=(
            Message(role="system", text="Be brief. Think first."),
            Message(role="user", text="2+2?"),
            Message(role="assistant", text="4"),
            Message(role="user", text="And 3+3?"),
        )
    )
    await asked.reply(prompt, ModelSettings(), RecordedCall())
    await asked.aclose()
    assert [message["content"] for message in provider.requests[0].messages] == [
        "Be brief. Think first.",
        "2+2?",
        "4",
        "And 3+3?",
    ]


async def test_a_reply_may_not_be_longer_than_the_card_allows(provider: Provider):
    provider.answers(openai_reply("42"))
    await ask(worker(provider), max_output_tokens=100_000)
    assert provider.bodies[0]["max_tokens"] == 500


async def test_a_schema_goes_as_a_strict_response_format(provider: Provider):
    provider.answers(openai_reply('{"answer": "42"}'))
    await ask(worker(provider), response_schema=SCHEMA)
    assert provider.bodies[0]["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "reply", "strict": True, "schema": SCHEMA},
    }


def test_openai_itself_gets_its_own_name_of_the_limit_and_its_own_dialect_of_schemas():
    at_openai = OpenAIWorker(card(), key=KEY, base_url=OPENAI_URL)
    sent = at_openai.parameters(ModelSettings(response_schema=SCHEMA))
    assert sent["max_completion_tokens"] == 500
    assert "max_tokens" not in sent
    assert sent["response_format"] == {
        "type": "json_schema",
        "json_schema": {
            "name": "reply",
            "strict": True,
            "schema": {
                "type": "object",
                "properties": {"answer": {"type": "string"}},
                "additionalProperties": False,
                "required": ["answer"],
            },
        },
    }


UNSUPPORTED: tuple[tuple[dict[str, JsonValue], str | None, str, str | None], ...] = (
    (
        {},
        "max_tokens",
        "Unsupported parameter: 'max_tokens' is not supported with this model. "
        "Use 'max_completion_tokens' instead.",
        "unsupported_parameter",
    ),
    (
        {"temperature": 0.2},
        "temperature",
        "Unsupported value: 'temperature' does not support 0.2 with this model. "
        "Only the default (1) value is supported.",
        "unsupported_value",
    ),
    ({"seed": 3}, None, "property 'seed' is unsupported", None),
    ({}, None, "stream_options: Extra inputs are not permitted", "extra_forbidden"),
    (
        {"response_schema": SCHEMA},
        None,
        "This model does not support json_schema, use json_object",
        None,
    ),
)


@pytest.mark.parametrize(
    ("settings", "param", "message", "code"), UNSUPPORTED, ids=lambda value: str(value)[:20]
)
async def test_a_parameter_that_is_refused_is_left_out_once_and_remembered(
    provider: Provider,
    settings: dict[str, JsonValue],
    param: str | None,
    message: str,
    code: str | None,
):
    refusal = openai_error(400, message, code=code, param=param)
    provider.answers(refusal, openai_reply("42"))
    asked = worker(provider)
    call = RecordedCall()

    with anyio.fail_after(10):
        await asked.reply(Prompt.of("?"), ModelSettings.model_validate(settings), call)
        await asked.reply(Prompt.of("?"), ModelSettings.model_validate(settings), call)
    await asked.aclose()

    first, second, third = provider.bodies
    (gone,) = set(first) - set(second)
    assert set(second) - set(first) == (
        {"max_completion_tokens"} if gone == "max_tokens" else set()
    )
    assert second == third
    refused, *good = call.attempts
    assert isinstance(refused.error, UnsupportedParameterError)
    assert refused.error.parameter == gone
    assert all(attempt.reply for attempt in good)


async def test_calls_at_the_same_time_all_learn_what_is_refused(provider: Provider):
    refusal = openai_error(400, "Unknown parameter: 'seed'.", param="seed")
    provider.answers(refusal, refusal, openai_reply("42"))
    asked = worker(provider)
    replies: list[Reply] = []

    async def one() -> None:
        replies.append(await asked.reply(Prompt.of("?"), ModelSettings(seed=1), RecordedCall()))

    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            group.start_soon(one)
            group.start_soon(one)
    await asked.aclose()
    assert [reply.text for reply in replies] == ["42", "42"]


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ("max_tokens is too large: 500. This model supports at most 400.", "max_tokens"),
        ("Invalid schema for response_format 'reply': 'minLength' is not permitted.", None),
        ("The request is bad.", None),
    ],
)
async def test_a_value_that_is_refused_is_an_error_and_not_left_out(
    provider: Provider, message: str, param: str | None
):
    provider.answers(openai_error(400, message, param=param))
    with pytest.raises(UnsupportedParameterError) as caught:
        await ask(worker(provider), response_schema=SCHEMA)
    assert (caught.value.parameter, caught.value.status) == (None, 400)
    assert message[:40] in caught.value.message
    assert len(provider.requests) == 1


async def test_a_limit_that_is_refused_under_both_names_is_never_left_out(provider: Provider):
    provider.answers(
        openai_error(400, "Unknown parameter: 'max_tokens'.", param="max_tokens"),
        openai_error(
            400, "Unknown parameter: 'max_completion_tokens'.", param="max_completion_tokens"
        ),
    )
    await failure(worker(provider), UnsupportedParameterError)
    assert len(provider.requests) == 2


STATUSES = (
    (401, "Incorrect API key provided", "invalid_api_key", AuthenticationError),
    (403, "Country not supported", None, AuthenticationError),
    (400, "API key not valid. Please pass a valid API key.", None, AuthenticationError),
    (402, "Insufficient credits", None, OutOfCreditError),
    (429, "You exceeded your current quota", "insufficient_quota", OutOfCreditError),
    (400, "Billing hard limit has been reached", "billing_hard_limit_reached", OutOfCreditError),
    (404, "The model `gpt-test` does not exist", "model_not_found", UnknownModelError),
    (400, "gpt-test is not a valid model ID", None, UnknownModelError),
    (408, "Timed out", None, SlowReplyError),
    (409, "Conflict", None, OverloadedError),
    (413, "Too large", None, ContextTooLongError),
    (400, "Maximum context length is 8192 tokens", "context_length_exceeded", ContextTooLongError),
    (400, "the request exceeds the available context size", None, ContextTooLongError),
    (429, "Request too large for gpt-test on tokens per min", None, ContextTooLongError),
    (422, "Bad input", None, UnsupportedParameterError),
    (429, "Rate limit reached", "rate_limit_exceeded", RateLimitedError),
    (429, "You exceeded your current quota, please check your plan", None, RateLimitedError),
    (400, "Filtered by content management policy", "content_filter", RefusedError),
    (403, "Your input was flagged by moderation", None, RefusedError),
    (500, "Server error", None, OverloadedError),
    (502, "Bad gateway", None, OverloadedError),
    (529, "Busy", None, OverloadedError),
    (418, "Teapot", None, UnsupportedParameterError),
)


@pytest.mark.parametrize(("status", "message", "code", "kind"), STATUSES)
async def test_every_status_has_its_error_and_keeps_the_endpoints_words(
    provider: Provider, status: int, message: str, code: str | None, kind: type[WorkerError]
):
    provider.answers(openai_error(status, message, code=code))
    call = RecordedCall()
    with pytest.raises(WorkerError) as caught:
        await ask(worker(provider), call)
    assert type(caught.value) is kind
    assert message in caught.value.message
    assert call.attempts[0].error is caught.value
    assert len(provider.requests) == 1, "the library must not retry behind our back"


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ([{"error": {"message": "Quota for the minute."}}], "Quota for the minute."),
        ({"detail": [{"msg": "Field required"}]}, "Field required"),
        ("<html><body>Bad gateway</body></html>", "an HTML page came back"),
    ],
)
async def test_errors_in_other_wordings_are_read_too(
    provider: Provider, document: dict[str, object] | list[object] | str, words: str
):
    provider.answers(Answer(status=503, document=document))
    error = await failure(worker(provider), OverloadedError)
    assert error.message.endswith(words)


@pytest.mark.parametrize(
    ("headers", "message", "wait"),
    [
        ({"retry_after": "7"}, "Slow down", 7.0),
        ({"retry_after_ms": "1500"}, "Slow down", 1.5),
        ({}, "Please try again in 20ms.", 0.02),
        ({}, "Please retry in 37.5s.", 37.5),
        ({"retry_after": "Thu, 01 Jan 1970 00:00:00 GMT"}, "Slow down", 0.0),
        ({"retry_after": "soon"}, "Slow down", None),
        ({}, "Slow down", None),
    ],
)
async def test_the_wait_that_an_endpoint_asks_for_is_kept(
    provider: Provider, headers: dict[str, str], message: str, wait: float | None
):
    provider.answers(openai_error(429, message, **headers))
    error = await failure(worker(provider), RateLimitedError)
    assert error.retry_after_s == wait


async def test_no_error_text_ever_holds_a_key(provider: Provider):
    echo = (
        f"Incorrect API key provided: {SECRET}, or sk-proj-abcd********CDEF, or gsk_0123456789ab."
    )
    provider.answers(openai_error(401, echo))
    error = await failure(worker(provider), AuthenticationError)
    assert SECRET not in error.message
    assert "CDEF" not in error.message
    assert "gsk_" not in error.message
    assert "Check OPENAI_API_KEY." in error.message
    assert error.__cause__ is None
    assert error.__suppress_context__, "a traceback must not show the library's own text"


@pytest.mark.parametrize("secret", [None, "two words", "schlüssel", "line\nbreak"])
async def test_a_missing_or_impossible_key_names_its_variable_and_sends_nothing(
    provider: Provider, secret: str | None
):
    key = ApiKey("OPENAI_API_KEY", SecretStr(secret) if secret else None)
    call = RecordedCall()
    with pytest.raises(AuthenticationError, match="OPENAI_API_KEY"):
        await ask(worker(provider, key=key), call)
    assert (provider.requests, call.attempts) == ([], [])


async def test_an_endpoint_without_a_key_needs_none(provider: Provider):
    provider.answers(openai_reply("42"))
    assert (await ask(worker(provider, key=ApiKey()))).text == "42"


@pytest.mark.parametrize(
    ("finish", "kind"),
    [
        ("content_filter", RefusedError),
        ("SAFETY", RefusedError),
        ("content_filter: PROHIBITED_CONTENT", RefusedError),
        ("tool_calls", MalformedReplyError),
        ("function_call", MalformedReplyError),
        ("error", OverloadedError),
        ("insufficient_system_resource", OverloadedError),
        ("a_new_reason", MalformedReplyError),
    ],
)
async def test_every_finish_reason_but_stop_and_length_is_an_error(
    provider: Provider, finish: str, kind: type[WorkerError]
):
    provider.answers(openai_reply("Some text", finish=finish))
    await failure(worker(provider), kind)


async def test_a_reply_cut_off_at_the_limit_says_so(provider: Provider):
    provider.answers(openai_reply("Forty", finish="length"))
    assert (await ask(worker(provider))).finish_reason == "length"


async def test_a_refusal_keeps_the_models_words(provider: Provider):
    pieces: list[Piece] = [chunk({"refusal": "I can't "}), chunk({"refusal": "do that."})]
    provider.answers(Answer([*pieces, chunk(finish="stop"), DONE]))
    error = await failure(worker(provider), RefusedError)
    assert "I can't do that." in error.message


async def test_a_tool_call_is_malformed_since_no_tool_was_offered(provider: Provider):
    tool = {"index": 0, "id": "1", "function": {"name": "f", "arguments": "{}"}}
    provider.answers(Answer([chunk({"tool_calls": [tool]}), chunk(finish="stop"), DONE]))
    await failure(worker(provider), MalformedReplyError)


@pytest.mark.parametrize(
    ("pieces", "words"),
    [
        ([chunk(finish="stop"), DONE], "empty"),
        ([chunk({"content": " \n"}), chunk(finish="stop"), DONE], "empty"),
        ([chunk(finish="length"), DONE], "max_output_tokens"),
        ([chunk({"reasoning": "Hm"}), chunk(finish="stop"), DONE], "reasoned"),
    ],
)
async def test_an_empty_reply_is_an_error_that_says_why(
    provider: Provider, pieces: Sequence[Piece], words: str
):
    provider.answers(Answer(pieces))
    error = await failure(worker(provider), EmptyReplyError)
    assert words in error.message


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
async def test_reasoning_is_kept_apart_from_the_text(provider: Provider, name: str):
    pieces: list[Piece] = [chunk({name: "Six sevens. "}), chunk({name: "Easy."})]
    provider.answers(Answer([*pieces, chunk({"content": "42"}), chunk(finish="stop"), DONE]))
    reply = await ask(worker(provider))
    assert (reply.text, reply.reasoning) == ("42", "Six sevens. Easy.")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"message": "Provider fell over", "code": 502}, OverloadedError),
        ({"message": "Slow down", "code": "rate_limit_exceeded"}, RateLimitedError),
        ({"message": "No money", "type": "insufficient_quota"}, OutOfCreditError),
        ({"message": "Who knows", "code": "odd"}, OverloadedError),
    ],
)
async def test_an_error_inside_a_stream_that_began_well_keeps_the_providers_words(
    provider: Provider, error: dict[str, object], kind: type[WorkerError]
):
    provider.answers(Answer([chunk({"content": "Half a rep"}), {"error": error}, DONE]))
    failed = await failure(worker(provider), kind)
    assert str(error["message"]) in failed.message
    assert failed.status is None


async def test_an_error_document_instead_of_a_stream_is_an_error(provider: Provider):
    provider.answers(Answer(document={"error": {"message": "Upstream down", "code": 503}}))
    error = await failure(worker(provider), OverloadedError)
    assert "Upstream down" in error.message


@pytest.mark.parametrize("document", [{"choices": []}, "no json at all"])
async def test_a_whole_document_where_a_stream_was_asked_for_is_malformed(
    provider: Provider, document: dict[str, object] | str
):
    answer = Answer(document=document, headers={"content-type": "application/json"})
    provider.answers(answer)
    await failure(worker(provider), MalformedReplyError)


@pytest.mark.parametrize(
    "pieces", [[chunk({"content": "Forty"}), DONE], ["data: {not json\n\n"], [DONE]]
)
async def test_a_stream_that_ends_without_an_end_mark_is_malformed(
    provider: Provider, pieces: Sequence[Piece]
):
    provider.answers(Answer(pieces))
    await failure(worker(provider), MalformedReplyError)


async def test_a_connection_that_breaks_in_the_middle_is_unreachable(provider: Provider):
    provider.answers(Answer([chunk({"content": "Forty"}), "HANG UP"]))
    await failure(worker(provider), UnreachableError)


async def test_nobody_listening_is_unreachable(provider: Provider):
    nobody = OpenAIWorker(card(), key=KEY, base_url="http://127.0.0.1:9/v1")
    await failure(nobody, UnreachableError)


@pytest.mark.parametrize(
    ("answer", "limits", "limit"),
    [
        (Answer(before="STALL"), TimeLimits(first_byte_s=0.05), "first_byte"),
        (Answer([chunk(), "STALL"]), TimeLimits(first_byte_s=0.05), "first_byte"),
        (
            Answer([chunk({"content": "F"}), "STALL"]),
            TimeLimits(first_byte_s=60, idle_s=0.05),
            "idle",
        ),
    ],
)
async def test_silence_strikes_a_limit_and_hangs_up(
    provider: Provider,
    answer: Answer,
    limits: TimeLimits,
    limit: Literal["first_byte", "idle"],
):
    provider.answers(answer)
    error = await failure(worker(provider, limits=limits), SlowReplyError)
    assert isinstance(error, SlowReplyError)
    assert error.limit == limit
    assert await to_thread.run_sync(provider.disconnected.wait, 1)


async def test_the_deadline_of_the_call_is_the_total_limit(provider: Provider):
    provider.answers(Answer([chunk({"content": "F"}), "STALL"]))
    call = RecordedCall(deadline=anyio.current_time() + 0.05)
    with pytest.raises(SlowReplyError) as caught:
        await ask(worker(provider), call)
    assert caught.value.limit == "total"


async def test_bytes_without_words_keep_a_silent_model_alive(provider: Provider):
    keep_alive: list[Piece] = [": PROCESSING\n\n"] * 20
    provider.answers(Answer([*keep_alive, *openai_reply("42").pieces]))
    reply = await ask(worker(provider, limits=TimeLimits(first_byte_s=5, idle_s=5)))
    assert reply.text == "42"


async def test_a_stopped_call_hangs_up_within_a_second_and_keeps_the_usage_so_far(
    provider: Provider,
):
    told = chunk({"content": "Forty"}, usage={"prompt_tokens": 9, "completion_tokens": 1})
    provider.answers(Answer([told, "STALL"]))
    asked = worker(provider)
    call = RecordedCall()

    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            group.start_soon(asked.reply, Prompt.of("?"), ModelSettings(), call)
            assert await to_thread.run_sync(provider.stalling.wait, 5)
            while not call.attempts[0].request_id:
                await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()

    assert await to_thread.run_sync(provider.disconnected.wait, 1)
    await asked.aclose()
    (attempt,) = call.attempts
    assert [(usage.input_tokens, usage.output_tokens) for usage in attempt.usages] == [(9, 1)]
    assert attempt.reply is None


async def test_usage_that_is_missing_is_unknown_and_not_free(provider: Provider):
    provider.answers(openai_reply("42", usage=None))
    reply = await ask(worker(provider, price=Price(input=1, output=1)))
    assert reply.usage == Usage(cost_usd=None)


async def test_reasoning_that_only_the_total_counts_is_output_and_counted_once(
    provider: Provider,
):
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 45}
    provider.answers(openai_reply("42", usage=usage))
    reply = await ask(worker(provider, price=Price(input=0, output=1_000_000)))
    assert reply.usage == Usage(
        input_tokens=10, output_tokens=35, reasoning_tokens=30, cost_usd=35.0
    )


async def test_tokens_written_to_the_cache_have_their_own_price(provider: Provider):
    details = {"cached_tokens": 20, "cache_write_tokens": 30}
    usage = {
        "prompt_tokens": 100,
        "completion_tokens": 0,
        "total_tokens": 100,
        "prompt_tokens_details": details,
    }
    provider.answers(openai_reply("42", usage=usage))
    price = Price(input=1_000_000, output=0, cached_input=0, cache_write=2_000_000)
    reply = await ask(worker(provider, price=price))
    assert reply.usage.cost_usd == 50 + 2 * 30


def classes(base: type[Exception]) -> set[type[Exception]]:
    found = {base}
    for inner in base.__subclasses__():
        found |= classes(inner)
    return found


def raised(kind: type[Exception]) -> Exception:
    """An instance of a class of the library, made as the library makes it."""
    request = httpx2.Request("POST", "http://127.0.0.1/v1")
    response = httpx2.Response(400, request=request)
    if issubclass(kind, openai.OAuthError):
        return kind(response=response, body=None)
    if issubclass(kind, openai.APIResponseValidationError):
        return kind(response, None)
    if issubclass(kind, openai.APIStatusError):
        return kind("no", response=response, body=None)
    if issubclass(kind, openai.APITimeoutError | openai.APIConnectionError):
        return kind(request=request)
    if issubclass(kind, openai.APIError):
        return kind("no", request, body=None)
    error = kind.__new__(kind)
    Exception.__init__(error, "no")
    return error


OUR_MISTAKES = {
    "APIRemovedInV1",
    "MutuallyExclusiveAuthError",
    "StreamAlreadyConsumed",
    "_AmbiguousModuleClientUsageError",
}
"""Exceptions that only a wrong use of the library raises: they stay what they are."""


@pytest.mark.parametrize("kind", sorted(classes(openai.OpenAIError), key=repr))
def test_every_exception_of_the_library_is_translated(kind: type[Exception]):
    expected = kind if kind.__name__ in OUR_MISTAKES else WorkerError
    with pytest.raises(expected), translated(KEY):
        raise raised(kind)


def test_a_mistake_of_ours_is_not_dressed_up_as_the_providers():
    with pytest.raises(ZeroDivisionError), translated(KEY):
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (Answer(document={"data": [{"id": "gpt-test"}]}), None, "has 'gpt-test'"),
        (Answer(document={"data": [{"id": "models/gpt-test"}]}), None, "has 'gpt-test'"),
        (Answer(document={"object": "list"}), None, "answers"),
        (Answer(status=404, document={"detail": "Not Found"}), None, "answers"),
        (Answer(document={"data": [{"id": "other"}]}), UnknownModelError, "does not list"),
        (openai_error(401, "Bad key"), AuthenticationError, "OPENAI_API_KEY"),
    ],
)
async def test_a_health_check_says_what_it_saw(
    provider: Provider, answer: Answer, kind: type[WorkerError] | None, words: str
):
    provider.answers(answer)
    if kind is None:
        assert words in await worker(provider).check()
    else:
        with pytest.raises(kind, match=words):
            await worker(provider).check()
    (asked,) = provider.requests
    assert asked.path == "/v1/models"
    assert asked.headers["authorization"] == f"Bearer {SECRET}"


async def test_a_health_check_of_a_dead_address_is_unreachable():
    nobody = OpenAIWorker(card(), key=ApiKey(), base_url="http://127.0.0.1:9/v1")
    with pytest.raises(UnreachableError):
        await nobody.check()


@pytest.mark.live
async def test_a_real_model_of_openai_answers():
    secret = os.environ.get("OPENAI_API_KEY")
    if not secret:
        pytest.skip("OPENAI_API_KEY is not set")
    real = OpenAIWorker(
        card(limit=2000).model_copy(update={"model": "gpt-6-luna"}),
        key=ApiKey("OPENAI_API_KEY", SecretStr(secret)),
        base_url=OPENAI_URL,
    )
    schema: dict[str, JsonValue] = {
        "type": "object",
        "properties": {"product": {"type": "integer"}},
        "required": ["product"],
        "additionalProperties": False,
    }
    call = RecordedCall()
    with anyio.fail_after(120):
        reply = await real.reply(
            Prompt.of("6 times 7, as JSON."),
            ModelSettings(temperature=0, response_schema=schema),
            call,
        )
    await real.aclose()
    assert "42" in reply.text
    assert reply.usage.input_tokens > 0
