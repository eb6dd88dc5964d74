"""Workers on vLLM: what is asked of a server, what a pool may say, and the engine's servers.

The servers here are a stand-in's, which starts in a moment; `test_real_vllm` has real ones.
"""

import os
import re
import signal
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import anyio
import httpx2
import pytest
from pydantic import JsonValue
from tests.engine_processes import is_running, processes_of, until
from tests.plain_vllm import PlainVllm, make_plain_vllm
from tests.provider_simulator import Provider, openai_reply
from tests.recorded_call import RecordedCall

from podium_workers.engine.client import Engine, EngineSettings, open_engine
from podium_workers.entries.hosted import VllmEntry
from podium_workers.entries.vllm_options import OWN_FLAGS, find_python
from podium_workers.errors import (
    AuthenticationError,
    ManifestError,
    ModelFileError,
    NotInstalledError,
    SlowReplyError,
    UnreachableError,
    UnsupportedParameterError,
    WorkerError,
)
from podium_workers.hosted.schemas import spaced
from podium_workers.manifest import load_manifest, parse_manifest
from podium_workers.opening import open_pool
from podium_workers.pool import Pool, health
from podium_workers.retry import reply_with_retry
from podium_workers.vllm import VllmWorker
from podium_workers.worker import ModelSettings, Prompt

ENOUGH = 4_000_000_000
BOUND_S = 60
PROMPT = Prompt.of("Say yes.")
FOR_EVER = Prompt.of("Go on for ever.")
NO_SETTINGS = ModelSettings()
SCHEMA: dict[str, JsonValue] = {
    "type": "object",
    "properties": {"a": {"type": "string", "minLength": 8}},
}


def pool_of(*tables: str) -> str:
    return "\n".join(f'[[worker]]\nkind = "vllm"\n{table}\n' for table in tables)


def only_entry(table: str) -> VllmEntry:
    (entry,) = parse_manifest(pool_of(table), "pool").workers
    assert isinstance(entry, VllmEntry)
    return entry


def arguments(entry: VllmEntry) -> tuple[str, ...]:
    window = entry.card.context_window
    order = entry.order(entry.model, window=window, python=Path("/py"), lora=entry.lora)
    return order.spec.arguments


@dataclass
class Home:
    """A folder in which the engine is at home, and what it said."""

    folder: Path
    plain: PlainVllm
    said: list[str] = field(default_factory=list[str])

    @property
    def settings(self) -> EngineSettings:
        return EngineSettings(state_dir=self.folder / "engine", memory_limit_bytes=ENOUGH, idle_s=1)

    def table(self, name: str = "gpu", *more: str, python: Path | None = None) -> str:
        own = f'name = "{name}"\nmodel = "some/model"\npython = "{python or self.plain.python}"'
        return "\n".join((own, *more))

    @asynccontextmanager
    async def pool(self, *tables: str) -> AsyncGenerator[Pool]:
        async with open_pool(
            parse_manifest(pool_of(*tables), "pool"),
            env={"PATH": os.environ["PATH"]},
            models_dir=self.folder / "models",
            state_dir=self.settings.state_dir,
            memory_limit_bytes=ENOUGH,
            notify=self.said.append,
        ) as pool:
            yield pool

    @asynccontextmanager
    async def engine(self) -> AsyncGenerator[Engine]:
        async with open_engine(self.settings) as engine:
            yield engine

    def beside(self) -> int:
        """The process that the server has started beside its own."""
        (log,) = (self.folder / "engine").glob("vllm-*.log")
        found = re.findall(r"beside: (\d+)", log.read_text())
        return int(found[-1])

    def end(self) -> None:
        for pid in processes_of(self.settings.state_dir):
            os.kill(pid, signal.SIGTERM)


@pytest.fixture
async def home(tmp_path: Path) -> AsyncGenerator[Home]:
    made = Home(tmp_path, make_plain_vllm(tmp_path / "plain"))
    yield made
    made.end()
    await until(lambda: not processes_of(made.settings.state_dir))


