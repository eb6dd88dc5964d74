import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Literal

import anyio
import pytest
from tests.provider_simulator import Answer, Provider, anthropic_reply, openai_reply
from tests.recorded_call import RecordedCall

from podium_workers.asked import Asked
from podium_workers.errors import AuthenticationError, ModelFileError, PoolSelectionError
from podium_workers.local import LocalWorker
from podium_workers.manifest import parse_manifest
from podium_workers.opening import open_pool
from podium_workers.pool import Health, Pool, health
from podium_workers.scripted import ScriptedWorker
from podium_workers.worker import Call, ModelSettings, Prompt, Reply, WorkerCard


def scripted(name: str, where: str = "local") -> ScriptedWorker:
    card = ScriptedWorker.named(name, ["ok"]).card
    return ScriptedWorker(WorkerCard.model_validate(card.model_dump() | {"where": where}), ["ok"])


POOL = Pool(
    workers=(scripted("big", "hosted"), scripted("mid", "hosted"), scripted("tiny")),
    conductor="mid",
    asked=Asked(form="lists", shows="ordinals"),
)


def test_a_pool_knows_its_workers_in_their_order():
    assert POOL.names == ("big", "mid", "tiny")
    assert [card.name for card in POOL.cards] == ["big", "mid", "tiny"]
    assert POOL.get("mid") is POOL.workers[1]


def test_an_unknown_worker_is_an_error_that_lists_the_names():
    with pytest.raises(PoolSelectionError, match=r"did you mean 'tiny'\?.*big \(hosted\)"):
        POOL.get("tinny")


@pytest.mark.parametrize(
    ("workers", "exclude", "local_only", "left"),
    [
        ((), (), False, ("big", "mid", "tiny")),
        (("tiny", "big"), (), False, ("big", "tiny")),
        ((), ("mid",), False, ("big", "tiny")),
        ((), (), True, ("tiny",)),
        (("big", "tiny"), ("big",), False, ("tiny",)),
    ],
)
def test_a_choice_leaves_the_allowed_ones_in_the_pools_order(
    workers: tuple[str, ...], exclude: tuple[str, ...], local_only: bool, left: tuple[str, ...]
):
    chosen = POOL.allowed(workers=workers, exclude=exclude, local_only=local_only)
    assert chosen.names == left
    assert (chosen.asked.form, chosen.asked.shows) == ("lists", "ordinals")


def test_a_conductor_that_is_not_allowed_is_stood_in_for_by_the_strongest_left():
    assert POOL.allowed(exclude=("tiny",)).conductor == "mid"
    assert POOL.allowed(exclude=("mid",)).conductor == "big"
    assert POOL.allowed(local_only=True).conductor == "tiny"


@pytest.mark.parametrize(
    ("workers", "exclude", "local_only", "words"),
    [
        (("nobody",), (), False, "workers: there is no worker 'nobody'"),
        ((), ("nobody",), False, "exclude: there is no worker 'nobody'"),
        (("big",), ("big",), False, "left by this choice"),
        (("big",), (), True, "left by this choice"),
    ],
)
def test_a_choice_that_cannot_be_met_is_an_error_that_lists_the_pool(
    workers: tuple[str, ...], exclude: tuple[str, ...], local_only: bool, words: str
):
    with pytest.raises(PoolSelectionError, match=words) as caught:
        POOL.allowed(workers=workers, exclude=exclude, local_only=local_only)
    assert "big (hosted), mid (hosted), tiny (local)" in str(caught.value)


def test_a_pool_without_local_workers_has_nothing_for_local_only():
    with pytest.raises(PoolSelectionError, match="left by local_only"):
        Pool(workers=POOL.workers[:2], conductor="big").allowed(local_only=True)


ASKED = Asked(form="lists", shows="ordinals", max_steps=2)
LED = replace(POOL, planner=scripted("trained", "hosted"), conductor="trained", asked=ASKED)
"""The same pool under a conductor that does no steps."""


