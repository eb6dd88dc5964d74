"""What is known of each item before training: which workers answer it alone.

Regret and gain are measured against it (`watch`). For simulated workers it follows from their
skills; others are asked once about each item, which costs what it costs and is kept.
"""

from collections.abc import Sequence
from pathlib import Path

import anyio

from podium.plan import Plan, Step
from podium_lab.train.environment import shuffled
from podium_lab.train.items import Item
from podium_lab.train.opening import Ground
from podium_lab.train.random_plans import ALONE, rendered
from podium_lab.train.simulated import Simulation
from podium_lab.train.watch import Reference

FILE = "reference.json"


def known(ground: Ground) -> Reference | None:
    """What is known so far; None when nothing is."""
    workers = ground.job.workers
    if workers.simulated:
        simulation = Simulation.of(ground.items, seed=workers.seed)
        right = {
            item.id: tuple(
                skills.name for skills in workers.simulated if simulation.best_alone([skills], item)
            )
            for item in ground.items
            if item.goals
        }
        return Reference(right=right)
    path: Path = ground.job.folder / FILE
    return Reference.model_validate_json(path.read_bytes()) if path.exists() else None


async def profile(ground: Ground, items: Sequence[Item], *, anew: bool = False) -> Reference:
    """Ask each worker of the pool alone about each of *items*, and keep who was right.

    An item on which a worker failed for no fault of its own is left out. Items that are known
    already are asked about only *anew*.
    """
    before = None if anew else known(ground)
    right = dict(before.right) if before else {}
    limiter = anyio.CapacityLimiter(ground.job.workers.parallel)

    async def ask(item: Item) -> None:
        async with limiter:
            able = await _able(ground, item)
        if able is not None:
            right[item.id] = able

    async with anyio.create_task_group() as group:
        for item in items:
            if item.id not in right:
                group.start_soon(ask, item)
    found = Reference(right=right)
    path = anyio.Path(ground.job.folder / FILE)
    partial = path.with_name(f"{FILE}.partial")
    await partial.write_text(found.model_dump_json() + "\n", encoding="utf-8")
    await partial.rename(path)
    return found


async def _able(ground: Ground, item: Item) -> tuple[str, ...] | None:
    able: list[str] = []
    for name in ground.pool.names:
        pool = shuffled(ground.pool, [name])
        plan = Plan(steps=(Step(worker=name, subtask=ALONE[0]),))
        text = rendered(plan, pool.names, ground.job.asked.form)
        score = await ground.environment.score(text, item, pool)
        if score.right is None:
            return None
        if score.right:
            able.append(name)
    return tuple(able)
