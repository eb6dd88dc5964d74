from collections.abc import Sequence
from typing import Literal

import anyio
import httpx2
import openai
import pytest
from anyio import to_thread
from pydantic import JsonValue, SecretStr
from tests.asking import ask, failure, with_subclasses
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

from podium_workers.entries.common import FREE
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
from podium_workers.hosted.common import translated
from podium_workers.hosted.openai_client import meaning
from podium_workers.openai import OpenAIWorker
from podium_workers.wire import ApiKey, TimeLimits
from podium_workers.worker import (
    ModelSettings,
    Price,
    Prompt,
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


OVERLOADED_CHUNK: Piece = {"error": {"message": "Fell over", "code": 502}}


@pytest.mark.parametrize(
    "rest",
    [["HANG UP"], [OVERLOADED_CHUNK, DONE], [chunk(finish="error"), DONE]],
    ids=["connection", "error", "finish"],
)
@pytest.mark.parametrize(
    ("price", "cost"), [(Price(input=1, output=1), None), (None, None), (FREE, 0.0)]
)
async def test_a_reply_that_breaks_off_before_its_usage_has_an_unknown_price(
    provider: Provider, rest: Sequence[Piece], price: Price | None, cost: float | None
):
    """T12: the words so far are billed, though nobody says how many they were."""
    provider.answers(Answer([chunk({"content": "Forty"}), *rest]))
    call = RecordedCall()
    with pytest.raises(WorkerError) as caught:
        await ask(worker(provider, price=price), call)
    assert caught.value.transient
    assert call.attempts[0].usages == [Usage(cost_usd=cost)]


@pytest.mark.parametrize("answer", [openai_error(503, "Away"), openai_error(429, "Slow down")])
async def test_a_request_that_no_reply_began_to_has_no_usage(provider: Provider, answer: Answer):
    provider.answers(answer)
    call = RecordedCall()
    with pytest.raises(WorkerError):
        await ask(worker(provider, price=Price(input=1, output=1)), call)
    assert call.attempts[0].usages == []


async def test_nobody_listening_is_unreachable(provider: Provider):
    nobody = OpenAIWorker(card(), key=KEY, base_url="http://127.0.0.1:9/v1")
    await failure(nobody, UnreachableError)


@pytest.mark.parametrize(
    ("answer", "limits", "limit"),
    [
        (Answer(before="STALL"), TimeLimits(first_byte_s=0.5), "first_byte"),
        (Answer([chunk(), "STALL"]), TimeLimits(first_byte_s=0.5), "first_byte"),
        (
            Answer([chunk({"content": "F"}), "STALL"]),
            TimeLimits(first_byte_s=60, idle_s=0.5),
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
    assert await to_thread.run_sync(provider.disconnected.wait, 10)


async def test_the_deadline_of_the_call_is_the_total_limit(provider: Provider):
    provider.answers(Answer([chunk({"content": "F"}), "STALL"]))
    call = RecordedCall(deadline=anyio.current_time() + 0.5)
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

    assert await to_thread.run_sync(provider.disconnected.wait, 10)
    await asked.aclose()
    (attempt,) = call.attempts
    assert [(usage.input_tokens, usage.output_tokens) for usage in attempt.usages] == [(9, 1)]
    assert attempt.reply is None


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


@pytest.mark.parametrize("kind", with_subclasses(openai.OpenAIError))
def test_every_exception_of_the_library_is_translated(kind: type[Exception]):
    expected = kind if kind.__name__ in OUR_MISTAKES else WorkerError
    with pytest.raises(expected), translated(openai.OpenAIError, meaning, KEY):
        raise raised(kind)


def test_a_mistake_of_ours_is_not_dressed_up_as_the_providers():
    with pytest.raises(ZeroDivisionError), translated(openai.OpenAIError, meaning, KEY):
        raise ZeroDivisionError
