import importlib
import os
import pkgutil
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import anthropic
import anyio
import httpx2
import pytest
from anthropic.lib.credentials import WorkloadIdentityError
from anyio import to_thread
from pydantic import JsonValue, SecretStr
from tests.asking import ask, failure, with_subclasses
from tests.golden import check_golden
from tests.plan_samples import POOL
from tests.provider_simulator import (
    Answer,
    Piece,
    Provider,
    anthropic_error,
    anthropic_reply,
    block,
    message_end,
    message_start,
)
from tests.recorded_call import RecordedCall

from podium.plan_text import plan_schema
from podium_workers.anthropic import CACHE_FROM, AnthropicWorker, Effort, Thinking, meaning
from podium_workers.entries.common import FREE
from podium_workers.entries.hosted import AnthropicEntry
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
from podium_workers.hosted.learned import Learned
from podium_workers.manifest import parse_manifest
from podium_workers.opening import open_pool
from podium_workers.wire import ANTHROPIC_URL, ApiKey, TimeLimits
from podium_workers.worker import (
    Message,
    ModelSettings,
    Price,
    Prompt,
    Reply,
    Usage,
    WorkerCard,
)

SECRET = "sk-ant-api03-abcdef0123456789"
KEY = ApiKey(variable="ANTHROPIC_API_KEY", secret=SecretStr(SECRET))
PRICE = Price(input=1, output=1)
PING = 'event: ping\ndata: {"type": "ping"}\n\n'


def card(*, price: Price | None = None, role: str = "") -> WorkerCard:
    return WorkerCard(
        name="claude",
        kind="anthropic",
        model="claude-test",
        where="hosted",
        context_window=8192,
        max_output_tokens=500,
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
    temperature: float | None = None,
    thinking: Thinking | None = None,
    effort: Effort | None = None,
    learned: Learned | None = None,
    **more: object,
) -> AnthropicWorker:
    return AnthropicWorker(
        card(price=price, role=role).model_copy(update=more),
        key=key,
        base_url=provider.url,
        limits=limits,
        temperature=temperature,
        thinking=thinking,
        effort=effort,
        learned=learned,
    )


async def test_t34_a_streamed_reply_comes_with_every_token_priced_once(provider: Provider):
    """T34: cached, written and fresh tokens each at their own price, and once."""
    provider.answers(anthropic_reply("For", "ty-two"))
    call = RecordedCall()
    price = Price(input=10, output=100, cached_input=1, cache_write=20)

    reply = await ask(worker(provider, price=price), call)

    usage = Usage(
        input_tokens=100,
        cached_tokens=40,
        output_tokens=20,
        reasoning_tokens=5,
        cost_usd=(50 * 10 + 40 * 1 + 10 * 20 + 20 * 100) / 1_000_000,
    )
    assert reply == Reply(text="Forty-two", usage=usage, model="claude-as-served")
    (attempt,) = call.attempts
    assert (attempt.request_id, attempt.reply) == ("req_2", reply)
    assert attempt.usages[0] == BEGUN, "what is known at the start is recorded at once"
    assert attempt.usages[-1] == usage


async def test_a_reply_that_repeats_the_key_is_given_without_it(provider: Provider):
    provider.answers(anthropic_reply(f"Your key is {SECRET[:9]}", f"{SECRET[9:]}."))

    assert (await ask(worker(provider))).text == "Your key is [key]."


async def test_the_record_of_an_attempt_holds_what_was_sent_but_neither_key_nor_messages(
    provider: Provider,
):
    provider.answers(anthropic_reply("42"))
    call = RecordedCall()

    await ask(worker(provider), call, temperature=0.5, seed=7, max_output_tokens=99)

    (asked,) = provider.requests
    assert asked.path == "/v1/messages"
    assert asked.headers["authorization"] == f"Bearer {SECRET}"
    assert call.attempts[0].request == {
        "model": "claude-test",
        "stream": True,
        "max_tokens": 99,
        "temperature": 0.5,
    }
    assert {**asked.body, "messages": None} == {**call.attempts[0].request, "messages": None}