def own(pool: Pool, name: str = "gpu") -> VllmWorker:
    worker = pool.get(name)
    assert isinstance(worker, VllmWorker)
    return worker


async def calls_of(worker: VllmWorker) -> int:
    status = await worker.status()
    assert status is not None
    return status.calls


def seen_from_outside(pid: int) -> str:
    """What other users, or a list of processes, may see of a process."""
    process = Path(f"/proc/{pid}")
    return (process / "cmdline").read_text() + (process / "environ").read_text()


async def pid_of(worker: VllmWorker) -> int:
    status = await worker.status()
    assert status is not None
    assert status.pid is not None
    return status.pid


# A server that runs already.


@pytest.mark.parametrize(
    ("settings", "sent"),
    [
        (ModelSettings(response_schema=SCHEMA), {"json": spaced(SCHEMA)}),
        (ModelSettings(grammar='root ::= "yes"'), {"grammar": 'root ::= "yes"'}),
        (
            ModelSettings(grammar='root ::= "yes"', response_schema=SCHEMA),
            {"grammar": 'root ::= "yes"'},
        ),
        (ModelSettings(), None),
    ],
)
async def test_a_reply_is_held_through_structured_outputs(
    provider: Provider, tmp_path: Path, settings: ModelSettings, sent: object
) -> None:
    provider.answers(openai_reply("Yes."))
    table = f'name = "far"\nmodel = "m"\nbase_url = "{provider.url}/v1"\napi_key_env = "FAR_KEY"'
    async with open_pool(
        parse_manifest(pool_of(table), "pool"),
        env={"FAR_KEY": "a-key"},
        models_dir=tmp_path,
        state_dir=tmp_path,
        memory_limit_bytes=ENOUGH,
        notify=lambda text: None,
    ) as pool:
        reply = await pool.get("far").reply(PROMPT, settings, RecordedCall())

    assert reply.text == "Yes."
    assert provider.bodies[0].get("structured_outputs") == sent
    assert "response_format" not in provider.bodies[0]
    assert provider.requests[0].headers["authorization"] == "Bearer a-key"


def test_a_server_elsewhere_is_hosted_and_one_here_is_local() -> None:
    far = only_entry('name = "a"\nmodel = "m"\nbase_url = "http://gpu.example/v1"').card
    near = only_entry('name = "a"\nmodel = "m"\nbase_url = "http://127.0.0.1:8000/v1"').card

    assert (far.where, far.price, near.where, near.kind) == ("hosted", None, "local", "vllm")
    assert near.price is not None
    assert near.price.is_free


# What a pool may say.


def test_a_server_of_ones_own_is_given_what_the_pool_says() -> None:
    entry = only_entry(
        'name = "a"\nmodel = "some/model"\ngpu_memory_utilization = 0.8\nquantization = "awq"\n'
        'dtype = "half"\ncontext_window = 4096\ntensor_parallel = 2\ndata_parallel = 3\n'
        'flags = ["--reasoning-parser", "qwen3"]\nlora = { b = "/b", a = "/a" }\nadapter = "a"'
    )

    assert arguments(entry) == (
        "some/model", "--reasoning-parser", "qwen3", "--served-model-name", "some/model",
        "--max-model-len", "4096", "--gpu-memory-utilization", "0.8", "--quantization", "awq",
        "--dtype", "half", "--tensor-parallel-size", "2", "--data-parallel-size", "3",
        "--structured-outputs-config", '{"backend": "guidance", "disable_any_whitespace": true}',
        "--enable-prompt-tokens-details", "--enable-lora", "--lora-modules", "a=/a", "b=/b",
    )  # fmt: skip
    assert (entry.served_name, entry.card.context_window) == ("a", 4096)


def test_a_plain_entry_gives_the_window_that_its_card_promises() -> None:
    entry = only_entry('name = "a"\nmodel = "some/model"')

    at = arguments(entry).index("--max-model-len")
    assert int(arguments(entry)[at + 1]) == entry.card.context_window
    assert (entry.card.where, entry.card.parallel, entry.served_name) == ("local", 16, "")


