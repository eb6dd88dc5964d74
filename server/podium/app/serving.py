"""Streamable HTTP: the app, and before it the door that looks at every request and can close.

The door knows hosts, origins, sizes and what is in flight; who calls is the SDK's to find out.
"""

import ipaddress
import json
import logging
import math
import re
import shlex
import socket
from collections.abc import Iterable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import anyio
from mcp.server import MCPServer
from mcp.server.transport_security import TransportSecuritySettings
from mcp.types import INVALID_REQUEST
from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from podium.config import HOST, ORIGIN, Settings, is_loopback

_EVERYWHERE = ("0.0.0.0", "::", "")
"""Addresses to bind that stand for all that the machine has."""
_HERE = ("localhost", "127.0.0.1", "::1")
_CLOSING = -32000
"""Of the codes that JSON-RPC leaves to servers."""
_LAST_WORDS_S = 0.5
"""Seconds that a client has to take the end of a stream."""

_SHOWN = 200
"""Characters of a header that are repeated to who sent it."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Names:
    """The names under which a server may be reached, against DNS rebinding.

    A page of an attacker that has its own name point to this machine still says that name.
    """

    named: frozenset[tuple[str, str]]
    """Host and port; an empty port stands for any."""
    origins: frozenset[str] = frozenset()
    """Web pages of elsewhere that may call."""
    any_number: bool = False
    """Whether any IP address will do as a host: no name is behind it that could be pointed."""

    def has_host(self, header: str) -> bool:
        """Whether a request with that Host header is meant for this server."""
        host, port = _split(header)
        return self._is_named(host, port) or (self.any_number and _is_number(host))

    def has_origin(self, header: str) -> bool:
        """Whether a page from there may call: one of this server's own, or one that is named."""
        try:
            found = urlsplit(header.lower())
            host, port = found.hostname or "", str(found.port or "")
        except ValueError:
            return False
        if header.lower() in self.origins:
            return True
        return found.scheme in ("http", "https") and self._is_named(host, port)

    def _is_named(self, host: str, port: str) -> bool:
        return (host, "") in self.named or (host, port) in self.named


def names_of(settings: Settings, host: str) -> Names:
    """The names of a server that is bound to *host*."""
    everywhere = host in _EVERYWHERE
    named = {(_plain(socket.gethostname() if everywhere else host), "")}
    if everywhere or is_loopback(host):
        named |= {(here, "") for here in _HERE}
    if settings.http_url:
        named.add((urlsplit(settings.http_url).hostname or "", ""))
    named |= {_split(other) for other in settings.http_hosts}
    origins = frozenset(origin.lower() for origin in settings.http_origins)
    return Names(frozenset(named), origins, any_number=everywhere)


def open_door(server: MCPServer, settings: Settings, host: str) -> "Door":
    """The app that serves *server* at `/mcp` when bound to *host*."""
    app: ASGIApp = server.streamable_http_app(
        max_request_body_size=settings.http_max_bytes,
        # The door looks at these headers, for the other paths too.
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )
    if settings.http_origins:
        app = CORSMiddleware(
            app,
            allow_origins=settings.http_origins,
            allow_methods=("GET", "POST", "DELETE"),
            allow_headers=("*",),
            expose_headers=("Mcp-Session-Id", "WWW-Authenticate"),
        )
    return Door(app, names_of(settings, host), settings.http_max_bytes)


@dataclass(eq=False)
class _Exchange:
    """A request in flight."""

    send: Send
    is_stream: bool
    """Whether it only listens, for as long as the client likes."""
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    begun: bool = False
    over: bool = False

    async def answer(self, message: Message) -> None:
        """Pass a part of the answer on, and note how far it is."""
        if message["type"] == "http.response.start":
            self.begun = True
        self.over = message["type"] == "http.response.body" and not message.get("more_body", False)
        await self.send(message)


