"""Simulated workers: each can do some kinds of work and not others, by a table that is set.

Whatever is measured with them is labelled simulated. A simulated worker reads the prompt that the
server wrote, as any worker does: it finds the question in it, and the replies of the steps that its
own step may read. So an access list that leaves out what is needed fails for the reason that it
would fail with real workers.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import anyio
from pydantic import Field

from podium_lab.train.items import Goal, Item
from podium_workers.scripted import ScriptedWorker
from podium_workers.worker import Frozen, Price, Prompt, WorkerCard

QUESTION = re.compile(r"<overall_task_(\w*)>\n(.*?)\n</overall_task_\1>", re.DOTALL)
"""The mark of a prompt's question, and the question."""
_FOUND = re.compile(r"Found (\d+): (.*)")
"""How a worker says what it has found of an item's goals: number and result."""


class Skills(Frozen):
    """What a simulated worker can do."""

    name: str
    by_kind: Mapping[str, float]
    """Share of the items of a kind that it can do; a kind that is not named it cannot do at all."""
    overrides: float = Field(default=0.0, ge=0, le=1)
    """Share of the items, of those of which it can do nothing, where it does not believe what it
    reads and puts its own result in the place of a right one, as weak models do."""
    admits: float = Field(default=0.0, ge=0, le=1)
    """Share of the items at which it says that it does not know, where it would be wrong."""
    price: Price = Price(input=0, output=0)
    seconds: float = 0.0
    """How long a reply takes."""
    good_at: str = ""
    """What the conductor is told of it."""


@dataclass(frozen=True)
class Simulation:
    """The items that simulated workers know of, and the seed of what each of them can do.

    The same worker gives the same reply to the same goal every time, as a real one at temperature
    0 does; another seed gives other workers of the same skills.
    """

    items: Mapping[str, Item]
    """By question."""
    seed: int = 0

    @classmethod
    def of(cls, items: Iterable[Item], *, seed: int = 0) -> "Simulation":
        return cls({item.question: item for item in items}, seed)

    def can(self, skills: Skills, item: Item, place: int) -> bool:
        """Whether a worker finds the goal number *place* of an item, once it has the ones before.

        It is drawn once for ever from seed, worker, item and goal.
        """
        share = skills.by_kind.get(item.goals[place].kind, 0.0)
        return self._draw(skills.name, item.id, str(place)) < share

    def overrides(self, skills: Skills, item: Item) -> bool:
        """Whether a worker goes by its own result, though it can do nothing of an item."""
        lost = not any(self.can(skills, item, place) for place in range(len(item.goals)))
        return lost and self._draw(skills.name, item.id, "overrides") < skills.overrides

    def admits(self, skills: Skills, item: Item) -> bool:
        """Whether a worker says of an item, rather than be wrong, that it does not know."""
        return self._draw(skills.name, item.id, "admits") < skills.admits

    def best_alone(self, workers: Iterable[Skills], item: Item) -> bool:
        """Whether any worker can answer an item alone: what the best single choice would give."""
        places = range(len(item.goals))
        return any(all(self.can(skills, item, place) for place in places) for skills in workers)

    def worker(self, skills: Skills, *, context_window: int = 8192) -> ScriptedWorker:
        """A worker with those skills."""
        card = WorkerCard(
            name=skills.name,
            kind="simulated",
            model=f"simulated-{skills.name}",
            where="local",
            context_window=context_window,
            price=skills.price,
            good_at=skills.good_at,
            parallel=64,
        )

        async def reply(prompt: Prompt) -> str:
            if skills.seconds:
                await anyio.sleep(skills.seconds)
            return self.reply(skills, prompt.messages[-1].text)

        return ScriptedWorker(card, reply)

    def reply(self, skills: Skills, prompt: str) -> str:
        """What a worker says to a prompt of the server's.

        It goes on from what it can read, as far as its skills reach. Where it fails it is wrong in
        a way that looks right, as models are, or says that it does not know.
        """
        asked = QUESTION.search(prompt)
        item = self.items.get(asked[2]) if asked else None
        if asked is None or item is None:
            return "I do not know what I am asked."
        return _told(item, self._results(skills, item, prompt[asked.end() :]))

    def _results(self, skills: Skills, item: Item, material: str) -> list[str]:
        """What a worker has found of the goals of an item, in order, as far as it comes."""
        read = {int(number): text for number, text in _FOUND.findall(material)}
        found = {} if self.overrides(skills, item) else read
        results: list[str] = []
        right_so_far = True
        for place, goal in enumerate(item.goals):
            can = right_so_far and self.can(skills, item, place)
            if can:  # also where another has been wrong before it
                results.append(goal.answer)
            elif place in found:
                results.append(found[place])
            elif place or self.admits(skills, item):  # the rest is left to others
                break
            else:
                results.append(self._wrong(skills, item, goal))
            right_so_far = results[-1] == goal.answer
        return results

    def _wrong(self, skills: Skills, item: Item, goal: Goal) -> str:
        """A wrong result that looks like a right one."""
        if re.fullmatch(r"-?\d+", goal.answer):
            return str(int(goal.answer) + 1 + int(9 * self._draw(skills.name, item.id, "off")))
        return f"not {goal.answer[::-1]}"

    def _draw(self, *parts: str) -> float:
        digest = hashlib.sha256("\0".join((str(self.seed), *parts)).encode()).digest()
        return int.from_bytes(digest[:8]) / 2**64


def _told(item: Item, results: list[str]) -> str:
    """Results as a worker tells them; the last goal's is the item's answer."""
    if not results:
        return "I do not know."
    lines = [f"Found {number}: {result}" for number, result in enumerate(results)]
    if len(results) == len(item.goals):
        is_code = item.judge in ("code", "program")
        lines.append(f"```python\n{results[-1]}\n```" if is_code else f"Answer: {results[-1]}")
    return "\n".join(lines)
