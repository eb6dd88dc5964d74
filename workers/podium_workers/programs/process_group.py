"""A program of the user's that is run in a process group of its own, so that nothing of it stays.

Knows neither prompts nor replies; a process that leaves its group on purpose gets away.
"""

import os
import signal
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress

import anyio
from anyio.abc import ByteReceiveStream, Process

from podium_workers.errors import NotInstalledError
from podium_workers.plain import plain

GRACE_S = 1.0
"""Seconds between asking a program to end and ending it."""
_LONGEST_WORD = 80


@asynccontextmanager
async def working_folder(named: str | None) -> AsyncGenerator[str]:
    """The folder *named*; an empty one that is removed afterwards where none is."""
    if named is not None:
        yield named
        return
    async with anyio.TemporaryDirectory(prefix="podium-", ignore_cleanup_errors=True) as folder:
        yield folder


async def run_briefly(command: Sequence[str], environment: Mapping[str, str]) -> tuple[int, str]:
    """Run a program that asks nothing: its exit code and the beginning of what it says."""
    said = ""

    async def read(stream: ByteReceiveStream | None) -> None:
        nonlocal said
        assert stream is not None
        async for piece in stream:
            said += piece.decode("utf-8", "replace")

    code = 0
    async with (
        working_folder(None) as folder,
        open_group(command, folder, environment) as process,
        anyio.create_task_group() as group,
    ):
        group.start_soon(give, process, "")
        group.start_soon(read, process.stdout)
        group.start_soon(read, process.stderr)
        code = await process.wait()
        kill_group(process)
    return code, " ".join(plain(said).split())[:_LONGEST_WORD]


@asynccontextmanager
async def open_group(
    command: Sequence[str], folder: str, environment: Mapping[str, str]
) -> AsyncGenerator[Process]:
    """A program in a process group of its own, of which nothing is left behind the block.

    Raises:
        NotInstalledError: it cannot be started.
    """
    try:
        process = await anyio.open_process(
            command, cwd=folder, env=environment, start_new_session=True
        )
    except OSError as error:
        raise NotInstalledError(
            f"{command[0]} cannot be started in {folder}: {error.strerror}."
        ) from error
    async with process:
        try:
            yield process
        finally:
            with anyio.CancelScope(shield=True):
                await _end(process)


async def _end(process: Process) -> None:
    if process.returncode is None:
        _tell(process, asking=True)
        with anyio.move_on_after(GRACE_S):
            await process.wait()
    kill_group(process)
    await process.wait()


def kill_group(process: Process) -> None:
    """End the program and all that it started, whether or not it runs itself any more."""
    _tell(process, asking=False)


def _tell(process: Process, *, asking: bool) -> None:
    with suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            process.terminate()
        else:
            os.killpg(process.pid, signal.SIGTERM if asking else signal.SIGKILL)


async def give(process: Process, asked: str) -> None:
    """Write *asked* to its standard input, and close that."""
    assert process.stdin is not None
    # A program that does not read its prompt says so, or replies all the same.
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        await process.stdin.send(asked.encode("utf-8", "replace"))
        await process.stdin.aclose()
