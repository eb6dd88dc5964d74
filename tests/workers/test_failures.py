"""What users of other servers ran into, by the number under which it was collected (T10 to T22).

Each of these fails without its handling. T15 and T35, failure caps and reservations, belong to the
ledger; T34, money, is `test_prices.py`.
"""

from collections.abc import Callable, Sequence

import anyio
import pytest
from pydantic import JsonValue, SecretStr
from tests.asking import ask, failure
from tests.compatible_simulator import (
    gemini_reply,
    ollama,
    openrouter_error,
    openrouter_reply,
    reasons_first,
    vllm_error,
)
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
    UnsupportedParameterError,
    WorkerError,
)
from podium_workers.hosted.finish import meaning_of_finish
from podium_workers.hosted.reasoning import reply_within, split_thinking
from podium_workers.hosted.silent_cut import check_all_read, least_tokens
from podium_workers.openai import OpenAIWorker
from podium_workers.quirks import quirks_of
from podium_workers.responses import ResponsesWorker
from podium_workers.retry import reply_with_retry, roomier
from podium_workers.vllm import AttachedVllmWorker
from podium_workers.wire import ApiKey, TimeLimits
from podium_workers.worker import Message, ModelSettings, Price, Prompt, Reply, WorkerCard

KEY = ApiKey(variable="OPENAI_API_KEY", secret=SecretStr("sk-proj-abcdef0123456789ABCDEF"))
PROSE = "The quick brown fox jumps over the lazy dog near the old stone bridge. "
"""Fourteen words."""
SCHEMA: dict[str, JsonValue] = {"type": "object", "properties": {"a": {"type": "string"}}}


def card(*, price: Price | None = None, limit: int = 500) -> WorkerCard:
    return WorkerCard(
        name="gpt",
        kind="openai",
        model="gpt-test",
        where="hosted",
        context_window=100_000,
        max_output_tokens=limit,
        price=price,
    )


def worker(
    provider: Provider,
    *,
    price: Price | None = None,
    limit: int = 500,
    limits: TimeLimits | None = None,
) -> OpenAIWorker:
    known = card(price=price, limit=limit)
    return OpenAIWorker(known, key=KEY, base_url=f"{provider.url}/v1", limits=limits)


def on_vllm(provider: Provider) -> AttachedVllmWorker:
    known = card().model_copy(update={"kind": "vllm"})
    return AttachedVllmWorker(known, key=KEY, base_url=f"{provider.url}/v1")


def responses(provider: Provider) -> ResponsesWorker:
    return ResponsesWorker(card(), key=KEY, base_url=f"{provider.url}/v1")


BOTH = pytest.mark.parametrize("open_worker", [worker, responses], ids=["chat", "responses"])


Opening = Callable[[Provider], OpenAIWorker | ResponsesWorker]


async def persistently(asked: OpenAIWorker | ResponsesWorker, call: RecordedCall) -> Reply:
    """Ask as the server does, with its retries."""
    try:
        with anyio.fail_after(10):
            return await reply_with_retry(
                asked, Prompt.of("?"), ModelSettings(), call, first_wait_s=0
            )
    finally:
        await asked.aclose()


@BOTH
@pytest.mark.parametrize(
    ("status", "message", "code"),
    [
        (402, "This request requires more credits", None),
        (400, "Your credit balance is too low", None),
        (429, "You exceeded your current quota", "insufficient_quota"),
    ],
)
async def test_t10_no_credit_is_not_tried_again(
    provider: Provider,
    open_worker: Opening,
    status: int,
    message: str,
    code: str | None,
):
    """T10"""
    provider.answers(openai_error(status, message, code=code))
    with pytest.raises(OutOfCreditError, match=message):
        await persistently(open_worker(provider), RecordedCall())
    assert len(provider.requests) == 1


async def test_t11_a_filtered_reply_of_one_token_is_a_failure_and_no_sentence_is_made_up(
    provider: Provider,
):
    """T11"""
    provider.answers(openai_reply("I", finish="content_filter"))
    error = await failure(worker(provider), RefusedError)
    assert "content_filter" in error.message


