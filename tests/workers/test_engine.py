import json
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import httpx2
import pytest
from anyio.abc import Process
from anyio.streams.text import TextReceiveStream
from pydantic import JsonValue
from tests.engine_processes import is_running, processes_of, until
from tests.recorded_call import RecordedCall

from podium_workers.engine.client import Engine, EngineSettings, open_engine
from podium_workers.engine.llama import memory_needed
from podium_workers.engine.state import EngineStatus, ModelSpec, read_address
from podium_workers.errors import UnreachableError
from podium_workers.manifest import parse_manifest
from podium_workers.opening import open_pool
from podium_workers.weights.catalogue import lookup
from podium_workers.weights.pulling import path_of
from podium_workers.worker import ModelSettings, Prompt

pytestmark = pytest.mark.local

ENOUGH = 4_000_000_000
HOLD = """
import sys
import anyio
from pathlib import Path
from podium_workers.engine.client import EngineSettings, open_engine
from podium_workers.engine.state import ModelSpec

async def main():
    settings = EngineSettings.model_validate_json(sys.argv[1])
    async with open_engine(settings) as engine:
        async with engine.chat(ModelSpec(path=Path("/no/such.gguf"), context=512), {}):
            pass
        print((await engine.status()).pid, flush=True)
        await anyio.to_thread.run_sync(sys.stdin.read)

anyio.run(main)
"""
FOR_EVER: dict[str, JsonValue] = {
    "messages": [{"role": "user", "content": "Count."}],
    "ignore_eos": True,
    "stream": True,
    "return_progress": True,
}
SHORT: dict[str, JsonValue] = {
    "messages": [{"role": "user", "content": "Say yes."}],
    "max_tokens": 2,
}


@pytest.fixture
def settings(tmp_path: Path) -> EngineSettings:
    return EngineSettings(state_dir=tmp_path / "engine", memory_limit_bytes=ENOUGH, idle_s=1)


@pytest.fixture
async def engine(settings: EngineSettings) -> AsyncGenerator[Engine]:
    async with open_engine(settings) as opened:
        yield opened
    await until(lambda: not processes_of(settings.state_dir))


@pytest.fixture
def spec(local_models_dir: Path) -> ModelSpec:
    return ModelSpec(path=path_of(lookup("smollm2"), local_models_dir), context=2048, slots=1)


@asynccontextmanager
async def client_process(settings: EngineSettings) -> AsyncGenerator[tuple[Process, int]]:
    """Another process that holds the engine, and the engine's process as it sees it."""
    command = [sys.executable, "-c", HOLD, settings.model_dump_json()]
    async with await anyio.open_process(command, stderr=None) as process:
        assert process.stdout is not None
        try:
            yield process, int(await TextReceiveStream(process.stdout).receive())
        finally:
            if process.returncode is None:
                process.kill()


async def answer(engine: Engine, spec: ModelSpec, request: dict[str, JsonValue]) -> JsonValue:
    with anyio.fail_after(30):
        async with engine.chat(spec, request) as response:
            body: JsonValue = json.loads(await response.aread())
            return body


async def status_of(engine: Engine) -> EngineStatus:
    found = await engine.status()
    assert found is not None
    return found


async def model_process(engine: Engine) -> int:
    pids = [model.pid for model in (await status_of(engine)).models]
    assert len(pids) == 1
    assert pids[0] is not None
    return pids[0]


def environment_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/environ").read_text().split("\0")


async def test_looking_at_the_engine_does_not_start_it(engine: Engine) -> None:
    assert await engine.status() is None


async def test_ten_starts_at_once_give_one_engine(settings: EngineSettings) -> None:
    seen: list[int] = []
    all_seen = anyio.Event()

    async def start() -> None:
        async with client_process(settings) as (_, pid):
            seen.append(pid)
            if len(seen) == 10:
                assert processes_of(settings.state_dir) == [pid]
                all_seen.set()
            await all_seen.wait()

    with anyio.fail_after(90):
        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(start)

    assert len(set(seen)) == 1
    await until(lambda: not processes_of(settings.state_dir))


