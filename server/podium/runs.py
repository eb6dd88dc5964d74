"""A run as an object: begin, attach, wait, stop, take over.

Runs belong to the process's own task group, never to the request that asked for them; so a client
that goes away loses its view, not its work. Beginning, resuming and taking over are one thing: the
run is claimed, and replayed from the ledger.
"""

import logging
import math
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectReceiveStream

from podium.admission import request_key
from podium.at_work import Active, AtEnd, Work
from podium.config import OnDisconnect
from podium.ending import mark_crashed, mark_interrupted, mark_stopped
from podium.errors import LeaseLostError, PodiumError, RunError, StoreError
from podium.holding import Holding
from podium.leases import Lease
from podium.orchestrator import Orchestrator
from podium.plan import Step
from podium.revision import check_own_plan, replace_plan
from podium.store import Store, Write
from podium.trace import Event, Observer, Run, RunRequest

LEASE_S = 30.0
"""Seconds after which a run of a process that has died may be carried on by another."""
STOP_S = 10.0
"""Seconds that another process has to stop a run when it is told to."""
LATE_S = 2.0
"""Seconds that a reply still has to come in, since it is paid, when its run was taken over."""
_POLL_S = 0.25
"""Seconds between looks at what other processes do: there is no event to wait for."""

logger = logging.getLogger(__name__)