@pytest.mark.parametrize("within_choice", [False, True])
@pytest.mark.parametrize(
    ("code", "kind"), [(502, OverloadedError), (429, RateLimitedError), (402, OutOfCreditError)]
)
async def test_t12_an_error_in_the_middle_of_a_stream_is_a_failure_in_the_providers_words(
    provider: Provider, within_choice: bool, code: int, kind: type[WorkerError]
):
    """T12"""
    provider.answers(openrouter_error("Upstream fell over", code, within_choice=within_choice))
    error = await failure(worker(provider), kind)
    assert "Upstream fell over" in error.message


async def test_t12_an_error_without_the_usual_frame_is_seen_too(provider: Provider):
    """T12"""
    provider.answers(vllm_error("CUDA out of memory", 500))
    error = await failure(worker(provider), OverloadedError)
    assert "CUDA out of memory" in error.message


@BOTH
@pytest.mark.parametrize(
    ("status", "message", "kind"),
    [
        (401, "Bad key", AuthenticationError),
        (402, "No credit", OutOfCreditError),
        (429, "Slow down", RateLimitedError),
        (504, "Timed out", OverloadedError),
        (404, "No such model", UnknownModelError),
    ],
)
async def test_t13_class_and_status_and_words_survive(
    provider: Provider,
    open_worker: Opening,
    status: int,
    message: str,
    kind: type[WorkerError],
):
    """T13"""
    provider.answers(openai_error(status, message))
    error = await failure(open_worker(provider), kind)
    assert (error.status, message in error.message) == (status, True)


@BOTH
async def test_t14_the_librarys_own_classes_are_seen_through_and_tried_again(
    provider: Provider, open_worker: Opening
):
    """T14"""
    provider.answers(
        openai_error(429, "Slow down", retry_after_ms="1"),
        openai_error(503, "Busy", retry_after="0"),
        openai_error(500, "Broken"),
    )
    call = RecordedCall()
    with pytest.raises(OverloadedError, match="Broken"):
        await persistently(open_worker(provider), call)
    first, second, third = [attempt.error for attempt in call.attempts]
    assert (type(first), first and first.retry_after_s) == (RateLimitedError, 0.001)
    assert (type(second), second and second.retry_after_s) == (OverloadedError, 0.0)
    assert type(third) is OverloadedError


# Documented finish reasons: OpenAI, Gemini, OpenRouter, and servers that speak their language.
FINISHES = {
    "stop": "stop",
    "length": "length",
    "content_filter": "filtered",
    "tool_calls": "tool",
    "function_call": "tool",
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "SAFETY": "filtered",
    "RECITATION": "filtered",
    "LANGUAGE": "filtered",
    "BLOCKLIST": "filtered",
    "PROHIBITED_CONTENT": "filtered",
    "SPII": "filtered",
    "IMAGE_SAFETY": "filtered",
    "OTHER": "unknown",
    "FINISH_REASON_UNSPECIFIED": "unknown",
    "MALFORMED_FUNCTION_CALL": "tool",
    "UNEXPECTED_TOOL_CALL": "tool",
    "content_filter: PROHIBITED_CONTENT": "filtered",
    "error": "broken",
    "end_turn": "stop",
    "max_tokens": "length",
    "refusal": "filtered",
    "tool_use": "tool",
    "abort": "broken",
    "insufficient_system_resource": "broken",
    "model_length": "length",
    "unload": "broken",
    "": "unknown",
}
_ERRORS: dict[str, type[WorkerError]] = {
    "filtered": RefusedError,
    "broken": OverloadedError,
    "tool": MalformedReplyError,
    "unknown": MalformedReplyError,
}


