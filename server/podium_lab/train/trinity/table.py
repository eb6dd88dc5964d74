"""What every turn would lead to: asked once of the workers, then looked up in evolution.

For each item all ways that an episode can stand are found, from its beginning on, with what each
worker in each role makes of it. So thousands of heads can be tried without asking anybody again.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field

from pydantic import BaseModel

from podium.policy.head import ROLES, Role
from podium.policy.trinity import transcript
from podium.policy.turns import TURNS, Said, Standing, subtask
from podium.prompting import Material, Visible
from podium_lab.train.items import Item

RIGHT, WRONG = -1, -2
"""Places where an episode is over."""

AskRole = Callable[[str, Item, Material], Awaitable[str]]
"""The named worker's reply to the prompt of that material."""
IsRight = Callable[[Item, str], Awaitable[bool]]


class Table(BaseModel):
    """Places where episodes may stand, numbered, and where every turn leads from there."""

    workers: tuple[str, ...]
    turns: int = TURNS
    """Turns that it holds."""
    views: list[str] = []
    """Texts that the coordinator may read."""
    begins: dict[str, int] = {}
    """Where the episodes of an item begin, by its id."""
    view_of: list[int] = []
    """Which text is read at a place."""
    leads: list[list[list[int]]] = []
    """For each place, worker and role: the next place, or RIGHT or WRONG."""
    right: list[bool] = []
    """Whether the newest answer at a place is right."""
    forced: list[int] = []
    """The role that a Thinker has chosen for the next turn; -1 where it is free."""
    may_verify: list[bool] = []
    asked: int = 0
    """Replies that were asked for."""

    def best(self, item: Item) -> bool:
        """Whether any play of an item ends right."""
        places, seen = {self.begins[item.id]}, set[int]()
        for _ in range(self.turns):
            if RIGHT in places or any(self.right[place] for place in places):
                return True
            seen |= places
            places = {
                following
                for place in places
                for by_role in self.leads[place]
                for following in by_role
                if following != WRONG
            } - seen
        return RIGHT in places or any(self.right[place] for place in places)

    def alone(self, item: Item) -> list[bool]:
        """For each worker, whether its first work on an item is right."""
        work = ROLES.index("worker")
        return [self.right[by_role[work]] for by_role in self.leads[self.begins[item.id]]]


@dataclass
class Profiler:
    """Fills a table by asking workers."""

    workers: tuple[str, ...]
    ask: AskRole
    is_right: IsRight
    turns: int = TURNS

    async def profile(self, items: Iterable[Item]) -> Table:
        """The table of *items*.

        Raises:
            WorkerError: a worker gave no reply.
            JudgeError: a reply could not be judged.
        """
        table = Table(workers=self.workers, turns=self.turns)
        for item in items:
            await _OfItem(self, table, item).fill()
        return table


@dataclass
class _OfItem:
    """The part of a table that is about one item."""

    profiler: Profiler
    table: Table
    item: Item
    places: dict[tuple[object, ...], int] = field(default_factory=dict[tuple[object, ...], int])
    judged: dict[str, bool] = field(default_factory=dict[str, bool])
    views: dict[str, int] = field(default_factory=dict[str, int])

    async def fill(self) -> None:
        begin = Standing()
        self.table.begins[self.item.id] = await self._place(begin)
        reached = {self.table.begins[self.item.id]: begin}
        for _ in range(self.profiler.turns):
            following: dict[int, Standing] = {}
            for place, standing in reached.items():
                following |= await self._lead(place, standing)
            reached = following

    async def _lead(self, place: int, standing: Standing) -> dict[int, Standing]:
        """Play every turn that may come next; the places that are new."""
        new: dict[int, Standing] = {}
        for worker, name in enumerate(self.profiler.workers):
            for role_place, role in enumerate(ROLES):
                if not _may_come(standing, role):
                    continue
                following = await self._play(name, role, standing)
                if isinstance(following, int):
                    self.table.leads[place][worker][role_place] = following
                    continue
                count = len(self.table.leads)
                number = await self._place(following)
                self.table.leads[place][worker][role_place] = number
                if number >= count:
                    new[number] = following
        return new

    async def _play(self, name: str, role: Role, standing: Standing) -> Standing | int:
        if role == "verifier" and not standing.thoughts:
            return WRONG
        shown = tuple(
            Visible(number=number, subtask=subtask(said.role), reply=said.text)
            for number, said in enumerate(standing.read)
        )
        material = Material(
            question=self.item.question, earlier="", files=(), visible=shown,
            subtask=subtask(role), fence="", final=role == "worker",
        )  # fmt: skip
        self.table.asked += 1
        text = await self.profiler.ask(name, self.item, material)
        number = 1 + max((said.number for said in standing.read), default=-1)
        following = standing.after(Said(number=number, role=role, text=text))
        if following != "accepted":
            return following
        return RIGHT if await self._is_right(standing) else WRONG

    async def _place(self, standing: Standing) -> int:
        thoughts = tuple(said.text for said in standing.thoughts)
        others = (standing.suggestion, standing.rejection)
        key = (thoughts, *(said and said.text for said in others), standing.next_role)
        if key not in self.places:
            table = self.table
            self.places[key] = len(table.leads)
            text, _ = transcript(self.item.question, standing)
            if text not in self.views:
                self.views[text] = len(table.views)
                table.views.append(text)
            table.view_of.append(self.views[text])
            table.leads.append([[WRONG] * len(ROLES) for _ in self.profiler.workers])
            table.right.append(await self._is_right(standing))
            forced = standing.next_role
            is_free = forced is None or not standing.may_be(forced)
            table.forced.append(-1 if forced is None or is_free else ROLES.index(forced))
            table.may_verify.append(standing.may_be("verifier"))
        return self.places[key]

    async def _is_right(self, standing: Standing) -> bool:
        if not standing.thoughts:
            return False
        newest = standing.thoughts[-1].text
        if newest not in self.judged:
            self.judged[newest] = await self.profiler.is_right(self.item, newest)
        return self.judged[newest]


def _may_come(standing: Standing, role: Role) -> bool:
    forced = standing.next_role
    if forced is not None and standing.may_be(forced):
        return role == forced
    return standing.may_be(role)


def views_of(table: Table, items: Sequence[Item]) -> set[int]:
    """The texts that the coordinator may read in episodes of *items*."""
    return views_from(table, [table.begins[item.id] for item in items])


def views_from(table: Table, places: Iterable[int]) -> set[int]:
    """The texts that the coordinator may read in episodes that begin at *places*."""
    left = list(places)
    seen = set[int]()
    while left:
        place = left.pop()
        if place in seen:
            continue
        seen.add(place)
        left += [n for by_role in table.leads[place] for n in by_role if n >= 0]
    return {table.view_of[place] for place in seen}