def test_a_conductor_that_does_no_steps_is_none_of_the_workers():
    assert LED.names == ("big", "mid", "tiny")
    assert [worker.card.name for worker in LED.everyone] == ["big", "mid", "tiny", "trained"]
    assert LED.get("trained") is LED.planner
    assert "trained" not in [card.name for card in LED.team]
    with pytest.raises(PoolSelectionError, match=r"tiny \(local\), trained \(hosted, only plans\)"):
        LED.get("train-ed")


@pytest.mark.parametrize(("workers", "exclude"), [((), ()), (("tiny", "mid"), ()), ((), ("big",))])
def test_choosing_workers_leaves_a_conductor_that_does_no_steps(
    workers: tuple[str, ...], exclude: tuple[str, ...]
):
    chosen = LED.allowed(workers=workers, exclude=exclude)
    assert (chosen.conductor, chosen.planner) == ("trained", LED.planner)
    assert (chosen.asked.form, chosen.asked.max_steps) == ("lists", 2)


@pytest.mark.parametrize(("exclude", "local_only"), [(("trained",), False), ((), True)])
def test_who_stands_in_for_a_trained_conductor_is_asked_as_an_untrained_one(
    exclude: tuple[str, ...], local_only: bool
):
    chosen = LED.allowed(exclude=exclude, local_only=local_only)
    assert (chosen.conductor, chosen.planner) == (chosen.names[0], None)
    assert (chosen.asked.form, chosen.asked.shows) == ("json", "cards")
    assert (chosen.asked.prompt, chosen.asked.max_steps) == ("full", None)


def test_a_conductor_that_does_no_steps_alone_is_nobody():
    with pytest.raises(PoolSelectionError, match="No worker of the pool is left by this choice"):
        LED.allowed(workers=("trained",))
    with pytest.raises(PoolSelectionError, match="left by this choice"):
        LED.allowed(exclude=LED.names)


def test_the_team_is_shown_in_the_order_of_the_conductors_training():
    trained = replace(LED, asked=ASKED.model_copy(update={"team": ("tiny", "big", "mid")}))
    assert [card.name for card in trained.team] == ["tiny", "big", "mid"]
    assert trained.names == ("big", "mid", "tiny"), "the order of strength stays"
    assert trained.remark == ""
    alone = trained.without_planner()
    assert (alone.planner, alone.conductor, alone.asked.team) == (None, "big", ())


@pytest.mark.parametrize(
    ("shows", "says"),
    [("ordinals", "so that its choice may mean nothing here"), ("cards", "it may choose worse")],
)
def test_a_team_that_is_not_that_of_the_training_is_remarked_on(
    shows: Literal["ordinals", "cards"], says: str
):
    trained = replace(LED, asked=Asked(shows=shows, team=("tiny", "other")))
    assert "'trained' was trained with tiny, other" in trained.remark
    assert "this team is tiny, big, mid" in trained.remark
    assert says in trained.remark
    assert trained.allowed(exclude=("trained",)).remark == ""


LED_BY_ANOTHER = """
[[worker]]
name = "trained"
kind = "scripted"
replies = ["a plan"]
steps = false
"""


async def test_a_manifests_worker_without_steps_is_opened_as_the_conductor(tmp_path: Path):
    text = "asked.max_steps = 3\nasked.team = ['x', 'dry']\n" + LED_BY_ANOTHER + SCRIPTED
    async with opened(text, tmp_path) as pool:
        assert (pool.names, pool.conductor) == (("dry",), "trained")
        assert (pool.asked.max_steps, pool.asked.team) == (3, ("x", "dry"))
        assert (await ask(pool, "trained")).text == "a plan"


def opened(text: str, tmp_path: Path, **env: str):
    return open_pool(
        parse_manifest(text, "pool.toml"),
        env=env,
        models_dir=tmp_path / "models",
        state_dir=tmp_path / "state",
        memory_limit_bytes=2**30,
        notify=lambda text: None,
    )


