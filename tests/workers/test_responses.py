import os
from collections.abc import Sequence
from typing import Literal

import anyio
import openai.types.responses.response_error as response_error
import pytest
from anyio import to_thread
from pydantic import JsonValue, SecretStr
from tests.asking import ask, failure
from tests.provider_simulator import Answer, Asked, Document, Provider, openai_error
from tests.recorded_call import RecordedCall
from tests.responses_simulator import (
    ResponseStore,
    Stored,
    document,
    message,
    numbered,
    reasoning,
    refusal,
    responses_end,
    responses_reply,
    told,
)

from podium_workers.entries.common import FREE
from podium_workers.errors import (
    EmptyReplyError,
    MalformedReplyError,
    OverloadedError,
    RateLimitedError,
    RefusedError,
    SlowReplyError,
    UnreachableError,
    UnsupportedParameterError,
    WorkerError,
)
from podium_workers.responses import ResponsesWorker
from podium_workers.wire import OPENAI_URL, ApiKey, TimeLimits
from podium_workers.worker import (
    ATTACHED_TO,
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


def card(*, price: Price | None = None, model: str = "gpt-test", limit: int = 500) -> WorkerCard:
    return WorkerCard(
        name="gpt",
        kind="openai",
        model=model,
        where="hosted",
        context_window=8192,
        max_output_tokens=limit,
        price=price,
    )


def worker(
    provider: Provider,
    *,
    price: Price | None = None,
    model: str = "gpt-test",
    limit: int = 500,
    background: bool = False,
    effort: str | None = None,
    limits: TimeLimits | None = None,
) -> ResponsesWorker:
    return ResponsesWorker(
        card(price=price, model=model, limit=limit),
        key=KEY,
        base_url=f"{provider.url}/v1",
        background=background,
        effort=effort,
        limits=limits,
    )


def background(*scripts: Stored, **kept: Stored) -> ResponseStore:
    return ResponseStore(*scripts, kept=kept)


GOOD = told(document("completed", message("Forty-two")), "Forty", "-two")


async def test_a_streamed_response_comes_with_its_usage_price_model_and_id(provider: Provider):
    provider.answers(responses_reply("For", "ty-two", thoughts=["Six ", "sevens."]))
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
    assert reply == Reply(
        text="Forty-two", usage=usage, model="model-as-served", reasoning="Six \n\nsevens."
    )
    (attempt,) = call.attempts
    assert (attempt.request_id, attempt.reply, attempt.usages) == ("resp_1", reply, [usage])


async def test_what_is_sent_is_what_is_recorded_but_for_the_messages(provider: Provider):
    provider.answers(responses_reply("42"))
    call = RecordedCall()
    asked = worker(provider)
    prompt = Prompt(
        messages=(
            Message(role="system", text="Be brief."),
            Message(role="user", text="2+2?"),
            Message(role="assistant", text="4"),
            Message(role="user", text="And 3+3?"),
        )
    )
    settings = ModelSettings(temperature=0.5, seed=7, max_output_tokens=99)

    await asked.reply(prompt, settings, call)
    await asked.aclose()

    (sent,) = provider.requests
    assert sent.path == "/v1/responses"
    assert sent.headers["authorization"] == f"Bearer {SECRET}"
    record = {
        "model": "gpt-test",
        "stream": True,
        "max_output_tokens": 99,
        "store": False,
        "temperature": 0.5,
    }
    assert call.attempts[0].request == record
    assert sent.body == record | {
        "input": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "2+2?"},
            {"role": "assistant", "content": "4"},
            {"role": "user", "content": "And 3+3?"},
        ]
    }


async def test_a_schema_goes_as_a_strict_text_format(provider: Provider):
    provider.answers(responses_reply('{"answer": "42"}'))
    await ask(worker(provider), response_schema=SCHEMA)
    assert provider.bodies[0]["text"] == {
        "format": {
            "type": "json_schema",
            "name": "reply",
            "strict": True,
            "schema": {
                "type": "object",
                "properties": {"answer": {"type": "string"}},
                "additionalProperties": False,
                "required": ["answer"],
            },
        }
    }


