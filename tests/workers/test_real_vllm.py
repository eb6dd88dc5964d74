"""A real vLLM server, started by the engine: plans in both forms, batches, cancelled and killed.

Marked `vllm`: `python -m podium_lab.environments.vllm --cpu --model smollm2` makes what it needs.
The model is the smallest one, so what it says is never looked at, only its shape.
"""

import json
import os
import signal
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import httpx2
import pytest
from tests.engine_processes import LOOK_EVERY_S, processes_of, until
from tests.recorded_call import RecordedCall

from podium.config import Settings
from podium.plan_grammar import lists_grammar
from podium.plan_text import parse_plan, plan_schema
from podium_lab.environments.vllm import default_folder
from podium_lab.train.handing_over import interpreter
from podium_workers.errors import ContextTooLongError, ModelFileError, WorkerError
from podium_workers.manifest import parse_manifest
from podium_workers.opening import open_pool
from podium_workers.pool import Pool
from podium_workers.retry import reply_with_retry
from podium_workers.vllm import VllmWorker
from podium_workers.worker import ModelSettings, Prompt, Reply

pytestmark = pytest.mark.vllm

START_S = 400
"""What a start may take on a busy machine."""
BOUND_S = 400
TEAM = ("ann", "bob", "cy")
EXAMPLE = """Question: {question}
model_id = [0, 1]
subtasks = ["Solve it step by step.", "Check the solution."]
access_list = [[], [0]]

"""
QUESTIONS = ("How much is 3 times 14?", "Which is the largest ocean?", "Who wrote Hamlet?", "Why?")
EXAMPLES = "".join(EXAMPLE.format(question=question) for question in QUESTIONS)
"""Longer than the piece of a prompt that vLLM keeps."""
ASKED = Prompt.of(f"Write three lists for each question.\n\n{EXAMPLES}Question: How far is it?")
LISTS = ModelSettings(
    max_output_tokens=1200, temperature=0, grammar=lists_grammar(len(TEAM), max_steps=2, prose=200)
)
JSON = ModelSettings(
    max_output_tokens=1200,
    temperature=0,
    response_schema=plan_schema(TEAM, max_steps=2, by_position=True),
)
TRAINED_ON = """
import json, sys
from podium_lab.train.learner.models import load_tokenizer, token_ids
print(json.dumps(token_ids(load_tokenizer(sys.argv[1]), json.load(sys.stdin))))
"""
LONG = ModelSettings(max_output_tokens=1500, temperature=0)


@dataclass(frozen=True)
class Home:
    """Where the engine of these tests is at home, and what it serves."""

    state_dir: Path
    models_dir: Path
    model: Path

    @property
    def manifest(self) -> str:
        return f"""
[[worker]]
name = "gpu"
kind = "vllm"
model = "{self.model}"
dtype = "bfloat16"
context_window = 2048
flags = ["--enforce-eager", "--max-num-seqs", "8"]
stop_idle_s = 120

[worker.env]
HF_HUB_OFFLINE = "1"
OMP_NUM_THREADS = "1"
VLLM_CPU_KVCACHE_SPACE = "1"
VLLM_CPU_OMP_THREADS_BIND = "nobind"
"""

    @asynccontextmanager
    async def pool(self, *, model: str | None = None) -> AsyncGenerator[Pool]:
        table = self.manifest.replace(str(self.model), model or str(self.model))
        async with open_pool(
            parse_manifest(table, "pool"),
            env={"PATH": os.environ["PATH"], "HOME": str(Path.home())},
            models_dir=self.models_dir,
            state_dir=self.state_dir,
            memory_limit_bytes=16_000_000_000,
            notify=lambda text: None,
        ) as pool:
            yield pool


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Generator[Home]:
    named = os.environ.get("PODIUM_MODELS_DIR")
    models_dir = Path(named) if named else Settings().models_dir
    if not (default_folder(models_dir) / "bin" / "python").is_file():
        pytest.skip("there is no environment with vLLM: see podium_lab/environments/vllm.py")
    model = models_dir / "unpacked" / "smollm2"
    if not model.is_dir():
        pytest.skip("SmolLM2 is not unpacked for vLLM: see podium_lab/environments/vllm.py")
    state_dir = tmp_path_factory.mktemp("engine")
    yield Home(state_dir, models_dir, model)
    for pid in processes_of(state_dir):
        os.kill(pid, signal.SIGTERM)
    anyio.run(_until_gone, state_dir)


async def _until_gone(state_dir: Path) -> None:
    await until(lambda: not processes_of(state_dir), within_s=60)


@pytest.fixture
async def gpu(home: Home) -> AsyncGenerator[VllmWorker]:
    """The worker, its server started."""
    async with home.pool() as pool:
        worker = pool.get("gpu")
        assert isinstance(worker, VllmWorker)
        with anyio.fail_after(START_S):
            await worker.start()
        yield worker


