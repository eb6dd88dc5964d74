"""The pool: workers in the order of their strength, opened from a manifest and chosen from."""

import difflib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from podium_workers.errors import PoolSelectionError, WorkerError
from podium_workers.worker import Frozen, Worker, WorkerCard

if TYPE_CHECKING:
    pass


@runtime_checkable
class Keyed(Protocol):
    """A worker that needs a key."""

    @property
    def has_key(self) -> bool:
        """Whether it has one; whether it is a good one shows only when it is used."""
        ...


@dataclass(frozen=True)
class Pool:
    """Workers, the strongest first, and which of them writes plans in which form."""

    workers: tuple[Worker, ...]
    conductor: str
    """Name of the worker that writes plans."""
    conductor_form: Literal["json", "lists"] = "json"
    conductor_shows: Literal["cards", "ordinals"] = "cards"
    conductor_prompt: Literal["full", "brief"] = "full"
    asks: Mapping[str, str] = field(default_factory=dict[str, str])
    """Which worker gets the prompts of another one, by the other one's name."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(worker.card.name for worker in self.workers)

    @property
    def cards(self) -> tuple[WorkerCard, ...]:
        return tuple(worker.card for worker in self.workers)

    def has_keys(self, names: Collection[str]) -> bool:
        """Whether none of these workers lacks its key."""
        workers = [worker for worker in self.workers if worker.card.name in names]
        return all(worker.has_key for worker in workers if isinstance(worker, Keyed))

    def get(self, name: str) -> Worker:
        """The worker of that name.

        Raises:
            PoolSelectionError: there is none.
        """
        self._check((name,), "worker")
        return next(worker for worker in self.workers if worker.card.name == name)

    def allowed(
        self,
        *,
        workers: Collection[str] = (),
        exclude: Collection[str] = (),
        local_only: bool = False,
    ) -> "Pool":
        """The pool with only what a request allows, in the same order.

        A conductor that is not allowed is stood in for by the strongest worker left.

        Raises:
            PoolSelectionError: an unknown name, or nothing left.
        """
        self._check(workers, "workers")
        self._check(exclude, "exclude")
        left = tuple(
            worker
            for worker in self.workers
            if (not workers or worker.card.name in workers)
            and worker.card.name not in exclude
            # Who leaves a worker out wants it to see nothing.
            and self.asks.get(worker.card.name) not in exclude
            and (not local_only or worker.card.where == "local")
        )
        if not left:
            asked = "local_only" if local_only and not (workers or exclude) else "this choice"
            raise PoolSelectionError(
                f"No worker of the pool is left by {asked}; the pool has {self._listing()}."
            )
        names = [worker.card.name for worker in left]
        conductor = self.conductor if self.conductor in names else strongest(names, self.asks)
        return replace(self, workers=left, conductor=conductor)

    def _check(self, names: Collection[str], field: str) -> None:
        for name in names:
            if name not in self.names:
                near = difflib.get_close_matches(name, self.names, n=1)
                hint = f" did you mean {near[0]!r}?" if near else ""
                raise PoolSelectionError(
                    f"{field}: there is no worker {name!r};{hint} the pool has {self._listing()}."
                )

    def _listing(self) -> str:
        return ", ".join(f"{card.name} ({card.where})" for card in self.cards)


def strongest(names: Sequence[str], asks: Mapping[str, str]) -> str:
    """The first that writes what it is asked for, if there is one: a plan is no program."""
    return next((name for name in names if name not in asks), names[0])


@runtime_checkable
class Checkable(Protocol):
    """A worker that can tell, at no cost, whether it is likely to answer."""

    async def check(self) -> str:
        """One line on what is there.

        Raises:
            WorkerError: it would not answer; the text says why.
        """
        ...


class Health(Frozen):
    """Whether a worker is likely to answer."""

    name: str
    ok: bool
    detail: str


async def health(worker: Worker) -> Health:
    """A cheap look at *worker*: its key, its weights, its endpoint. Takes at most some seconds."""
    name = worker.card.name
    if not isinstance(worker, Checkable):
        return Health(name=name, ok=True, detail="not checked: it shows only when it is asked")
    try:
        return Health(name=name, ok=True, detail=await worker.check())
    except WorkerError as error:
        return Health(name=name, ok=False, detail=error.message)
