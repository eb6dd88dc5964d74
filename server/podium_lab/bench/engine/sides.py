"""The engines that are measured, each in a process of its own, and how they are asked."""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from podium_lab.bench.engine.simulator import Simulator
from podium_lab.bench.peers.install import python_in
from podium_lab.bench.peers.measuring import Job
from podium_workers.worker import Frozen

SCRIPTS = Path(__file__).parent.parent / "peers"
TRACE = ("strace", "--follow-forks", "-c", "--seccomp-bpf", "-e", "trace=fsync,fdatasync", "-o")
_COUNT = re.compile(r"^\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)\s.*(?:fsync|fdatasync)$", re.MULTILINE)


class Side(Frozen):
    """An engine in one way of using it."""

    name: str
    command: tuple[str, ...]
    variant: str = ""


class Measured(Frozen):
    """What a side's process printed."""

    calls: int
    """Steps done in that process, as counted by the work itself."""
    facts: dict[str, str]
    walls_s: tuple[float, ...] = ()
    cpus_s: tuple[float, ...] = ()
    firsts_s: tuple[float, ...] = ()
    """From the start of a round to its first step."""
    kb_per_run: float | None = None
    wall_s: float | None = None
    cpu_s: float | None = None


class SideError(Exception):
    """A side's process failed; what it said last."""


def own(module: str) -> tuple[str, ...]:
    """The command of a side that runs in this environment."""
    return (sys.executable, "-m", f"podium_lab.bench.engine.{module}")


BARE = Side(name="bare", command=own("bare"))
"""The steps without an engine."""
PODIUM = Side(name="podium", command=own("podium_runs"))


def peers(folder: Path) -> tuple[Side, ...]:
    """The other engines, if their environment is there."""
    python = python_in(folder)
    if not python.exists():
        return ()
    langgraph = (str(python), str(SCRIPTS / "langgraph_runs.py"))
    framework = (str(python), str(SCRIPTS / "agent_framework_runs.py"))
    return (
        Side(name="langgraph", command=langgraph, variant="sync"),
        Side(name="langgraph_async", command=langgraph, variant="async"),
        Side(name="agent_framework", command=framework, variant="fsync"),
        Side(name="agent_framework_unflushed", command=framework, variant="shipped"),
    )


class Ask(Frozen):
    """What a side is to be measured at."""

    job: Job = "rounds"
    runs: int
    rounds: int = 1
    warm: int = 0
    steps: int = 4
    delay_s: float
    url: str = ""
    variant: str | None = None
    """Instead of the side's own."""

    def arguments(self, side: Side, folder: Path) -> list[str]:
        """As the side's command line takes it."""
        given = self.model_dump() | {"variant": self.variant or side.variant, "folder": folder}
        return [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]


def measure(side: Side, ask: Ask, folder: Path, before: Sequence[str] = ()) -> Measured:
    """Run a side over *folder*, behind the command *before*.

    Raises:
        SideError: it failed.
    """
    command = [*before, *side.command, *ask.arguments(side, folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SideError(f"{side.name} failed: {_last_words(done.stderr)}")
    return Measured.model_validate_json(done.stdout.splitlines()[-1])


def _last_words(errors: str) -> str:
    """What a traceback ends with, without the frame that groups of exceptions stand in."""
    lines = [line.strip(" |+-") for line in errors.splitlines()]
    return next((line for line in reversed(lines) if "Error" in line), errors.strip()[-200:])


def measure_fresh(side: Side, ask: Ask, place: Path) -> Measured:
    """The same over a new, empty folder in *place*."""
    with tempfile.TemporaryDirectory(dir=place) as folder:
        return measure(side, ask, Path(folder))


def measure_http(side: Side, ask: Ask, place: Path, provider: Simulator) -> tuple[Measured, int]:
    """The same with steps that ask the provider; also how often it was asked."""
    before = provider.calls()
    found = measure_fresh(side, ask.model_copy(update={"url": provider.url}), place)
    return found, provider.calls() - before


def measure_resume(side: Side, ask: Ask, place: Path) -> Measured:
    """One process leaves runs behind in the middle, another takes them up: the second's figures."""
    with tempfile.TemporaryDirectory(dir=place) as folder:
        measure(side, ask.model_copy(update={"job": "stop"}), Path(folder))
        return measure(side, ask.model_copy(update={"job": "resume"}), Path(folder))


def count_syncs(side: Side, ask: Ask, place: Path) -> int | None:
    """How often a side's process flushed files to the disk; None without strace."""
    if shutil.which(TRACE[0]) is None:
        return None
    with tempfile.TemporaryDirectory(dir=place) as name:
        folder = Path(name)
        counts = folder / "syncs"
        measure(side, ask, folder, (*TRACE, str(counts)))
        return sum(map(int, _COUNT.findall(counts.read_text(encoding="utf-8"))))


def versions(folder: Path) -> dict[str, str]:
    """What is installed in the environment of the other engines."""
    command = [str(python_in(folder)), "-m", "pip", "list", "--format", "json"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    wanted = ("langgraph", "agent-framework")
    return {
        str(it["name"]): str(it["version"])
        for it in json.loads(listed)
        if str(it["name"]).startswith(wanted)
    }
