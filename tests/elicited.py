"""Whoever sits before a client and is asked through it, and a server in memory that asks."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from mcp import Client
from mcp.client.context import ClientRequestContext
from mcp.client.session import ElicitationFnT
from mcp.types import ElicitRequestFormParams, ElicitRequestParams, ElicitResult
from tests.core_parts import conductor, open_parts, worker, written
from tests.flow.client import Era

from podium.app import build_server
from podium.config import Settings
from podium.runs import Runs, open_runs
from podium_workers.scripted import ScriptedWorker

YES = ElicitResult(action="accept", content={"approve": True})


@dataclass
class User:
    """Gives these answers in turn, the last one for ever."""

    answers: list[ElicitResult]
    asked: list[ElicitRequestFormParams] = field(default_factory=list[ElicitRequestFormParams])

    async def __call__(
        self, context: ClientRequestContext, params: ElicitRequestParams
    ) -> ElicitResult:
        assert isinstance(params, ElicitRequestFormParams)
        self.asked.append(params)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def user(action: str, **content: str | float | bool | None) -> User:
    """One who always answers so."""
    return User([ElicitResult.model_validate({"action": action, "content": content or None})])


def boss(*steps: tuple[str, str, list[int]]) -> ScriptedWorker:
    """A conductor with this plan; without steps, one of two."""
    return conductor(written(*steps or (("ann", "List.", []), ("boss", "Weigh.", [0]))))


@asynccontextmanager
async def served(
    folder: Path,
    asks: ElicitationFnT | None,
    era: Era,
    *workers: ScriptedWorker,
    approve: str = "nothing",
) -> AsyncGenerator[tuple[Client, Runs]]:
    """A client of a server whose team is these workers; the first one plans."""
    settings = Settings.model_validate({"store": folder / "podium.db", "approve": approve})
    team = workers or (boss(), worker("ann"))
    async with open_parts(folder, *team) as parts, open_runs(parts.orchestrator) as runs:
        server = build_server(runs, settings, reads_paths=True)
        async with Client(server, mode=era, elicitation_callback=asks) as client:
            yield client, runs
