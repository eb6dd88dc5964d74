"""A Podium server over HTTP that a test may kill: as `podium serve --http`, with short leases.

    python -m podium_lab.bench.durable.served --folder FOLDER --pool FILE --lease-s 2

Prints its port once clients can connect.
"""

import argparse
import os
import signal
import socket
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import uvicorn
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from podium.app import build_server
from podium.calls import Caller
from podium.cli.compose import open_workers, policies
from podium.config import Settings
from podium.orchestrator import Orchestrator
from podium.runs import Runs, open_runs
from podium.store import open_store

POOL = """
[[worker]]
name = "solver"
kind = "openai"
model = "simulated"
base_url = "{url}"
parallel = {parallel}
context_window = 8192
price = {{ input = 1.0, output = 2.0 }}
"""
LINE = 100
"""Bytes of the line that says the port."""


def settings_in(folder: Path, pool: Path) -> Settings:
    """Settings of a server that keeps everything in *folder*."""
    return Settings(
        store=folder / "podium.db",
        pool=pool,
        strategy="single",
        models_dir=folder / "models",
        state_dir=folder / "engine",
    )


def write_pool(folder: Path, name: str, url: str, parallel: int) -> Path:
    """The manifest of a pool that asks the provider at *url*."""
    path = folder / f"{name}.toml"
    path.write_text(POOL.format(url=url, parallel=parallel), encoding="utf-8")
    return path


@asynccontextmanager
async def open_parts(
    settings: Settings, lease_s: float, *, takes_over: bool = True
) -> AsyncGenerator[Runs]:
    """What answers questions, as `podium serve` has it, but for the length of a lease."""
    async with (
        open_store(settings.store) as store,
        open_workers(settings, os.environ, quiet=True) as pool,
    ):
        caller = Caller(store, day_usd=settings.day_usd)
        orchestrator = Orchestrator(store, pool, caller, policies(settings))
        async with open_runs(orchestrator, lease_s=lease_s, takes_over=takes_over) as runs:
            yield runs


def http_server(runs: Runs, settings: Settings) -> uvicorn.Server:
    """What serves the tools over HTTP, once it is given a socket."""
    app = build_server(runs, settings, reads_paths=False).streamable_http_app()
    return uvicorn.Server(uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=1))


async def _serve(settings: Settings, lease_s: float) -> None:
    async with open_parts(settings, lease_s) as runs:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            print(listening.getsockname()[1], flush=True)
            await http_server(runs, settings).serve(sockets=[listening])


# As the tests see it.


@dataclass
class Server:
    """A server process, which may be killed and started again."""

    name: str
    folder: Path
    pool: Path
    lease_s: float
    process: Process | None = None
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    async def start(self) -> None:
        """Start it; clients can connect when this returns."""
        command = [sys.executable, "-m", "podium_lab.bench.durable.served"]
        command += ["--folder", str(self.folder), "--pool", str(self.pool)]
        process = await anyio.open_process(
            [*command, "--lease-s", str(self.lease_s)], stdin=None, stderr=None
        )
        self.process = process
        assert process.stdout is not None, "it was asked for"
        line = await BufferedByteReceiveStream(process.stdout).receive_until(b"\n", LINE)
        self.port = int(line)

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, at once."""
        assert self.process is not None, "it was started"
        self.process.send_signal(number)

    async def aclose(self) -> None:
        """End it, at once."""
        if self.process is None:
            return
        with anyio.CancelScope(shield=True):
            if self.process.returncode is None:
                self.process.kill()
            await self.process.aclose()
        self.process = None


def main() -> None:
    """Serve until the process is ended."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--pool", type=Path, required=True)
    parser.add_argument("--lease-s", type=float, required=True)
    given = parser.parse_args()
    anyio.run(_serve, settings_in(given.folder, given.pool), given.lease_s)


if __name__ == "__main__":
    main()
