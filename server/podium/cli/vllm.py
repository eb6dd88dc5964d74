"""`podium vllm`: starts, shows and stops the vLLM servers of the pool."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import click

from podium.cli.compose import open_workers
from podium.cli.invocation import Invocation, pass_invocation
from podium.cli.saying import say
from podium.cli.wording import as_json, put, put_json, table
from podium.config import Settings
from podium_workers.engine.client import Engine, EngineSettings, open_engine
from podium_workers.engine.state import VllmStatus
from podium_workers.errors import PoolSelectionError
from podium_workers.vllm import VllmWorker


@click.group(
    epilog="""\b
Examples:
  podium vllm up
  podium --pool gpu.toml vllm up conductor
  podium vllm status
  podium vllm down"""
)
def vllm() -> None:
    """Start, show and stop the vLLM servers of the pool.

    A server is also started when a worker of the kind "vllm" is first asked. All Podium processes
    share it, and it is stopped when nobody has used it for stop_idle_s seconds.
    """


@vllm.command()
@click.argument("worker", required=False)
@pass_invocation
def up(invocation: Invocation, *, worker: str | None) -> None:
    """Start the server of WORKER, or of all workers on vLLM, and wait until it serves."""
    put("\n".join(anyio.run(_start, invocation, worker)))


async def _start(invocation: Invocation, name: str | None) -> tuple[str, ...]:
    async with open_workers(invocation.settings, invocation.environment) as pool:
        chosen = pool.everyone if name is None else (pool.get(name),)
        own = [worker for worker in chosen if isinstance(worker, VllmWorker)]
        if not own:
            named = "no worker" if name is None else f"{name!r} is no worker"
            raise PoolSelectionError(
                f'In this pool, {named} of kind "vllm" without base_url; only such have a server '
                "that Podium starts."
            )
        return tuple(dict.fromkeys([await worker.start() for worker in own]))


@vllm.command()
@click.argument("model", default="")
@pass_invocation
def down(invocation: Invocation, *, model: str) -> None:
    """Stop the server of MODEL, or all servers; calls that run on them fail."""
    stopped = anyio.run(_stop, invocation.settings, model)
    put("\n".join(f"{name} is stopped." for name in stopped) or "No such server is running.")


async def _stop(settings: Settings, model: str) -> tuple[str, ...]:
    async with _engine(settings) as engine:
        return await engine.stop_vllm(model)


@vllm.command()
@click.option("--json", "json_", is_flag=True, help="A list of objects on stdout.")
@pass_invocation
def status(invocation: Invocation, *, json_: bool) -> None:
    """Show the servers that run or are starting."""
    servers = anyio.run(_look, invocation.settings)
    if json_:
        put_json([as_json(server) for server in servers])
    elif servers:
        put(table(("model", "state", "calls", "unused", "address", "log"), _rows(servers)))
    else:
        say("No vLLM server is running.")


async def _look(settings: Settings) -> tuple[VllmStatus, ...]:
    async with _engine(settings) as engine:
        found = await engine.status()
        return found.servers if found else ()


def _rows(servers: tuple[VllmStatus, ...]) -> list[tuple[str, ...]]:
    return [
        (it.model, it.state, str(it.calls), f"{it.unused_s:.0f} s", it.url or "-", str(it.log))
        for it in servers
    ]


@asynccontextmanager
async def _engine(settings: Settings) -> AsyncGenerator[Engine]:
    memory = int(settings.local_memory_gb * 2**30)
    wanted = EngineSettings(state_dir=settings.state_dir, memory_limit_bytes=memory)
    async with open_engine(wanted) as engine:
        yield engine