async def ask(pool: Pool, name: str) -> Reply:
    with anyio.fail_after(60):
        return await pool.get(name).reply(Prompt.of("?"), ModelSettings(), RecordedCall())


async def test_every_hosted_kind_is_opened_with_its_own_address_and_key(
    provider: Provider, tmp_path: Path
):
    text = f"""
    conductor = "two"
    [[worker]]
    name = "one"
    kind = "openai"
    model = "m1"
    base_url = "{provider.url}/v1"
    api_key_env = "FIRST"
    [[worker]]
    name = "two"
    kind = "anthropic"
    model = "m2"
    base_url = "{provider.url}"
    api_key_env = "SECOND"
    """
    async with opened(text, tmp_path, FIRST=" key-of-first\n", SECOND="key-of-second") as pool:
        assert (pool.names, pool.conductor) == (("one", "two"), "two")
        provider.answers(openai_reply("from one"), anthropic_reply("from two"))
        assert (await ask(pool, "one")).text == "from one"
        assert (await ask(pool, "two")).text == "from two"
    first, second = provider.requests
    assert (first.path, first.headers["authorization"]) == (
        "/v1/chat/completions",
        "Bearer key-of-first",
    )
    assert (second.path, second.headers["authorization"]) == (
        "/v1/messages",
        "Bearer key-of-second",
    )


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
async def test_a_temperature_of_the_manifest_counts_where_a_call_asks_for_none(
    provider: Provider, tmp_path: Path, kind: str
):
    text = f"""
    [[worker]]
    name = "warm"
    kind = "{kind}"
    model = "m"
    base_url = "{provider.url}"
    api_key_env = "KEY"
    temperature = 0.2
    """
    reply = openai_reply("42") if kind == "openai" else anthropic_reply("42")
    provider.answers(reply, reply)
    async with opened(text, tmp_path, KEY="k") as pool:
        for settings in (ModelSettings(), ModelSettings(temperature=0)):
            await pool.workers[0].reply(Prompt.of("?"), settings, RecordedCall())
    assert [body["temperature"] for body in provider.bodies] == [0.2, 0]


SCRIPTED = """
[[worker]]
name = "dry"
kind = "scripted"
replies = ["one", "two"]
[[worker.rule]]
when = "weather"
reply = "sunny"
"""


async def test_a_scripted_pool_gives_a_dry_run(tmp_path: Path):
    async with opened(SCRIPTED, tmp_path) as pool:
        assert [(await ask(pool, "dry")).text for _ in range(3)] == ["one", "two", "two"]
        assert pool.conductor == "dry"


async def test_a_worker_without_its_key_is_listed_and_names_the_variable_when_asked(
    tmp_path: Path,
):
    text = '[[worker]]\nname = "gpt"\nkind = "openai"\nmodel = "gpt-6-luna"'
    async with opened(text, tmp_path, OPENAI_API_KEY="  ") as pool:
        assert pool.names == ("gpt",)
        with pytest.raises(AuthenticationError, match="OPENAI_API_KEY is not set"):
            await ask(pool, "gpt")
        found = await health(pool.get("gpt"))
    assert not found.ok
    assert "OPENAI_API_KEY" in found.detail


async def test_health_asks_the_endpoint(provider: Provider, tmp_path: Path):
    text = f"""
    [[worker]]
    name = "mine"
    kind = "openai"
    model = "m1"
    base_url = "{provider.url}/v1"
    [[worker]]
    name = "gone"
    kind = "openai"
    model = "m1"
    base_url = "http://127.0.0.1:9/v1"
    """
    provider.answers(Answer(document={"data": [{"id": "m1"}]}))
    async with opened(text + SCRIPTED, tmp_path) as pool:
        good, bad, dry = [await health(worker) for worker in pool.workers]
    assert good == Health(name="mine", ok=True, detail=f"{provider.url}/v1 answers and has 'm1'")
    assert not bad.ok
    assert "does not answer" in bad.detail
    assert dry.ok


