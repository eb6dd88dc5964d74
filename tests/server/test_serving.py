"""The door before the HTTP app: which requests get through, and how it closes."""

import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import cast

import anyio
import httpx2
import pytest
from pydantic import JsonValue
from starlette.types import Receive, Scope, Send

from podium.app.serving import Door, names_of
from podium.cli.http_server import HttpServer
from podium.config import Settings

LIMIT = 2000
HOSTS: list[tuple[str, dict[str, object], str, bool]] = [
    ("127.0.0.1", {}, "127.0.0.1:8000", True),
    ("127.0.0.1", {}, "LOCALHOST:1", True),
    ("127.0.0.1", {}, "localhost.", True),
    ("127.0.0.1", {}, "[::1]:8000", True),
    ("::1", {}, "[::1]", True),
    ("127.0.0.2", {}, "127.0.0.2", True),
    ("127.0.0.1", {}, "", False),
    ("127.0.0.1", {}, "evil.example", False),
    ("127.0.0.1", {}, "localhost.evil.example", False),
    ("127.0.0.1", {}, "127.0.0.1.evil.example:8000", False),
    ("127.0.0.1", {}, "evil.example:127.0.0.1", False),
    ("127.0.0.1", {}, "10.0.0.5", False),
    ("10.0.0.5", {}, "10.0.0.5:8000", True),
    ("10.0.0.5", {}, "localhost", False),
    ("0.0.0.0", {}, "10.0.0.5:8000", True),
    ("0.0.0.0", {}, "[2001:db8::1]:8000", True),
    ("0.0.0.0", {}, socket.gethostname(), True),
    ("0.0.0.0", {}, "localhost:8000", True),
    ("0.0.0.0", {}, "podium.example.com", False),
    ("0.0.0.0", {}, "", False),
    ("0.0.0.0", {"http_hosts": ["podium.example.com"]}, "Podium.Example.com:99", True),
    ("0.0.0.0", {"http_hosts": ["podium.example.com:99"]}, "podium.example.com:99", True),
    ("0.0.0.0", {"http_hosts": ["podium.example.com:99"]}, "podium.example.com", False),
    ("0.0.0.0", {"http_hosts": ["podium.example.com:99"]}, "podium.example.com:98", False),
    ("127.0.0.1", {"http_hosts": ["[fd00::1]:99"]}, "[fd00::1]:99", True),
    ("127.0.0.1", {"http_url": "https://podium.example.com/mcp"}, "podium.example.com", True),
    ("127.0.0.1", {"http_url": "https://podium.example.com/mcp"}, "example.com", False),
]


@pytest.mark.parametrize(("bound", "settings", "header", "let_in"), HOSTS)
def test_a_host_that_this_server_is_not_is_refused(
    bound: str, settings: dict[str, object], header: str, let_in: bool
):
    assert names_of(Settings.model_validate(settings), bound).has_host(header) is let_in


ORIGINS: list[tuple[str, dict[str, object], str, bool]] = [
    ("127.0.0.1", {}, "http://localhost:6274", True),
    ("127.0.0.1", {}, "http://[::1]:6274", True),
    ("127.0.0.1", {}, "http://evil.example", False),
    ("127.0.0.1", {}, "http://localhost.evil.example", False),
    ("127.0.0.1", {}, "null", False),
    ("127.0.0.1", {}, "file://localhost", False),
    ("127.0.0.1", {}, "http://[", False),
    ("127.0.0.1", {}, "http://localhost:x", False),
    ("0.0.0.0", {}, "http://6.6.6.6", False),
    ("0.0.0.0", {"http_url": "https://podium.example.com/mcp"}, "https://podium.example.com", True),
    ("0.0.0.0", {"http_origins": ["https://app.example.com"]}, "https://APP.example.com", True),
    ("0.0.0.0", {"http_origins": ["https://app.example.com"]}, "http://app.example.com", False),
    ("0.0.0.0", {"http_origins": ["https://a.example:8"]}, "https://a.example:9", False),
]


@pytest.mark.parametrize(("bound", "settings", "header", "let_in"), ORIGINS)
def test_a_web_page_of_elsewhere_is_refused(
    bound: str, settings: dict[str, object], header: str, let_in: bool
):
    assert names_of(Settings.model_validate(settings), bound).has_origin(header) is let_in


@dataclass
class Behind:
    """What is behind a door: streams that never end, and calls that end when they are let."""

    began: anyio.Event = field(default_factory=anyio.Event)
    let: anyio.Event = field(default_factory=anyio.Event)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http"
        if scope["method"] == "GET":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b": hello\n\n", "more_body": True})
            await anyio.sleep_forever()
        self.began.set()
        await self.let.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"done"})


