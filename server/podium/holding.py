"""Takes runs for this process, and knows when another process no longer has one.

A lease ends by the clock on the wall, which may jump. So a run is taken from another process only
if that one is known to be gone, or has not been heard of for a whole lease on this process's own,
steady clock. A process that was suspended has then lost the run, and its epoch shows it. Without
being asked, a run is taken only when its lease has ended as well.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import anyio

from podium.leases import Held, Lease
from podium.owner import is_gone, new_owner
from podium.store import Store


@dataclass
class Holding:
    """The leases of one process."""

    store: Store
    lease_s: float
    """Seconds after which a process that has not renewed a lease may lose it."""
    clock: Callable[[], float] = time.time
    owner: str = field(default_factory=new_owner)
    _noticed: dict[str, tuple[Held, float]] = field(default_factory=dict[str, tuple[Held, float]])

    async def claim(self, run_id: str) -> Lease | None:
        """Take a run that nobody has any more; None if somebody has it."""
        held = await self.store.holder(run_id)
        # What this process could not give up, since the ledger failed, is still its own.
        own = held is not None and (held.run_id, held.owner) == (run_id, self.owner)
        if held is not None and not own and not self._is_over(held):
            return None
        lease = await self.store.claim(run_id, self.owner, self.lease_s, held)
        if lease is not None:
            self._noticed.pop(run_id, None)
        return lease

    async def is_free(self, run_id: str) -> bool:
        """Whether nobody has a run, or a run that it is a step of, any more."""
        held = await self.store.holder(run_id)
        return held is None or self._is_over(held)

    async def left_behind(self) -> tuple[str, ...]:
        """Ids of the runs that a process was carrying out whose lease has ended."""
        others = [it for it in await self.store.running() if it.owner != self.owner]
        return tuple(
            it.run_id
            for it in others
            if (it.until <= self.clock() and is_gone(it.owner)) or self._is_silent(it)
        )

    def _is_over(self, held: Held) -> bool:
        return is_gone(held.owner) or self._is_silent(held)

    def _is_silent(self, held: Held) -> bool:
        """Whether the owner has not renewed the lease for as long as one lasts."""
        now = anyio.current_time()
        noticed, since = self._noticed.get(held.run_id, (None, now))
        if noticed != held:
            self._noticed[held.run_id] = (held, now)
        return noticed == held and now - since >= self.lease_s