async def test_local_workers_share_one_engine_and_their_threads_can_be_set(tmp_path: Path):
    text = """
    [[worker]]
    name = "a"
    kind = "local"
    gguf = "smollm2"
    [[worker]]
    name = "b"
    kind = "local"
    gguf = "missing.gguf"
    threads = 3
    temperature = 0.2
    """
    async with opened(text, tmp_path) as pool:
        a, b = pool.workers
        assert isinstance(a, LocalWorker)
        assert isinstance(b, LocalWorker)
        assert a.engine is b.engine
        assert (a.threads, b.threads) == (1, 3)
        assert (a.temperature, b.temperature) == (0, 0.2)
        assert a.models_dir == tmp_path / "models"
        assert not (await health(b)).ok
        with pytest.raises(ModelFileError):
            await ask(pool, "b")
    assert not (tmp_path / "state").exists(), "no engine was needed"


class Unchecked:
    """A worker of somebody else's that cannot be checked."""

    card = POOL.cards[0]

    async def reply(self, prompt: Prompt, settings: ModelSettings, call: Call) -> Reply:
        raise AuthenticationError("no")


async def test_a_worker_that_cannot_be_checked_is_not_called_ill():
    found = await health(Unchecked())
    assert found.ok
    assert "not checked" in found.detail


def test_opening_a_pool_imports_no_providers_library_and_no_http_client():
    program = """
import sys, anyio
from pathlib import Path
from podium_workers.manifest import shipped
from podium_workers.opening import open_pool

async def main():
    kinds = set()
    for name in ("hosted", "mixed"):
        async with open_pool(
            shipped(name), env={}, models_dir=Path("m"), state_dir=Path("s"),
            memory_limit_bytes=1, notify=print,
        ) as pool:
            kinds |= {card.kind for card in pool.cards}
    assert kinds == {"openai", "anthropic", "local"}

anyio.run(main)
heavy = {"openai", "anthropic", "httpx2", "xllamacpp", "huggingface_hub"} & set(sys.modules)
sys.exit(f"imported: {heavy}" if heavy else 0)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


PROGRAMS = """
[[worker]]
name = "programs"
kind = "program"
by = "writer"

[[worker]]
name = "writer"
kind = "scripted"
replies = ["```python\\nprint(6 * 7)\\n```"]

[[worker]]
name = "other"
kind = "scripted"
replies = ["words"]
"""


async def test_a_worker_for_programs_asks_the_pools_own_worker(tmp_path: Path):
    async with opened(PROGRAMS, tmp_path, PATH=os.environ["PATH"]) as pool:
        assert pool.names == ("programs", "writer", "other")
        assert pool.conductor == "writer", "a plan is no program"
        worker = pool.get("programs")
        if not (found := await health(worker)).ok:
            pytest.skip(found.detail)
        reply = await ask(pool, "programs")
    assert reply.text.startswith("42\n")


async def test_who_leaves_a_worker_out_leaves_out_what_would_ask_it(tmp_path: Path):
    async with opened(PROGRAMS, tmp_path) as pool:
        assert pool.allowed(exclude=["writer"]).names == ("other",)
        assert pool.allowed(exclude=["other"]).conductor == "writer"
        alone = pool.allowed(workers=["programs", "other"])
        assert (alone.names, alone.conductor) == (("programs", "other"), "other")
        assert pool.allowed(workers=["programs"]).conductor == "programs"


async def test_a_command_gets_the_prompt_and_of_the_environment_what_it_may_have(tmp_path: Path):
    text = '[[worker]]\nname = "helper"\nkind = "command"\ncommand = ["sh", "-c", "cat; env"]\n'
    env = {"PATH": os.environ["PATH"], "OPENAI_API_KEY": "sk-secret-secret-1"}
    async with opened(text, tmp_path, **env) as pool:
        reply = await ask(pool, "helper")
    assert reply.text.startswith("?")
    assert "PODIUM_NESTED=1" in reply.text
    assert "OPENAI_API_KEY" not in reply.text