async def test_a_model_that_reasons_gets_no_temperature(provider: Provider):
    provider.answers(responses_reply("42"))
    asked = worker(provider, model="gpt-6.2-sol", limit=16_384, effort="low")
    await ask(asked, temperature=0.2, max_output_tokens=100)
    (sent,) = provider.bodies
    assert "temperature" not in sent
    assert sent["max_output_tokens"] == 100
    assert sent["reasoning"] == {"effort": "low", "summary": "auto"}


@pytest.mark.parametrize(
    ("param", "message", "left"),
    [
        ("reasoning.summary", "Your organization must be verified.", {"effort": "low"}),
        (None, "Unsupported parameter: 'reasoning.effort' is not supported.", {"summary": "auto"}),
        (None, "Unknown parameter: 'reasoning'.", None),
    ],
)
async def test_of_the_reasoning_only_the_part_that_is_refused_is_left_out(
    provider: Provider, param: str | None, message: str, left: object
):
    refused = openai_error(400, message, param=param, code="unsupported_value")
    provider.answers(refused, responses_reply("42"))
    await ask(worker(provider, model="gpt-6.2-sol", effort="low"))
    assert provider.bodies[1].get("reasoning") == left


async def test_a_format_that_is_refused_is_left_out(provider: Provider):
    refused = openai_error(400, "json_schema is not supported with this model", param="text.format")
    provider.answers(refused, responses_reply("{}"))
    await ask(worker(provider), response_schema=SCHEMA)
    assert "text" not in provider.bodies[1]


async def test_a_limit_that_is_refused_is_never_left_out(provider: Provider):
    provider.answers(
        openai_error(400, "Unsupported parameter: max_output_tokens", param="max_output_tokens")
    )
    await failure(worker(provider), UnsupportedParameterError)
    assert len(provider.requests) == 1


async def test_commentary_before_the_answer_is_no_part_of_it(provider: Provider):
    last = document(
        "completed", message("Let me see.", phase="commentary"), message("42", phase="final_answer")
    )
    provider.answers(Answer(told(last, "Let me see.", "42")))
    reply = await ask(worker(provider))
    assert (reply.text, reply.reasoning) == ("42", "Let me see.")


async def test_encrypted_reasoning_stands_nowhere(provider: Provider):
    """T19"""
    provider.answers(responses_reply("42", thoughts=["Hm."]))
    call = RecordedCall()
    reply = await ask(worker(provider), call)
    assert "gAAAA" not in reply.model_dump_json()


async def test_an_end_without_items_leaves_the_text_that_was_streamed(provider: Provider):
    provider.answers(Answer(told(document("completed"), "For", "ty-two", thoughts=["Hm."])))
    reply = await ask(worker(provider))
    assert (reply.text, reply.reasoning) == ("Forty-two", "Hm.")


async def test_a_reply_cut_off_at_the_limit_says_so(provider: Provider):
    details = {"reason": "max_output_tokens"}
    last = document("incomplete", message("Forty"), incomplete_details=details)
    provider.answers(responses_end(last))
    assert (await ask(worker(provider))).finish_reason == "length"


ENDS: tuple[tuple[Document, type[WorkerError], str], ...] = (
    (
        document("incomplete", message("F"), incomplete_details={"reason": "content_filter"}),
        RefusedError,
        "content_filter",
    ),
    (
        document("incomplete", message("F"), incomplete_details={"reason": "steered"}),
        MalformedReplyError,
        "steered",
    ),
    (document("completed", refusal("I can't do that.")), RefusedError, "I can't do that."),
    (document("completed", message(" ")), EmptyReplyError, "empty"),
    (document("completed", reasoning("Hm."), message("")), EmptyReplyError, "reasoned"),
    (
        document("completed", {"type": "function_call", "name": "f", "arguments": "{}"}),
        MalformedReplyError,
        "tool",
    ),
    (
        document("failed", error={"code": "server_error", "message": "It broke."}),
        OverloadedError,
        "It broke.",
    ),
    (
        document("failed", error={"code": "rate_limit_exceeded", "message": "Slow down."}),
        RateLimitedError,
        "Slow down.",
    ),
    (
        document("failed", error={"code": "invalid_prompt", "message": "Not this."}),
        RefusedError,
        "Not this.",
    ),
)


