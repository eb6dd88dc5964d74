"""The one plan schema, as each wire of the OpenAI family really sends it."""

import pytest
from pydantic import SecretStr
from tests.asking import ask
from tests.golden import check_golden
from tests.plan_samples import POOL
from tests.provider_simulator import Provider, openai_reply
from tests.responses_simulator import responses_reply

from podium.plan_text import plan_schema
from podium_workers.openai import OpenAIWorker
from podium_workers.responses import ResponsesWorker
from podium_workers.wire import OPENAI_URL, ApiKey
from podium_workers.worker import ModelSettings, WorkerCard

KEY = ApiKey(variable="OPENAI_API_KEY", secret=SecretStr("sk-proj-abcdef0123456789ABCDEF"))
SCHEMA = plan_schema(POOL, max_steps=5)


def card(model: str) -> WorkerCard:
    return WorkerCard(
        name="gpt",
        kind="openai",
        model=model,
        where="hosted",
        context_window=100_000,
        max_output_tokens=16_384,
    )


async def test_openais_responses(provider: Provider):
    provider.answers(responses_reply('{"steps": []}'))
    worker = ResponsesWorker(card("gpt-6.2-sol"), key=KEY, base_url=f"{provider.url}/v1")
    await ask(worker, max_output_tokens=1500, temperature=0.0, seed=1, response_schema=SCHEMA)
    check_golden("plan_openai_responses", provider.bodies[0])


def test_openais_chat_completions():
    """At OpenAI's own address the schema goes in its strict dialect."""
    worker = OpenAIWorker(card("gpt-6.2-sol"), key=KEY, base_url=OPENAI_URL)
    settings = ModelSettings(
        max_output_tokens=1500, temperature=0.0, seed=1, response_schema=SCHEMA
    )
    check_golden("plan_openai_chat", worker.parameters(settings))


@pytest.mark.parametrize("server", ["vllm", "llama_cpp"])
async def test_a_compatible_server(provider: Provider, server: str):
    """vLLM and llama.cpp take the schema as it is, lengths and positions included."""
    provider.answers(openai_reply('{"steps": []}'))
    worker = OpenAIWorker(card("qwen-1.5b"), key=ApiKey(), base_url=f"{provider.url}/v1")
    schema = plan_schema(POOL, max_steps=2, by_position=server == "llama_cpp")
    await ask(worker, max_output_tokens=1500, temperature=0.0, seed=1, response_schema=schema)
    check_golden(f"plan_{server}", provider.bodies[0])