async def test_the_system_message_is_split_off(provider: Provider):
    provider.answers(anthropic_reply("42"))
    asked = worker(provider, role="Be brief.")
    prompt = Prompt(
        messages=(
            Message(role="system", text="Think first."),
            Message(role="user", text="2+2?"),
            Message(role="assistant", text="4"),
            Message(role="user", text="And 3+3?"),
        )
    )
    await asked.reply(prompt, ModelSettings(), RecordedCall())
    await asked.aclose()
    (sent,) = provider.bodies
    assert sent["system"] == "Be brief.\n\nThink first."
    assert sent["messages"] == [
        {"role": "user", "content": "2+2?"},
        {"role": "assistant", "content": "4"},
        {"role": "user", "content": "And 3+3?"},
    ]


async def test_a_schema_goes_as_output_format_in_what_the_interface_can_express(
    provider: Provider,
):
    schema: dict[str, JsonValue] = {
        "type": "object",
        "properties": {"answer": {"type": "string", "minLength": 1}},
        "required": ["answer"],
    }
    provider.answers(anthropic_reply('{"answer": "42"}'))
    await ask(worker(provider), response_schema=schema)
    assert provider.bodies[0]["output_config"] == {
        "format": {
            "type": "json_schema",
            "schema": {
                "type": "object",
                "properties": {"answer": {"type": "string", "description": "{minLength: 1}"}},
                "additionalProperties": False,
                "required": ["answer"],
            },
        }
    }


async def test_a_schema_that_cannot_be_expressed_is_an_error_before_anything_is_sent(
    provider: Provider,
):
    with pytest.raises(UnsupportedParameterError):
        await ask(worker(provider), response_schema={"properties": {}})
    assert provider.requests == []


@pytest.mark.parametrize(
    ("settings", "gone", "message"),
    [
        ({"temperature": 0.2}, "temperature", "`temperature` is deprecated for this model."),
        (
            {"response_schema": {"type": "object", "properties": {}}},
            "output_config",
            "output_config.format: Extra inputs are not permitted",
        ),
    ],
)
async def test_a_parameter_that_is_refused_is_left_out_once_and_remembered(
    provider: Provider, settings: dict[str, JsonValue], gone: str, message: str
):
    refusal = anthropic_error(400, "invalid_request_error", message)
    provider.answers(refusal, anthropic_reply("42"))
    asked = worker(provider)
    call = RecordedCall()

    with anyio.fail_after(10):
        await asked.reply(Prompt.of("?"), ModelSettings.model_validate(settings), call)
        await asked.reply(Prompt.of("?"), ModelSettings.model_validate(settings), call)
    await asked.aclose()

    first, second, third = provider.bodies
    assert set(first) - set(second) == {gone}
    assert second == third
    assert [bool(attempt.reply) for attempt in call.attempts] == [False, True, True]


async def test_a_limit_that_is_too_large_is_an_error_and_not_left_out(provider: Provider):
    message = "max_tokens: 500 > 400, which is the maximum allowed number of output tokens"
    provider.answers(anthropic_error(400, "invalid_request_error", message))
    await failure(worker(provider), UnsupportedParameterError)
    assert len(provider.requests) == 1


async def test_t22_a_prompt_that_was_cut_in_silence_is_an_error(provider: Provider):
    """T22: fewer tokens read than the prompt has words is no reply to that prompt."""
    provider.answers(anthropic_reply("42"))
    asked = worker(provider)
    with anyio.fail_after(10), pytest.raises(ContextTooLongError, match="only 100 tokens"):
        await asked.reply(Prompt.of("word " * 1500), ModelSettings(), RecordedCall())
    await asked.aclose()


async def test_t20_a_limit_that_thinking_used_up_is_told_from_an_empty_reply(provider: Provider):
    """T20: so that whoever asks can ask once more with more room (`retry.roomier`)."""
    used_up = Answer([message_start(), *block("thinking", "Hm"), *message_end("max_tokens")])
    provider.answers(used_up)
    error = await failure(worker(provider), EmptyReplyError)
    assert isinstance(error, EmptyReplyError)
    assert error.used_up


async def test_only_the_effort_is_left_out_where_only_that_is_refused(provider: Provider):
    schema: dict[str, JsonValue] = {"type": "object", "properties": {}}
    message = "output_config.effort: 'max' is not supported by this model"
    provider.answers(anthropic_error(400, "invalid_request_error", message), anthropic_reply("{}"))
    await ask(worker(provider, effort="max"), response_schema=schema)
    first, second = (cast("dict[str, object]", body["output_config"]) for body in provider.bodies)
    assert (sorted(first), sorted(second)) == (["effort", "format"], ["format"])


