"""The models that the engine has loaded: loaded at first use, shared, unloaded to make room.

What a model server is, is `llama`'s matter; who may call, is `app`'s.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
from anyio import to_thread
from anyio.abc import TaskGroup

from podium_workers.engine.child import bound_log, resident_bytes
from podium_workers.engine.llama import LlamaServer, memory_needed
from podium_workers.engine.state import ModelSpec, ModelStatus
from podium_workers.errors import ModelFileError, WorkerError

OpenServer = Callable[[ModelSpec, Path], AbstractAsyncContextManager[LlamaServer]]
"""Starts a server for a model, with a folder for its log."""


@dataclass
class _Entry:
    spec: ModelSpec
    expected_bytes: int
    server: LlamaServer | None = None
    error: WorkerError | None = None
    calls: int = 0
    last_used: float = field(default_factory=anyio.current_time)
    ready: anyio.Event = field(default_factory=anyio.Event)
    """Set when it serves, or when it is known that it never will."""
    unload: anyio.Event = field(default_factory=anyio.Event)
    gone: anyio.Event = field(default_factory=anyio.Event)

    @property
    def is_idle(self) -> bool:
        return self.calls == 0 and self.ready.is_set() and not self.is_leaving

    @property
    def is_leaving(self) -> bool:
        """Whether it is being unloaded, or its process has died."""
        return self.unload.is_set() or (self.server is not None and self.server.child.has_ended)

    @property
    def resident_bytes(self) -> int:
        measured = resident_bytes(self.server.child.pid) if self.server else None
        return measured or self.expected_bytes


class Models:
    """The loaded models, held under a limit of memory."""

    def __init__(
        self,
        tasks: TaskGroup,
        open_server: OpenServer,
        *,
        logs: Path,
        memory_limit: Callable[[], int | None],
    ) -> None:
        self._tasks = tasks
        self._open_server = open_server
        self._logs = logs
        self._memory_limit = memory_limit
        self._entries: dict[ModelSpec, _Entry] = {}
        # Held while a place for a model is made: calls are let in one after the other, so that
        # one which waits for room is not overtaken for ever by calls of the models in its way.
        self._door = anyio.Lock()
        self._changed = anyio.Event()

    @asynccontextmanager
    async def lease(self, spec: ModelSpec) -> AsyncGenerator[LlamaServer]:
        """A server for *spec*, loaded if need be, that stays while the block runs.

        Raises:
            WorkerError: the model cannot be loaded or does not fit into memory.
        """
        async with self._door:
            entry = self._entries.get(spec)
            if entry is not None and entry.is_leaving:
                await entry.gone.wait()
                entry = None
            if entry is None:
                entry = await self._admit(spec)
            entry.calls += 1
        try:
            await entry.ready.wait()
            if entry.server is None:
                raise entry.error or ModelFileError(f"{spec.path.name} could not be loaded.")
            yield entry.server
        finally:
            entry.calls -= 1
            entry.last_used = anyio.current_time()
            self._note_change()

    def keep_house(self, unused_s: float) -> None:
        """Unload what nobody has used for that long, and what is too much; bound the logs."""
        now = anyio.current_time()
        for entry in self._entries.values():
            if entry.is_idle and now - entry.last_used >= unused_s:
                entry.unload.set()
            bound_log(self._logs / f"{entry.spec.path.stem}.log")
        limit = self._memory_limit()
        victim = self._oldest_idle()
        if limit is not None and victim and len(self._entries) > 1 and self.used_bytes > limit:
            victim.unload.set()

    @property
    def used_bytes(self) -> int:
        return sum(entry.resident_bytes for entry in self._entries.values())

    @property
    def statuses(self) -> tuple[ModelStatus, ...]:
        now = anyio.current_time()
        return tuple(
            ModelStatus(
                spec=entry.spec,
                state="ready" if entry.server else "loading",
                pid=entry.server.child.pid if entry.server else None,
                resident_bytes=entry.resident_bytes,
                calls=entry.calls,
                unused_s=0 if entry.calls else now - entry.last_used,
            )
            for entry in self._entries.values()
        )

    async def _admit(self, spec: ModelSpec) -> _Entry:
        needed = await to_thread.run_sync(memory_needed, spec)
        await self._make_room(spec, needed)
        entry = _Entry(spec, needed)
        self._entries[spec] = entry
        self._tasks.start_soon(self._run, entry)
        return entry

    async def _make_room(self, spec: ModelSpec, needed: int) -> None:
        while (limit := self._memory_limit()) is not None:
            if needed > limit:
                raise ModelFileError(
                    f"{spec.path.name} needs about {needed / 1e9:.2f} GB of memory and local "
                    f"models may take {limit / 1e9:.2f} GB: raise local_memory_gb, or choose a "
                    "smaller model or context_window."
                )
            if self.used_bytes + needed <= limit:
                return
            changed = self._changed
            if victim := self._oldest_idle():
                victim.unload.set()
                await victim.gone.wait()
            else:
                await changed.wait()

    def _oldest_idle(self) -> _Entry | None:
        idle = [entry for entry in self._entries.values() if entry.is_idle]
        return min(idle, key=lambda entry: entry.last_used, default=None)

    async def _run(self, entry: _Entry) -> None:
        """Load the model of *entry* and keep it until it ends or is to be unloaded."""
        try:
            async with self._open_server(entry.spec, self._logs) as server:
                entry.server = server
                entry.last_used = anyio.current_time()
                entry.ready.set()
                self._note_change()  # it may be idle by now: its calls may have been given up
                await first_of(server.child.wait, entry.unload.wait)
                entry.unload.set()
        except WorkerError as error:
            entry.error = error
        finally:
            del self._entries[entry.spec]
            entry.ready.set()
            entry.gone.set()
            self._note_change()

    def _note_change(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()


async def first_of(*waits: Callable[[], Awaitable[object]]) -> None:
    """Wait until one of *waits* is over; the others are cancelled."""
    async with anyio.create_task_group() as tasks:

        async def end_with(wait: Callable[[], Awaitable[object]]) -> None:
            await wait()
            tasks.cancel_scope.cancel()

        for wait in waits:
            tasks.start_soon(end_with, wait)
