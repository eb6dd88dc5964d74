"""An HTTP server that is told to end: calls are answered, runs stay, and it is gone in time."""

import contextlib
import signal
import subprocess
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import anyio.to_thread
import httpx2
import pytest
from mcp import Client
from mcp.types import CallToolResult
from pydantic import JsonValue
from tests.command_line import CommandLine, finish, use_hosted
from tests.flow.callers import HEADERS, begin
from tests.flow.client import Era, data, text
from tests.provider_simulator import Answer, Provider

BOUND_S = 60
QUICK_S = 1.9
"""Less than calls in flight are given."""
ENDS_WITHIN_S = 9.0
ASKED: dict[str, JsonValue] = {"question": "Which?", "strategy": "single", "max_wait_s": 40}


@asynccontextmanager
async def started(
    podium: CommandLine, *options: str, piped: bool = False
) -> AsyncGenerator[tuple["subprocess.Popen[bytes]", str]]:
    """A server and its address; whoever uses it ends it."""
    with podium.start("serve", "--http", "--port", "0", *options, piped=piped) as server:
        assert server.stderr is not None
        try:
            with anyio.fail_after(BOUND_S):
                line = b""
                while b"serves http://" not in line:
                    line = await anyio.to_thread.run_sync(server.stderr.readline)
                    assert line, "the server ended before it listened"
                yield server, line.decode().split()[-1]
        finally:
            server.kill()


async def ended(server: "subprocess.Popen[bytes]") -> int:
    return (await anyio.to_thread.run_sync(finish, server)).code


async def stalling(provider: Provider) -> None:
    assert await anyio.to_thread.run_sync(provider.stalling.wait, BOUND_S)


@pytest.mark.parametrize("era", ["legacy", "2026-07-28"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_call_that_waits_for_a_run_is_told_how_it_stands(
    podium: CommandLine, provider: Provider, era: Era, number: signal.Signals
) -> None:
    provider.answers(Answer(before="STALL"))
    use_hosted(podium, provider.url)
    told: list[CallToolResult] = []
    began = 0.0
    async with started(podium) as (server, url):
        client = Client(url, mode=era)

        async def ask() -> None:
            async with client:
                await client.list_tools()  # or it would ask for them after the answer
                told.append(await client.call_tool("orchestrate", ASKED))

        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            await stalling(provider)
            began = time.monotonic()
            server.send_signal(number)
        assert await ended(server) == 128 + number
        assert time.monotonic() - began < ENDS_WITHIN_S
    run_id = str(data(told[0])["run_id"])
    assert data(told[0])["status"] == "interrupted"
    assert f"orchestrate(run_id='{run_id}')" in text(told[0])
    assert provider.disconnected.wait(5)
    (row,) = podium("runs", "--json").rows
    assert (row["run_id"], row["status"]) == (run_id, "interrupted")


async def test_a_second_signal_ends_it_at_once(podium: CommandLine, provider: Provider) -> None:
    provider.answers(Answer(before="STALL"))
    use_hosted(podium, provider.url)
    async with started(podium) as (server, url), anyio.create_task_group() as group:
        group.start_soon(hang, url)
        await stalling(provider)
        began = time.monotonic()
        server.send_signal(signal.SIGTERM)
        await refusing(url)
        server.send_signal(signal.SIGINT)
        assert await ended(server) == 128 + signal.SIGINT
        assert time.monotonic() - began < QUICK_S
        group.cancel_scope.cancel()


async def hang(url: str) -> None:
    """Call, and be cut off."""
    with contextlib.suppress(BaseExceptionGroup):
        async with Client(url) as client:
            await client.call_tool("orchestrate", ASKED)


async def refusing(url: str) -> None:
    """Wait until the server lets nobody in any more."""
    async with httpx2.AsyncClient() as http:
        while True:
            try:
                if (await http.get(url)).status_code == 503:
                    return
            except httpx2.TransportError:
                return


async def test_streams_that_only_listen_hold_nobody_up(podium: CommandLine) -> None:
    async with started(podium) as (server, url):
        opened = await begin(url)
        headers = HEADERS | {"mcp-session-id": opened.headers["mcp-session-id"]}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=BOUND_S) as http,
            http.stream("GET", url) as listening,
        ):
            assert listening.status_code == 200
            began = time.monotonic()
            server.send_signal(signal.SIGTERM)
            async for _ in listening.aiter_bytes():
                pass
            assert await ended(server) == 128 + signal.SIGTERM
            assert time.monotonic() - began < QUICK_S


async def test_one_process_serves_stdio_too_until_its_client_goes(podium: CommandLine) -> None:
    async with started(podium, "--stdio", piped=True) as (server, url):
        assert server.stdin is not None
        assert server.stdout is not None
        assert (await begin(url)).status_code == 200
        ping = b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":'
        ping += b'"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}\n'
        server.stdin.write(ping)
        server.stdin.flush()
        assert b"serverInfo" in await anyio.to_thread.run_sync(server.stdout.readline)
        server.stdin.close()
        assert await anyio.to_thread.run_sync(server.wait) == 0
