"""The supervisor's life: one for each state folder, from the first user until after the last."""

import os
import signal
import socket
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from secrets import token_hex

import anyio
import httpx2
import uvicorn

from podium_workers.engine.app import build_app
from podium_workers.engine.child import bound_log
from podium_workers.engine.llama import open_llama
from podium_workers.engine.models import Models
from podium_workers.engine.presence import Presence
from podium_workers.engine.servers import Servers
from podium_workers.engine.state import (
    EngineAddress,
    lock_file,
    log_file,
    remove_address,
    write_address,
)
from podium_workers.engine.vllm import open_vllm
from podium_workers.lockfile import LockFile

_OLD_ONE_ENDS_WITHIN_S = 20.0
_LOCK_POLL_S = 0.05
_HOUSEKEEPING_S = 1.0
_FIRST_USER_WITHIN_S = 20.0
"""On a busy machine the process that started the engine may take its time to come."""
_LAST_WORDS_S = 2


class _Http(uvicorn.Server):
    """uvicorn without its own idea of signals: `_end_on_signal` has them."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


async def serve(state_dir: Path, idle_s: float, model_idle_s: float) -> None:
    """Serve the models of this machine until there has been no user for *idle_s* seconds.

    Returns at once when another engine serves this folder.
    """
    with LockFile(lock_file(state_dir)) as lock:
        if not await _taken(lock):
            return
        with _listening() as listener:
            await _serve(state_dir, listener, idle_s, model_idle_s)


async def _taken(lock: LockFile) -> bool:
    """Take *lock*; an engine that is just ending gives it free in a moment."""
    with anyio.move_on_after(_OLD_ONE_ENDS_WITHIN_S):
        while True:
            if lock.acquire():
                return True
            await anyio.sleep(_LOCK_POLL_S)
    return False


@contextmanager
def _listening() -> Generator[socket.socket]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener


async def _serve(
    state_dir: Path, listener: socket.socket, idle_s: float, model_idle_s: float
) -> None:
    address = EngineAddress(
        version=version("podium"),
        pid=os.getpid(),
        port=listener.getsockname()[1],
        key=token_hex(32),
    )
    presence = Presence()
    # No connection is used twice: llama.cpp's server closes them when it likes.
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=0)
    async with (
        httpx2.AsyncClient(timeout=None, trust_env=False, limits=limits) as http,
        anyio.create_task_group() as tasks,
    ):
        models = Models(
            tasks, open_llama, logs=state_dir, memory_limit=lambda: presence.memory_limit
        )
        servers = Servers(tasks, open_vllm, logs=state_dir)
        server = _Http(
            uvicorn.Config(
                build_app(address.key, presence, models, servers, http),
                lifespan="off",
                ws="none",
                log_config=None,
                access_log=False,
                timeout_graceful_shutdown=_LAST_WORDS_S,
            )
        )

        def end() -> None:
            presence.closed = True
            remove_address(state_dir, address.pid)
            server.should_exit = True

        async def keep_house() -> None:
            wait_s = _FIRST_USER_WITHIN_S
            while servers.are_running or presence.unused_s < wait_s:
                await anyio.sleep(min(_HOUSEKEEPING_S, idle_s / 4))
                wait_s = idle_s if presence.had_users else wait_s
                models.keep_house(model_idle_s)
                servers.keep_house()
                bound_log(log_file(state_dir))
            end()

        tasks.start_soon(keep_house)
        tasks.start_soon(_end_on_signal, end)
        write_address(state_dir, address)
        try:
            await server.serve(sockets=[listener])
        finally:
            end()
            # The models end with the group's tasks.
            tasks.cancel_scope.cancel()


async def _end_on_signal(end: Callable[[], None]) -> None:
    if sys.platform == "win32":
        return
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            end()
