import json
from datetime import date, timedelta
from fnmatch import fnmatchcase
from pathlib import Path

import anyio
import pytest
from pydantic import SecretStr
from tests.asking import ask
from tests.provider_simulator import Answer, Asked, Provider, openai_error, openai_reply
from tests.recorded_call import RecordedCall
from tests.responses_simulator import responses_reply

from podium_workers.entries.hosted import LONGEST_REPLY, OpenAIEntry
from podium_workers.errors import ManifestError, UnsupportedParameterError
from podium_workers.hosted.learned import FILE_NAME, KEPT_FOR, Learned
from podium_workers.manifest import parse_manifest
from podium_workers.openai import OpenAIWorker
from podium_workers.opening import open_pool
from podium_workers.prices import price_table
from podium_workers.quirks import Family, plain_name, quirks_of, quirks_table
from podium_workers.responses import ResponsesWorker
from podium_workers.wire import OPENAI_URL, ApiKey, entries
from podium_workers.worker import ModelSettings, Prompt, WorkerCard

KEY = ApiKey(variable="OPENAI_API_KEY", secret=SecretStr("sk-proj-abcdef0123456789ABCDEF"))
GEMINI = "https://generativelanguage.googleapis.com/v1beta/openai"
OPENROUTER = "https://openrouter.ai/api/v1"
OLLAMA = "http://127.0.0.1:11434/v1"


def card(model: str = "gpt-test", limit: int = 16_384) -> WorkerCard:
    return WorkerCard(
        name="gpt",
        kind="openai",
        model=model,
        where="hosted",
        context_window=100_000,
        max_output_tokens=limit,
    )


def chat(model: str, url: str, *, effort: str | None = None) -> OpenAIWorker:
    return OpenAIWorker(card(model), key=KEY, base_url=url, effort=effort)


def entry(**keys: object) -> OpenAIEntry:
    lines = {"name": "gpt", "kind": "openai", "model": "m"} | keys
    text = "\n".join(f"{key} = {json.dumps(value)}" for key, value in lines.items())
    (found,) = parse_manifest(f"[[worker]]\n{text}", "pool.toml").workers
    assert isinstance(found, OpenAIEntry)
    return found


# --- The table -----------------------------------------------------------------------------------


def test_every_row_names_where_it_was_read_and_the_table_when():
    table = quirks_table()
    assert table.read <= date.today()
    for family in table.family:
        assert family.source, family.pattern
        assert set(family.source) <= set(table.sources), family.pattern
    for endpoint in table.endpoint:
        assert endpoint.source in table.sources, endpoint.name
        assert endpoint.hosts or endpoint.ports, endpoint.name
    used = {name for family in table.family for name in family.source}
    assert used | {endpoint.source for endpoint in table.endpoint} >= set(table.sources) - {
        "ollama-openai"
    }
    assert all(address.startswith("https://") for address in table.sources.values())


def test_no_row_is_hidden_by_one_before_it():
    rows = quirks_table().family
    for number, row in enumerate(rows):
        for before in rows[:number]:
            assert not fnmatchcase(row.pattern, before.pattern), (before.pattern, row.pattern)


def test_a_window_that_is_named_says_where_it_holds():
    for family in quirks_table().family:
        assert bool(family.window or family.max_output) <= bool(family.hosts), family.pattern


@pytest.mark.parametrize(
    ("model", "plain"),
    [
        ("gpt-6-sol", "gpt-6-sol"),
        ("openai/GPT-6-Sol", "gpt-6-sol"),
        ("models/gemini-3.8-flash", "gemini-3.8-flash"),
        ("deepseek/deepseek-r1:free", "deepseek-r1"),
        ("qwen3:30b-thinking", "qwen3"),
    ],
)
def test_a_models_name_is_read_without_its_provider_and_its_variant(model: str, plain: str):
    assert plain_name(model) == plain


def test_nothing_is_known_of_an_unknown_model_at_an_unknown_address():
    known = quirks_of("my-model", "https://models.example/v1")
    assert known.family == Family(pattern="")
    assert (known.window, known.max_output, known.floor(None)) == (None, None, 0)
    assert known.takes_temperature(None)


def test_windows_hold_at_the_models_own_address_alone():
    assert quirks_of("gpt-4o-mini", OPENAI_URL).window == 128_000
    assert quirks_of("gpt-4o-mini", "https://eu.api.openai.com/v1").window == 128_000
    assert quirks_of("openai/gpt-4o-mini", OPENROUTER).window is None
    assert quirks_of("gpt-4o-mini", "https://api.openai.com.evil.example/v1").window is None


