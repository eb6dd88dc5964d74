"""The outside suites as the tests call them; without its suite a test is skipped, and says so."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from podium_lab.environments.suites import Environments


@dataclass(frozen=True)
class Ended:
    """A program that has ended."""

    code: int
    out: str
    err: str

    def __str__(self) -> str:
        return f"exit code {self.code}\n{self.out}\n{self.err}"


@dataclass(frozen=True)
class Program:
    """An outside suite, at home in *folder*."""

    command: Sequence[str]
    folder: Path

    async def __call__(self, *arguments: str, within_s: float = 120) -> Ended:
        """Run it to its end."""
        run = partial(_run, [*self.command, *arguments], self.folder, within_s)
        return await anyio.to_thread.run_sync(run)


def program(name: str, folder: Path) -> Program:
    """An outside suite; skips the test when it is not installed."""
    command = Environments.usual().command(name)
    if command is None:
        pytest.skip(f"{name} is missing: python -m podium_lab.environments.suites {name}")
    home = folder / f"home of {name}"
    home.mkdir(exist_ok=True)
    return Program(command, home)


def _run(command: Sequence[str], folder: Path, within_s: float) -> Ended:
    # A home of its own, so that no settings of the user's apply, and none are changed.
    environment: Mapping[str, str] = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(folder),
        "NO_COLOR": "1",
        "COLUMNS": "200",
    }
    done = subprocess.run(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True,
        timeout=within_s, check=False,
    )  # fmt: skip
    return Ended(done.returncode, done.stdout.decode(), done.stderr.decode())
