"""The vLLM servers that run: started at first use, shared, stopped when nobody has used them long.

What a server is, is `vllm`'s matter; who may use one, is `app`'s.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
from anyio.abc import TaskGroup

from podium_workers.engine.child import bound_log
from podium_workers.engine.models import first_of
from podium_workers.engine.state import VllmOrder, VllmSpec, VllmStatus
from podium_workers.engine.vllm import Tell, VllmServer, vllm_log
from podium_workers.errors import UnreachableError, WorkerError

OpenVllm = Callable[[VllmOrder, Path, Tell], AbstractAsyncContextManager[VllmServer]]


@dataclass
class _Entry:
    order: VllmOrder
    server: VllmServer | None = None
    error: WorkerError | None = None
    calls: int = 0
    news: str = ""
    """How its start comes along."""
    last_used: float = field(default_factory=anyio.current_time)
    ready: anyio.Event = field(default_factory=anyio.Event)
    """Set when it serves, or when it is known that it never will."""
    changed: anyio.Event = field(default_factory=anyio.Event)
    """Set, and replaced, when there is news."""
    stop: anyio.Event = field(default_factory=anyio.Event)
    gone: anyio.Event = field(default_factory=anyio.Event)

    def tell(self, news: str) -> None:
        self.news = news
        changed, self.changed = self.changed, anyio.Event()
        changed.set()

    @property
    def unused_s(self) -> float:
        return 0 if self.calls else anyio.current_time() - self.last_used


class Servers:
    """The vLLM servers, one for each specification."""

    def __init__(self, tasks: TaskGroup, open_server: OpenVllm, *, logs: Path) -> None:
        self._tasks = tasks
        self._open_server = open_server
        self._logs = logs
        self._entries: dict[VllmSpec, _Entry] = {}
        # Held while it is decided who starts a server, so that it is started once.
        self._door = anyio.Lock()

    @asynccontextmanager
    async def lease(
        self, order: VllmOrder, tell: Callable[[str], Awaitable[None]]
    ) -> AsyncGenerator[VllmServer]:
        """A server for *order*, started if need be, that stays while the block runs.

        Raises:
            WorkerError: it cannot be started.
        """
        async with self._door:
            entry = await self._entry(order)
            entry.calls += 1
        try:
            while not entry.ready.is_set():
                changed = entry.changed
                if entry.news:
                    await tell(entry.news)
                await first_of(changed.wait, entry.ready.wait)
            if entry.server is None:
                raise entry.error or UnreachableError(f"vLLM with {order.spec.model} was stopped.")
            yield entry.server
        finally:
            entry.calls -= 1
            entry.last_used = anyio.current_time()

    async def stop(self, model: str = "") -> tuple[str, ...]:
        """Stop the servers of *model*, or all of them; which models they had."""
        entries = [e for e in self._entries.values() if model in ("", e.order.spec.model)]
        for entry in entries:
            entry.stop.set()
        for entry in entries:
            await entry.gone.wait()
        return tuple(entry.order.spec.model for entry in entries)

    def keep_house(self) -> None:
        """Stop what nobody has used for as long as was agreed; bound the logs."""
        for spec, entry in self._entries.items():
            limit = entry.order.stop_idle_s
            if entry.ready.is_set() and limit and entry.unused_s >= limit:
                entry.stop.set()
            bound_log(vllm_log(self._logs, spec))

    @property
    def are_running(self) -> bool:
        return bool(self._entries)

    @property
    def statuses(self) -> tuple[VllmStatus, ...]:
        return tuple(
            VllmStatus(
                model=spec.model,
                state="ready" if entry.server else "starting",
                news=entry.news,
                pid=entry.server.child.pid if entry.server else None,
                url=entry.server.url if entry.server else "",
                log=vllm_log(self._logs, spec),
                calls=entry.calls,
                unused_s=entry.unused_s,
                stop_idle_s=entry.order.stop_idle_s,
            )
            for spec, entry in self._entries.items()
        )

    async def _entry(self, order: VllmOrder) -> _Entry:
        entry = self._entries.get(order.spec)
        server = entry.server if entry else None
        if entry and server:
            dead = await server.is_dead() if order.in_doubt else server.child.has_ended
            if dead:
                entry.stop.set()
        if entry is not None and entry.stop.is_set():
            await entry.gone.wait()
            entry = None
        if entry is None:
            entry = self._entries[order.spec] = _Entry(order)
            self._tasks.start_soon(self._run, entry)
        entry.order = order  # the newest wish counts for how long it stays
        return entry

    async def _run(self, entry: _Entry) -> None:
        """Start the server of *entry* and keep it until it ends or is to be stopped."""
        try:
            await first_of(entry.stop.wait, lambda: self._serve(entry))
        finally:
            del self._entries[entry.order.spec]
            entry.ready.set()
            entry.gone.set()

    async def _serve(self, entry: _Entry) -> None:
        try:
            async with self._open_server(entry.order, self._logs, entry.tell) as server:
                entry.server = server
                entry.last_used = anyio.current_time()
                entry.ready.set()
                await server.child.wait()
        except WorkerError as error:
            entry.error = error
