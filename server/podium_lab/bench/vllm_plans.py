"""Plans written by a conductor on real vLLM: how many can be read, and what Podium costs in speed.

    python -m podium_lab.bench.vllm_plans --out results.jsonl --model qwen-0.5b plans speed
    python -m podium_lab.bench.vllm_plans --out results.jsonl --model smollm2 plans faults
    python -m podium_lab.bench.vllm_plans --table results.jsonl

The questions are those of `plan_questions.txt`; each is asked once in each form, at temperature 0.
vLLM's environment and the models are made by `python -m podium_lab.environments.vllm`. Each line of
the file is one measurement (live: a real model answered); the tables are made from the file. Plans
that the file holds are not written again.
"""

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import anyio
import httpx2
from pydantic import JsonValue

from podium.config import Settings, load_settings
from podium.errors import PlanError
from podium.plan_text import parse_plan
from podium.policy import State
from podium.policy.conductor import Conductor
from podium.scanning import find_plan
from podium.trace import RunRequest
from podium_lab.bench.vllm_results import (
    FORMS,
    Fault,
    Form,
    Result,
    Speed,
    Written,
    questions,
    read,
    tables,
)
from podium_lab.environments.vllm import default_folder, make, model_folder
from podium_workers.engine.client import EngineSettings, open_engine
from podium_workers.engine.state import VllmAddress
from podium_workers.entries.hosted import VllmEntry
from podium_workers.errors import WorkerError
from podium_workers.manifest import PoolManifest, shipped
from podium_workers.opening import open_pool
from podium_workers.pool import Pool
from podium_workers.retry import reply_with_retry
from podium_workers.vllm import VllmWorker
from podium_workers.wire import entries
from podium_workers.worker import ModelSettings, Prompt, Reply, Usage

TOGETHER = 8
"""Calls at the same time."""
PASSES = 3
FENCE = "5f0c9a3e7b1d"
TIMED = 8
"""Plans that are written by turns to compare speeds."""
TIMED_TOKENS = 64
"""Tokens at most of each of those."""
CONDUCTOR = "conductor"
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    # Not bound to one processor, which others may be using.
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
}


@dataclass
class Noted:
    """A `Call`, and its attempts, that keep the newest request."""

    request: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])
    deadline: float = float("inf")
    resume_id: str | None = None

    @asynccontextmanager
    async def attempt(self, request: Mapping[str, JsonValue]) -> AsyncGenerator["Noted"]:
        self.request = request
        yield self

    async def sent(self, request_id: str) -> None:
        pass

    async def usage(self, usage: Usage) -> None:
        pass

    async def settle(self, reply: Reply) -> None:
        pass


@dataclass(frozen=True)
class Asked:
    """A wish for a plan."""

    prompt: Prompt
    settings: ModelSettings
    request: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])
    """As it went out, without the messages; once it has."""


@dataclass(frozen=True)
class Bench:
    """The parts of a measurement."""

    model: str
    pool: Pool
    out: Path

    @property
    def worker(self) -> VllmWorker:
        found = self.pool.get(CONDUCTOR)
        assert isinstance(found, VllmWorker)
        return found

    @property
    def noted(self) -> tuple[Result, ...]:
        return read(self.out) if self.out.exists() else ()

    def note(self, result: Result) -> None:
        with self.out.open("a", encoding="utf-8") as file:
            file.write(result.model_dump_json() + "\n")

    async def asked_for(self, form: Form, question: str) -> Asked:
        """What the conductor asks for a plan with, at its first try."""
        pool = replace(self.pool, asked=self.pool.asked.model_copy(update={"form": form}))
        state = State(RunRequest(question=question), pool, fence=FENCE, seed=0)
        asked: list[Asked] = []

        async def ask(name: str, prompt: Prompt, settings: ModelSettings) -> Reply:
            asked.append(Asked(prompt, settings))
            return Reply(text="none", usage=Usage(), model=name)

        await Conductor(tries=1).propose(state, ask)
        return asked[0]


def pool_manifest(model: str, python: Path, models_dir: Path) -> PoolManifest:
    """The shipped local team, led by *model* on vLLM, which does no step itself."""
    local = shipped("local")
    conductor = VllmEntry(
        kind="vllm",
        name=CONDUCTOR,
        model=str(model_folder(model, models_dir, python)),
        python=str(python),
        dtype="bfloat16",
        context_window=4096,
        good_at="nothing but planning",
        flags=("--enforce-eager", "--max-num-seqs", str(TOGETHER)),
        env=ENVIRONMENT,
        stop_idle_s=300,
    )
    workers = (*local.workers, conductor)
    return PoolManifest.model_construct(workers=workers, conductor=CONDUCTOR)


