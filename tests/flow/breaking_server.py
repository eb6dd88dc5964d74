"""A server behind Podium's guards whose handlers give what breaks a connection.

    python breaking_server.py            stdio
    python breaking_server.py --http     streamable HTTP; prints its address

It is a program of its own, and the tests start it.
"""

import math
import socket
import sys
from typing import Annotated

import anyio
import uvicorn
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ResourceNotFoundError, ToolError
from mcp.types import CallToolResult, Completion, TextContent
from pydantic import BaseModel, JsonValue

from podium.app.guards import send_clean
from podium.app.server import PoliteServer
from podium.app.waiting import Progress

HALF = "half \ud83d emoji"


class Broken(BaseModel):
    """What its tool promises."""

    score: float | None
    texts: list[str]


async def result(ctx: Context) -> Annotated[CallToolResult, Broken]:
    """Half an emoji in progress, text and data, and numbers that JSON lacks."""
    progress = Progress(ctx)
    for _ in range(3):
        await progress.tell(HALF)
    data: dict[str, JsonValue] = {
        "score": math.nan,
        "texts": [HALF],
        "deep": {"\ud83d": [math.inf, -math.inf, {"more": HALF}]},
    }
    return CallToolResult(content=[TextContent(type="text", text=HALF)], structured_content=data)


async def failure() -> str:
    """An expected failure."""
    raise ToolError(HALF)


async def silent() -> str:
    """A failure that says nothing."""
    raise TimeoutError


async def long_failure() -> str:
    """A failure that says too much."""
    raise ToolError("word " * 10_000)


async def resource() -> str:
    """Half an emoji in a resource."""
    return HALF


async def missing(name: str) -> str:
    """Half an emoji in the error of a resource."""
    raise ResourceNotFoundError(HALF)


async def prompt() -> str:
    """Half an emoji in a prompt."""
    return HALF


async def complete(*_: object) -> Completion:
    return Completion(values=[HALF])


def server() -> PoliteServer:
    made = PoliteServer("breaking", log_level="CRITICAL", middleware=[send_clean])
    for tool in (result, failure, silent, long_failure):
        made.add_tool(tool)
    made.resource("breaking://resource")(resource)
    made.resource("breaking://missing/{name}")(missing)
    made.prompt("prompt")(prompt)
    made.completion()(complete)
    return made


async def serve_http() -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{listening.getsockname()[1]}/mcp", flush=True)
    config = uvicorn.Config(server().streamable_http_app(), log_config=None)
    await uvicorn.Server(config).serve(sockets=[listening])


if __name__ == "__main__":
    anyio.run(serve_http if "--http" in sys.argv else server().run_stdio_async)