LOW = "Your credit balance is too low to access the Anthropic API."
LONG = "prompt is too long: 210000 tokens > 200000 maximum"
STATUSES = (
    (401, "authentication_error", "invalid x-api-key", AuthenticationError),
    (403, "permission_error", "Not allowed", AuthenticationError),
    (402, "billing_error", "Pay first", OutOfCreditError),
    (400, "invalid_request_error", LOW, OutOfCreditError),
    (404, "not_found_error", "model: claude-test", UnknownModelError),
    (408, "timeout_error", "Timed out", SlowReplyError),
    (409, "conflict_error", "Conflict", OverloadedError),
    (413, "request_too_large", "Too many bytes", ContextTooLongError),
    (400, "invalid_request_error", LONG, ContextTooLongError),
    (422, "invalid_request_error", "Bad", UnsupportedParameterError),
    (429, "rate_limit_error", "Slow down", RateLimitedError),
    (500, "api_error", "Internal server error", OverloadedError),
    (503, "api_error", "Away", OverloadedError),
    (504, "timeout_error", "Gateway", OverloadedError),
    (529, "overloaded_error", "Overloaded", OverloadedError),
)


@pytest.mark.parametrize(("status", "type_", "message", "kind"), STATUSES)
async def test_t13_every_status_has_its_error_and_keeps_the_endpoints_words(
    provider: Provider, status: int, type_: str, message: str, kind: type[WorkerError]
):
    """T13: class, status and the provider's words reach the user."""
    provider.answers(anthropic_error(status, type_, message))
    call = RecordedCall()
    with pytest.raises(WorkerError) as caught:
        await ask(worker(provider), call)
    assert type(caught.value) is kind
    assert message in caught.value.message
    assert call.attempts[0].error is caught.value
    assert caught.value.status in {status, None}
    assert len(provider.requests) == 1, "the library must not retry behind our back"


@pytest.mark.parametrize("code", ["enforced_spend_limit_reached", "contract_spend_limit_reached"])
async def test_t10_a_spending_limit_that_comes_as_a_rate_limit_is_out_of_credit(
    provider: Provider, code: str
):
    """T10: no money left is told apart from too fast, and never retried."""
    detail = {"error_code": code}
    error = {"type": "rate_limit_error", "message": "Limit reached.", "details": detail}
    provider.answers(Answer(status=429, document={"type": "error", "error": error}))
    failed = await failure(worker(provider), OutOfCreditError)
    assert not failed.transient


async def test_t14_a_ramp_limit_is_a_rate_limit_whose_wait_is_kept(provider: Provider):
    """T14: what the library raises by its own class is told apart all the same."""
    detail = {"error_code": "ramp_limit_exceeded"}
    error = {"type": "rate_limit_error", "message": "Too steep.", "details": detail}
    answer = Answer(
        status=429, document={"type": "error", "error": error}, headers={"retry-after": "30"}
    )
    provider.answers(answer)
    failed = await failure(worker(provider), RateLimitedError)
    assert (failed.transient, failed.retry_after_s) == (True, 30)


@pytest.mark.parametrize(
    ("type_", "kind"),
    [
        ("overloaded_error", OverloadedError),
        ("api_error", OverloadedError),
        ("rate_limit_error", RateLimitedError),
        ("billing_error", OutOfCreditError),
    ],
)
async def test_t12_an_error_inside_a_stream_that_began_well_keeps_the_providers_words(
    provider: Provider, type_: str, kind: type[WorkerError]
):
    """T12: a stream with an error in it is a failure, whatever came before."""
    error = {"type": "error", "error": {"type": type_, "message": "Fell over"}}
    provider.answers(Answer([message_start(), *block("text", "Half a rep"), error]))
    failed = await failure(worker(provider), kind)
    assert "Fell over" in failed.message
    assert failed.status is None


async def test_t14_the_wait_that_the_endpoint_asks_for_is_kept(provider: Provider):
    """T14: retry-after survives the library's own exceptions."""
    provider.answers(anthropic_error(429, "rate_limit_error", "Slow down", retry_after="7"))
    error = await failure(worker(provider), RateLimitedError)
    assert error.retry_after_s == 7


