"""Podium at the work of the engine benchmark: ledger, orchestrator and runs as the server has them.

python -m podium_lab.bench.engine.podium_runs --job rounds --runs 200 --folder FOLDER
"""

import sqlite3
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from podium.calls import Caller
from podium.orchestrator import Orchestrator
from podium.plan import CALLER, Plan, Proposal, Step
from podium.policy import Ask, State, accept_last
from podium.runs import Runs, open_runs
from podium.store import open_store
from podium.trace import RunRequest
from podium_lab.bench.peers.measuring import Call, Setting, main
from podium_workers.manifest import parse_manifest
from podium_workers.opening import open_pool
from podium_workers.pool import Pool
from podium_workers.scripted import ScriptedWorker
from podium_workers.worker import Price, Prompt, WorkerCard

PARALLEL = 2000
"""Calls that the worker takes at once: its limit is not what is measured."""
HTTP_POOL = """
[[worker]]
name = "solver"
kind = "openai"
model = "simulated"
base_url = "{url}/v1"
parallel = {parallel}
context_window = 8192
price = {{ input = 1.0, output = 2.0 }}
"""


@dataclass(frozen=True)
class FixedPlan:
    """A policy that always proposes the same plan and accepts its last step."""

    plan: Plan

    async def propose(self, state: State, ask: Ask) -> Proposal:
        return Proposal(next=accept_last(state) if state.rounds else self.plan, source="fixed")


@dataclass(frozen=True)
class Podium:
    """The runs of one process, by name."""

    runs: Runs
    rests: str
    """The status at which a run has come to rest."""
    durability: dict[str, str]
    left: dict[str, str] = field(default_factory=dict[str, str])
    """Ids of the runs that the ledger held before, by name."""

    @property
    def facts(self) -> dict[str, str]:
        return self.durability | {"commits": str(self.runs.orchestrator.store.writer.commits)}

    async def run(self, name: str) -> None:
        request = RunRequest(question=name, strategy="fixed")
        run = await self.runs.ask(request, principal="bench")
        await self._come_to_rest(run.run_id)

    async def resume(self, name: str) -> None:
        run_id = self.left[name]
        await self.runs.start(await self.runs.of(run_id, "bench"))
        await self._come_to_rest(run_id)

    async def _come_to_rest(self, run_id: str) -> None:
        run = await self.runs.wait(run_id)
        assert run.status == self.rests, f"{run.request.question} is {run.status}: {run.error}"


def chain(steps: int) -> Plan:
    """Steps one after another, each of which reads the one before."""
    return Plan(
        steps=tuple(
            Step(worker="solver", subtask=f"Do part {n}.", access=(n - 1,) if n else ())
            for n in range(steps)
        )
    )


def scripted_pool(call: Call) -> Pool:
    """A worker that does a step's work in this process."""

    async def script(prompt: Prompt) -> str:
        return await call(int(prompt.messages[-1].text.removesuffix(".").rsplit(" ", 1)[1]))

    card = WorkerCard(
        name="solver",
        kind="scripted",
        model="scripted",
        where="local",
        context_window=8192,
        price=Price(input=1.0, output=2.0),
        parallel=PARALLEL,
    )
    return Pool(workers=(ScriptedWorker(card, script),), conductor="solver")


@asynccontextmanager
async def open_workers(setting: Setting, call: Call) -> AsyncGenerator[Pool]:
    """The scripted worker, or the real client of OpenAI's interface."""
    if not setting.url:
        yield scripted_pool(call)
        return
    text = HTTP_POOL.format(url=setting.url, parallel=PARALLEL)
    async with open_pool(
        parse_manifest(text, "the benchmark's pool"),
        env={},
        models_dir=setting.folder,
        state_dir=setting.folder,
        memory_limit_bytes=2**30,  # no local model is in the pool
        notify=print,
    ) as pool:
        yield pool


def pragma(connection: sqlite3.Connection, name: str) -> str:
    """A setting of the ledger's writing connection."""
    (value,) = connection.execute(f"PRAGMA {name}").fetchone()
    return str(value)


@asynccontextmanager
async def open_parts(path: Path, pool: Pool, plan: Plan) -> AsyncGenerator[Runs]:
    """Ledger, orchestrator and runs, put together as the server does it."""
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(open_store(path))
        orchestrator = Orchestrator(store, pool, Caller(store), {"fixed": FixedPlan(plan)})
        yield await stack.enter_async_context(open_runs(orchestrator))


@asynccontextmanager
async def open_podium(setting: Setting, call: Call) -> AsyncGenerator[Podium]:
    """Podium over one ledger; in the variant `caller` its runs wait for whoever called."""
    waits = setting.variant == "caller"
    plan = Plan(steps=(Step(worker=CALLER, subtask="Look."),)) if waits else chain(setting.steps)
    async with (
        open_workers(setting, call) as pool,
        open_parts(setting.folder / "podium.db", pool, plan) as runs,
    ):
        store = runs.orchestrator.store
        durability = {
            "storage": "ledger",
            "journal": await store.writer.do(partial(pragma, name="journal_mode")),
            "synchronous": await store.writer.do(partial(pragma, name="synchronous")),
        }
        known = await store.summaries(limit=setting.runs) if setting.job == "resume" else ()
        left = {summary.question: summary.run_id for summary in known}
        yield Podium(runs, "needs_caller" if waits else "finished", durability, left)


if __name__ == "__main__":
    main(open_podium)
