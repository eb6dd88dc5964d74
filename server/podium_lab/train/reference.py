"""Finds out what each worker does alone, and keeps it; `alone` measures plans against that.

For simulated workers it follows from their skills; others are asked about each item, once or
several times, which costs what it costs and is kept.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import anyio

from podium.plan import Plan, Step
from podium_lab.train.alone import Reference, Spend
from podium_lab.train.config import Job
from podium_lab.train.environment import Score, shuffled
from podium_lab.train.items import Item
from podium_lab.train.judging import comparable
from podium_lab.train.opening import Ground
from podium_lab.train.purse import PurseEmptyError
from podium_lab.train.random_plans import ALONE, rendered
from podium_lab.train.simulated import Simulation

FILE = "reference.json"


def known(ground: Ground) -> Reference | None:
    """What is known so far; None when nothing is."""
    return reference_of(ground.job, ground.items)


def reference_of(job: Job, items: Sequence[Item]) -> Reference | None:
    """What is known so far of a job's workers and *items*; None when nothing is."""
    workers = job.workers
    if workers.simulated:
        simulation = Simulation.of(items, seed=workers.seed)
        right = {
            item.id: tuple(
                skills.name for skills in workers.simulated if simulation.best_alone([skills], item)
            )
            for item in items
            if item.goals
        }
        goals = {item.id: tuple(goal.kind for goal in item.goals) for item in items if item.goals}
        skills = {skills.name: dict(skills.by_kind) for skills in workers.simulated}
        return Reference(right=right, goals=goals, skills=skills)
    path: Path = (workers.profiled or job.folder) / FILE
    return Reference.model_validate_json(path.read_bytes()) if path.exists() else None


async def profile(ground: Ground, items: Sequence[Item], *, anew: bool = False) -> Reference:
    """Ask each worker of the pool alone about each of *items*, and keep who was right.

    It is asked once, and once more for each of the pools in `ground.again`. An item on which a
    worker failed for no fault of its own is left out. Who has been asked about an item already, as
    often, is asked only *anew*.

    Raises:
        PurseEmptyError: the job has spent what it may; what was found before is kept.
    """
    before = None if anew else known(ground)
    found = _with_asked(before or Reference())
    right, voted, spent = dict(found.right), dict(found.voted), dict(found.spent)
    noted = dict(found.asked)
    empty: list[PurseEmptyError] = []
    limiter = anyio.CapacityLimiter(ground.job.workers.parallel)

    async def ask(item: Item, names: Sequence[str]) -> None:
        async with limiter:
            try:
                asked = None if empty else await _asked(ground, item, names)
            except PurseEmptyError as error:
                empty.append(error)
                return
        if asked is None:
            return
        for name, scores in asked.items():
            new = scores[_replies(found, item, name) :]
            spent[name] = spent.get(name, Spend()) + Spend.of(new)
        others = [name for name in right.get(item.id, ()) if name not in asked]
        right[item.id] = (*others, *(name for name, scores in asked.items() if scores[0].right))
        noted[item.id] = tuple(dict.fromkeys((*noted.get(item.id, ()), *asked)))
        if ground.again:
            new_votes = {name: votes(item, scores) for name, scores in asked.items()}
            voted[item.id] = voted.get(item.id, {}) | new_votes

    async with anyio.create_task_group() as group:
        for item in items:
            missing = [
                name
                for name in ground.pool.names
                if _replies(found, item, name) <= len(ground.again)
            ]
            if missing:
                group.start_soon(ask, item, missing)
    update = {"right": right, "asked": noted, "voted": voted, "spent": spent}
    kept = found.model_copy(update=update)
    path = anyio.Path(ground.job.folder / FILE)
    partial = path.with_name(f"{FILE}.partial")
    await partial.write_text(kept.model_dump_json() + "\n", encoding="utf-8")
    await partial.rename(path)
    if empty:
        raise empty[0]
    return kept


def votes(item: Item, scores: Sequence[Score]) -> tuple[bool, ...]:
    """Whether the answer that the first one, two, three … replies give most often is right.

    Of equally frequent ones the earliest counts; replies without an answer have no vote. Answers
    that cannot be compared leave the first one.
    """
    said = [comparable(item, score.answer) for score in scores]
    chosen: list[bool] = []
    for count in range(1, len(scores) + 1):
        counts = Counter(text for text in said[:count] if text)
        most = counts.most_common(1)[0][0] if counts else said[0]
        chosen.append(bool(scores[said.index(most)].right))
    return tuple(chosen)


def _replies(found: Reference, item: Item, name: str) -> int:
    """How many replies of a worker are known already."""
    if name not in found.asked.get(item.id, ()):
        return 0
    return len(found.voted.get(item.id, {}).get(name, ())) or 1


def _with_asked(found: Reference) -> Reference:
    """With who was asked about each item, where a file does not say so."""
    asked = dict.fromkeys(found.right, found.names) | found.asked
    return found.model_copy(update={"asked": asked})


async def _asked(
    ground: Ground, item: Item, names: Sequence[str]
) -> dict[str, tuple[Score, ...]] | None:
    """What each of the workers alone scores, once in each pool; None where one said nothing
    usable."""
    found: dict[str, tuple[Score, ...]] = {}
    for name in names:
        plan = Plan(steps=(Step(worker=name, subtask=ALONE[0]),))
        scores: list[Score] = []
        for every in (ground.pool, *ground.again):
            pool = shuffled(every, [name])
            text = rendered(plan, pool.names, ground.job.asked.form)
            scores.append(await ground.environment.score(text, item, pool))
        if any(score.right is None for score in scores):
            return None
        found[name] = tuple(scores)
    return found
