"""Podium as a process of its own that outside suites are let loose on."""

import subprocess
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from anyio.abc import Process, TaskStatus
from anyio.streams.text import TextReceiveStream
from tests.command_line import CommandLine

ROOT = Path(__file__).parents[2]
STARTS_WITHIN_S = 60
SAYS = "Podium serves "


@asynccontextmanager
async def served(podium: CommandLine) -> AsyncGenerator[str]:
    """The address of `podium serve --http`."""
    command = podium.argv("serve", "--http", "--port", "0")
    async with _served(command, podium.environ, podium.folder) as address:
        yield address


@asynccontextmanager
async def served_with_fixtures(podium: CommandLine) -> AsyncGenerator[str]:
    """The address of the same server with the fixtures of the conformance suite beside."""
    command = [sys.executable, "-m", "tests.outside.fixture_server"]
    environment = {**podium.environ, "PYTHONPATH": str(ROOT)}
    async with _served(command, environment, podium.folder) as address:
        yield address


@asynccontextmanager
async def _served(
    command: Sequence[str], environment: Mapping[str, str], folder: Path
) -> AsyncGenerator[str]:
    log: list[str] = []
    async with (
        await anyio.open_process(
            command,
            env=environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        ) as process,
        anyio.create_task_group() as group,
    ):
        with anyio.fail_after(STARTS_WITHIN_S):
            address = await group.start(_read, process, log)
        try:
            yield address
        finally:
            process.terminate()
    said = "".join(log)
    assert "Traceback" not in said, said


async def _read(process: Process, log: list[str], *, task_status: TaskStatus[str]) -> None:
    """Take what a server says to the end, so that it never waits for a reader."""
    assert process.stderr is not None
    told = False
    async for text in TextReceiveStream(process.stderr, errors="replace"):
        log.append(text)
        lines = "".join(log).splitlines() if not told else []
        for line in lines[:-1] if not text.endswith("\n") else lines:
            if line.startswith(SAYS) and not told:
                told = True
                task_status.started(line.removeprefix(SAYS))