@dataclass
class Door:
    """An ASGI app before *app*."""

    app: ASGIApp
    names: Names
    max_bytes: int
    _closed: bool = False
    _in_flight: set[_Exchange] = field(default_factory=set[_Exchange])
    _one_ended: anyio.Event = field(default_factory=anyio.Event)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        if refusal := self._refusal(headers):
            await refusal(scope, receive, send)
            return
        listens = headers.get("mcp-method") == "subscriptions/listen"
        exchange = _Exchange(send, is_stream=scope["method"] == "GET" or listens)
        self._in_flight.add(exchange)
        try:
            with exchange.scope:
                await self.app(scope, receive, exchange.answer)
            if exchange.scope.cancelled_caught:
                await self._end(exchange, scope, receive)
        finally:
            self._in_flight.discard(exchange)
            self._one_ended.set()

    def _refusal(self, headers: Headers) -> Response | None:
        """What to answer to a request that is not to get any further."""
        host, origin = headers.get("host", ""), headers.get("origin")
        if not self.names.has_host(host):
            logger.warning("a request for host %.200r was refused", host)
            return _error(
                421,
                f"This server is not reached as {host[:_SHOWN]!r}"
                + _remedy("if that name is right", "http_hosts", host, HOST),
            )
        if origin and not self.names.has_origin(origin):
            logger.warning("a request from a web page of %.200r was refused", origin)
            return _error(
                403,
                f"Web pages of {origin[:_SHOWN]!r} may not call this server"
                + _remedy("if they should", "http_origins", origin, ORIGIN),
            )
        length = headers.get("content-length", "")
        if length.isdecimal() and int(length) > self.max_bytes:
            return _error(
                413,
                f"The request has {length} bytes, and this server takes {self.max_bytes} at most "
                "(setting http_max_bytes); send less, for example shorter files.",
            )
        return self._closing() if self._closed else None

    def _closing(self) -> Response:
        return _error(503, "This server is ending; ask again when it is back.", _CLOSING)

    async def _end(self, exchange: _Exchange, scope: Scope, receive: Receive) -> None:
        """Give a cut off answer an end that its client understands."""
        with anyio.move_on_after(_LAST_WORDS_S):
            if not exchange.begun:
                await self._closing()(scope, receive, exchange.send)
            elif not exchange.over:
                await exchange.send({"type": "http.response.body", "body": b""})

    # Closing.

    def close(self) -> None:
        """Let nobody in any more, and end the streams that only listen; calls go on."""
        self._closed = True
        _cancel(exchange for exchange in self._in_flight if exchange.is_stream)

    async def empty(self, within_s: float = math.inf) -> None:
        """Wait until no request is in flight, at most that many seconds."""
        with anyio.move_on_after(within_s):
            while self._in_flight:
                self._one_ended = anyio.Event()
                await self._one_ended.wait()

    def cut_off(self) -> None:
        """End all that is still in flight."""
        _cancel(self._in_flight)


def _cancel(exchanges: Iterable[_Exchange]) -> None:
    for exchange in tuple(exchanges):
        exchange.scope.cancel()


def _remedy(when: str, setting: str, header: str, pattern: str) -> str:
    """The end of a refusal: what lets that header in, if it is one that could be let in."""
    if len(header) > _SHOWN or not re.fullmatch(pattern, header):
        return "."
    return f"; {when}, let its owner type: podium config set {setting} {shlex.quote(header)}"


def _error(status: int, message: str, code: int = INVALID_REQUEST) -> Response:
    """An HTTP error whose body is a JSON-RPC error, so that MCP clients show its text."""
    body = {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message}}
    return Response(json.dumps(body), status, media_type="application/json")


def _split(header: str) -> tuple[str, str]:
    """Host and port of a Host header; the port is empty when there is none."""
    if header.startswith("["):
        host, _, port = header[1:].partition("]")
        return _plain(host), port.removeprefix(":")
    host, _, port = header.partition(":")
    return _plain(host), port


def _plain(host: str) -> str:
    return host.lower().rstrip(".")


def _is_number(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
