"""A real MCP client of a real `podium serve`, for the tests of the whole."""

import sqlite3
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from typing import Literal, cast

import anyio
import anyio.to_thread
from mcp import Client
from mcp.client.session import ElicitationFnT
from mcp.client.stdio import StdioServerParameters
from mcp.types import CallToolResult, TextContent
from pydantic import JsonValue
from tests.command_line import CommandLine, finish

Era = Literal["legacy", "2026-07-28"]
Transport = Literal["stdio", "http"]


@asynccontextmanager
async def connected(
    podium: CommandLine,
    transport: Transport = "stdio",
    era: Era = "2026-07-28",
    *,
    asks: ElicitationFnT | None = None,
) -> AsyncGenerator[Client]:
    """A client of `podium serve`, a real process; *asks* is how it asks its user."""
    if transport == "stdio":
        command = podium.argv("serve")
        parameters = StdioServerParameters(
            command=command[0], args=command[1:], env=podium.environ, cwd=podium.folder
        )
        async with Client(parameters, mode=era, elicitation_callback=asks) as client:
            yield client
        return
    async with (
        http_server(podium) as url,
        Client(url, mode=era, elicitation_callback=asks) as client,
    ):
        yield client


@asynccontextmanager
async def http_server(podium: CommandLine, *options: str) -> AsyncGenerator[str]:
    """The address of a `podium serve --http`, a real process."""
    server = podium.start("serve", "--http", "--port", "0", *options)
    try:
        yield await address_of(server)
    finally:
        server.terminate()
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(finish, server)
    assert server.returncode == 128 + 15


async def address_of(server: "subprocess.Popen[bytes]") -> str:
    """Where a server says on stderr that it listens."""
    assert server.stderr is not None
    with anyio.fail_after(30):
        line = b""
        while b"serves http://" not in line:
            line = await anyio.to_thread.run_sync(server.stderr.readline)
            assert line, "the server ended before it listened"
    return line.decode().split()[-1]


def text(result: CallToolResult) -> str:
    """What a model reads of a result."""
    assert isinstance(result.content[0], TextContent)
    return result.content[0].text


def data(result: CallToolResult) -> dict[str, JsonValue]:
    assert not result.is_error, text(result)
    return cast("dict[str, JsonValue]", result.structured_content)


def steps(result: CallToolResult) -> list[dict[str, JsonValue]]:
    return cast("list[dict[str, JsonValue]]", data(result)["steps"])


def rows(podium: CommandLine, query: str) -> list[tuple[object, ...]]:
    """What the ledger's file says."""
    with closing(sqlite3.connect(podium.ledger)) as connection:
        return connection.execute(query).fetchall()
