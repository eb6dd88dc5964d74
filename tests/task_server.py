"""A server in memory whose runs are looked at by tasks, for the tests of tasks."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
from mcp import Client
from pydantic import JsonValue
from tests.core_parts import asks_for, conducting, open_parts, worker, written
from tests.task_client import DECLARED, never_asked

from podium.app import build_server
from podium.config import Settings
from podium.runs import Runs, open_runs
from podium_workers.scripted import Line
from podium_workers.worker import Prompt

STEPS: list[JsonValue] = [
    {"worker": "solo", "subtask": "Look.", "access": []},
    {"worker": "solo", "subtask": "Hold   on.", "access": [0]},
    {"worker": "solo", "subtask": "Say.", "access": [1]},
]
FOR_CALLER: list[JsonValue] = [
    {"worker": "caller", "subtask": "Run the tests.", "access": []},
    {"worker": "solo", "subtask": "Say.", "access": [0]},
]


@dataclass(frozen=True)
class Served:
    """A server, with a worker that replies to `Hold   on.` once it is let."""

    runs: Runs
    settings: Settings
    gate: anyio.Event

    @asynccontextmanager
    async def client(self, *, asks: bool = True, user: str = "me") -> AsyncGenerator[Client]:
        settings = self.settings.model_copy(update={"principal": user})
        server = build_server(self.runs, settings, reads_paths=False)
        callback = never_asked if asks else None
        async with Client(server, extensions=[DECLARED], elicitation_callback=callback) as client:
            yield client


@asynccontextmanager
async def served(
    folder: Path,
    *,
    name: str = "solo",
    card: Mapping[str, object] | None = None,
    boss: Callable[[], Awaitable[Line]] | None = None,
) -> AsyncGenerator[Served]:
    gate = anyio.Event()
    plan = written((name, "Say.", []))

    async def script(prompt: Prompt) -> Line:
        if conducting(prompt):
            return await (boss() if boss else _line(plan))
        if asks_for("Hold   on.")(prompt):
            await gate.wait()
        return "Said."

    settings = Settings(store=folder / "podium.db", strategy="single", principal="me")
    async with (
        open_parts(folder, worker(name, script, card=card)) as parts,
        open_runs(parts.orchestrator) as runs,
    ):
        yield Served(runs, settings, gate)


async def _line(text: str) -> Line:
    return text