def test_local_servers_are_known_by_their_port():
    assert quirks_of("llama3", OLLAMA).endpoint.name == "Ollama"
    assert quirks_of("llama3", "http://192.168.1.7:8000/v1").endpoint.name == "vLLM"
    assert quirks_of("llama3", "http://127.0.0.1:9999/v1").endpoint.name == ""


# --- What is sent --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "url", "name"),
    [
        ("gpt-6-sol", OPENAI_URL, "max_completion_tokens"),
        ("o4-mini", "https://proxy.example/v1", "max_completion_tokens"),
        ("openai/gpt-5-mini", OPENROUTER, "max_completion_tokens"),
        ("gpt-4o", OPENAI_URL, "max_completion_tokens"),
        ("gemini-3.8-flash", GEMINI, "max_tokens"),
        ("my-model", "https://models.example/v1", "max_tokens"),
    ],
)
def test_the_table_decides_the_name_of_the_limit(model: str, url: str, name: str):
    """T17"""
    sent = chat(model, url).parameters(ModelSettings(max_output_tokens=9000))
    assert {key for key in sent if key.startswith("max_")} == {name}


@pytest.mark.parametrize(
    ("model", "effort", "sent"),
    [
        ("gpt-6.1-sol", None, False),
        ("gpt-6.1-sol", "low", False),
        ("gpt-6-luna", None, False),
        ("gpt-6-luna", "none", True),
        ("o3", None, False),
        ("gpt-4.1-mini", None, True),
        ("my-model", None, True),
    ],
)
def test_a_temperature_that_a_model_refuses_is_never_sent(
    model: str, effort: str | None, sent: bool
):
    """T18"""
    settings = ModelSettings(temperature=0.0)
    for url in (OPENAI_URL, "https://proxy.example/v1"):
        assert ("temperature" in chat(model, url, effort=effort).parameters(settings)) == sent
        responses = ResponsesWorker(card(model), key=KEY, base_url=url, effort=effort)
        assert ("temperature" in responses.parameters(settings)) == sent


def test_the_effort_goes_under_each_interfaces_own_name():
    assert (
        chat("gpt-6-luna", OPENAI_URL, effort="low").parameters(ModelSettings())["reasoning_effort"]
        == "low"
    )
    responses = ResponsesWorker(card("gpt-6-luna"), key=KEY, base_url=OPENAI_URL, effort="low")
    assert responses.parameters(ModelSettings())["reasoning"] == {
        "effort": "low",
        "summary": "auto",
    }


@pytest.mark.parametrize(
    ("keys", "floor"),
    [
        ({"model": "gpt-6-sol"}, 8192),
        ({"model": "gpt-6-sol", "effort": "none"}, 0),
        ({"model": "deepseek/deepseek-r1:free", "base_url": OPENROUTER}, 8192),
        ({"model": "my-model"}, 0),
    ],
)
def test_a_card_says_how_much_reasoning_may_eat(keys: dict[str, object], floor: int):
    """T20"""
    assert entry(**keys).card.reasoning_floor == floor


def test_no_limit_is_ever_larger_than_was_asked_for():
    """T35: what was asked for is what was reserved."""
    settings = ModelSettings(max_output_tokens=100)
    assert chat("gpt-6-sol", OPENAI_URL).parameters(settings)["max_completion_tokens"] == 100
    responses = ResponsesWorker(card("gpt-6-sol"), key=KEY, base_url=OPENAI_URL)
    assert responses.parameters(settings)["max_output_tokens"] == 100


def test_what_an_endpoint_is_known_not_to_take_is_not_sent():
    settings = ModelSettings(seed=1, response_schema={"type": "object"})
    sent = chat("deepseek-flash", "https://api.deepseek.com").parameters(settings)
    assert not {"seed", "response_format"} & set(sent)


# --- The manifest --------------------------------------------------------------------------------


def test_a_size_that_a_manifest_does_not_name_comes_from_the_table():
    known = entry(model="gpt-4o-mini").card
    assert price_table().find("gpt-4o-mini", OPENAI_URL, date.today()) is None
    assert (known.context_window, known.max_output_tokens) == (128_000, 16_384)
    stated = entry(model="gpt-4o-mini", context_window=4096, max_output_tokens=99).card
    assert (stated.context_window, stated.max_output_tokens) == (4096, 99)
    assert entry(model="gpt-5-mini").card.max_output_tokens == LONGEST_REPLY


