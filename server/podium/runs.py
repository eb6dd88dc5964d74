"""A run as an object: start, watch, wait, stop. Who runs which run.

Runs belong to the process's own task group, never to the request that asked for them; so a client
that goes away loses its view, not its work.
"""

import logging
import math
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from uuid import uuid4

import anyio
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from podium.errors import PodiumError, RunError, StoreError
from podium.orchestrator import Orchestrator
from podium.trace import Event, Failure, Observer, Run

LEASE_S = 30.0
"""Seconds after which a run of a process that has died may be carried on by another."""
_POLL_S = 0.3
"""Seconds between looks at a run that another process works on."""

Work = Callable[[Run, Observer], Awaitable[object]]
"""Something to do with a run while this process holds it."""

logger = logging.getLogger(__name__)


@dataclass
class _Active:
    """Work on a run in this process."""

    answering: bool
    """Whether the run is carried on to its answer, now or right after this work."""
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    ended: anyio.Event = field(default_factory=anyio.Event)
    error: PodiumError | None = None
    watchers: set[MemoryObjectSendStream[Event]] = field(
        default_factory=set[MemoryObjectSendStream[Event]]
    )

    async def tell(self, event: Event) -> None:
        """Give an event to every watcher; a slow one never holds up the run."""
        for watcher in tuple(self.watchers):
            try:
                watcher.send_nowait(event)
            except anyio.BrokenResourceError:  # it has stopped listening
                self.watchers.discard(watcher)