async def test_no_error_text_ever_holds_a_key(provider: Provider):
    provider.answers(anthropic_error(401, "authentication_error", f"invalid key {SECRET}"))
    error = await failure(worker(provider), AuthenticationError)
    assert SECRET not in error.message
    assert "Check ANTHROPIC_API_KEY." in error.message
    assert error.__suppress_context__, "a traceback must not show the library's own text"


async def test_a_missing_key_names_its_variable_and_sends_nothing(provider: Provider):
    call = RecordedCall()
    with pytest.raises(AuthenticationError, match="ANTHROPIC_API_KEY"):
        await ask(worker(provider, key=ApiKey("ANTHROPIC_API_KEY")), call)
    assert (provider.requests, call.attempts) == ([], [])


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("tool_use", MalformedReplyError),
        ("pause_turn", MalformedReplyError),
        ("a_new_reason", MalformedReplyError),
        (None, MalformedReplyError),
        ("refusal", RefusedError),
    ],
)
async def test_t16_a_stop_reason_that_is_no_end_is_an_error(
    provider: Provider, reason: str | None, kind: type[WorkerError]
):
    """T11, T16: text before such an end is not an answer."""
    provider.answers(anthropic_reply("Some text", reason=reason))
    await failure(worker(provider), kind)


@pytest.mark.parametrize("reason", ["max_tokens", "model_context_window_exceeded"])
async def test_a_reply_cut_off_at_a_limit_says_so(provider: Provider, reason: str):
    provider.answers(anthropic_reply("Forty", reason=reason))
    assert (await ask(worker(provider))).finish_reason == "length"


@pytest.mark.parametrize("reason", ["end_turn", "stop_sequence"])
async def test_a_reply_that_ended_by_itself_says_so(provider: Provider, reason: str):
    provider.answers(anthropic_reply("Forty-two", reason=reason))
    assert (await ask(worker(provider))).finish_reason == "stop"


@pytest.mark.parametrize(
    ("details", "words"),
    [
        ({"type": "refusal", "category": "bio", "explanation": "Too risky."}, "Too risky."),
        ({"type": "refusal", "category": "cyber"}, "cyber"),
        (None, "no reason"),
    ],
)
async def test_t11_a_refusal_says_why(
    provider: Provider, details: dict[str, object] | None, words: str
):
    """T11: a refusal is a failure, and its text the provider's, never one of ours."""
    pieces = [message_start(), *message_end("refusal", details=details)]
    provider.answers(Answer(pieces))
    error = await failure(worker(provider), RefusedError)
    assert words in error.message


@pytest.mark.parametrize(
    ("reason", "words"), [("end_turn", "empty"), ("max_tokens", "max_output_tokens")]
)
async def test_t20_t21_thinking_alone_is_an_empty_reply_whose_usage_is_kept(
    provider: Provider, reason: str, words: str
):
    """T20, T21: thinking never stands in for a reply; one that ate the limit says so."""
    provider.answers(Answer([message_start(), *block("thinking", "Hm"), *message_end(reason)]))
    call = RecordedCall()
    with pytest.raises(EmptyReplyError, match=words) as caught:
        await ask(worker(provider), call)
    assert caught.value.used_up == (reason == "max_tokens")
    assert call.attempts[0].usages[-1].output_tokens == 20


SIGNATURE = "EqQBCgIYAhIkVGhpcyBpcyBhIHNpZ25hdHVyZQ"


async def test_t19_thinking_is_kept_apart_and_its_signature_not_at_all(provider: Provider):
    """T19: nothing that only this model may read can reach another worker."""
    signed = {"type": "signature_delta", "signature": SIGNATURE}
    redacted = {"type": "redacted_thinking", "data": SIGNATURE}
    pieces: list[Piece] = [
        message_start(),
        *block("thinking", "Six ", "sevens."),
        {"type": "content_block_delta", "index": 0, "delta": signed},
        {"type": "content_block_start", "index": 1, "content_block": redacted},
        {"type": "content_block_stop", "index": 1},
        *block("text", "42", index=2),
        *message_end(),
    ]
    provider.answers(Answer(pieces))
    reply = await ask(worker(provider))
    assert (reply.text, reply.reasoning) == ("42", "Six sevens.")
    assert SIGNATURE not in reply.model_dump_json()