@pytest.mark.parametrize(
    ("keys", "interface"),
    [
        ({}, "responses"),
        ({"base_url": "https://eu.api.openai.com/v1"}, "responses"),
        ({"api": "chat"}, "chat"),
        ({"base_url": "https://models.example/v1"}, "chat"),
        ({"base_url": "https://models.example/v1", "api": "responses"}, "responses"),
    ],
)
def test_openai_is_asked_by_responses_and_all_others_by_chat(
    keys: dict[str, object], interface: str
):
    assert entry(**keys).interface == interface


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"api": "chat", "background": True}, "background = true needs the Responses interface"),
        ({"base_url": OLLAMA, "background": True}, 'add api = "responses"'),
        ({"model": "gpt-6.1-sol", "effort": "none"}, "choose one of low, medium, high, xhigh, max"),
        ({"api": "respond"}, "api"),
    ],
)
def test_what_cannot_be_is_refused_with_what_to_type(keys: dict[str, object], words: str):
    with pytest.raises(ManifestError, match=words):
        entry(**keys)


def test_an_effort_of_a_model_that_is_not_known_is_taken_as_it_is():
    assert entry(model="my-model", effort="turbo").effort == "turbo"


# --- What is learned -----------------------------------------------------------------------------


def refuses_seed(asked: Asked) -> Answer:
    if "seed" in asked.body:
        return openai_error(400, "Unknown parameter: 'seed'.", param="seed")
    return openai_reply("42")


def unknown(provider: Provider, learned: Learned | None) -> OpenAIWorker:
    return OpenAIWorker(card(), key=KEY, base_url=f"{provider.url}/v1", learned=learned)


async def test_a_refusal_is_paid_once_and_not_once_a_process(provider: Provider, tmp_path: Path):
    """T17"""
    provider.answers(refuses_seed)
    said: list[str] = []
    call = RecordedCall()
    await ask(unknown(provider, Learned(tmp_path, said.append)), call, seed=1)
    assert [attempt.request.get("seed") for attempt in call.attempts] == [1, None]
    (line,) = said
    assert line.startswith(f"gpt-test at {provider.url}/v1 does not take 'seed': not sent from now")

    again = RecordedCall()
    await ask(unknown(provider, Learned(tmp_path, said.append)), again, seed=1)
    assert [attempt.request.get("seed") for attempt in again.attempts] == [None]
    assert len(said) == 1


async def test_another_model_and_another_address_learn_for_themselves(
    provider: Provider, tmp_path: Path
):
    provider.answers(refuses_seed)
    await ask(unknown(provider, Learned(tmp_path)), seed=1)
    learned = Learned(tmp_path)
    assert learned.refused(f"{provider.url}/v1", "gpt-test") == {"seed"}
    assert learned.refused(f"{provider.url}/v1", "other") == set()
    assert learned.refused("https://models.example/v1", "gpt-test") == set()


REFUSED_EFFORTS: tuple[tuple[str, bool], ...] = (
    (
        "Unsupported value: 'minimal' is not supported with the 'gpt-test' model. Supported values "
        "are: 'low', 'medium', and 'high'.",
        True,
    ),
    ("'{name}' does not support 'minimal' with this model.", True),
    ("Unsupported value: '{name}' does not support this.", True),
    ("Unsupported parameter: '{name}' is not supported with this model.", False),
    ("Unrecognized request argument supplied: {name}", False),
)


@pytest.mark.parametrize(("message", "of_value"), REFUSED_EFFORTS)
@pytest.mark.parametrize("api", ["chat", "responses"])
async def test_a_refusal_of_one_effort_says_nothing_of_another(
    provider: Provider, tmp_path: Path, api: str, message: str, of_value: bool
):
    """T17: nobody is left without the effort that they set after the first was refused."""
    name, kind, reply = (
        ("reasoning_effort", OpenAIWorker, openai_reply("42"))
        if api == "chat"
        else ("reasoning.effort", ResponsesWorker, responses_reply("42"))
    )

    def effort_in(asked: Asked) -> object:
        parts = entries(asked.body.get("reasoning"))
        return asked.body.get("reasoning_effort", parts.get("effort"))

    def rule(asked: Asked) -> Answer:
        if effort_in(asked) != "minimal":
            return reply
        return openai_error(400, message.format(name=name), param=name)

    provider.answers(rule)
    url = f"{provider.url}/v1"
    for effort in ("minimal", "minimal", "low"):
        learned = Learned(tmp_path)
        await ask(kind(card(), key=KEY, base_url=url, effort=effort, learned=learned))

    last, kept = ("low", f"{name}.minimal") if of_value else (None, name)
    assert [effort_in(asked) for asked in provider.requests] == ["minimal", None, None, last]
    assert Learned(tmp_path).refused(url, "gpt-test") == {kept}