@pytest.mark.parametrize(
    "flag",
    ["--port=1", "--host", "--api_key", "--served-model-name", "-tp", "-q", "--max-model", "--por",
     "--structured-outputs-config.backend", "--dtype", "--no-enable-prefix-caching"],
)  # fmt: skip
def test_a_flag_that_podium_sets_is_refused(flag: str) -> None:
    with pytest.raises(ManifestError, match="is not free"):
        only_entry(f'name = "a"\nmodel = "m"\nflags = ["--enforce-eager", "{flag}"]')


@pytest.mark.parametrize("flag", ["--enforce-eager", "--max-num-seqs", "-O3", "--load-format"])
def test_any_other_flag_is_passed_on(flag: str) -> None:
    assert flag in arguments(only_entry(f'name = "a"\nmodel = "m"\nflags = ["{flag}"]'))
    assert flag.lstrip("-") not in OWN_FLAGS


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ('flags = ["model-2"]', "flags begin with --"),
        ('env = { HF_TOKEN = "x" }', "looks like a secret"),
        ('env = { "A B" = "x" }', "no name of an environment variable"),
        ('lora = { a = "/a" }\nadapter = "b"', "there is no adapter 'b'"),
        ('base_url = "http://127.0.0.1:1/v1"\ndtype = "half"', "leave out one of the two"),
        ('api_key_env = "A_KEY"', "belong to a server at base_url"),
        ("tensor_parallel = 0", "greater than or equal to 1"),
        ("gpu_memory = 0.5", "did you mean 'gpu_memory_utilization'"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_a_sentence(more: str, told: str) -> None:
    with pytest.raises(ManifestError, match=re.escape(told)):
        only_entry(f'name = "a"\nmodel = "m"\n{more}')


def test_paths_start_at_the_folder_of_the_manifest(tmp_path: Path) -> None:
    file = tmp_path / "pool.toml"
    file.write_text(
        pool_of('name = "a"\nmodel = "./tuned"\nlora = { x = "./x", y = "some/adapter" }')
    )
    (entry,) = load_manifest(file).workers

    assert isinstance(entry, VllmEntry)
    assert entry.model == str(tmp_path / "tuned")
    assert entry.lora == {"x": str(tmp_path / "x"), "y": "some/adapter"}


# Where vLLM is.


def test_the_interpreter_that_the_pool_names_goes_first(home: Home) -> None:
    assert find_python(str(home.plain.python), home.folder, None) == home.plain.python


def test_an_environment_of_its_own_goes_before_the_command_in_the_path(tmp_path: Path) -> None:
    own_bin, other = tmp_path / "environments" / "vllm" / "bin", tmp_path / "bin"
    for folder, names in ((own_bin, ("python",)), (other, ("python", "vllm"))):
        folder.mkdir(parents=True)
        for name in names:
            (folder / name).touch(mode=0o755)

    assert find_python(None, tmp_path / "environments", str(other)) == own_bin / "python"
    assert find_python(None, tmp_path / "none", str(other)) == other / "python"


def test_a_machine_without_vllm_is_told_what_to_type(tmp_path: Path) -> None:
    with pytest.raises(NotInstalledError, match="pip install vllm"):
        find_python(None, tmp_path, "")
    with pytest.raises(NotInstalledError, match="no such file"):
        find_python("/no/such/python", tmp_path, "")


# The engine's servers.


async def test_all_pools_share_a_server_that_is_started_when_it_is_first_asked(home: Home) -> None:
    with anyio.fail_after(BOUND_S):
        async with home.pool(home.table()) as one, home.pool(home.table()) as two:
            seen = await health(one.workers[0])
            assert (seen.ok, "when it is first asked" in seen.detail) == (True, True)
            assert not processes_of(home.settings.state_dir)

            first = await own(one).reply(PROMPT, NO_SETTINGS, RecordedCall())
            pid = await pid_of(own(one))
            await own(two).reply(PROMPT, NO_SETTINGS, RecordedCall())

            assert first.text.startswith('some/model ["some/model",')
            assert first.usage.output_tokens == 2
            assert await pid_of(own(two)) == pid
            assert "ready" in (await health(two.workers[0])).detail
    assert home.said[0].startswith("vLLM is starting with some/model; its log is")


async def test_workers_that_differ_in_their_adapter_share_a_server(home: Home) -> None:
    plain = home.table("plain")
    tuned = home.table("tuned", 'lora = { planner = "/adapters/planner" }')
    with anyio.fail_after(BOUND_S):
        async with home.pool(plain, tuned) as pool:
            first = await own(pool, "plain").reply(PROMPT, NO_SETTINGS, RecordedCall())
            second = await own(pool, "tuned").reply(PROMPT, NO_SETTINGS, RecordedCall())
            assert await pid_of(own(pool, "plain")) == await pid_of(own(pool, "tuned"))

    assert (first.model, second.model) == ("some/model", "planner")
    assert '"planner=/adapters/planner"' in first.text


async def test_a_server_wants_the_key_that_only_the_engine_knows(home: Home) -> None:
    with anyio.fail_after(BOUND_S):
        async with home.pool(home.table()) as pool, own(pool).served() as address:
            table = f'name = "x"\nmodel = "some/model"\nbase_url = "{address.url}/v1"'
            async with home.pool(table) as other:
                with pytest.raises(AuthenticationError):
                    await other.workers[0].reply(PROMPT, NO_SETTINGS, RecordedCall())
            assert address.key not in seen_from_outside(await pid_of(own(pool)))


async def test_a_server_that_nobody_uses_is_stopped_with_all_its_processes(home: Home) -> None:
    with anyio.fail_after(BOUND_S):
        async with home.pool(home.table("gpu", "stop_idle_s = 0.3")) as pool:
            await own(pool).reply(PROMPT, NO_SETTINGS, RecordedCall())
            beside = home.beside()
            await until(lambda: not is_running(beside))
            assert await own(pool).status() is None


async def test_a_server_that_works_on_a_long_call_is_not_stopped(home: Home) -> None:
    table = home.table("gpu", "stop_idle_s = 0.2")
    with anyio.fail_after(BOUND_S):
        async with home.pool(table) as pool, anyio.create_task_group() as tasks:
            tasks.start_soon(own(pool).reply, FOR_EVER, NO_SETTINGS, RecordedCall())
            await until(lambda: _has_log(home) and "asked for ever" in _log(home))
            beside = home.beside()
            with anyio.move_on_after(1.5):  # the engine looks four times a second
                await until(lambda: not is_running(beside))
            assert is_running(beside)
            tasks.cancel_scope.cancel()


async def test_a_server_stays_when_its_users_have_left_and_can_be_stopped(home: Home) -> None:
    with anyio.fail_after(BOUND_S):
        async with home.pool(home.table()) as pool:
            await own(pool).start()
            pid, beside = await pid_of(own(pool)), home.beside()
        async with home.engine() as engine:
            assert is_running(pid)
            assert await engine.stop_vllm("another/model") == ()
            assert await engine.stop_vllm() == ("some/model",)
            assert not is_running(pid)
            await until(lambda: not is_running(beside))


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
async def test_a_server_ends_with_an_engine_that_is_killed(home: Home) -> None:
    with anyio.fail_after(BOUND_S):
        async with home.pool(home.table()) as pool:
            await own(pool).start()
            pid, beside = await pid_of(own(pool)), home.beside()
            (supervisor,) = processes_of(home.settings.state_dir)
            os.kill(supervisor, signal.SIGKILL)
            await until(lambda: not is_running(pid) and not is_running(beside))


async def test_a_killed_server_is_an_error_of_its_own_and_the_next_try_starts_it(
    home: Home,
) -> None:
    errors: list[WorkerError] = []

    async def ask_for_ever(worker: VllmWorker) -> None:
        try:
            await worker.reply(FOR_EVER, NO_SETTINGS, RecordedCall())
        except WorkerError as error:
            errors.append(error)

    with anyio.fail_after(BOUND_S):
        async with home.pool(home.table()) as pool:
            worker = own(pool)
            await worker.start()
            pid, beside = await pid_of(worker), home.beside()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask_for_ever, worker)
                await until(lambda: "asked for ever" in _log(home))
                os.kill(pid, signal.SIGKILL)
            reply = await reply_with_retry(
                worker, PROMPT, NO_SETTINGS, RecordedCall(), jitter=Random(1), first_wait_s=0.01
            )

            assert [type(error) for error in errors] == [UnreachableError]
            assert errors[0].transient
            assert "some/model broke off" in errors[0].message
            assert reply.text
            assert await pid_of(worker) != pid
            await until(lambda: not is_running(beside))