@pytest.mark.parametrize(
    ("model", "thinking", "limit", "sent"),
    [
        ("claude-test", None, 9000, None),
        ("claude-test", "off", 9000, {"type": "disabled"}),
        ("claude-sonnet-5-5", "off", 9000, {"type": "between_tools"}),
        ("claude-test", "adaptive", 9000, {"type": "adaptive", "display": "summarized"}),
        ("claude-test", 4000, 9000, {"type": "enabled", "budget_tokens": 4000}),
        ("claude-test", 8000, 4000, {"type": "enabled", "budget_tokens": 3000}),
        ("claude-test", 8000, 1200, {"type": "disabled"}),
    ],
)
async def test_thinking_goes_as_the_manifest_says_and_leaves_room_for_the_reply(
    provider: Provider,
    model: str,
    thinking: Thinking | None,
    limit: int,
    sent: dict[str, object] | None,
):
    provider.answers(anthropic_reply("42"))
    asked = worker(provider, thinking=thinking, model=model, max_output_tokens=9000)
    call = RecordedCall()
    await ask(asked, call, max_output_tokens=limit)
    assert provider.bodies[0].get("thinking") == call.attempts[0].request.get("thinking") == sent


async def test_a_manifest_can_say_how_a_model_thinks(provider: Provider, tmp_path: Path):
    provider.answers(anthropic_reply("42"))
    text = f"""
    [[worker]]
    name = "claude"
    kind = "anthropic"
    model = "claude-test"
    base_url = "{provider.url}"
    thinking = 2000
    effort = "low"
    """
    async with open_pool(
        parse_manifest(text, "pool.toml"),
        env={},
        models_dir=tmp_path / "models",
        state_dir=tmp_path / "state",
        memory_limit_bytes=2**30,
        notify=lambda text: None,
    ) as pool:
        with anyio.fail_after(10):
            await pool.workers[0].reply(Prompt.of("?"), ModelSettings(), RecordedCall())
    assert provider.bodies[0]["thinking"] == {"type": "enabled", "budget_tokens": 2000}
    assert provider.bodies[0]["output_config"] == {"effort": "low"}


@pytest.mark.parametrize(("thinking", "sent"), [("adaptive", None), (1024, None), ("off", 0.2)])
async def test_t18_a_model_that_thinks_gets_no_temperature(
    provider: Provider, thinking: Thinking, sent: float | None
):
    """T18: a temperature is not sent where it would be refused."""
    provider.answers(anthropic_reply("42"))
    asked = worker(provider, thinking=thinking, temperature=0.2, max_output_tokens=9000)
    await ask(asked)
    assert provider.bodies[0].get("temperature") == sent


@pytest.mark.parametrize(
    ("model", "thinking", "floor"),
    [
        ("claude-test", "", 0),
        ("claude-opus-5-5", "", 8192),
        ("claude-opus-5-5", 'thinking = "off"', 0),
        ("claude-fable-5-2", "", 8192),
    ],
)
def test_t20_the_card_of_a_model_that_thinks_unasked_says_what_that_may_eat(
    model: str, thinking: str, floor: int
):
    """T20: a small limit is not eaten by thinking before the reply begins."""
    text = f'[[worker]]\nname = "c"\nkind = "anthropic"\nmodel = "{model}"\n{thinking}'
    (entry,) = parse_manifest(text, "pool.toml").workers
    assert isinstance(entry, AnthropicEntry)
    assert entry.card.reasoning_floor == floor


@pytest.mark.parametrize(
    ("model", "sent"),
    [("claude-test", 0.5), ("claude-sonnet-5-5", None), ("claude-opus-4-7", None)],
)
async def test_t18_a_temperature_is_not_sent_to_a_model_that_is_known_to_refuse_it(
    provider: Provider, model: str, sent: float | None
):
    """T18: known before the first request, and the record says what was sent."""
    provider.answers(anthropic_reply("42"))
    call = RecordedCall()
    await ask(worker(provider, model=model), call, temperature=0.5)
    assert provider.bodies[0].get("temperature") == sent
    assert call.attempts[0].request.get("temperature") == sent


async def test_the_plan_schema_goes_as_the_interface_takes_it(provider: Provider):
    provider.answers(anthropic_reply('{"steps": []}'))
    schema = plan_schema(POOL, max_steps=5)
    await ask(worker(provider), max_output_tokens=400, temperature=0.0, response_schema=schema)
    check_golden("plan_anthropic", provider.bodies[0])


