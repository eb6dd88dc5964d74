"""`podium serve`: the MCP server on stdio or HTTP."""

import os
import signal
import sys

import anyio
import click

from podium.cli.compose import Podium, open_podium, say
from podium.cli.invocation import Invocation

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
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to bind with --http.")
@click.option("--port", default=8000, show_default=True, type=click.IntRange(0, 65535))
@click.pass_obj
def serve(invocation: Invocation, http: bool, host: str, port: int) -> None:
    """Serve Podium's tools to MCP clients."""
    if http and host not in ("127.0.0.1", "localhost", "::1"):
        raise click.UsageError(
            f"--host {host!r}: Podium serves this machine only; use 127.0.0.1 (there is no "
            "authentication yet)."
        )
    anyio.run(_serve, invocation, http, host, port)


async def _serve(invocation: Invocation, http: bool, host: str, port: int) -> None:
    from podium.app import build_server

    async with open_podium(invocation.settings, invocation.environment) as podium:
        server = build_server(podium.runs, invocation.settings, reads_paths=not http)
        async with anyio.create_task_group() as group:
            group.start_soon(_stop_on_signal, podium)
            if http:
                say(f"Podium serves http://{host}:{port}/mcp")
                await server.run_streamable_http_async(host=host, port=port)
            else:
                await server.run_stdio_async()
            group.cancel_scope.cancel()


async def _stop_on_signal(podium: Podium) -> None:
    """On SIGTERM or SIGINT store the runs at work, then leave at once.

    The reader of stdin blocks in a thread that nothing can interrupt, so a normal exit would hang
    until the client closes the pipe.
    """
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for number in signals:
            with anyio.move_on_after(STOP_S, shield=True):
                await podium.runs.stop_all()
            sys.stderr.flush()
            os._exit(128 + number)
