"""The pool: workers in the order of their strength, opened from a manifest and chosen from."""

import difflib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

from podium_workers.asked import Asked
from podium_workers.errors import PoolSelectionError, WorkerError
from podium_workers.worker import Frozen, Shape, Worker, WorkerCard


@runtime_checkable
class Keyed(Protocol):
    """A worker that needs a key."""

    @property
    def has_key(self) -> bool:
        """Whether it has one; whether it is a good one shows only when it is used."""
        ...


@dataclass(frozen=True)
class Pool:
    """Workers, the strongest first, and which of them writes plans."""

    workers: tuple[Worker, ...]
    """Those that plans may give steps to."""
    conductor: str
    """Name of the worker that writes plans."""
    asked: Asked = field(default_factory=Asked)
    """How that one is asked for them."""
    asks: Mapping[str, str] = field(default_factory=dict[str, str])
    """Which worker gets the prompts of another one, by the other one's name."""
    planner: Worker | None = None
    """The conductor, where it does nothing but write plans; None where it is one of `workers`."""
    shapes: Mapping[str, Shape] = field(default_factory=dict[str, Shape])
    """What shapes a worker's replies beside its card and what it is asked, by its name."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(worker.card.name for worker in self.workers)

    @property
    def cards(self) -> tuple[WorkerCard, ...]:
        return tuple(worker.card for worker in self.workers)

    @property
    def everyone(self) -> tuple[Worker, ...]:
        """All that may be asked for anything: the workers, and who only writes plans."""
        return self.workers if self.planner is None else (*self.workers, self.planner)

    @property
    def team(self) -> tuple[WorkerCard, ...]:
        """The workers as the conductor is shown them: in the order of its training, if known."""
        order = {name: place for place, name in enumerate(self.asked.team)}
        return tuple(sorted(self.cards, key=lambda card: order.get(card.name, len(order))))

    @property
    def remark(self) -> str:
        """One sentence on how the team is not that of the conductor's training; else empty."""
        team = tuple(card.name for card in self.team)
        if not self.asked.team or team == self.asked.team:
            return ""
        by_number = self.asked.shows == "ordinals"
        how = "chooses by number" if by_number else "knows them by what was said of them"
        means = "its choice may mean nothing" if by_number else "it may choose worse"
        return (
            f"The conductor {self.conductor!r} was trained with {', '.join(self.asked.team)} "
            f"and {how}; this team is {', '.join(team)}, so that {means} here."
        )

    def led_by(self, name: str) -> "Pool":
        """The pool with that conductor.

        How a conductor that only writes plans is asked is for it alone: a worker that writes the
        plan in its place is prompted as one that was not trained.
        """
        if self.planner is None or name == self.planner.card.name:
            return replace(self, conductor=name)
        return replace(self, conductor=name, asked=Asked())

    def without_planner(self) -> "Pool":
        """Only who does steps, in the pool's order: for whoever writes the plans by other means."""
        strong = strongest(self.names, self.asks)
        conductor = strong if self.planner else self.conductor
        asked = self.asked.model_copy(update={"team": ()})
        return replace(self, planner=None, conductor=conductor, asked=asked)

    def wrapped(self, wrap: Callable[[Worker], Worker]) -> "Pool":
        """The pool with each of its workers in the hands of another one."""
        planner = wrap(self.planner) if self.planner else None
        return replace(self, workers=tuple(map(wrap, self.workers)), planner=planner)

    def has_keys(self, names: Collection[str]) -> bool:
        """Whether none of these workers lacks its key."""
        workers = [worker for worker in self.everyone if worker.card.name in names]
        return all(worker.has_key for worker in workers if isinstance(worker, Keyed))

    def get(self, name: str) -> Worker:
        """The worker of that name.

        Raises:
            PoolSelectionError: there is none.
        """
        self._check((name,), "worker")
        return next(worker for worker in self.everyone if worker.card.name == name)

    def allowed(
        self,
        *,
        workers: Collection[str] = (),
        exclude: Collection[str] = (),
        local_only: bool = False,
    ) -> "Pool":
        """The pool with only what a request allows, in the same order.

        A conductor that is not allowed is stood in for by the strongest worker left. One that only
        writes plans need not be among *workers*: they are who may do steps.

        Raises:
            PoolSelectionError: an unknown name, or nobody left who does steps.
        """
        self._check(workers, "workers")
        self._check(exclude, "exclude")

        def may(card: WorkerCard) -> bool:
            # Who leaves a worker out wants it to see nothing.
            out = card.name in exclude or self.asks.get(card.name) in exclude
            return not out and (not local_only or card.where == "local")

        left = tuple(
            worker
            for worker in self.workers
            if may(worker.card) and (not workers or worker.card.name in workers)
        )
        if not left:
            asked = "local_only" if local_only and not (workers or exclude) else "this choice"
            raise PoolSelectionError(
                f"No worker of the pool is left by {asked}; the pool has {self._listing()}."
            )
        names = [worker.card.name for worker in left]
        planner = self.planner if self.planner and may(self.planner.card) else None
        writers = [*names, planner.card.name] if planner else names
        conductor = self.conductor if self.conductor in writers else strongest(names, self.asks)
        return replace(self.led_by(conductor), workers=left, planner=planner)

    def _check(self, names: Collection[str], field: str) -> None:
        known = [worker.card.name for worker in self.everyone]
        for name in names:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                hint = f" did you mean {near[0]!r}?" if near else ""
                raise PoolSelectionError(
                    f"{field}: there is no worker {name!r};{hint} the pool has {self._listing()}."
                )

    def _listing(self) -> str:
        listed = [f"{card.name} ({card.where})" for card in self.cards]
        if self.planner:
            listed.append(f"{self.planner.card.name} ({self.planner.card.where}, only plans)")
        return ", ".join(listed)


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