async def measure(
    model: str, what: Sequence[str], forms: Sequence[Form], count: int, out: Path
) -> None:
    """Start vLLM with *model*, measure, and stop it."""
    settings = load_settings(os.environ).settings
    python = make_or_find(settings)
    memory = int(settings.local_memory_gb * 2**30)
    async with open_pool(
        pool_manifest(model, python, settings.models_dir),
        env=os.environ,
        models_dir=settings.models_dir,
        state_dir=settings.state_dir,
        memory_limit_bytes=memory,
        notify=_say,
    ) as pool:
        bench = Bench(model, pool, out)
        _say(await bench.worker.start())
        for form in forms:
            asked = [await bench.asked_for(form, it) for it in questions()[:count]]
            if "plans" in what:
                await plans(bench, form, asked)
            if "speed" in what:
                await speed(bench, form, asked[:TIMED])
        if "faults" in what:
            await faults(bench, await bench.asked_for("lists", questions()[0]))
        engine = EngineSettings(state_dir=settings.state_dir, memory_limit_bytes=memory)
        async with open_engine(engine) as running:
            await running.stop_vllm()


def make_or_find(settings: Settings) -> Path:
    """The interpreter of vLLM's environment, which is made where there is none."""
    return make(default_folder(settings.models_dir), cpu=True)


async def plans(bench: Bench, form: Form, asked: Sequence[Asked]) -> None:
    """Have all plans written that the file does not hold yet, and note what each is worth."""
    limiter = anyio.CapacityLimiter(TOGETHER)
    written = {(it.model, it.form, it.question) for it in bench.noted if isinstance(it, Written)}

    async def write(question: str, it: Asked) -> None:
        async with limiter:
            began = time.perf_counter()
            reply = await reply_with_retry(bench.worker, it.prompt, it.settings, Noted())
            bench.note(_judged(bench, form, question, reply, time.perf_counter() - began))

    async with anyio.create_task_group() as tasks:
        for question, it in zip(questions(), asked, strict=False):
            if (bench.model, form, question) not in written:
                tasks.start_soon(write, question, it)
    _say(f"{bench.model}: {len(asked)} plans as {form}")


def _judged(bench: Bench, form: Form, question: str, reply: Reply, seconds: float) -> Written:
    fault, steps = "", 0
    try:
        find_plan(reply.text)
        readable = True
    except PlanError:
        readable = False
    try:
        plan = parse_plan(reply.text, bench.pool.names)
        steps = len(plan.steps) if plan else 0
    except PlanError as error:
        fault = error.rule
    return Written(
        model=bench.model,
        form=form,
        question=question,
        text=reply.text,
        readable=readable,
        fault=fault,
        steps=steps,
        cut_off=reply.finish_reason == "length",
        seconds=seconds,
        input_tokens=reply.usage.input_tokens,
        cached_tokens=reply.usage.cached_tokens,
        output_tokens=reply.usage.output_tokens,
    )


async def speed(bench: Bench, form: Form, asked: Sequence[Asked]) -> None:
    """The same prompts by turns through the worker and by plain HTTP, after once unmeasured."""
    asked = [await _sent(bench, it) for it in asked]
    async with bench.worker.served() as address, _http() as http:
        for _ in range(PASSES):
            for by in ("http", "podium"):
                began = time.perf_counter()
                made = await _pass(bench, asked, http if by == "http" else None, address)
                bench.note(
                    Speed(
                        model=bench.model,
                        form=form,
                        by=by,
                        seconds=time.perf_counter() - began,
                        output_tokens=made,
                    )
                )


async def _sent(bench: Bench, asked: Asked) -> Asked:
    """*asked*, cut to a length that all passes share, and the request that it makes."""
    settings = asked.settings.model_copy(update={"max_output_tokens": TIMED_TOKENS})
    call = Noted()
    await bench.worker.reply(asked.prompt, settings, call)
    return Asked(asked.prompt, settings, call.request)