@dataclass
class Runs:
    """The runs that one process works on, in a ledger that other processes may share."""

    orchestrator: Orchestrator
    _group: TaskGroup
    lease_s: float = LEASE_S
    _owner: str = field(default_factory=lambda: uuid4().hex)
    _active: dict[str, _Active] = field(default_factory=dict[str, _Active])

    async def of(self, run_id: str, principal: str) -> Run:
        """The run with that id (or an unambiguous beginning of it), if it is this principal's.

        Raises:
            RunError: there is none.
        """
        return await self.orchestrator.store.run(run_id, principal=principal)

    async def at_work(self, run_id: str) -> bool:
        """Whether this or another process is working on a run."""
        return run_id in self._active or await self.orchestrator.store.is_held(run_id)

    async def start(self, run: Run) -> None:
        """Carry a run on to its answer in the background.

        A second start attaches to the first; while the run is being planned or a step of it is
        run, it is carried on right after that. A run of another process is left to it.
        """
        if active := self._active.get(run.run_id):
            active.answering = True
        elif run.status != "finished":
            await self._launch(run.run_id, None)

    async def launch(self, run: Run, work: Work) -> None:
        """Do *work* on a run in the background; it goes on when the caller is cancelled.

        Raises:
            RunError: this or another process is working on the run already.
        """
        if run.run_id in self._active:
            raise RunError(f"Run {run.run_id} is being worked on; wait for it with get_run.")
        if not await self._launch(run.run_id, work):
            raise RunError(
                f"Run {run.run_id} is being worked on by another Podium process; if that one has "
                f"died, the run is free in at most {self.lease_s:g} seconds."
            )

    async def _launch(self, run_id: str, work: Work | None) -> bool:
        """Work on a run, without *work* to its answer; False if another process holds it."""
        active = self._active[run_id] = _Active(answering=work is None)
        claimed = False
        try:
            claimed = await self.orchestrator.store.claim(run_id, self._owner, self.lease_s)
        finally:
            if not claimed:
                await self._release(run_id)
                self._end(run_id, active)
        if claimed:
            self._group.start_soon(self._work, run_id, work, active)
        return claimed

    async def _work(self, run_id: str, work: Work | None, active: _Active) -> None:
        store = self.orchestrator.store
        try:
            with active.scope:
                if work:
                    await work(await store.run(run_id), active.tell)
                if active.answering:
                    await self.orchestrator.answer(await store.run(run_id), active.tell)
        except PodiumError as error:
            active.error = error
        except Exception as error:
            logger.exception("run %s ended by a fault in Podium", run_id)
            active.error = await self._crashed(run_id, error)
        finally:
            await self._release(run_id)
            self._end(run_id, active)

    def _end(self, run_id: str, active: _Active) -> None:
        del self._active[run_id]
        for watcher in active.watchers:
            watcher.close()
        active.ended.set()

    async def _release(self, run_id: str) -> None:
        """Give a run up. A ledger that cannot be written must not end the other runs."""
        with anyio.CancelScope(shield=True):
            try:
                await self.orchestrator.store.release(run_id, self._owner)
            except StoreError as error:
                logger.warning("run %s stays held for %g s: %s", run_id, self.lease_s, error)

    async def _crashed(self, run_id: str, error: Exception) -> PodiumError:
        text = (
            f"A fault in Podium ended this run ({type(error).__name__}); the log has the details."
        )
        failed = Failure(worker="", code="internal", message=text)
        changes = {"status": "failed", "error": failed, "finished_at": time.time()}
        try:
            current = await self.orchestrator.store.run(run_id)
            await self.orchestrator.store.save_run(current.model_copy(update=changes))
        except StoreError as unwritten:
            return unwritten
        return RunError(text)

    async def wait(self, run_id: str, seconds: float = math.inf) -> Run:
        """The run when work on it has ended, or as it stands after that many seconds.

        Raises:
            PodiumError: the work that was waited for could not be done.
        """
        active = self._active.get(run_id)
        if active:
            with anyio.move_on_after(seconds):
                await active.ended.wait()
            if active.error:
                raise active.error
            return await self.orchestrator.store.run(run_id)
        return await self._wait_for_other(run_id, seconds)

    async def _wait_for_other(self, run_id: str, seconds: float) -> Run:
        with anyio.move_on_after(seconds):
            # Another process's work gives no event to wait for.
            while await self.orchestrator.store.is_held(run_id):  # noqa: ASYNC110
                await anyio.sleep(_POLL_S)
        return await self.orchestrator.store.run(run_id)

    @asynccontextmanager
    async def watch(self, run_id: str) -> AsyncGenerator[MemoryObjectReceiveStream[Event]]:
        """Events of a run from now on; ends with the work. Empty when nobody here works on it."""
        sender, receiver = anyio.create_memory_object_stream[Event](math.inf)
        active = self._active.get(run_id)
        async with receiver:
            if active is None:
                sender.close()
                yield receiver
                return
            active.watchers.add(sender)
            try:
                yield receiver
            finally:
                active.watchers.discard(sender)
                sender.close()

    async def stop(self, run_id: str) -> Run:
        """Stop a run: no new step, connections closed; what was paid stays, and it can go on.

        Raises:
            RunError: another process works on it.
        """
        store = self.orchestrator.store
        active = self._active.get(run_id)
        if active:
            active.scope.cancel()
            await active.ended.wait()
        elif await store.is_held(run_id):
            raise RunError(
                f"Run {run_id} is worked on by another Podium process, or is a step of a run that "
                "is at work; stop it there."
            )
        run = await store.run(run_id)
        if run.status in ("running", "interrupted", "planned", "needs_caller"):
            changes = {"status": "stopped", "finished_at": time.time(), "resumed_at": None}
            run = run.model_copy(update=changes)
            await store.save_run(run)
        return run

    async def keep_leases(self) -> None:
        """Renew the leases of the runs at work, for ever; stop those that were taken over."""
        while True:
            await anyio.sleep(self.lease_s / 3)
            if self._active:
                await self._renew(tuple(self._active))

    async def _renew(self, held: tuple[str, ...]) -> None:
        try:
            kept = await self.orchestrator.store.renew(self._owner, self.lease_s, held)
        except StoreError as error:
            logger.warning("leases could not be renewed: %s", error)
            return
        for run_id in set(held).intersection(self._active) - kept:
            logger.warning("run %s was taken over by another process", run_id)
            self._active[run_id].scope.cancel()

    async def stop_all(self) -> None:
        """Stop all work; the runs are stored as interrupted."""
        for active in tuple(self._active.values()):
            active.scope.cancel()
        for active in tuple(self._active.values()):
            await active.ended.wait()


@asynccontextmanager
async def open_runs(
    orchestrator: Orchestrator, *, lease_s: float = LEASE_S
) -> AsyncGenerator[Runs]:
    """The runs of this process; on leaving, those at work are stored as interrupted."""
    async with anyio.create_task_group() as group:
        runs = Runs(orchestrator, group, lease_s)
        group.start_soon(runs.keep_leases)
        try:
            yield runs
        finally:
            with anyio.CancelScope(shield=True):
                await runs.stop_all()
            group.cancel_scope.cancel()