async def test_thinking_that_cannot_be_switched_off_stays_on_and_is_remembered(provider: Provider):
    message = (
        '"thinking.type.disabled" is not supported for this model. Use "thinking.type.adaptive" '
        'and "output_config.effort" to control thinking behavior.'
    )
    provider.answers(anthropic_error(400, "invalid_request_error", message), anthropic_reply("42"))
    await ask(worker(provider, thinking="off", effort="low"))
    first, second = provider.bodies
    assert first["thinking"] == {"type": "disabled"}
    assert "thinking" not in second
    assert second["output_config"] == {"effort": "low"}, "it only stood in the advice"


async def test_a_refusal_of_one_way_of_thinking_says_nothing_of_another(
    provider: Provider, tmp_path: Path
):
    message = '"thinking.type.disabled" is not supported for this model.'
    provider.answers(anthropic_error(400, "invalid_request_error", message), anthropic_reply("42"))
    told: list[str] = []
    learned = Learned(tmp_path, told.append)
    for thinking in ("off", "off", "adaptive"):
        await ask(worker(provider, thinking=thinking, learned=learned))
    forms = [body.get("thinking") for body in provider.bodies]
    assert forms == [
        {"type": "disabled"},
        None,
        None,
        {"type": "adaptive", "display": "summarized"},
    ]
    assert len(told) == 1
    assert "thinking.disabled" in told[0]


# The provider's cache of a beginning that prompts share.

LONG_ENOUGH = "a" * (4 * CACHE_FROM)  # one word: the simulated provider counts few tokens


async def sent_content(provider: Provider, prompt: Prompt, *, role: str = "") -> object:
    """What the last message holds on the wire."""
    provider.answers(anthropic_reply("42"))
    asked = worker(provider, role=role)
    with anyio.fail_after(10):
        await asked.reply(prompt, ModelSettings(), RecordedCall())
    await asked.aclose()
    return provider.requests[-1].messages[-1]["content"]


async def test_a_beginning_that_prompts_share_is_marked_for_the_cache(provider: Provider):
    prompt = Prompt.of(f"{LONG_ENOUGH}\nDo this.", shared_prefix=len(LONG_ENOUGH))
    assert await sent_content(provider, prompt) == [
        {"type": "text", "text": LONG_ENOUGH, "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": "\nDo this."},
    ]
    whole = Prompt.of(f"{LONG_ENOUGH}\n", shared_prefix=len(LONG_ENOUGH))
    assert await sent_content(provider, whole) == [
        {"type": "text", "text": f"{LONG_ENOUGH}\n", "cache_control": {"type": "ephemeral"}}
    ]


async def test_nothing_is_marked_where_the_model_would_not_cache_it(provider: Provider):
    short = Prompt.of("A question. Do this.", shared_prefix=12)
    assert await sent_content(provider, short) == "A question. Do this."
    alone = Prompt.of(f"{LONG_ENOUGH}Do this.")
    assert await sent_content(provider, alone) == f"{LONG_ENOUGH}Do this."