def _log(home: Home) -> str:
    return "".join(log.read_text() for log in (home.folder / "engine").glob("vllm-*.log"))


@pytest.mark.parametrize(
    ("wrong", "kind", "told"),
    [
        ("no room", ModelFileError, ("does not fit", "No available memory", "Its log, ")),
        ("bad model", ModelFileError, ("cannot serve some/model", "is not a local folder")),
        ("bad flag", UnsupportedParameterError, ("unrecognized arguments: --no-such-flag",)),
        ("port taken", UnreachableError, ("lost its port",)),
    ],
)
async def test_a_start_that_fails_says_why_with_the_end_of_the_log(
    home: Home, wrong: str, kind: type[WorkerError], told: Sequence[str]
) -> None:
    with anyio.fail_after(BOUND_S):
        async with home.pool(home.table("gpu", f'env = {{ PLAIN_VLLM = "{wrong}" }}')) as pool:
            with pytest.raises(WorkerError) as failed:
                await own(pool).reply(PROMPT, NO_SETTINGS, RecordedCall())

    assert type(failed.value) is kind
    assert failed.value.transient is (kind is UnreachableError)
    for words in told:
        assert words in failed.value.message


async def test_an_interpreter_without_vllm_is_told_apart(home: Home) -> None:
    with anyio.fail_after(BOUND_S):
        async with home.pool(home.table(python=home.plain.without)) as pool:
            with pytest.raises(NotInstalledError, match="No module named 'vllm'") as failed:
                await own(pool).reply(PROMPT, NO_SETTINGS, RecordedCall())
    assert not failed.value.transient