@dataclass
class Runs:
    """The runs that one process works on, in a ledger that other processes may share."""

    orchestrator: Orchestrator
    holding: Holding
    _group: TaskGroup
    _active: dict[str, Active] = field(default_factory=dict[str, Active])

    @property
    def store(self) -> Store:
        return self.orchestrator.store

    async def of(self, run_id: str, principal: str) -> Run:
        """The run with that id (or an unambiguous beginning of it), if it is this principal's.

        Raises:
            RunError: there is none.
        """
        return await self.store.run(run_id, principal=principal)

    async def at_work(self, run_id: str) -> bool:
        """Whether this or another process is working on a run."""
        return run_id in self._active or not await self.holding.is_free(run_id)

    def is_mine(self, run_id: str) -> bool:
        """Whether this process is working on a run."""
        return run_id in self._active

    # Beginning.

    async def ask(
        self,
        request: RunRequest,
        *,
        principal: str,
        steps: Sequence[Step] = (),
        fresh: bool = False,
    ) -> Run:
        """A new run that is carried on to its answer, by the user's own *steps* if there are any.

        The same request attaches to a run that is at work, or whose answer nobody was there to be
        told, unless it is to be *fresh*.

        Raises:
            PodiumError: the request or the plan is not allowed; nothing is stored.
        """
        run = await self.orchestrator.prepare(request, principal=principal)
        if steps:
            check_own_plan(self.orchestrator, request, steps)
        key = None if fresh else request_key(run, "answer", steps)

        async def use_plan(held: Orchestrator, run: Run, observer: Observer) -> None:
            await replace_plan(held, run, steps)

        started = run.model_copy(update={"status": "running"})
        return await self._begin(started, key, use_plan if steps else None, answering=True)

    async def plan(self, request: RunRequest, *, principal: str, fresh: bool = False) -> Run:
        """A new run that is planned and not carried out; the same request attaches as in `ask`.

        Raises:
            PodiumError: the request is not allowed; nothing is stored.
        """
        run = await self.orchestrator.prepare(request, principal=principal)
        key = None if fresh else request_key(run, "plan", ())
        return await self._begin(run, key, Orchestrator.plan, answering=False)

    async def _begin(self, run: Run, key: str | None, work: Work | None, *, answering: bool) -> Run:
        # A caller that goes away in between must not leave a run that nobody works on.
        with anyio.CancelScope(shield=True):
            owner, lease_s = self.holding.owner, self.holding.lease_s
            begun = await self.store.begin_run(run, key, owner, lease_s)
            if isinstance(begun, str):
                return await self.store.run(begun)
            active = self._active[run.run_id] = Active(work, answering, begun)
            self._group.start_soon(self._work, begun, active)
        return run

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
                f"died, the run is free in at most {self.holding.lease_s:g} seconds."
            )

    async def _launch(self, run_id: str, work: Work | None) -> bool:
        """Work on a run, without *work* to its answer; False if another process holds it."""
        active = self._active[run_id] = Active(work, answering=work is None)
        lease: Lease | None = None
        try:
            with anyio.CancelScope(shield=True):
                lease = await self.holding.claim(run_id)
        finally:
            if lease is None:
                self._end(run_id, active)
        if lease is not None:
            active.lease = lease
            self._group.start_soon(self._work, lease, active)
        return lease is not None

    async def _work(self, lease: Lease, active: Active) -> None:
        run_id, held = lease.run_id, self.orchestrator.held(lease)
        lost = False
        try:
            with active.scope:
                if active.work:
                    await active.work(held, await held.store.run(run_id), active.tell)
                if active.answering:
                    run = await held.store.run(run_id)
                    active.answered = await held.answer(run, active.tell)
        except LeaseLostError as error:
            lost = True
            logger.warning("%s", error)
        except PodiumError as error:
            active.error = error
        except Exception as error:
            logger.exception("run %s ended by a fault in Podium", run_id)
            active.error = await mark_crashed(held.store, run_id, error)
        finally:
            try:
                with anyio.CancelScope(shield=True):
                    await self._give_up(lease, active, lost=lost)
            finally:  # a fault in between must not keep others waiting for this end
                self._end(run_id, active)

    async def _give_up(self, lease: Lease, active: Active, *, lost: bool) -> None:
        """Store how work on a run has ended, and free it."""
        store, run_id = self.store.held(lease), lease.run_id
        if active.scope.cancel_called:
            await self._mark_cut_off(store, run_id, active)
        writes: list[Write] = []
        if not lost and (active.stopped or not active.scope.cancel_called):
            writes = await self._tell_end(run_id, active)
        active.lease = None
        await self._release(lease, writes)

    async def _mark_cut_off(self, store: Store, run_id: str, active: Active) -> None:
        """Store that a run does not go on, as far as it can be stored: other work goes on."""
        try:
            await (mark_stopped if active.stopped else mark_interrupted)(store, run_id)
        except LeaseLostError:  # it goes on elsewhere
            return
        except StoreError as error:
            logger.warning("run %s could not be stored as stopped: %s", run_id, error)

    async def _tell_end(self, run_id: str, active: Active) -> list[Write]:
        writes: list[Write | None] = []
        while active.followers:  # more may come while one is asked
            follower = active.followers.pop(next(iter(active.followers)))
            try:
                writes.append(await follower(active.error))
            except PodiumError as error:
                logger.warning("the end of run %s could not be told: %s", run_id, error)
        return [write for write in writes if write]

    def _end(self, run_id: str, active: Active) -> None:
        del self._active[run_id]
        for watcher in active.watchers:
            watcher.close()
        active.ended.set()

    async def _release(self, lease: Lease, also: Sequence[Write] = ()) -> None:
        """Give a run up. A ledger that cannot be written must not end the other runs."""
        try:
            await self.store.release(lease, also)
        except StoreError as error:
            lease_s = self.holding.lease_s
            logger.warning("run %s stays held for %g s: %s", lease.run_id, lease_s, error)

    # Waiting.

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
            if active.ended.is_set() and active.answered:
                return active.answered
        else:
            with anyio.move_on_after(seconds):
                await self._free(run_id)
        return await self.store.run(run_id)

    async def _free(self, run_id: str) -> None:
        """Wait until no other process works on a run."""
        # Another process's work gives no event to wait for.
        while not await self.holding.is_free(run_id):  # noqa: ASYNC110
            await anyio.sleep(_POLL_S)

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

    async def left(self, run_id: str, then: OnDisconnect) -> None:
        """A client that waited for a run is gone; what that means if it was the last one."""
        active = self._active.get(run_id)
        if then == "continue" or active is None or active.watchers:
            return
        active.stopped = then == "stop"
        active.scope.cancel()

    def follow(self, run_id: str, name: str, then: AtEnd) -> None:
        """Call *then* when this process's work on a run ends, and write what it gives.

        That is in the ledger in the moment in which the run is free, never before or after. Not if
        the run goes on elsewhere or later, since it was taken over, or interrupted with the
        process; nor when this process does not work on it. Once for each *name*.
        """
        if active := self._active.get(run_id):
            active.followers[name] = then

    # Stopping.

    async def stop(self, run_id: str) -> Run:
        """Stop a run: no new step, connections closed; what was paid stays, and it can go on.

        Raises:
            RunError: it is a step of a run at work, or another process has it and does not answer.
        """
        if active := self._active.get(run_id):
            active.stopped = True
            active.scope.cancel()
            await active.ended.wait()
            return await self.store.run(run_id)
        lease: Lease | None = None
        with anyio.CancelScope(shield=True):
            lease = await self.holding.claim(run_id)
            if lease is not None:
                try:
                    await mark_stopped(self.store.held(lease), run_id)
                finally:
                    await self._release(lease)
        if lease is None:
            return await self._stop_elsewhere(run_id)
        return await self.store.run(run_id)

    async def _stop_elsewhere(self, run_id: str) -> Run:
        holder = await self.store.holder(run_id)
        if holder is not None and holder.run_id != run_id:
            raise RunError(
                f"Run {run_id} is a step of run {holder.run_id}, which is at work; stop that one."
            )
        await self.store.ask_stop(run_id)
        with anyio.move_on_after(STOP_S):
            await self._free(run_id)
            return await self.store.run(run_id)
        raise RunError(
            f"The Podium process that works on run {run_id} does not answer; if it has died, the "
            f"run can be stopped in at most {self.holding.lease_s:g} seconds."
        )

    async def stop_all(self) -> None:
        """Stop all work; the runs are stored as interrupted."""
        for active in tuple(self._active.values()):
            active.scope.cancel()
        for active in tuple(self._active.values()):
            await active.ended.wait()

    # What goes on beside the runs.

    async def keep_leases(self) -> None:
        """Renew the leases of the runs at work, for ever; give up those that were taken over."""
        while True:
            await anyio.sleep(self.holding.lease_s / 3)
            # A run that is only just being claimed is not one's own yet.
            if held := {run_id: it for run_id, it in self._active.items() if it.lease}:
                await self._renew(held)

    async def _renew(self, held: dict[str, Active]) -> None:
        try:
            kept = await self.store.renew(self.holding.owner, self.holding.lease_s, held)
        except StoreError as error:
            logger.warning("leases could not be renewed: %s", error)
            return
        for run_id, active in held.items():
            if active.lease and run_id not in kept:
                logger.warning("run %s was taken over by another process", run_id)
                # Nothing more can be begun for it without the lease.
                active.lease = None
                active.scope.deadline = anyio.current_time() + LATE_S

    async def heed_stops(self) -> None:
        """Stop the runs that other processes have been told to stop, for ever."""
        while True:
            await anyio.sleep(_POLL_S)
            if not self._active:
                continue
            try:
                asked = await self.store.stops_asked(self.holding.owner)
            except StoreError as error:
                logger.warning("whether a run is to be stopped cannot be read: %s", error)
                continue
            for run_id in asked.intersection(self._active):
                self._active[run_id].stopped = True
                self._active[run_id].scope.cancel()

    async def take_over(self) -> None:
        """Carry on what processes that died have left behind, for ever.

        Only runs whose pool is this process's own, with the keys that it needs.
        """
        while True:
            try:
                for run_id in await self.holding.left_behind():
                    run = await self.store.run(run_id)
                    if self.orchestrator.has_pool_of(run):
                        logger.warning("carrying on run %s, whose process has died", run_id)
                        await self.start(run)
            except StoreError as error:
                logger.warning("runs left behind cannot be looked for: %s", error)
            await anyio.sleep(self.holding.lease_s / 3)


@asynccontextmanager
async def open_runs(
    orchestrator: Orchestrator, *, lease_s: float = LEASE_S, takes_over: bool = False
) -> AsyncGenerator[Runs]:
    """The runs of this process; on leaving, those at work are stored as interrupted.

    With *takes_over* it also carries on what other processes have left behind.
    """
    async with anyio.create_task_group() as group:
        runs = Runs(orchestrator, Holding(orchestrator.store, lease_s), group)
        group.start_soon(runs.keep_leases)
        group.start_soon(runs.heed_stops)
        if takes_over:
            group.start_soon(runs.take_over)
        try:
            yield runs
        finally:
            with anyio.CancelScope(shield=True):
                await runs.stop_all()
            group.cancel_scope.cancel()