@pytest.mark.parametrize(("last", "kind", "words"), ENDS, ids=lambda value: str(value)[:30])
async def test_every_other_end_is_an_error_that_shows_why(
    provider: Provider, last: Document, kind: type[WorkerError], words: str
):
    """T16"""
    provider.answers(Answer(told(last)))
    error = await failure(worker(provider), kind)
    assert words in error.message


def codes() -> Sequence[str]:
    code = response_error.ResponseError.model_fields["code"].annotation
    return sorted(str(value) for value in getattr(code, "__args__", ()))


@pytest.mark.parametrize("code", codes())
async def test_every_code_of_a_failed_response_has_its_error(provider: Provider, code: str):
    last = document("failed", error={"code": code, "message": "In its own words."})
    provider.answers(Answer(told(last)))
    with pytest.raises(WorkerError, match=r"In its own words\.") as caught:
        await ask(worker(provider))
    declined = "policy" in code or code == "invalid_prompt"
    assert isinstance(caught.value, RefusedError) == declined


async def test_an_error_event_keeps_the_providers_words(provider: Provider):
    """T12"""
    error = {"type": "error", "code": "server_error", "message": "Fell over", "param": None}
    provider.answers(Answer(numbered(*GOOD[:3], error)))
    failed = await failure(worker(provider), OverloadedError)
    assert "Fell over" in failed.message


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (Answer(GOOD[:3]), MalformedReplyError),
        (Answer([*GOOD[:3], "HANG UP"]), UnreachableError),
        (Answer(document={"object": "list"}), MalformedReplyError),
        (Answer(document={"error": {"message": "Down", "code": 503}}), OverloadedError),
    ],
)
async def test_a_stream_that_is_none_or_breaks_off_is_an_error(
    provider: Provider, answer: Answer, kind: type[WorkerError]
):
    provider.answers(answer)
    await failure(worker(provider), kind)
    assert len(provider.requests) == 1, "what is not in the background is not looked for again"


FELL_OVER: Document = {
    "type": "error",
    "code": "server_error",
    "message": "Fell over",
    "param": None,
    "sequence_number": 3,
}
PRICE = Price(input=1, output=1)


@pytest.mark.parametrize(("price", "cost"), [(PRICE, None), (None, None), (FREE, 0.0)])
@pytest.mark.parametrize("rest", [["HANG UP"], [FELL_OVER]], ids=["connection", "error"])
async def test_a_response_that_breaks_off_before_its_usage_has_an_unknown_price(
    provider: Provider, rest: Sequence[Document | str], price: Price | None, cost: float | None
):
    """T12: the words so far are billed, though nobody says how many they were."""
    provider.answers(Answer([*GOOD[:3], *rest]))
    call = RecordedCall()
    with pytest.raises(WorkerError) as caught:
        await ask(worker(provider, price=price), call)
    assert caught.value.transient
    assert call.attempts[0].usages[-1:] == [Usage(cost_usd=cost)]


async def test_a_background_response_that_cannot_be_cancelled_has_an_unknown_price(
    provider: Provider,
):
    store = background(Stored(GOOD, breaks=[3], how="STALL"))

    def rule(asked: Asked) -> Answer:
        return openai_error(503, "Away") if asked.path.endswith("/cancel") else store(asked)

    provider.answers(rule)
    call = RecordedCall(deadline=anyio.current_time() + 0.5)
    with pytest.raises(SlowReplyError):
        await ask(worker(provider, price=PRICE, background=True), call)
    assert call.attempts[0].usages[-1:] == [Usage(cost_usd=None)]


async def test_a_response_that_never_began_has_no_usage(provider: Provider):
    provider.answers(openai_error(503, "Away"))
    call = RecordedCall()
    with pytest.raises(OverloadedError):
        await ask(worker(provider, price=PRICE), call)
    assert call.attempts[0].usages == []


async def test_a_limit_that_reasoning_used_up_is_told_from_an_empty_reply(provider: Provider):
    """T20"""
    details = {"reason": "max_output_tokens"}
    eaten = document("incomplete", reasoning("Hm."), incomplete_details=details)
    provider.answers(Answer(told(eaten)))
    error = await failure(worker(provider), EmptyReplyError)
    assert isinstance(error, EmptyReplyError)
    assert error.used_up


