import os

import anyio
import pytest
from pydantic import JsonValue, SecretStr
from tests.asking import ask, failure
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
    RefusedError,
    UnknownModelError,
    UnreachableError,
    UnsupportedParameterError,
    WorkerError,
)
from podium_workers.openai import OpenAIWorker
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


async def test_a_reply_that_repeats_the_key_is_given_without_it(provider: Provider):
    provider.answers(openai_reply(f"Your key is {SECRET[:9]}", f"{SECRET[9:]}."))

    assert (await ask(worker(provider))).text == "Your key is [key]."


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
    provider.answers(lambda asked: refusal if "seed" in asked.body else openai_reply("42"))
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


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
async def test_reasoning_is_kept_apart_from_the_text(provider: Provider, name: str):
    pieces: list[Piece] = [chunk({name: "Six sevens. "}), chunk({name: "Easy."})]
    provider.answers(Answer([*pieces, chunk({"content": "42"}), chunk(finish="stop"), DONE]))
    reply = await ask(worker(provider))
    assert (reply.text, reply.reasoning) == ("42", "Six sevens. Easy.")


async def test_a_choice_that_only_tells_of_a_filter_is_read_over(provider: Provider):
    """As Azure's filter, when it works beside the model."""
    results = {"hate": {"filtered": False, "severity": "safe"}}
    offsets = {"check_offset": 0, "start_offset": 0, "end_offset": 9}
    told = {"content_filter_results": results, "content_filter_offsets": offsets}
    choice = {"index": 0, "finish_reason": None, **told}
    filters: list[Piece] = [chunk(choices=[choice | {"delta": None}]), chunk(choices=[choice])]
    text = chunk({"content": "Forty-two"})
    provider.answers(Answer([text, filters[0], chunk(finish="stop"), filters[1], DONE]))
    assert (await ask(worker(provider))).text == "Forty-two"


async def test_a_reply_that_such_a_filter_ends_is_held_back(provider: Provider):
    choice = {"index": 0, "finish_reason": "content_filter", "delta": None}
    provider.answers(Answer([chunk({"content": "Forty"}), chunk(choices=[choice]), DONE]))
    await failure(worker(provider), RefusedError)


async def test_usage_that_is_missing_is_unknown_and_not_free(provider: Provider):
    provider.answers(openai_reply("42", usage=None))
    reply = await ask(worker(provider, price=Price(input=1, output=1)))
    assert reply.usage == Usage(cost_usd=None)


async def test_usage_that_is_missing_of_a_free_model_is_free(provider: Provider):
    provider.answers(openai_reply("42", usage=None))
    reply = await ask(worker(provider, price=Price(input=0, output=0)))
    assert reply.usage == Usage(cost_usd=0)


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