async def test_the_engine_ends_after_its_last_client_was_killed(settings: EngineSettings) -> None:
    with anyio.fail_after(60):
        async with client_process(settings) as (process, pid):
            assert is_running(pid)
            process.send_signal(signal.SIGKILL)
            await process.wait()

    await until(lambda: not is_running(pid))
    assert read_address(settings.state_dir) is None


async def test_the_engine_stays_while_it_is_held_and_answers(
    engine: Engine, spec: ModelSpec, settings: EngineSettings
) -> None:
    await answer(engine, spec, SHORT)
    first = await status_of(engine)
    with anyio.move_on_after(2 * settings.idle_s):
        async with engine.chat(spec, FOR_EVER) as response:
            await response.aread()
    second = await status_of(engine)

    assert (second.pid, second.clients) == (first.pid, 1)
    assert second.memory_limit_bytes == ENOUGH
    assert [model.spec for model in second.models] == [spec]
    assert second.models[0].resident_bytes > 100_000_000


async def test_nobody_gets_in_without_the_key(engine: Engine, spec: ModelSpec) -> None:
    await answer(engine, spec, SHORT)
    address = read_address(engine.settings.state_dir)
    assert address is not None
    async with httpx2.AsyncClient(base_url=address.url, trust_env=False) as stranger:
        for path in ("/status", "/hold", "/v1/chat/completions", "/absent"):
            response = await stranger.get(path, headers={"Authorization": "Bearer guess"})
            assert response.status_code == 401
        key = {"Authorization": f"Bearer {address.key}"}
        assert (await stranger.get("/status", headers=key)).json()["pid"] == address.pid


async def test_neither_engine_nor_model_sees_a_providers_key(
    settings: EngineSettings, local_models_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "very-secret")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    pool = open_pool(
        parse_manifest('[[worker]]\nname = "a"\nkind = "local"\ngguf = "smollm2"', "pool.toml"),
        env=os.environ,
        models_dir=local_models_dir,
        state_dir=settings.state_dir,
        memory_limit_bytes=ENOUGH,
        notify=print,
    )
    with anyio.fail_after(60):
        async with pool as opened, open_engine(settings) as engine:
            call = RecordedCall()
            await opened.workers[0].reply(Prompt.of("?"), ModelSettings(max_output_tokens=1), call)
            pids = ((await status_of(engine)).pid, await model_process(engine))
            seen = [environment_of(pid) for pid in pids]

    for environment in seen:
        assert "OMP_NUM_THREADS=1" in environment
        assert "very-secret" not in "".join(environment)


async def test_models_end_with_an_engine_that_was_killed_and_the_next_call_starts_both(
    engine: Engine, spec: ModelSpec
) -> None:
    await answer(engine, spec, SHORT)
    supervisor, model = (await status_of(engine)).pid, await model_process(engine)

    os.kill(supervisor, signal.SIGKILL)
    await until(lambda: not is_running(model))
    assert await engine.status() is None
    await answer(engine, spec, SHORT)

    assert (await status_of(engine)).pid != supervisor


async def test_an_engine_that_is_asked_to_end_withdraws_its_address(
    engine: Engine, spec: ModelSpec, settings: EngineSettings
) -> None:
    await answer(engine, spec, SHORT)
    supervisor, model = (await status_of(engine)).pid, await model_process(engine)

    os.kill(supervisor, signal.SIGTERM)
    await until(lambda: not is_running(supervisor) and not is_running(model))

    assert read_address(settings.state_dir) is None


