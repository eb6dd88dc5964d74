"""What is served when Podium cannot be opened: the reason, at the place where a client shows it.

A process that ends before the handshake is no more than "connection closed" to its user.
"""

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import CallToolResult, Tool
from pydantic import JsonValue

from podium import __version__
from podium.app.errors import short


class ProblemServer(MCPServer):
    """A server with one tool, which only tells what is wrong."""

    def __init__(self, problem: str) -> None:
        self._told = short(
            f"Podium cannot start: {problem} Tell the user; once it is mended, connect again."
        )
        super().__init__(
            "podium", title="Podium", version=__version__, instructions=self._told,
            log_level="WARNING",
        )  # fmt: skip

    async def list_tools(self) -> list[Tool]:
        asked: dict[str, JsonValue] = {"type": "string", "description": "The whole question."}
        schema: dict[str, JsonValue] = {"type": "object", "properties": {"question": asked}}
        return [
            Tool(
                name="orchestrate", title="Ask the team", description=self._told,
                input_schema=schema,
            )
        ]  # fmt: skip

    async def call_tool(
        self, name: str, arguments: dict[str, JsonValue], context: Context | None = None
    ) -> CallToolResult:
        raise ToolError(self._told)