async def test_what_did_not_help_is_not_kept(provider: Provider, tmp_path: Path):
    provider.answers(
        openai_error(400, "Unknown parameter: 'max_tokens'.", param="max_tokens"),
        openai_error(400, "Unknown parameter: 'max_completion_tokens'."),
    )
    with pytest.raises(UnsupportedParameterError):
        await ask(unknown(provider, Learned(tmp_path)))
    assert not (tmp_path / FILE_NAME).exists()


async def test_calls_at_the_same_time_say_it_once(provider: Provider, tmp_path: Path):
    provider.answers(refuses_seed)
    said: list[str] = []
    asked = unknown(provider, Learned(tmp_path, said.append))
    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(asked.reply, Prompt.of("?"), ModelSettings(seed=1), RecordedCall())
    await asked.aclose()
    assert len(said) == 1


async def test_what_is_old_is_forgotten(tmp_path: Path):
    await Learned(tmp_path).add("http://a", "m", ["new"])
    file = tmp_path / FILE_NAME
    old = {
        "base_url": "http://a",
        "model": "m",
        "parameter": "old",
        "date": str(date.today() - KEPT_FOR - timedelta(days=1)),
    }
    kept = json.loads(file.read_text())
    file.write_text(json.dumps({**kept, "learned": [*kept["learned"], old]}))
    assert Learned(tmp_path).refused("http://a", "m") == {"new"}
    await Learned(tmp_path).add("http://a", "m", ["newer"])
    assert "old" not in file.read_text()


async def test_a_file_that_cannot_be_read_is_said_and_learned_again(tmp_path: Path):
    file = tmp_path / FILE_NAME
    file.write_text("{not json")
    said: list[str] = []
    learned = Learned(tmp_path, said.append)
    assert learned.refused("http://a", "m") == set()
    assert str(file) in said[0]
    await learned.add("http://a", "m", ["seed"])
    assert Learned(tmp_path).refused("http://a", "m") == {"seed"}


async def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path):
    (tmp_path / "state").write_text("a file in its place")
    said: list[str] = []
    await Learned(tmp_path / "state", said.append).add("http://a", "m", ["seed"])
    assert "cannot be written" in said[-1]


async def test_a_pool_opens_the_interface_that_the_manifest_says(
    provider: Provider, tmp_path: Path
):
    provider.answers(responses_reply("42"))
    manifest = parse_manifest(
        f"""
        [[worker]]
        name = "a"
        kind = "openai"
        model = "gpt-6.1-sol"
        base_url = "{provider.url}/v1"
        api = "responses"
        background = true
        effort = "low"
        """,
        "pool.toml",
    )
    async with open_pool(
        manifest,
        env={},
        models_dir=tmp_path,
        state_dir=tmp_path,
        memory_limit_bytes=2**30,
        notify=print,
    ) as pool:
        with anyio.fail_after(10):
            await pool.workers[0].reply(Prompt.of("?"), ModelSettings(), RecordedCall())
    (asked,) = provider.requests
    assert asked.path == "/v1/responses"
    assert asked.body["background"] is True
    assert asked.body["reasoning"] == {"effort": "low", "summary": "auto"}


async def test_a_pool_keeps_what_it_learns_in_the_users_folder(provider: Provider, tmp_path: Path):
    provider.answers(refuses_seed)
    said: list[str] = []
    manifest = parse_manifest(
        f'[[worker]]\nname = "a"\nkind = "openai"\nmodel = "m"\nbase_url = "{provider.url}/v1"',
        "pool.toml",
    )
    async with open_pool(
        manifest,
        env={},
        models_dir=tmp_path,
        state_dir=tmp_path / "state",
        memory_limit_bytes=2**30,
        notify=said.append,
    ) as pool:
        with anyio.fail_after(10):
            await pool.workers[0].reply(Prompt.of("?"), ModelSettings(seed=1), RecordedCall())
    assert (tmp_path / "state" / FILE_NAME).exists()
    assert any("'seed'" in line for line in said)
