"""A real MCP server that rests on Podium: it passes Podium's tools on, and has one of its own.

    python chaining_server.py [--http] --era ERA --patience-s 10 http://127.0.0.1:8000/mcp
    python chaining_server.py [--http] --era ERA --patience-s 10 podium serve

As a stranger would write it: it knows of Podium what `tools/list` and the results say. It is a
program of its own, and the tests start it.
"""

import argparse
import os
import socket
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import anyio
import uvicorn
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp.server import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
)
from pydantic import JsonValue

Told = Callable[[float, float | None, str | None], Awaitable[None]]
OWN = Tool(
    name="ask_team",
    title="Ask the team",
    description="Answer a question with a team of models, however long it takes.",
    input_schema={
        "type": "object",
        "properties": {"question": {"type": "string", "description": "The question."}},
        "required": ["question"],
    },
)
"""The tool that delegates."""


@dataclass
class Rising:
    """Progress of one call that several calls make up: it must only rise."""

    tell: Told
    reached: float = 0.0

    async def __call__(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> None:
        self.reached += 1
        await self.tell(self.reached, None, message)


@dataclass(frozen=True)
class Chain:
    """The two ways to rest on Podium."""

    podium: Client
    patience_s: float

    async def list_tools(
        self, ctx: ServerRequestContext[object], params: PaginatedRequestParams | None
    ) -> ListToolsResult:
        listed = await self.podium.list_tools()
        return ListToolsResult(tools=[*listed.tools, OWN])

    async def call_tool(
        self, ctx: ServerRequestContext[object], params: CallToolRequestParams
    ) -> CallToolResult:
        arguments: dict[str, JsonValue] = params.arguments or {}
        if params.name == OWN.name:
            return await self.ask_team(arguments, Rising(ctx.session.report_progress))
        return await self.podium.call_tool(
            params.name, arguments, progress_callback=ctx.session.report_progress
        )

    async def ask_team(self, arguments: dict[str, JsonValue], tell: Rising) -> CallToolResult:
        """Ask, and ask again for as long as the answer says that the work goes on."""
        asking: dict[str, JsonValue] = {**arguments, "max_wait_s": self.patience_s}
        found = await self.podium.call_tool("orchestrate", asking, progress_callback=tell)
        while (run := found.structured_content) and run["status"] == "running":
            await tell(0, None, "still working")
            looking: dict[str, JsonValue] = {"run_id": run["run_id"], "wait_s": self.patience_s}
            found = await self.podium.call_tool("get_run", looking, progress_callback=tell)
        if run and run["status"] == "finished":
            return CallToolResult(content=[TextContent(type="text", text=str(run["answer"]))])
        return CallToolResult(content=found.content, is_error=True)


async def serve(above: Client, patience_s: float, listening: socket.socket | None) -> None:
    """Serve on that socket, or on stdio when there is none."""
    async with above as podium:
        chain = Chain(podium, patience_s)
        server = Server("chain", on_list_tools=chain.list_tools, on_call_tool=chain.call_tool)
        if listening is None:
            async with stdio_server() as (read, write):
                await server.run(read, write, server.create_initialization_options())
            return
        print(
            f"The chain serves http://127.0.0.1:{listening.getsockname()[1]}/mcp", file=sys.stderr
        )
        config = uvicorn.Config(
            server.streamable_http_app(), log_config=None, timeout_graceful_shutdown=1
        )
        await uvicorn.Server(config).serve(sockets=[listening])


def main() -> None:
    """Serve until stdin is closed, or until the process is ended."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--http", action="store_true")
    parser.add_argument("--era", default="auto")
    parser.add_argument("--patience-s", type=float, default=10)
    parser.add_argument("podium", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    command, *arguments = given.podium
    over_stdio = StdioServerParameters(command=command, args=arguments, env=dict(os.environ))
    above = Client(command if command.startswith("http:") else over_stdio, mode=given.era)
    if given.http:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            anyio.run(serve, above, given.patience_s, listening)
    else:
        anyio.run(serve, above, given.patience_s, None)


if __name__ == "__main__":
    main()