async def test_a_start_that_takes_too_long_is_given_up(home: Home) -> None:
    slow = ('env = { PLAIN_VLLM = "slow" }', "start_within_s = 0.5")
    with anyio.fail_after(BOUND_S):
        async with home.pool(home.table("gpu", *slow)) as pool:
            with pytest.raises(SlowReplyError, match=r"within 0.5 s.*starting up") as failed:
                await own(pool).start()
            assert failed.value.limit == "first_byte"
            assert await own(pool).status() is None


async def test_a_call_waits_for_a_start_no_longer_than_it_may(home: Home) -> None:
    with anyio.fail_after(BOUND_S):
        async with home.pool(home.table("gpu", 'env = { PLAIN_VLLM = "slow" }')) as pool:
            call = RecordedCall(deadline=anyio.current_time() + 2)
            with pytest.raises(SlowReplyError) as failed:
                await own(pool).reply(PROMPT, NO_SETTINGS, call)
            assert failed.value.limit == "total"
            assert call.attempts == []
            status = await own(pool).status()
            assert status is not None
            assert status.state == "starting"


async def test_a_call_that_is_given_up_leaves_the_server_free(home: Home) -> None:
    with anyio.fail_after(BOUND_S):
        async with home.pool(home.table()) as pool:
            worker = own(pool)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(worker.reply, FOR_EVER, NO_SETTINGS, RecordedCall())
                await until(lambda: _has_log(home) and "asked for ever" in _log(home))
                assert await calls_of(worker) == 1
                tasks.cancel_scope.cancel()
            assert await calls_of(worker) == 0
            async with httpx2.AsyncClient() as http, worker.served() as address:
                assert (await http.get(f"{address.url}/health")).is_success


def _has_log(home: Home) -> bool:
    return any((home.folder / "engine").glob("vllm-*.log"))
