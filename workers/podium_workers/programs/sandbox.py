"""Runs a Python program that a model wrote, where it can reach nothing: bubblewrap on Linux.

Inside there is an interpreter and 64 MB of memory for files. There is no network, not even this
machine's own; no file of the user's, no other process, no environment variable, and no way to more
rights. Time, memory, processes and output are limited. Where that cannot be had, nothing is run.
"""

import os
import shutil
import sys
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Literal

import anyio
from anyio.abc import ByteReceiveStream, Process

from podium_workers.errors import NotInstalledError
from podium_workers.worker import Frozen

MEMORY_BYTES = 1 << 30
"""Address space of each process inside."""
PROCESSES = 16
"""Processes and threads at the same time."""
FILE_BYTES = 64 << 20
"""Size of the file system in memory, and of each file in it."""
OUTPUT_BYTES = 256 << 10
"""What a program may print before it is ended."""
ERROR_BYTES = 8 << 10
"""How much of the end of its complaints is kept."""
PROBE_S = 5

_LAUNCHER = (files("podium_workers.programs") / "sandboxed.py").read_text(encoding="utf-8")
_NOBODY = 65534
_TIME_IS_UP = 128 + 24  # SIGXCPU, as bubblewrap reports it
_REMEDY = "`apt install bubblewrap` or your system's own way gives you 0.8 or newer"
_READABLE = ("/lib", "/lib64", "/lib32", "/libx32", "/bin")
_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "HOME": "/tmp", "LANG": "C.UTF-8"}


Status = Literal["finished", "failed", "too_slow", "too_much"]


class Ran(Frozen):
    """What a program did."""

    status: Status
    output: str
    """What it printed, up to the limit."""
    errors: str
    """The end of what it wrote to standard error."""


@dataclass
class Sandbox:
    """A place to run programs in. One per process is enough."""

    path: str | None = None
    """Where bubblewrap is looked for, as in the variable PATH."""
    _interpreter: str | None = field(default=None, init=False)
    """The first interpreter that was seen to run inside."""

    async def check(self) -> str:
        """One line on what isolates programs.

        Raises:
            NotInstalledError: nothing does; the text says what to install.
        """
        if self._interpreter is None:
            self._interpreter = await self._find()
        return f"programs run in bubblewrap, by {self._interpreter}"

    async def run(self, program: str, *, seconds: int) -> Ran:
        """Run *program* for at most *seconds* of processor time, and twice that by the clock.

        Raises:
            NotInstalledError: programs cannot be isolated here; nothing was run.
        """
        await self.check()
        assert self._interpreter is not None
        return await self._run(self._interpreter, program, seconds)

    async def _find(self) -> str:
        why = "no Python interpreter was found that all users may run"
        for interpreter in _interpreters():
            ran = await self._run(interpreter, "print(6 * 7)", PROBE_S)
            if ran.output.strip() == "42":
                return interpreter
            why = " ".join(ran.errors.split()) or "it did not run a program that prints a number"
        raise NotInstalledError(f"Programs cannot be isolated on this machine: {why}. {_REMEDY}.")

    def _bubblewrap(self) -> str:
        if sys.platform != "linux":
            raise NotInstalledError(
                "Programs that models write run only on Linux, where bubblewrap isolates them."
            )
        found = shutil.which("bwrap", path=self.path)
        if found is None:
            raise NotInstalledError(
                "Programs that models write run only in bubblewrap, which is not installed here: "
                f"{_REMEDY}."
            )
        return found

    async def _run(self, interpreter: str, program: str, seconds: int) -> Ran:
        command = [self._bubblewrap(), *_walls(interpreter), "--", interpreter]
        command += ["-I", "-B", "-S", "-c", _LAUNCHER]
        command += map(str, (seconds, MEMORY_BYTES, FILE_BYTES, PROCESSES))
        async with _open_process(command) as process:
            return await _watch(process, program, 2 * seconds)


