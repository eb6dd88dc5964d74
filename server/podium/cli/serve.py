"""`podium serve`: the MCP server on stdio or HTTP."""

import errno
import os
import signal
import socket
import sys
from typing import TYPE_CHECKING

import anyio
import click

from podium.cli.compose import Podium, open_podium
from podium.cli.invocation import Invocation, pass_invocation
from podium.cli.ranges import Whole
from podium.cli.saying import say
from podium.cli.signals import ending_signals

if TYPE_CHECKING:
    from starlette.applications import Starlette

HOST, PORT = "127.0.0.1", 8000
LAST_PORT = 65535
STOP_S = 5.0
"""Seconds that runs at work have to be stored when the server is told to stop."""


@click.command(
    epilog="""\b
Examples:
  podium serve                     # what an MCP client starts
  podium serve --http --port 8000  # then http://127.0.0.1:8000/mcp
"""
)
@click.option("--http", is_flag=True, help="Serve streamable HTTP instead of stdio.")
@click.option("--host", metavar="ADDRESS", help=f"Address to bind with --http [default: {HOST}].")
@click.option(
    "--port", type=Whole(0, LAST_PORT), metavar="N",
    help=f"Port with --http; 0 takes any that is free [default: {PORT}].",
)  # fmt: skip
@pass_invocation
def serve(invocation: Invocation, *, http: bool, host: str | None, port: int | None) -> None:
    """Serve Podium's tools to MCP clients."""
    if not http:
        if host is not None or port is not None:
            raise click.UsageError("--host and --port need --http; without it stdio is served.")
        anyio.run(_serve, invocation, None)
        return
    if host not in (None, "127.0.0.1", "localhost", "::1"):
        raise click.UsageError(
            f"--host {host!r}: Podium serves this machine only; use 127.0.0.1 (there is no "
            "authentication yet)."
        )
    with _listen(host or HOST, PORT if port is None else port) as listening:
        anyio.run(_serve, invocation, listening)


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


async def _serve(invocation: Invocation, listening: socket.socket | None) -> None:
    from podium.app import build_server

    settings, environment = invocation.settings, invocation.environment
    async with open_podium(settings, environment, takes_over=True) as podium:
        server = build_server(podium.runs, settings, reads_paths=listening is None)
        async with anyio.create_task_group() as group:
            group.start_soon(_stop_on_signal, podium)
            if listening is None:
                await server.run_stdio_async()
            else:
                await _serve_http(server.streamable_http_app(), listening)
            group.cancel_scope.cancel()


async def _serve_http(app: "Starlette", listening: socket.socket) -> None:
    import uvicorn

    host, port = listening.getsockname()[:2]
    say(f"Podium serves http://{f'[{host}]' if ':' in host else host}:{port}/mcp")
    # Without a logging of its own: that one writes to stdout.
    await uvicorn.Server(uvicorn.Config(app, log_config=None)).serve(sockets=[listening])


async def _stop_on_signal(podium: Podium) -> None:
    """When told to end, store the runs at work, then leave at once.

    The reader of stdin blocks in a thread that nothing can interrupt, so a normal exit would hang
    until the client closes the pipe.
    """
    if not (awaited := ending_signals()):
        return
    with anyio.open_signal_receiver(signal.SIGINT, *awaited) as signals:
        async for number in signals:
            with anyio.move_on_after(STOP_S, shield=True):
                await podium.runs.stop_all()
            sys.stderr.flush()
            os._exit(128 + number)
