"""`podium serve`: the MCP server on stdio, HTTP, or both at once."""

import errno
import os
import signal
import socket
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

import anyio
import click

from podium.cli.compose import Podium, open_podium
from podium.cli.invocation import Invocation, pass_invocation
from podium.cli.questions import conductor_option
from podium.cli.ranges import Whole
from podium.cli.saying import say
from podium.cli.signals import ending_signals
from podium.config import Settings, is_loopback
from podium.errors import PodiumError
from podium.runs import Runs
from podium_workers.errors import ManifestError, PoolSelectionError, WorkerError

if TYPE_CHECKING:
    from podium.app.access import Access
    from podium.cli.http_server import HttpServer

HOST, PORT = "127.0.0.1", 8000
LAST_PORT = 65535
STOP_S = 5.0
"""Seconds that runs at work have to be stored when the server is told to stop."""
CANNOT_OPEN = (PodiumError, ManifestError, PoolSelectionError, WorkerError)
"""What keeps Podium from being opened."""


@click.command(
    epilog="""\b
Examples:
  podium serve                     # what an MCP client starts
  podium serve --http --port 8000  # then http://127.0.0.1:8000/mcp
  podium serve --http --stdio      # both, in one process
  podium token add anna && podium serve --http --host 0.0.0.0
"""
)
@click.option("--http", is_flag=True, help="Serve streamable HTTP instead of stdio.")
@click.option(
    "--stdio",
    is_flag=True,
    help="Serve stdio [default without --http]; with --http both, until the client on stdio goes.",
)
@click.option("--host", metavar="ADDRESS", help=f"Address to bind with --http [default: {HOST}].")
@click.option(
    "--port",
    type=Whole(0, LAST_PORT),
    metavar="N",
    help=f"Port with --http; 0 takes any that is free [default: {PORT}].",
)
@conductor_option
@pass_invocation
def serve(
    invocation: Invocation,
    *,
    http: bool,
    stdio: bool,
    host: str | None,
    port: int | None,
    conductor: str | None,
) -> None:
    """Serve Podium's tools to MCP clients.

    Other machines are let in with tokens (podium token) or OAuth (setting oauth_issuer) only; who
    calls sees no runs but his own.
    """
    invocation = invocation.with_given(conductor=conductor)
    if not http:
        if host is not None or port is not None:
            raise click.UsageError("--host and --port need --http; without it stdio is served.")
        try:
            anyio.run(_serve, invocation, None, True)
        except CANNOT_OPEN as error:  # what fails once it serves comes in groups
            if sys.stdin.isatty():
                raise
            _serve_problem(str(error))
        return
    place = host or HOST
    access = _access(invocation.settings, place)
    with _listen(place, PORT if port is None else port) as listening:
        anyio.run(_serve, invocation, _Place(place, listening, access), stdio)


def _serve_problem(problem: str) -> NoReturn:
    """Let a client show why there is no Podium, for as long as it stays."""
    from podium.app.problem import ProblemServer

    say(f"Error: {problem}")
    anyio.run(ProblemServer(problem).run_stdio_async)
    sys.exit(1)


@dataclass(frozen=True)
class _Place:
    """Where HTTP is served, and to whom."""

    host: str
    socket: socket.socket
    access: "Access | None"


def _access(settings: Settings, host: str) -> "Access | None":
    """Who is let in; None for anybody, on this machine only.

    Raises:
        click.UsageError: others would reach a server that asks nobody who he is.
    """
    from podium.app.access import open_access

    access = open_access(settings)
    public = settings.http_url or settings.http_hosts
    if not is_loopback(host):
        what = f"--host {host!r}: other machines are"
    elif public:
        what = "http_url and http_hosts say that others reach this server; they are"
    else:
        return access
    if access is None or not access.opens_to:
        raise click.UsageError(
            f"{what} let in with authentication only. Make a token with `podium token add NAME`, "
            "or set oauth_issuer and http_url with `podium config set`."
        )
    return access


def _listen(host: str, port: int) -> socket.socket:
    """A socket at that address, to which clients can connect from now on.

    Raises:
        click.ClickException: the address cannot be had.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            other = PORT if port == LAST_PORT else port + 1
            raise click.ClickException(
                f"--port: {port} is in use; choose another, for example --port {other}."
            ) from None
        raise click.ClickException(
            f"--port: {host} port {port} cannot be served ({error.strerror}); choose another port "
            "above 1023, or another --host."
        ) from None


async def _serve(invocation: Invocation, place: _Place | None, stdio: bool) -> None:
    from podium.app import build_server

    settings, environment = invocation.settings, invocation.environment
    async with open_podium(settings, environment, takes_over=True) as podium:
        http = _http_server(podium, place) if place else None
        end = _End(podium.runs, http)
        async with anyio.create_task_group() as group:
            group.start_soon(end.wait_for_signals)
            if http:
                group.start_soon(http.run_to_end)
            if stdio:
                await build_server(podium.runs, settings, reads_paths=True).run_stdio_async()
            elif http:
                await http.ended.wait()
            if end.begun:  # from there the process is left
                await anyio.sleep_forever()
            await end.come()
            if http:
                with anyio.move_on_after(STOP_S):
                    await http.ended.wait()
            group.cancel_scope.cancel()


def _http_server(podium: Podium, place: _Place) -> "HttpServer":
    from podium.app import build_server
    from podium.app.serving import open_door
    from podium.cli.http_server import HttpServer

    settings, access = podium.settings, place.access
    server = build_server(podium.runs, settings, reads_paths=False, access=access)
    host, port = place.socket.getsockname()[:2]
    say(f"Podium serves http://{f'[{host}]' if ':' in host else host}:{port}/mcp")
    if access:
        say(f"Who calls has to show {' or '.join(access.opens_to) or 'a token; there is none'}.")
    if not is_loopback(host):
        say("This is plain HTTP, so that tokens can be read on the way: put TLS in front of it.")
    return HttpServer(open_door(server, settings, place.host), place.socket)


@dataclass
class _End:
    """How the server ends: calls first, then runs, then what is left; each in bounded time."""

    runs: Runs
    http: "HttpServer | None"
    begun: bool = False
    """Whether a signal has come."""

    async def wait_for_signals(self) -> None:
        """End in order at the first signal that ends a process, at once at the second.

        The process is left from here: the reader of stdin blocks in a thread that nothing can
        interrupt, so a normal exit would hang until the client closes the pipe.
        """
        if not (awaited := ending_signals()):
            return
        with anyio.open_signal_receiver(signal.SIGINT, *awaited) as signals:
            async with anyio.create_task_group() as group:
                async for number in signals:
                    if self.begun:
                        os._exit(128 + number)
                    self.begun = True
                    group.start_soon(self._leave, number)

    async def _leave(self, number: int) -> None:
        await self.come()
        sys.stderr.flush()
        os._exit(128 + number)

    async def come(self) -> None:
        """Let calls end, store the runs at work as interrupted, and let the last answers out."""
        if self.http:
            await self.http.wind_down()
        with anyio.move_on_after(STOP_S, shield=True):
            await self.runs.stop_all()
        if self.http:
            await self.http.end()
