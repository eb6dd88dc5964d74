"""A client in memory of Podium's MCP surface over scripted workers, for tests of what it sees."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from mcp import Client
from mcp.types import CallToolResult, Implementation, TextContent, TextResourceContents
from pydantic import JsonValue
from tests.core_parts import open_parts, plan_of, step

from podium.app import build_server
from podium.config import Settings
from podium.plan import Plan
from podium.runs import Runs, open_runs
from podium_workers.scripted import ScriptedWorker

Era = Literal["legacy", "2026-07-28"]
ERAS: tuple[Era, ...] = ("legacy", "2026-07-28")
ONE_STEP = plan_of(step("solo", "Do it."))


@dataclass
class Surface:
    """What a client sees, and the runs behind it."""

    client: Client
    runs: Runs

    async def call(self, tool: str, **arguments: JsonValue) -> CallToolResult:
        return await self.client.call_tool(tool, arguments)

    async def refused(self, tool: str, **arguments: JsonValue) -> str:
        """The error with which a call is answered."""
        result = await self.call(tool, **arguments)
        assert result.is_error, result
        return text(result)

    async def read(self, uri: str) -> str:
        (content,) = (await self.client.read_resource(uri)).contents
        assert isinstance(content, TextResourceContents)
        return content.text


def text(result: CallToolResult) -> str:
    """What a model reads of a result."""
    assert isinstance(result.content[0], TextContent)
    return result.content[0].text


@asynccontextmanager
async def surface(
    folder: Path,
    *workers: ScriptedWorker,
    plans: Sequence[Plan] = (ONE_STEP,),
    era: Era = "2026-07-28",
    client_name: str = "tests",
    settings: Mapping[str, object] | None = None,
) -> AsyncGenerator[Surface]:
    """A surface; the strategy `given` follows *plans*."""
    made = Settings.model_validate({"store": folder / "podium.db", **(settings or {})})
    async with (
        open_parts(folder, *workers, plans=plans) as parts,
        open_runs(parts.orchestrator) as runs,
        Client(
            build_server(runs, made, reads_paths=False),
            mode=era,
            client_info=Implementation(name=client_name, version="1"),
        ) as client,
    ):
        yield Surface(client, runs)