async def test_what_stands_before_the_message_counts_towards_the_cache(provider: Provider):
    half = LONG_ENOUGH[: len(LONG_ENOUGH) // 2]
    prompt = Prompt.of(f"{half}Do this.", shared_prefix=len(half))
    assert await sent_content(provider, prompt) == f"{half}Do this."
    marked = await sent_content(provider, prompt, role=half)
    assert isinstance(marked, list)


def test_a_model_of_the_table_caches_from_its_own_size_on():
    prompt = Prompt.of("word " * 1000 + "Do this.", shared_prefix=5000)
    for model, characters in (("claude-opus-5-5", 5000), ("claude-haiku-4-5", 0)):
        asked = AnthropicWorker(
            card().model_copy(update={"model": model}), key=KEY, base_url=ANTHROPIC_URL
        )
        assert asked.to_cache(prompt.messages) == characters, model


async def test_the_record_says_what_was_marked(provider: Provider):
    provider.answers(anthropic_reply("42"))
    asked, call = worker(provider), RecordedCall()
    prompt = Prompt.of(f"{LONG_ENOUGH}Do this.", shared_prefix=len(LONG_ENOUGH))
    with anyio.fail_after(10):
        await asked.reply(prompt, ModelSettings(), call)
    await asked.aclose()
    assert call.attempts[0].request["cached_characters"] == len(LONG_ENOUGH)


async def test_an_address_that_takes_no_marks_gets_none_from_then_on(provider: Provider):
    message = "messages.0.content.0.text.cache_control: Extra inputs are not permitted"
    provider.answers(anthropic_error(400, "invalid_request_error", message), anthropic_reply("42"))
    asked, call = worker(provider), RecordedCall()
    prompt = Prompt.of(f"{LONG_ENOUGH}Do this.", shared_prefix=len(LONG_ENOUGH))
    with anyio.fail_after(10):
        for _ in range(2):
            assert (await asked.reply(prompt, ModelSettings(), call)).text == "42"
    await asked.aclose()
    kinds = [type(asked.messages[-1]["content"]) for asked in provider.requests]
    assert kinds == [list, str, str]
    assert [attempt.error is None for attempt in call.attempts] == [False, True, True]


@pytest.mark.parametrize(
    "pieces",
    [
        [message_start(), *block("text", "Forty")],
        ["event: message_start\ndata: {not json\n\n"],
        [],
    ],
)
async def test_a_stream_that_ends_without_an_end_mark_is_malformed(
    provider: Provider, pieces: Sequence[Piece]
):
    provider.answers(Answer(pieces))
    await failure(worker(provider), MalformedReplyError)


async def test_a_connection_that_breaks_in_the_middle_is_unreachable(provider: Provider):
    provider.answers(Answer([message_start(), "HANG UP"]))
    await failure(worker(provider), UnreachableError)


BEGUN = Usage(input_tokens=100, cached_tokens=40, output_tokens=1, cost_usd=None)
"""What is known of a reply whose end has not come: what it has made so far nobody says."""
OVERLOADED: Piece = {
    "type": "error",
    "error": {"type": "overloaded_error", "message": "Fell over"},
}


@pytest.mark.parametrize("rest", [["HANG UP"], [OVERLOADED], []], ids=["hung up", "error", "end"])
@pytest.mark.parametrize(("price", "cost"), [(PRICE, None), (None, None), (FREE, 0.0)])
async def test_a_reply_that_breaks_off_before_its_last_count_has_an_unknown_price(
    provider: Provider, rest: Sequence[Piece], price: Price | None, cost: float | None
):
    """T12, T34: the words so far are billed, though nobody says how many they were."""
    provider.answers(Answer([message_start(), *block("text", "Half a rep"), *rest]))
    call = RecordedCall()
    with pytest.raises(WorkerError):
        await ask(worker(provider, price=price), call)
    usages = call.attempts[0].usages
    assert usages[-1] == BEGUN.model_copy(update={"cost_usd": cost})


async def test_a_reply_that_breaks_off_after_its_last_count_is_priced(provider: Provider):
    last, _ = message_end()
    provider.answers(Answer([message_start(), *block("text", "42"), last, "HANG UP"]))
    call = RecordedCall()
    with pytest.raises(UnreachableError):
        await ask(worker(provider, price=PRICE), call)
    usage = call.attempts[0].usages[-1]
    assert (usage.output_tokens, usage.cost_usd) == (20, (100 + 20) / 1_000_000)


async def test_nobody_listening_is_unreachable():
    nobody = AnthropicWorker(card(), key=KEY, base_url="http://127.0.0.1:9")
    await failure(nobody, UnreachableError)


@pytest.mark.parametrize(
    ("answer", "limits", "limit"),
    [
        (Answer(before="STALL"), TimeLimits(first_byte_s=0.5), "first_byte"),
        (
            Answer([message_start(), *block("text", "F"), "STALL"]),
            TimeLimits(first_byte_s=60, idle_s=0.5),
            "idle",
        ),
    ],
)
async def test_silence_strikes_a_limit_and_hangs_up(
    provider: Provider, answer: Answer, limits: TimeLimits, limit: str
):
    provider.answers(answer)
    error = await failure(worker(provider, limits=limits), SlowReplyError)
    assert isinstance(error, SlowReplyError)
    assert error.limit == limit
    assert await to_thread.run_sync(provider.disconnected.wait, 10)


async def test_pings_keep_a_silent_model_alive(provider: Provider):
    provider.answers(Answer([PING, *[PING] * 20, *anthropic_reply("42").pieces]))
    reply = await ask(worker(provider, limits=TimeLimits(first_byte_s=5, idle_s=5)))
    assert reply.text == "42"


async def test_a_stopped_call_hangs_up_within_a_second_and_keeps_the_usage_so_far(
    provider: Provider,
):
    provider.answers(Answer([message_start(), "STALL"]))
    asked = worker(provider, price=PRICE)
    call = RecordedCall()

    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            group.start_soon(asked.reply, Prompt.of("?"), ModelSettings(), call)
            assert await to_thread.run_sync(provider.stalling.wait, 5)
            while not call.attempts[0].usages:
                await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()

    assert await to_thread.run_sync(provider.disconnected.wait, 10)
    await asked.aclose()
    (attempt,) = call.attempts
    assert attempt.usages[-1] == BEGUN
    assert attempt.reply is None


def raised(kind: type[Exception]) -> Exception:
    """An instance of a class of the library, made as the library makes it."""
    request = httpx2.Request("POST", "http://127.0.0.1/v1")
    response = httpx2.Response(400, request=request)
    if issubclass(kind, anthropic.APIResponseValidationError):
        return kind(response, None)
    if issubclass(kind, anthropic.APIStatusError):
        return kind("no", response=response, body=None)
    if issubclass(kind, anthropic.APITimeoutError | anthropic.APIConnectionError):
        return kind(request=request)
    if issubclass(kind, anthropic.APIError):
        return kind("no", request, body=None)
    if issubclass(kind, WorkloadIdentityError):
        return kind("no")
    error = kind.__new__(kind)
    Exception.__init__(error, "no")
    return error


OUR_MISTAKES = {
    "MissingDependencyError",
    "MutuallyExclusiveAuthError",
    "StreamAlreadyConsumed",
    "ToolsetClosedError",
    "ToolsetConfigError",
    "ToolsetContractError",
    "ToolsetUsageError",
    "ToolsetsFixedError",
}
"""Exceptions that only a wrong use of the library raises: they stay what they are."""


def exceptions_of_the_library() -> list[type[Exception]]:
    """Every class of exception that the library has, wherever in it; most are imported late."""
    for module in pkgutil.walk_packages(anthropic.__path__, "anthropic."):
        if "error" in module.name.rpartition(".")[2]:
            importlib.import_module(module.name)
    return with_subclasses(anthropic.AnthropicError)


@pytest.mark.parametrize("kind", exceptions_of_the_library(), ids=lambda kind: kind.__name__)
def test_t14_every_exception_of_the_library_is_translated(kind: type[Exception]):
    """T14: a class that nobody thought of fails here, not in a user's run."""
    ours = any(parent.__name__ in OUR_MISTAKES for parent in kind.__mro__)
    with (
        pytest.raises(kind if ours else WorkerError),
        translated(anthropic.AnthropicError, meaning, KEY),
    ):
        raise raised(kind)


def test_t14_there_are_as_many_exceptions_as_the_library_is_known_to_have():
    """T14: an empty walk would prove nothing."""
    assert len(exceptions_of_the_library()) > 150


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (Answer(document={"type": "model", "id": "claude-test"}), None),
        (anthropic_error(404, "not_found_error", "model: claude-test"), UnknownModelError),
        (anthropic_error(401, "authentication_error", "invalid"), AuthenticationError),
    ],
)
async def test_a_health_check_asks_for_the_very_model(
    provider: Provider, answer: Answer, kind: type[WorkerError] | None
):
    provider.answers(answer)
    if kind is None:
        assert "claude-test" in await worker(provider).check()
    else:
        with pytest.raises(kind):
            await worker(provider).check()
    (asked,) = provider.requests
    assert asked.path == "/v1/models/claude-test"
    assert asked.headers["authorization"] == f"Bearer {SECRET}"


@pytest.mark.live
async def test_a_real_model_of_anthropic_answers():
    secret = os.environ.get("ANTHROPIC_API_KEY")
    if not secret:
        pytest.skip("ANTHROPIC_API_KEY is not set")
    real = AnthropicWorker(
        card().model_copy(update={"model": "claude-haiku-5-5", "max_output_tokens": 2000}),
        key=ApiKey("ANTHROPIC_API_KEY", SecretStr(secret)),
        base_url=ANTHROPIC_URL,
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
