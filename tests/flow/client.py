"""A real MCP client of a real `podium serve`, for the tests of the whole."""

import socket
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Literal, cast

import anyio
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp.types import CallToolResult, TextContent
from pydantic import JsonValue
from tests.command_line import CommandLine

Era = Literal["legacy", "2026-07-28"]
Transport = Literal["stdio", "http"]


@asynccontextmanager
async def connected(
    podium: CommandLine, transport: Transport = "stdio", era: Era = "2026-07-28"
) -> AsyncGenerator[Client]:
    """A client of `podium serve`, a real process."""
    if transport == "stdio":
        command = podium.argv("serve")
        parameters = StdioServerParameters(
            command=command[0], args=command[1:], env=podium.environ, cwd=podium.folder
        )
        async with Client(parameters, mode=era) as client:
            yield client
        return
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    server = podium.start("serve", "--http", "--port", str(port))
    try:
        await _listening(server, port)
        async with Client(f"http://127.0.0.1:{port}/mcp", mode=era) as client:
            yield client
    finally:
        server.terminate()
        server.communicate(timeout=10)
    assert server.returncode == 128 + 15


async def _listening(server: "subprocess.Popen[bytes]", port: int) -> None:
    with anyio.fail_after(30):
        while server.poll() is None:
            try:
                stream = await anyio.connect_tcp("127.0.0.1", port)
            except OSError:
                await anyio.lowlevel.checkpoint()
            else:
                await stream.aclose()
                return
    raise AssertionError("podium serve --http ended before it listened")


def text(result: CallToolResult) -> str:
    """What a model reads of a result."""
    assert isinstance(result.content[0], TextContent)
    return result.content[0].text


def data(result: CallToolResult) -> dict[str, JsonValue]:
    assert not result.is_error, text(result)
    return cast("dict[str, JsonValue]", result.structured_content)


def steps(result: CallToolResult) -> list[dict[str, JsonValue]]:
    return cast("list[dict[str, JsonValue]]", data(result)["steps"])