@dataclass
class Serving:
    """A door that is served on loopback, and a client before it."""

    app: Behind
    door: Door
    server: HttpServer
    client: httpx2.AsyncClient

    async def post(self, found: list[httpx2.Response], **headers: str) -> None:
        found.append(await self.client.post("/mcp", content=b"{}", headers=headers))


@asynccontextmanager
async def serving() -> AsyncGenerator[Serving]:
    app = Behind()
    door = Door(app, names_of(Settings(), "127.0.0.1"), LIMIT)
    with socket.create_server(("127.0.0.1", 0)) as listening, anyio.fail_after(20):
        server = HttpServer(door, listening)
        server.config.lifespan = "off"
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        async with anyio.create_task_group() as group, httpx2.AsyncClient(base_url=url) as client:
            group.start_soon(server.run_to_end)
            yield Serving(app, door, server, client)
            await server.wind_down()
            await server.end()
            await server.ended.wait()


def told(response: httpx2.Response) -> str:
    """The text of a JSON-RPC error."""
    body = cast("dict[str, dict[str, JsonValue]]", response.json())
    assert (body["jsonrpc"], body["id"]) == ("2.0", None)
    return str(body["error"]["message"])


async def test_a_refusal_says_what_to_type():
    async with serving() as it:
        refused = await it.client.post("/mcp", headers={"host": "podium.example.com"})
        assert refused.status_code == 421
        assert "config set http_hosts podium.example.com" in told(refused)
        refused = await it.client.post("/mcp", headers={"origin": "https://app.example.com"})
        assert refused.status_code == 403
        assert "config set http_origins https://app.example.com" in told(refused)
        for name, header in (
            ("origin", "null"),
            ("origin", "a://b"),
            ("host", "a b"),
            ("host", ""),
        ):
            refused = await it.client.post("/mcp", headers={name: header})
            assert "podium config set" not in told(refused)
            assert repr(header) in told(refused)
        refused = await it.client.post("/mcp", headers={"origin": "https://x;$(rm)"})
        assert told(refused).endswith(" http_origins 'https://x;$(rm)'")
        refused = await it.client.post("/mcp", headers={"origin": f"https://{'x' * 300}"})
        assert "podium config set" not in told(refused)
        refused = await it.client.post("/mcp", content=b"x" * (LIMIT + 1))
        assert refused.status_code == 413
        assert f"has {LIMIT + 1} bytes" in told(refused)
        assert "http_max_bytes" in told(refused)
        assert not it.app.began.is_set()


async def test_calls_in_flight_end_by_themselves_before_the_door_is_shut():
    async with serving() as it:
        found: list[httpx2.Response] = []
        async with anyio.create_task_group() as group:
            group.start_soon(it.post, found)
            await it.app.began.wait()
            group.start_soon(it.server.wind_down)
            it.app.let.set()
        assert [response.text for response in found] == ["done"]
        await it.server.ended.wait()


async def test_a_call_that_does_not_end_is_told_so():
    async with serving() as it:
        found: list[httpx2.Response] = []
        async with anyio.create_task_group() as group:
            group.start_soon(it.post, found)
            await it.app.began.wait()
            await it.server.wind_down()
            await it.server.end()
        assert found[0].status_code == 503
        assert "is ending" in told(found[0])


async def test_a_stream_that_only_listens_is_closed_at_once():
    async with serving() as it, it.client.stream("GET", "/mcp") as response:
        pieces = response.aiter_bytes()
        assert await anext(pieces) == b": hello\n\n"
        began = anyio.current_time()
        await it.server.wind_down()
        assert [piece async for piece in pieces] == []  # and not a broken connection
        assert anyio.current_time() - began < 1


async def test_a_listening_request_of_the_newer_era_is_such_a_stream():
    async with serving() as it:
        found: list[httpx2.Response] = []
        async with anyio.create_task_group() as group:
            headers = {"Mcp-Method": "subscriptions/listen"}
            group.start_soon(lambda: it.post(found, **headers))
            await it.app.began.wait()
            began = anyio.current_time()
            await it.server.wind_down()
            assert anyio.current_time() - began < 1
        assert found[0].status_code == 503


async def test_nobody_new_is_let_in_while_it_closes():
    async with serving() as it:
        found: list[httpx2.Response] = []
        it.door.close()
        await it.post(found)
        assert found[0].status_code == 503
        assert not it.app.began.is_set()