async def test_a_dropped_call_frees_its_place_while_it_writes(
    engine: Engine, spec: ModelSpec
) -> None:
    with anyio.fail_after(30):
        async with engine.chat(spec, FOR_EVER) as response:
            async for line in response.aiter_lines():
                if '"content":"' in line:
                    break

    await answer(engine, spec, SHORT)  # the one place is free
    assert [model.calls for model in (await status_of(engine)).models] == [0]


async def test_a_dropped_call_frees_its_place_while_it_reads(
    engine: Engine, spec: ModelSpec
) -> None:
    messages: list[JsonValue] = [{"role": "user", "content": "word " * 1900}]
    long = {**FOR_EVER, "messages": messages}
    with anyio.fail_after(30):
        async with engine.chat(spec, long) as response:
            async for line in response.aiter_lines():
                if "prompt_progress" in line:
                    break
    dropped = anyio.current_time()
    await answer(engine, spec, SHORT)

    # Reading the rest of that prompt would take 15 s on an idle machine.
    assert anyio.current_time() - dropped < 10


async def test_a_model_that_dies_under_a_call_ends_the_stream_with_an_error(
    engine: Engine, spec: ModelSpec
) -> None:
    lines: list[str] = []
    with anyio.fail_after(30):
        async with engine.chat(spec, FOR_EVER) as response:
            async for line in response.aiter_lines():
                if not lines and '"content":"' in line:
                    os.kill(await model_process(engine), signal.SIGKILL)
                if lines or '"content":"' in line:
                    lines.append(line)

    last = [line for line in lines if line][-1]
    assert json.loads(last.removeprefix("data: "))["error"]["type"] == "unreachable"
    await answer(engine, spec, SHORT)


async def test_a_limit_of_memory_unloads_the_other_model(
    settings: EngineSettings, spec: ModelSpec
) -> None:
    other = spec.model_copy(update={"context": 1024})
    tight = settings.model_copy(update={"memory_limit_bytes": memory_needed(spec) + 50_000_000})
    async with open_engine(tight) as engine:
        await answer(engine, spec, SHORT)
        await answer(engine, other, SHORT)
        models = (await status_of(engine)).models

    assert [model.spec for model in models] == [other]


async def test_a_model_that_nobody_uses_is_unloaded(
    settings: EngineSettings, spec: ModelSpec
) -> None:
    async with open_engine(settings.model_copy(update={"model_idle_s": 0.2})) as engine:
        await answer(engine, spec, SHORT)
        with anyio.fail_after(20):
            while (await status_of(engine)).models:
                pass  # each look is a request of its own


async def test_a_request_without_a_model_is_refused(engine: Engine, spec: ModelSpec) -> None:
    await answer(engine, spec, SHORT)
    address = read_address(engine.settings.state_dir)
    assert address is not None
    key = {"Authorization": f"Bearer {address.key}"}
    async with httpx2.AsyncClient(base_url=address.url, trust_env=False, headers=key) as client:
        for body in (b"", b"[]", b'{"messages": []}', b'{"podium_model": {"path": 3}}'):
            response = await client.post("/v1/chat/completions", content=body)
            assert response.status_code == 400
            assert response.json()["error"]["type"] == "unsupported_parameter"


async def test_a_state_folder_that_cannot_be_made_is_an_error(
    tmp_path: Path, spec: ModelSpec
) -> None:
    (tmp_path / "file").write_text("in the way")
    settings = EngineSettings(state_dir=tmp_path / "file" / "engine", memory_limit_bytes=ENOUGH)
    async with open_engine(settings) as engine:
        with pytest.raises(UnreachableError, match="state_dir"):
            await answer(engine, spec, SHORT)


async def test_an_engine_that_does_not_come_up_is_an_error(
    settings: EngineSettings, spec: ModelSpec
) -> None:
    hurried = settings.model_copy(update={"start_within_s": 0.01})
    async with open_engine(hurried) as engine:
        with pytest.raises(UnreachableError, match=r"engine\.log"):
            await answer(engine, spec, SHORT)
    await until(lambda: not processes_of(settings.state_dir))
