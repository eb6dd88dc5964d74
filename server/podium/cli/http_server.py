"""uvicorn as `podium serve --http` runs it: on a socket that is open already, ended from outside.

Imported late: uvicorn takes time.
"""

import contextlib
import socket
from collections.abc import Generator

import anyio
import uvicorn

from podium.app.serving import Door
from podium.cli.signals import ending_signals

GRACE_S = 2.0
"""Seconds that calls in flight have to end by themselves, before runs are stopped."""
FLUSH_S = 0.5
"""Seconds that the last answers have to reach their clients."""
LONGEST_S = 8
"""Seconds that uvicorn itself waits for calls: longer than all that comes before it."""


class HttpServer(uvicorn.Server):
    """Serves what is behind *door*; signals are the business of whoever runs it."""

    def __init__(self, door: Door, listening: socket.socket) -> None:
        config = uvicorn.Config(
            door,
            log_config=None,  # its own would write to stdout
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=LONGEST_S,
        )
        super().__init__(config)
        self._door = door
        self._listening = listening
        self.ended = anyio.Event()
        """Set when nothing is served any more."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        if ending_signals():
            yield
        else:  # on Windows nobody else can wait for them
            with super().capture_signals():
                yield

    async def run_to_end(self) -> None:
        """Serve until told to end."""
        try:
            await self.serve(sockets=[self._listening])
        finally:
            self.ended.set()

    async def wind_down(self) -> None:
        """Accept nothing more, and let the calls in flight end by themselves for a while."""
        self.should_exit = True
        self._door.close()
        await self._door.empty(GRACE_S)

    async def end(self) -> None:
        """Let the last answers out, and cut off what does not end."""
        await self._door.empty(FLUSH_S)
        self._door.cut_off()
        await self._door.empty(FLUSH_S)