@pytest.mark.parametrize(("reason", "meaning"), FINISHES.items())
async def test_t16_every_finish_reason_has_its_meaning_and_is_shown(
    provider: Provider, reason: str, meaning: str
):
    """T16"""
    assert meaning_of_finish(reason) == meaning
    provider.answers(openai_reply("Some text", finish=reason))
    if meaning in {"stop", "length"}:
        assert (await ask(worker(provider))).finish_reason == meaning
        return
    error = await failure(worker(provider), _ERRORS[meaning])
    assert meaning == "tool" or repr(reason) in error.message or not reason


async def test_t16_a_stop_without_a_word_says_that_it_was_a_stop(provider: Provider):
    """T16"""
    provider.answers(gemini_reply("", finish="STOP", answer=0))
    error = await failure(worker(provider), EmptyReplyError)
    assert "finish reason 'STOP'" in error.message


async def test_t16_the_reason_of_the_models_provider_is_shown_beside_the_resellers(
    provider: Provider,
):
    """T16"""
    provider.answers(openrouter_reply("I", finish="content_filter", native="RECITATION"))
    error = await failure(worker(provider), RefusedError)
    assert "'RECITATION'" in error.message


async def test_t17_an_unknown_model_learns_the_name_of_its_limit_from_one_refusal(
    provider: Provider,
):
    """T17"""
    words = (
        "Unsupported parameter: 'max_tokens' is not supported with this model. Use "
        "'max_completion_tokens' instead."
    )
    provider.answers(openai_error(400, words, param="max_tokens"), openai_reply("42"))
    call = RecordedCall()
    assert (await ask(worker(provider), call)).text == "42"
    first, second = [attempt.request for attempt in call.attempts]
    assert (first["max_tokens"], second["max_completion_tokens"]) == (500, 500)
    assert "max_tokens" not in second


async def test_t18_an_unknown_models_temperature_is_left_out_after_one_refusal(
    provider: Provider,
):
    """T18"""
    words = "Unsupported value: 'temperature' does not support 0 with this model."
    provider.answers(openai_error(400, words, param="temperature"), openai_reply("42"))
    call = RecordedCall()
    await ask(worker(provider), call, temperature=0.0)
    assert [attempt.request.get("temperature") for attempt in call.attempts] == [0.0, None]


@pytest.mark.parametrize(
    ("given", "thinking", "text"),
    [
        ("<think>Six sevens.</think>\n\n42", "Six sevens.", "42"),
        (" <thinking>\nSix\n</thinking>42", "Six", "42"),
        ("Six sevens.\n</think>\n\n42", "Six sevens.", "42"),
        ("42", "", "42"),
        ("Write </think> to end it.", "", "Write </think> to end it."),
        ("As in:\n<think>\nHm\n</think>\n", "", "As in:\n<think>\nHm\n</think>\n"),
    ],
)
async def test_t19_thinking_that_stands_in_the_text_is_no_part_of_the_reply(
    provider: Provider, given: str, thinking: str, text: str
):
    """T19"""
    assert split_thinking(given) == (thinking, text)
    provider.answers(openai_reply(given))
    reply = await ask(worker(provider))
    assert (reply.text, reply.reasoning) == (text, thinking)


async def test_t19_thinking_that_never_ends_is_a_reply_without_text(provider: Provider):
    """T19"""
    provider.answers(openai_reply("<think>Six sevens, that is"))
    await failure(worker(provider), EmptyReplyError)


async def test_t20_a_reply_that_reasoning_left_no_room_for_gets_more_room_once(
    provider: Provider,
):
    """T20"""
    provider.answers(reasons_first(300))
    settings = ModelSettings(max_output_tokens=100)
    asked, call = worker(provider), RecordedCall()
    with anyio.fail_after(10):
        with pytest.raises(EmptyReplyError) as caught:
            await reply_with_retry(asked, Prompt.of("?"), settings, call)
        more = roomier(settings, asked.card, caught.value)
        assert more is not None
        assert (await reply_with_retry(asked, Prompt.of("?"), more, call)).text == "42"
    await asked.aclose()
    assert [attempt.request["max_tokens"] for attempt in call.attempts] == [100, 400]


