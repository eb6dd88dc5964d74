"""What a real server says to requests that it will not take, and to web pages that it will."""

import socket
from collections.abc import AsyncGenerator

import anyio
import httpx2
import pytest
from mcp import Client, MCPError
from tests.command_line import CommandLine
from tests.flow.callers import INITIALIZE, begin, new_token
from tests.flow.client import Era, http_server

BOUND_S = 60
PAGE = "https://app.example.com"


@pytest.mark.parametrize("era", ["legacy", "2026-07-28"])
async def test_a_request_that_is_too_big_says_how_big_it_may_be(
    podium: CommandLine, era: Era
) -> None:
    small = CommandLine(podium.folder, {"PODIUM_HTTP_MAX_BYTES": "20000"})
    with anyio.fail_after(BOUND_S):
        async with http_server(small) as url, Client(url, mode=era) as client:
            with pytest.raises(MCPError, match="takes 20000 at most"):
                await client.call_tool("orchestrate", {"question": "x" * 20_000})
            assert not (await client.call_tool("list_workers", {})).is_error
            # Also when it does not say beforehand how big it is.
            async with httpx2.AsyncClient(timeout=BOUND_S) as http:
                refused = await http.post(url, content=_pieces())
                assert refused.status_code == 413


async def _pieces() -> AsyncGenerator[bytes]:
    for _ in range(30):
        yield b"x" * 1000


async def test_a_server_for_others_is_reached_by_number_and_by_its_names(
    podium: CommandLine,
) -> None:
    token = new_token(podium, "anna")
    named = CommandLine(podium.folder, {"PODIUM_HTTP_HOSTS": "podium.example.com"})
    with anyio.fail_after(BOUND_S):
        async with http_server(named, "--host", "0.0.0.0") as url:
            near = url.replace("0.0.0.0", "127.0.0.1")
            assert (await begin(near)).status_code == 401
            for host in ("10.1.2.3:99", "podium.example.com", socket.gethostname()):
                assert (await begin(near, token, host=host)).status_code == 200
            assert (await begin(near, token, host="evil.example")).status_code == 421
            assert (await begin(near, token, origin="http://evil.example")).status_code == 403


async def test_a_web_page_that_is_named_may_ask_first_and_then_call(podium: CommandLine) -> None:
    token = new_token(podium, "anna")
    paged = CommandLine(podium.folder, {"PODIUM_HTTP_ORIGINS": PAGE})
    with anyio.fail_after(BOUND_S):
        async with http_server(paged) as url, httpx2.AsyncClient(timeout=BOUND_S) as http:
            asks = {
                "origin": PAGE,
                "access-control-request-method": "POST",
                "access-control-request-headers": "authorization,mcp-method",
            }
            allowed = await http.options(url, headers=asks)
            assert allowed.status_code == 200
            assert allowed.headers["access-control-allow-origin"] == PAGE
            assert "authorization" in allowed.headers["access-control-allow-headers"]
            called = await begin(url, token, origin=PAGE)
            assert called.status_code == 200
            assert called.headers["access-control-allow-origin"] == PAGE
            assert "mcp-session-id" in called.headers["access-control-expose-headers"].lower()
            assert (await http.options(url, headers={"origin": "https://x"})).status_code == 403
            assert (await http.post(url, json=INITIALIZE)).status_code == 401