async def _pass(
    bench: Bench, asked: Sequence[Asked], http: httpx2.AsyncClient | None, address: VllmAddress
) -> int:
    """Tokens that were made."""
    made = 0
    limiter = anyio.CapacityLimiter(TOGETHER)

    async def one(it: Asked) -> None:
        nonlocal made
        async with limiter:
            if http is None:
                reply = await bench.worker.reply(it.prompt, it.settings, Noted())
                tokens = reply.usage.output_tokens
            else:
                tokens = await _plain(http, address, it)
            made += tokens

    async with anyio.create_task_group() as tasks:
        for it in asked:
            tasks.start_soon(one, it)
    return made


def _http() -> httpx2.AsyncClient:
    return httpx2.AsyncClient(timeout=None, trust_env=False)


async def _plain(http: httpx2.AsyncClient, address: VllmAddress, asked: Asked) -> int:
    """One request as the worker made it, its stream read and thrown away; tokens made."""
    messages = [{"role": it.role, "content": it.text} for it in asked.prompt.messages]
    made = 0
    async with http.stream(
        "POST",
        f"{address.url}/v1/chat/completions",
        headers={"Authorization": f"Bearer {address.key}"},
        json={**asked.request, "messages": messages},
    ) as response:
        async for line in response.aiter_lines():
            if '"usage":{' in line:  # in the last event only; the others are not even parsed
                usage = entries(entries(json.loads(line.removeprefix("data: "))).get("usage"))
                made = int(str(usage["completion_tokens"]))
    return made


async def faults(bench: Bench, asked: Asked) -> None:
    """A call that is cancelled, and an engine that is killed in the middle of one."""
    long = ModelSettings(max_output_tokens=1500, temperature=0)
    async with bench.worker.served() as address, _http() as http:
        began = time.perf_counter()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bench.worker.reply, asked.prompt, long, Noted())
            await _until_running(http, address, 1)
            began = time.perf_counter()
            tasks.cancel_scope.cancel()
        await _until_running(http, address, 0)
        took = time.perf_counter() - began
        bench.note(
            Fault(model=bench.model, what="cancel", seconds=took, seen="no request is running")
        )
    await _kill(bench, asked, long)


async def _kill(bench: Bench, asked: Asked, long: ModelSettings) -> None:
    seen: list[str] = []
    began = time.perf_counter()

    async def ask() -> None:
        try:
            await bench.worker.reply(asked.prompt, long, Noted())
        except WorkerError as error:
            seen.append(f"{type(error).__name__}: {error.message}")

    async with bench.worker.served() as address, _http() as http:
        status = await bench.worker.status()
        assert status is not None
        assert status.pid is not None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await _until_running(http, address, 1)
            began = time.perf_counter()
            os.kill(status.pid, signal.SIGKILL)
    error_s = time.perf_counter() - began
    bench.note(Fault(model=bench.model, what="kill", seconds=error_s, seen="".join(seen)))
    short = ModelSettings(max_output_tokens=8, temperature=0)
    reply = await reply_with_retry(bench.worker, asked.prompt, short, Noted())
    took = time.perf_counter() - began
    words = f"{reply.usage.output_tokens} tokens"
    bench.note(Fault(model=bench.model, what="answer after kill", seconds=took, seen=words))


async def _until_running(http: httpx2.AsyncClient, address: VllmAddress, number: int) -> None:
    while True:
        text = (await http.get(f"{address.url}/metrics")).text
        lines = [it for it in text.splitlines() if it.startswith("vllm:num_requests_running")]
        if sum(float(line.rpartition(" ")[2]) for line in lines) == number:
            return
        await anyio.sleep(0.02)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    """Measure, or print the tables of a file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", nargs="*", help="plans, speed, faults")
    parser.add_argument("--model", default="qwen-0.5b", help="of `podium models list`")
    parser.add_argument("--form", choices=FORMS, action="append", help="only this form")
    parser.add_argument("--count", type=int, default=50, help="how many of the questions")
    parser.add_argument("--out", type=Path, help="file to which results are appended")
    parser.add_argument("--table", type=Path, help="print the tables of this file")
    given = parser.parse_args()
    if given.table:
        print("\n".join(tables(read(given.table))))
    elif given.what and given.out:
        forms = given.form or FORMS
        anyio.run(measure, given.model, given.what, forms, given.count, given.out)
    else:
        parser.error("name what to measure and --out, or --table")


if __name__ == "__main__":
    main()