async def test_t20_the_workers_own_limit_is_never_passed_and_not_tried_twice(provider: Provider):
    """T20"""
    provider.answers(reasons_first(10_000))
    call = RecordedCall()
    with pytest.raises(EmptyReplyError, match="raise max_output_tokens") as caught:
        await persistently(worker(provider, limit=200), call)
    assert [attempt.request["max_tokens"] for attempt in call.attempts] == [200]
    assert roomier(ModelSettings(), card(limit=200), caught.value) is None
    some = roomier(ModelSettings(max_output_tokens=100), card(limit=200), caught.value)
    assert some == ModelSettings(max_output_tokens=200)


def test_t20_a_reply_that_is_empty_for_another_reason_gets_no_more_room():
    """T20"""
    settings = ModelSettings(max_output_tokens=100)
    assert roomier(settings, card(), EmptyReplyError("The reply is empty.")) is None


ONLY_REASONING: tuple[tuple[str, bool, str | None], ...] = (
    ("Six sevens.</think>\nThe answer is 42.", False, "The answer is 42."),
    ('{"a": "42"}', True, '{"a": "42"}'),
    ('{"a": "42"}', False, None),
    ("Six sevens, so 42.", False, None),
    ("Six sevens, so 42.", True, None),
    ('{"a": "4', True, None),
)


@pytest.mark.parametrize("kind", ["openai", "vllm"])
@pytest.mark.parametrize(("reasoning", "wants_json", "text"), ONLY_REASONING)
async def test_t21_a_reply_in_the_reasoning_channel_is_taken_by_rule_alone_and_marked(
    provider: Provider, reasoning: str, wants_json: bool, text: str | None, kind: str
):
    """T21: what follows a `</think>`, or JSON as a whole where JSON was asked for."""
    assert reply_within(reasoning, wants_json=wants_json) == text
    pieces: list[Piece] = [chunk({"reasoning_content": reasoning}), chunk(finish="stop"), DONE]
    provider.answers(Answer(pieces))
    schema = SCHEMA if wants_json else None
    asked = worker(provider) if kind == "openai" else on_vllm(provider)
    if text is None:
        with pytest.raises(EmptyReplyError, match="reasoned, but gave no reply"):
            await ask(asked, response_schema=schema)
        return
    reply = await ask(asked, response_schema=schema)
    assert (reply.text, reply.note) == (
        text,
        "The reply stood in the reasoning channel of the endpoint.",
    )


async def test_t21_json_in_the_reasoning_channel_is_no_reply_to_who_asked_for_a_grammar(
    provider: Provider,
):
    """T21"""
    thought: Piece = chunk({"reasoning_content": '{"a": "42"}'})
    provider.answers(Answer([thought, chunk(finish="stop"), DONE]))
    with pytest.raises(EmptyReplyError, match="reasoned, but gave no reply"):
        await ask(on_vllm(provider), grammar='root ::= "42"')


