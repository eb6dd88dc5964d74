"""Clients of `podium serve --http` that show a token, and what a server says to each."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import httpx2
from mcp import Client
from mcp.client.extension import ClientExtension
from mcp.client.session import ElicitationFnT
from mcp.client.streamable_http import streamable_http_client
from pydantic import JsonValue
from tests.command_line import CommandLine
from tests.flow.client import Era

INITIALIZE: dict[str, JsonValue] = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}
HEADERS = {"accept": "application/json, text/event-stream"}


def new_token(podium: CommandLine, name: str) -> str:
    made = podium.inside("token", "add", name)
    assert made.code == 0, made.err
    return made.out.strip()


@asynccontextmanager
async def calling(
    url: str,
    token: str,
    era: Era = "2026-07-28",
    extensions: Sequence[ClientExtension] = (),
    asks: ElicitationFnT | None = None,
) -> AsyncGenerator[Client]:
    """A client that shows that token with every request."""
    async with httpx2.AsyncClient(headers={"authorization": f"Bearer {token}"}, timeout=60) as http:
        transport = streamable_http_client(url, http_client=http)
        async with Client(
            transport, mode=era, extensions=extensions, elicitation_callback=asks
        ) as client:
            yield client


async def begin(url: str, token: str = "", **headers: str) -> httpx2.Response:
    """How the server answers to the first message of an `initialize` client."""
    shown = {"authorization": f"Bearer {token}"} if token else {}
    async with httpx2.AsyncClient(headers=HEADERS | shown | headers, timeout=60) as http:
        return await http.post(url, json=INITIALIZE)