async def test_in_the_background_the_id_is_recorded_and_the_response_stored(provider: Provider):
    store = background(Stored(GOOD))
    provider.answers(store)
    call = RecordedCall()
    assert (await ask(worker(provider, background=True), call)).text == "Forty-two"
    (sent,) = provider.bodies
    assert (sent["background"], sent["store"], sent["stream"]) == (True, True, True)
    (attempt,) = call.attempts
    assert attempt.request_id == "resp_1"
    assert store.cancelled == []


async def test_a_background_stream_that_breaks_is_taken_up_where_it_broke(provider: Provider):
    store = background(Stored(GOOD, breaks=[3, 1], status="in_progress"))
    provider.answers(store)
    call = RecordedCall()

    assert (await ask(worker(provider, background=True), call)).text == "Forty-two"

    streams = [asked.query for asked in provider.requests if asked.query]
    assert streams == [
        {"stream": "true", "starting_after": "2"},
        {"stream": "true", "starting_after": "3"},
    ]
    assert (store.created, len(call.attempts)) == (1, 1)


async def test_a_background_response_that_somebody_cancels_is_not_waited_for(provider: Provider):
    store = background(Stored(GOOD, breaks=[3], status="cancelled"))
    provider.answers(store)
    error = await failure(worker(provider, background=True), MalformedReplyError)
    assert "cancelled at the provider" in error.message
    assert len(provider.requests) == 2


async def test_a_background_stream_that_falls_silent_is_looked_at_again(provider: Provider):
    store = background(Stored(GOOD, breaks=[3], how="STALL", status="in_progress"))
    provider.answers(store)
    limits = TimeLimits(first_byte_s=0.3, idle_s=0.3)
    reply = await ask(worker(provider, background=True, limits=limits))
    assert (reply.text, store.created) == ("Forty-two", 1)


@pytest.mark.parametrize("status", ["in_progress", "queued", ""])
async def test_a_resumed_call_attaches_to_its_response_and_pays_nothing_new(
    provider: Provider, status: str
):
    store = background(Stored(GOOD), resp_1=Stored(GOOD, status=status))
    provider.answers(store)
    call = RecordedCall(resume_id="resp_1")

    reply = await ask(worker(provider, background=True), call)

    assert (reply.text, reply.usage.output_tokens, store.created) == ("Forty-two", 20, 0)
    (attempt,) = call.attempts
    assert attempt.request == {"model": "gpt-test", ATTACHED_TO: "resp_1"}
    assert (attempt.request_id, attempt.reply) == ("resp_1", reply)
    assert attempt.usages[-1] == reply.usage


@pytest.mark.parametrize("status", ["failed", "cancelled", None])
async def test_a_resumed_call_whose_response_is_gone_asks_anew(
    provider: Provider, status: str | None
):
    kept = {} if status is None else {"resp_0": Stored(GOOD, status=status)}
    store = ResponseStore(Stored(GOOD), kept=kept)
    provider.answers(store)
    call = RecordedCall(resume_id="resp_0")

    assert (await ask(worker(provider, background=True), call)).text == "Forty-two"

    (attempt,) = call.attempts
    assert ATTACHED_TO not in attempt.request
    assert (attempt.request_id, store.created) == ("resp_1", 1)


async def test_a_response_that_gave_no_usable_reply_is_not_attached_to_twice(provider: Provider):
    empty = told(document("completed", message("")) | {"id": "resp_0"})
    store = ResponseStore(Stored(GOOD), kept={"resp_0": Stored(empty)})
    provider.answers(store)
    asked = worker(provider, background=True)
    call = RecordedCall(resume_id="resp_0")

    with pytest.raises(EmptyReplyError):
        await asked.reply(Prompt.of("?"), ModelSettings(), call)
    assert (await ask(asked, call)).text == "Forty-two"
    assert [ATTACHED_TO in attempt.request for attempt in call.attempts] == [True, False]


async def test_without_background_no_earlier_response_is_looked_for(provider: Provider):
    provider.answers(responses_reply("42"))
    await ask(worker(provider), RecordedCall(resume_id="resp_1"))
    assert [asked.method for asked in provider.requests] == ["POST"]