@asynccontextmanager
async def _open_process(command: Sequence[str]) -> AsyncGenerator[Process]:
    """bubblewrap, whose end is the end of everything inside.

    Raises:
        NotInstalledError: it cannot be started.
    """
    # The limit on processes does not count for the superuser.
    as_nobody = _NOBODY if os.geteuid() == 0 else None
    try:
        process = await anyio.open_process(
            command,
            cwd="/",
            # Its own environment can be read from inside.
            env={"PATH": _ENVIRONMENT["PATH"]},
            user=as_nobody,
            group=as_nobody,
            extra_groups=None if as_nobody is None else (),
        )
    except OSError as error:
        raise NotInstalledError(
            f"{command[0]} cannot be started, so programs cannot be isolated: {error.strerror}."
        ) from error
    async with process:
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()


def _interpreters() -> Iterator[str]:
    """Those that are there, the system's first: it lies outside everybody's home."""
    own = Path(sys.base_prefix) / "bin" / "python3"
    for path in dict.fromkeys((Path("/usr/bin/python3"), Path("/usr/local/bin/python3"), own)):
        if os.access(path, os.X_OK):
            yield str(path)


def _walls(interpreter: str) -> list[str]:
    """bubblewrap's arguments."""
    walls = ["--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent"]
    walls += ["--new-session", "--cap-drop", "ALL", "--hostname", "sandbox", "--clearenv"]
    for name, value in _ENVIRONMENT.items():
        walls += ["--setenv", name, value]
    walls += ["--ro-bind", "/usr", "/usr"]
    for folder in map(Path, _READABLE):
        if folder.is_symlink():
            walls += ["--symlink", str(folder.readlink()), str(folder)]
        else:
            walls += ["--ro-bind-try", str(folder), str(folder)]
    prefix = Path(interpreter).parent.parent
    for further in ("/etc/ld.so.cache", "/nix/store", *_outside(prefix)):
        walls += ["--ro-bind-try", further, further]
    walls += ["--proc", "/proc", "--dev", "/dev"]
    for folder in ("/dev/shm", "/tmp"):
        walls += ["--size", str(FILE_BYTES), "--tmpfs", folder]
    return [*walls, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/tmp"]


def _outside(prefix: Path) -> tuple[str, ...]:
    return () if prefix.is_relative_to("/usr") else (str(prefix),)


@dataclass
class _Printed:
    """What came out of one stream of a program."""

    stream: ByteReceiveStream
    most: int
    """Bytes that are kept."""
    keep_end: bool = False
    kept: bytes = b""
    count: int = 0

    async def read(self) -> bool:
        """Read to the end; False when it is more than a program may print."""
        async for piece in self.stream:
            self.count += len(piece)
            both = self.kept + piece
            self.kept = both[-self.most :] if self.keep_end else both[: self.most]
            if self.count > OUTPUT_BYTES:
                return False
        return True

    @property
    def text(self) -> str:
        return self.kept.decode("utf-8", "replace")


async def _watch(process: Process, program: str, seconds: float) -> Ran:
    assert process.stdout is not None
    assert process.stderr is not None
    output = _Printed(process.stdout, OUTPUT_BYTES)
    errors = _Printed(process.stderr, ERROR_BYTES, keep_end=True)
    status: Status = "too_slow"
    too_much = False

    async def read(printed: _Printed) -> None:
        nonlocal too_much
        if not await printed.read():
            too_much = True
            process.kill()

    with anyio.move_on_after(seconds):
        async with anyio.create_task_group() as group:
            group.start_soon(_give, process, program)
            group.start_soon(read, output)
            group.start_soon(read, errors)
        status = _meaning(await process.wait())
    return Ran(
        status="too_much" if too_much else status,
        output=output.text,
        errors=errors.text,
    )


async def _give(process: Process, program: str) -> None:
    assert process.stdin is not None
    # That it ended before it had read all shows in its exit code.
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        await process.stdin.send(program.encode("utf-8", "replace"))
        await process.stdin.aclose()


def _meaning(code: int) -> Status:
    if code == _TIME_IS_UP:
        return "too_slow"
    return "failed" if code else "finished"
