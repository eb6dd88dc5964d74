"""Small tasksets, simulated players and made-up states, for tests of TRINITY's training."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from podium.policy.head import ROLES, Head
from podium.policy.turns import texts_hash
from podium.prompting import Material, cuttable, worker_prompt
from podium_lab.train.generated import generate
from podium_lab.train.items import Item
from podium_lab.train.judging import Judges
from podium_lab.train.simulated import Simulation, Skills
from podium_lab.train.trinity.players import Players
from podium_lab.train.trinity.table import Profiler, Table
from podium_workers.pool import Pool

CALC = Skills(name="calc", by_kind={"arithmetic": 1.0})
KNOW = Skills(name="know", by_kind={"facts": 1.0})
SKILLS = (CALC, KNOW)
KINDS = ("arithmetic", "facts", "facts+arithmetic")


def small(count: int = 12, *, seed: int = 0) -> tuple[Item, ...]:
    return generate(count, seed=seed, kinds=KINDS)


def pool_of(items: Sequence[Item]) -> Pool:
    players = Players(Simulation.of(items))
    return Pool(workers=tuple(map(players.worker, SKILLS)), conductor="calc")


async def table_of(items: Sequence[Item], turns: int = 5) -> Table:
    players = Players(Simulation.of(items))
    skills = {each.name: each for each in SKILLS}

    async def ask(name: str, item: Item, material: Material) -> str:
        return players.reply(skills[name], worker_prompt(material, cuttable(material), ()))

    return await Profiler(tuple(skills), ask, Judges().is_right, turns).profile(items)


@dataclass
class MadeUpStates:
    """States that say what kind of question it is, and what has been found."""

    seen: list[str] = field(default_factory=list[str])
    model: str = "smollm2"

    async def __call__(self, text: str) -> list[float]:
        self.seen.append(text)
        asked, *thoughts = text.split("\nassistant: ")
        facts = any(word in asked for word in ("atomic", "apital", "city"))
        sums = any(word in asked for word in ("times", "plus"))
        found = [f"Found {number}:" in "".join(thoughts[-1:]) for number in range(2)]
        mark = sum(map(ord, text)) % 97 / 97
        return [1.0, float(facts), float(sums), float(facts and sums), *map(float, found), mark]


def head_of(rows: Sequence[Sequence[float]], workers: Sequence[str] = ("calc", "know")) -> Head:
    """A head with these rows, as long as a made-up state."""
    assert len(rows) == len(workers) + len(ROLES)
    return Head.model_validate(
        {
            "model": "smollm2", "prompts": texts_hash(), "workers": tuple(workers),
            "mean": [0.0] * 7, "deviation": [1.0] * 7,
            "weights": [[*row, *([0.0] * (7 - len(row)))] for row in rows],
        }
    )  # fmt: skip