async def running(worker: VllmWorker) -> int:
    """Requests that the server works on."""
    async with worker.served() as address, httpx2.AsyncClient(trust_env=False) as http:
        text = (await http.get(f"{address.url}/metrics", timeout=30)).text
    lines = [it for it in text.splitlines() if it.startswith("vllm:num_requests_running")]
    return int(sum(float(line.rpartition(" ")[2]) for line in lines))


async def until_running(worker: VllmWorker, *, least: int = 0, most: int = 100) -> None:
    with anyio.fail_after(BOUND_S):
        while True:
            if least <= await running(worker) <= most:
                return
            await anyio.sleep(LOOK_EVERY_S)


async def test_a_plan_in_three_lists_is_held_to_its_grammar(gpu: VllmWorker) -> None:
    with anyio.fail_after(BOUND_S):
        reply = await gpu.reply(ASKED, LISTS, RecordedCall())

    assert reply.finish_reason == "stop"
    plan = parse_plan(reply.text, TEAM, max_steps=2)
    assert plan is not None


async def test_a_plan_as_json_is_held_to_its_schema(gpu: VllmWorker) -> None:
    with anyio.fail_after(BOUND_S):
        reply = await gpu.reply(ASKED, JSON, RecordedCall())

    assert reply.text.startswith('{"steps": [{"subtask": "')
    plan = parse_plan(reply.text, TEAM, max_steps=2)
    assert plan is not None


async def test_plans_that_are_wanted_together_are_written_together(gpu: VllmWorker) -> None:
    replies: list[Reply] = []
    seen = anyio.Event()

    async def ask(number: int) -> None:
        prompt = Prompt.of(f"{ASKED.messages[0].text} Count {number}.")
        replies.append(await gpu.reply(prompt, JSON, RecordedCall()))
        while not seen.is_set():  # a busy machine may look only once they are written
            replies.append(await gpu.reply(prompt, JSON, RecordedCall()))

    with anyio.fail_after(BOUND_S):
        async with anyio.create_task_group() as tasks:
            for number in range(4):
                tasks.start_soon(ask, number)
            await until_running(gpu, least=2)
            seen.set()

    assert all(parse_plan(reply.text, TEAM, max_steps=2) for reply in replies)
    # Their prompts begin alike, and that part was read before.
    assert any(reply.usage.cached_tokens > 0 for reply in replies)


async def test_a_prompt_that_is_too_long_is_named_so(gpu: VllmWorker) -> None:
    with anyio.fail_after(BOUND_S), pytest.raises(ContextTooLongError):
        await gpu.reply(Prompt.of("word " * 3000), LONG, RecordedCall())


async def test_a_call_that_is_given_up_frees_its_place(gpu: VllmWorker) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(gpu.reply, ASKED, LONG, RecordedCall())
        await until_running(gpu, least=1)
        tasks.cancel_scope.cancel()

    await until_running(gpu, most=0)


async def test_a_folder_that_is_no_model_is_an_error_with_the_words_of_vllm(
    home: Home, tmp_path: Path
) -> None:
    async with home.pool(model=str(tmp_path)) as pool:
        with anyio.fail_after(START_S), pytest.raises(ModelFileError) as failed:
            await pool.get("gpu").reply(ASKED, LONG, RecordedCall())

    assert f"vLLM cannot serve {tmp_path}" in failed.value.message
    assert "Its log, " in failed.value.message


async def test_a_killed_engine_is_a_transient_error_and_the_next_try_has_an_answer(
    gpu: VllmWorker,
) -> None:
    errors: list[WorkerError] = []

    async def ask() -> None:
        try:
            await gpu.reply(ASKED, LONG, RecordedCall())
        except WorkerError as error:
            errors.append(error)

    status = await gpu.status()
    assert status is not None
    assert status.pid is not None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        await until_running(gpu, least=1)
        os.kill(status.pid, signal.SIGKILL)
    assert [error.transient for error in errors] == [True]

    with anyio.fail_after(START_S):
        short = ModelSettings(max_output_tokens=4)
        reply = await reply_with_retry(gpu, ASKED, short, RecordedCall())
    assert reply.text
    again = await gpu.status()
    assert again is not None
    assert again.pid != status.pid


async def test_a_question_has_the_token_ids_that_the_policy_was_trained_on(
    gpu: VllmWorker, home: Home
) -> None:
    """The server's prompt, by vLLM's own count, against what the trainer's library makes of it."""
    python = interpreter(Settings(models_dir=home.models_dir))
    if python is None:
        pytest.skip("there is no environment for training: see podium_lab/environments/train.py")
    messages = [{"role": "user", "content": ASKED.messages[-1].text}]
    async with gpu.served() as address, httpx2.AsyncClient(trust_env=False) as http:
        answer = await http.post(
            f"{address.url}/tokenize",
            json={"model": gpu.card.model, "messages": messages, "add_generation_prompt": True},
            headers={"authorization": f"Bearer {address.key}"},
            timeout=60,
        )
    trained = await anyio.run_process(
        [str(python), "-P", "-c", TRAINED_ON, str(home.model)], input=json.dumps(messages).encode()
    )
    assert answer.json()["tokens"] == json.loads(trained.stdout)