async def test_a_stopped_call_cancels_its_background_response_within_a_second(provider: Provider):
    store = background(Stored(GOOD, breaks=[3], how="STALL"))
    provider.answers(store)
    asked = worker(provider, background=True)
    call = RecordedCall()
    stopped = float("inf")

    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            group.start_soon(asked.reply, Prompt.of("?"), ModelSettings(), call)
            assert await to_thread.run_sync(provider.stalling.wait, 5)
            while not call.attempts[0].request_id:
                await anyio.lowlevel.checkpoint()
            stopped = anyio.current_time()
            group.cancel_scope.cancel()

    assert anyio.current_time() - stopped < 1.5
    await asked.aclose()
    assert store.cancelled == ["resp_1"]
    assert call.attempts[0].usages[-1].output_tokens == 20, "what it cost so far is recorded"


async def test_a_provider_that_does_not_take_the_cancel_holds_nothing_up(provider: Provider):
    store = background(Stored(GOOD, breaks=[3], how="STALL"))

    def rule(asked: Asked) -> Answer:
        return Answer(before="STALL") if asked.path.endswith("/cancel") else store(asked)

    provider.answers(rule)
    asked = worker(provider, background=True)
    call = RecordedCall()
    stopped = float("inf")
    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            group.start_soon(asked.reply, Prompt.of("?"), ModelSettings(), call)
            assert await to_thread.run_sync(provider.stalling.wait, 5)
            while not call.attempts[0].request_id:
                await anyio.lowlevel.checkpoint()
            stopped = anyio.current_time()
            group.cancel_scope.cancel()
    assert 0.9 < anyio.current_time() - stopped < 2
    await asked.aclose()


async def test_a_deadline_that_strikes_cancels_the_background_response(provider: Provider):
    store = background(Stored(GOOD, breaks=[3], how="STALL"))
    provider.answers(store)
    call = RecordedCall(deadline=anyio.current_time() + 0.5)
    with pytest.raises(SlowReplyError) as caught:
        await ask(worker(provider, background=True), call)
    assert caught.value.limit == "total"
    assert store.cancelled == ["resp_1"]


async def test_a_stopped_call_that_is_not_in_the_background_only_hangs_up(provider: Provider):
    provider.answers(Answer([*GOOD[:3], "STALL"]))
    asked = worker(provider)
    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            group.start_soon(asked.reply, Prompt.of("?"), ModelSettings(), RecordedCall())
            assert await to_thread.run_sync(provider.stalling.wait, 5)
            group.cancel_scope.cancel()
    assert await to_thread.run_sync(provider.disconnected.wait, 10)
    await asked.aclose()
    assert len(provider.requests) == 1


@pytest.mark.parametrize(
    ("pieces", "limits", "limit"),
    [
        ([*GOOD[:1], "STALL"], TimeLimits(first_byte_s=0.5), "first_byte"),
        ([*GOOD[:3], "STALL"], TimeLimits(first_byte_s=60, idle_s=0.5), "idle"),
    ],
)
async def test_silence_strikes_a_limit(
    provider: Provider,
    pieces: list[Document | str],
    limits: TimeLimits,
    limit: Literal["first_byte", "idle"],
):
    provider.answers(Answer(pieces))
    error = await failure(worker(provider, limits=limits), SlowReplyError)
    assert isinstance(error, SlowReplyError)
    assert error.limit == limit


async def test_background_that_an_account_may_not_use_is_left_out(provider: Provider):
    refused = openai_error(400, "Unsupported parameter: 'background'.", param="background")
    provider.answers(refused, responses_reply("42"))
    await ask(worker(provider, background=True))
    assert "background" not in provider.bodies[1]
    assert provider.bodies[1]["store"] is False


@pytest.mark.live
@pytest.mark.parametrize("in_background", [False, True])
async def test_a_real_model_of_openai_answers(in_background: bool):
    secret = os.environ.get("OPENAI_API_KEY")
    if not secret:
        pytest.skip("OPENAI_API_KEY is not set")
    real = ResponsesWorker(
        card(model="gpt-6-luna", limit=16_000),
        key=ApiKey("OPENAI_API_KEY", SecretStr(secret)),
        base_url=OPENAI_URL,
        background=in_background,
    )
    call = RecordedCall()
    with anyio.fail_after(120):
        reply = await real.reply(
            Prompt.of("6 times 7, as JSON."), ModelSettings(response_schema=SCHEMA), call
        )
    await real.aclose()
    assert "42" in reply.text
    assert (call.attempts[0].request_id or "").startswith("resp_")