async def long_prompt(asked: OpenAIWorker, words: int, call: RecordedCall) -> Reply:
    text = PROSE * (words // 14 + 1)
    try:
        with anyio.fail_after(10):
            return await asked.reply(Prompt.of(text), ModelSettings(), call)
    finally:
        await asked.aclose()


async def test_t22_a_prompt_that_was_cut_in_silence_is_an_error_and_no_bad_answer(
    provider: Provider,
):
    """T22"""
    provider.answers(ollama(4096))
    call = RecordedCall()
    with pytest.raises(ContextTooLongError, match=r"only 4,096 tokens.*context_window = 4096"):
        await long_prompt(worker(provider), 6000, call)
    (attempt,) = call.attempts
    assert attempt.usages[-1].input_tokens == 4096, "what it cost is recorded all the same"


@pytest.mark.parametrize(("words", "context"), [(6000, 32_768), (3000, 4096), (900, 512)])
async def test_t22_a_prompt_that_was_read_whole_or_is_short_raises_no_alarm(
    provider: Provider, words: int, context: int
):
    """T22"""
    provider.answers(ollama(context))
    reply = await long_prompt(worker(provider), words, RecordedCall())
    assert (reply.text, reply.note) == ("42", "")


async def test_t22_an_endpoint_that_does_not_count_is_not_suspected(provider: Provider):
    """T22"""
    provider.answers(ollama(4096, counts=False))
    assert (await long_prompt(worker(provider), 6000, RecordedCall())).note == ""


async def test_t22_tokens_from_a_cache_are_read_too(provider: Provider):
    """T22: some endpoints count what they read from their cache apart from the prompt."""
    usage = {
        "prompt_tokens": 10,
        "completion_tokens": 1,
        "total_tokens": 11,
        "prompt_tokens_details": {"cached_tokens": 8000},
    }
    provider.answers(openai_reply("42", usage=usage))
    reply = await long_prompt(worker(provider), 6000, RecordedCall())
    assert reply.usage.input_tokens == 8010


@pytest.mark.parametrize("context", [4096, 4000])
async def test_t22_a_count_of_exactly_a_windows_size_is_noted(provider: Provider, context: int):
    """T22: not enough to throw a reply away, but to be shown."""
    provider.answers(ollama(context))
    reply = await long_prompt(worker(provider), 3600, RecordedCall())
    assert f"exactly {context:,} tokens" in reply.note


@pytest.mark.parametrize("repeats", [500, 260])
def test_t22_an_endpoint_that_is_known_to_cut_is_not_given_the_benefit_of_the_doubt(repeats: int):
    """T22"""
    endpoint = quirks_of("llama3", "http://127.0.0.1:11434/v1").endpoint
    with pytest.raises(ContextTooLongError, match="larger OLLAMA_CONTEXT_LENGTH, or set"):
        check_all_read([Message(role="user", text=PROSE * repeats)], 4096, endpoint)


@pytest.mark.parametrize(
    ("text", "least"),
    [("", 0), ("It's 42.", 2), ("don\u2019t", 1), ("一二三四", 1), ("x = f(3) + 14", 4)],
)
def test_t22_words_and_numbers_are_what_is_certain(text: str, least: int):
    """T22"""
    assert least_tokens([Message(role="user", text=text)]) == least


async def test_gemini_thinks_at_the_price_of_output(provider: Provider):
    """T34"""
    provider.answers(gemini_reply("42"))
    reply = await ask(worker(provider, price=Price(input=0, output=1_000_000)))
    usage = reply.usage
    assert (usage.output_tokens, usage.reasoning_tokens, usage.cost_usd) == (533, 382, 533.0)


@pytest.mark.parametrize(
    ("status", "message", "kind"),
    [
        (404, "This model is only supported in v1/responses.", UnknownModelError),
        (400, "This is only supported in v1/responses.", UnsupportedParameterError),
    ],
)
async def test_a_model_that_wants_the_other_interface_says_what_to_type(
    provider: Provider, status: int, message: str, kind: type[WorkerError]
):
    provider.answers(openai_error(status, message))
    error = await failure(worker(provider), kind)
    assert error.message.endswith('Set api = "responses" for this worker.')


async def test_an_address_without_responses_says_what_to_type(provider: Provider):
    provider.answers(Answer(status=404, document={"detail": "Not Found"}))
    error = await failure(responses(provider), UnknownModelError)
    assert error.message.endswith('set api = "chat".')


async def test_silence_is_not_tried_again(provider: Provider):
    provider.answers(Answer(before="STALL"))
    call = RecordedCall()
    with pytest.raises(SlowReplyError):
        await persistently(worker(provider, limits=TimeLimits(first_byte_s=0.3)), call)
    assert len(call.attempts) == 1


@pytest.mark.parametrize(
    ("texts", "words"), [((), "The reply is empty"), ((" \n", "\t"), "The reply is empty")]
)
async def test_an_empty_reply_is_asked_for_once_more(
    provider: Provider, texts: Sequence[str], words: str
):
    """T11"""
    provider.answers(openai_reply(*texts))
    call = RecordedCall()
    with pytest.raises(EmptyReplyError, match=words):
        await persistently(worker(provider), call)
    assert len(call.attempts) == 2
