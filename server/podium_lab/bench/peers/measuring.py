"""Measures an engine that carries out runs of a few steps: wall, CPU, memory, stop and resume.

Runs in every engine's own environment, so it knows only the standard library, anyio and openai.
A script that has an engine gives it to `main`, which prints one JSON object.
"""

import argparse
import gc
import json
import os
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, get_args

import anyio

if TYPE_CHECKING:
    from openai import AsyncOpenAI

Job = Literal["rounds", "idle", "rest", "stop", "resume"]
"""`rounds` times runs; `idle` weighs runs that hang in their first step, `rest` runs that have
come to rest; `stop` leaves runs behind in the middle, `resume` takes them up in a new process."""
Figures = Mapping[str, float | list[float] | dict[str, str]]
Call = Callable[[int], Awaitable[str]]
"""Does the work of the step with that number."""

PATIENCE_S = 60.0
"""Seconds that a call may take, also on a busy machine."""
WAVE = 50
"""Runs at once where runs only have to come to rest."""


@dataclass(frozen=True)
class Setting:
    """What is to be measured."""

    job: Job
    runs: int
    rounds: int
    warm: int
    """Rounds before those that count."""
    steps: int
    delay_s: float
    url: str
    """Address of the simulated provider; empty for steps that only sleep."""
    folder: Path
    variant: str


class Engine(Protocol):
    """Carries out runs of `steps` steps in a chain, durably."""

    @property
    def facts(self) -> dict[str, str]:
        """How durable it is, as it says itself."""
        ...

    async def run(self, name: str) -> None:
        """A new run of that name, to its end."""
        ...

    async def resume(self, name: str) -> None:
        """A run that was left behind, to its end."""
        ...


OpenEngine = Callable[[Setting, Call], AbstractAsyncContextManager[Engine]]


class Work:
    """What steps do: sleep, or ask the simulated provider. Can hold steps for ever."""

    def __init__(self, setting: Setting, client: "AsyncOpenAI | None") -> None:
        self.calls = 0
        self.first_at: float | None = None
        """When the first step of a round began."""
        self.held = 0
        self.all_held = anyio.Event()
        self._setting = setting
        self._client = client
        self._hold_at = {"idle": 0, "stop": setting.steps // 2}.get(setting.job)

    async def call(self, step: int) -> str:
        if self.first_at is None:
            self.first_at = time.perf_counter()
        if step == self._hold_at:
            await self._hold()
        self.calls += 1
        if self._client is None:
            await anyio.sleep(self._setting.delay_s)
            return f"Reply to part {step}."
        return await ask(self._client, f"Do part {step}.")

    async def _hold(self) -> None:
        self.held += 1
        if self.held == self._setting.runs:
            self.all_held.set()
        await anyio.sleep_forever()


async def ask(client: "AsyncOpenAI", text: str) -> str:
    """One streamed chat completion."""
    stream = await client.chat.completions.create(
        model="simulated",
        messages=[{"role": "user", "content": text}],
        stream=True,
        stream_options={"include_usage": True},
    )
    async with stream:
        return "".join(
            [choice.delta.content or "" async for chunk in stream for choice in chunk.choices]
        )


@asynccontextmanager
async def open_work(setting: Setting) -> AsyncGenerator[Work]:
    """The work of the steps, with a client of the provider if there is one."""
    if not setting.url:
        yield Work(setting, None)
        return
    from openai import AsyncOpenAI, DefaultAsyncHttpxClient

    transport = DefaultAsyncHttpxClient(trust_env=False)
    url = f"{setting.url}/v1"
    async with AsyncOpenAI(
        api_key="none", base_url=url, max_retries=0, timeout=PATIENCE_S, http_client=transport
    ) as client:
        yield Work(setting, client)


async def measure(setting: Setting, open_engine: OpenEngine) -> Figures:
    """The figures of one engine at one job."""
    async with open_work(setting) as work, open_engine(setting, work.call) as engine:
        match setting.job:
            case "rounds":
                figures = await time_rounds(setting, engine, work)
            case "idle" | "stop":
                figures = await hold(setting, engine, work)
            case "rest":
                figures = await come_to_rest(setting, engine)
            case "resume":
                figures = await time_of(setting, engine.resume, "held")
        return {**figures, "calls": work.calls, "facts": engine.facts}


async def time_rounds(setting: Setting, engine: Engine, work: Work) -> Figures:
    """Wall and CPU seconds of every round that counts, and seconds to its first step."""
    walls: list[float] = []
    cpus: list[float] = []
    firsts: list[float] = []
    for number in range(setting.warm + setting.rounds):
        work.first_at = None
        begun = time.perf_counter()
        spent = await time_of(setting, engine.run, f"round-{number}")
        walls.append(spent["wall_s"])
        cpus.append(spent["cpu_s"])
        firsts.append((work.first_at or begun) - begun)
    warm = setting.warm
    return {"walls_s": walls[warm:], "cpus_s": cpus[warm:], "firsts_s": firsts[warm:]}


async def time_of(
    setting: Setting, act: Callable[[str], Coroutine[object, object, None]], prefix: str
) -> dict[str, float]:
    """Wall and CPU seconds of doing something to all runs at once."""
    cpu, wall = time.process_time(), time.perf_counter()
    async with anyio.create_task_group() as group:
        for name in names(setting, prefix):
            group.start_soon(act, name)
    return {"wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu}


def names(setting: Setting, prefix: str) -> list[str]:
    """The names of a round's runs."""
    return [f"{prefix}-{number}" for number in range(setting.runs)]


async def hold(setting: Setting, engine: Engine, work: Work) -> Figures:
    """Begin runs that hang in a step; weigh them, then leave them behind."""
    before = after = resident_kb()
    async with anyio.create_task_group() as group:
        for name in names(setting, "held"):
            group.start_soon(engine.run, name)
        await work.all_held.wait()
        after = resident_kb()
        group.cancel_scope.cancel()
    return {"kb_per_run": (after - before) / setting.runs}


async def come_to_rest(setting: Setting, engine: Engine) -> Figures:
    """Memory that stays for each run that has come to rest, after a fifth of them to warm up."""
    all_names = names(setting, "rest")
    warm = len(all_names) // 5
    await _in_waves(engine, all_names[:warm])
    before = resident_kb()
    await _in_waves(engine, all_names[warm:])
    return {"kb_per_run": (resident_kb() - before) / (setting.runs - warm)}


async def _in_waves(engine: Engine, all_names: list[str]) -> None:
    for start in range(0, len(all_names), WAVE):
        async with anyio.create_task_group() as group:
            for name in all_names[start : start + WAVE]:
                group.start_soon(engine.run, name)


def resident_kb() -> float:
    """Memory of this process that is in use; its highest so far where there is no /proc."""
    gc.collect()
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except FileNotFoundError:
        import resource  # not on every system

        return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    return pages * os.sysconf("SC_PAGE_SIZE") / 1024


def parse() -> Setting:
    """The setting from the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--job", choices=get_args(Job), required=True)
    parser.add_argument("--runs", type=int, required=True)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--warm", type=int, default=0)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--delay-s", type=float, default=0.05)
    parser.add_argument("--url", default="")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--variant", default="")
    return Setting(**vars(parser.parse_args()))


def main(open_engine: OpenEngine) -> None:
    """Measure an engine as the command line says, and print its figures."""
    print(json.dumps(anyio.run(measure, parse(), open_engine)))
