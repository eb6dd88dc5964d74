"""Serves Podium as `podium serve --http` does, with the fixtures of the conformance suite beside.

python -m tests.outside.fixture_server
"""

import os
import signal
import socket

import anyio
from tests.outside.conformance_fixtures import register
from tests.outside.task_fixtures import FixtureTasks

from podium.app import build_server
from podium.app.serving import open_door
from podium.cli.compose import open_podium
from podium.cli.http_server import HttpServer
from podium.cli.saying import say
from podium.config import load_settings

HOST = "127.0.0.1"


async def main() -> None:
    settings = load_settings(os.environ).settings
    async with open_podium(settings, os.environ) as podium, anyio.create_task_group() as group:
        tasks = FixtureTasks(group)
        server = build_server(podium.runs, settings, reads_paths=False, task_sources=[tasks])
        register(server)
        with socket.create_server((HOST, 0)) as listening:
            say(f"Podium serves http://{HOST}:{listening.getsockname()[1]}/mcp")
            http = HttpServer(open_door(server, settings, HOST), listening)
            group.start_soon(http.run_to_end)
            with anyio.open_signal_receiver(signal.SIGTERM) as signals:
                async for _ in signals:
                    break
            await http.wind_down()
            await http.end()
            await http.ended.wait()
            group.cancel_scope.cancel()


if __name__ == "__main__":
    anyio.run(main)
