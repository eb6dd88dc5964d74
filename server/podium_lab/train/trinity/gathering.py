"""What evolution works on, made once for a job: the table of outcomes, and the states of its views.

Workers and the coordinator's model are asked here, before anything is learned; what was asked is
kept in the job's folder.
"""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ValidationError

from podium.cli.saying import say
from podium.config import Settings
from podium.policy.head import Head
from podium.policy.trinity import QUESTION_TOKENS, THOUGHT_TOKENS
from podium.policy.turns import texts_hash
from podium.prompting import Material, cuttable, worker_prompt
from podium_lab.train.config import Job
from podium_lab.train.errors import TrainingError
from podium_lab.train.items import Item, balanced, fingerprint, in_part
from podium_lab.train.judging import JudgeError
from podium_lab.train.opening import Ground, load_items, open_ground
from podium_lab.train.records import Records
from podium_lab.train.simulated import Simulation
from podium_lab.train.trinity.config import Evolution
from podium_lab.train.trinity.episodes import Episode, Episodes, asking
from podium_lab.train.trinity.features import FILE, CachedStates
from podium_lab.train.trinity.players import Players
from podium_lab.train.trinity.table import AskRole, Profiler, Table
from podium_workers.engine.client import EngineSettings, open_engine
from podium_workers.pool import Pool
from podium_workers.states import LocalStates
from podium_workers.weights.local_file import LocalFile

TABLE = "table.json"
Tell = Callable[[str], None]


class Kept(BaseModel):
    """A table as it is kept, and what it is one of."""

    of: str
    """Identity of items, workers and prompts."""
    table: Table


@dataclass(frozen=True)
class Gathered:
    """Table and states."""

    table: Table
    states: list[list[float]]
    """Of the table's views, in their order."""
    train: tuple[Item, ...]
    test: tuple[Item, ...]
    label: str
    """What figures are to be called: live, replay or simulated."""


def settings_of(job: Job) -> Evolution:
    """How the head is to be evolved.

    Raises:
        TrainingError: the job does not say that one is.
    """
    if job.trinity is None:
        raise TrainingError(
            "trinity: the configuration has no [trinity]; add it, empty if you like."
        )
    return job.trinity


def chosen(job: Job) -> tuple[tuple[Item, ...], tuple[Item, ...]]:
    """The items of a job's head: those it is evolved on, and those it is tried on.

    Raises:
        SettingsError: a file cannot be used.
        TrainingError: a part is empty.
    """
    evolution, items = settings_of(job), load_items(job)
    train = balanced(in_part(items, "train"), evolution.train_items, salt="t")
    test = balanced(in_part(items, "test"), evolution.test_items, salt="t")
    if not train or not test:
        raise TrainingError(
            "taskset: no item falls into one of the parts train and test; add some."
        )
    return train, test


async def gather(
    job: Job, environment: Mapping[str, str], settings: Settings, tell: Tell = say
) -> Gathered:
    """Table and states of a job: from its folder, as far as they are there.

    Raises:
        SettingsError, ManifestError, TrainingError: the job cannot be done as it is.
        WorkerError: a worker, or the coordinator's model, gave nothing; what was asked is kept.
        LimitError, PurseEmptyError: the workers would cost more than the job may.
    """
    train, test = chosen(job)
    async with open_ground(job, environment, settings) as ground:
        records = Records(job.folder)
        records.begin(job, ground.items, ground.label, kind="trinity")
        records.reopen()
        table = await _table(job, (*train, *test), ground, tell)
        label = ground.label
    async with open_states(job, environment, settings) as states:
        found: list[list[float]] = []
        for number, text in enumerate(table.views, start=1):
            found.append(await states(text))
            if states.computed and number % _TOLD_EVERY == 0:
                tell(f"{number} of {len(table.views)} states of {job.model.base}")
    return Gathered(table, found, train, test, label)


_TOLD_EVERY = 100


@asynccontextmanager
async def open_states(
    job: Job, environment: Mapping[str, str], settings: Settings, head: Head | None = None
) -> AsyncGenerator[CachedStates]:
    """The hidden states of the job's coordinator, or those of *head*, kept in the job's folder."""
    engine = EngineSettings(
        state_dir=settings.state_dir, memory_limit_bytes=int(settings.local_memory_gb * 2**30)
    )
    async with open_engine(engine, environment) as opened:
        file = LocalFile(head.model if head else job.model.base, settings.models_dir, say)
        states = LocalStates(file, opened, threads=settings.local_threads)
        own = head.sha256 if head and head.model != job.model.base else ""
        yield CachedStates.at(states, job.folder / FILE, own)


async def served(
    job: Job, environment: Mapping[str, str], settings: Settings, head: Head
) -> list[Episode]:
    """What a head makes of the held-out items through the server itself: its policy and executor.

    Raises:
        SettingsError, ManifestError, TrainingError: the job cannot be done as it is.
        PurseEmptyError: the job has spent what it may.
    """
    train, test = chosen(job)
    async with (
        open_ground(job, environment, settings) as ground,
        open_states(job, environment, settings, head) as states,
    ):
        simulated = job.workers.simulated
        pool = _players(job, (*train, *test)) if simulated else ground.pool
        scoring = ground.environment
        episodes = Episodes(
            scoring.store, pool, states, scoring.judges,
            max_seconds=job.rollout_seconds, turns=settings_of(job).turns, purse=scoring.purse,
        )  # fmt: skip
        return await episodes.play(head, test)


def _players(job: Job, items: tuple[Item, ...]) -> Pool:
    """The simulated workers of a job, who know the three roles."""
    simulation = Players(Simulation.of(items, seed=job.workers.seed))
    made = tuple(simulation.worker(skills) for skills in job.workers.simulated)
    return Pool(workers=made, conductor=made[0].card.name)


async def _asks(job: Job, items: tuple[Item, ...], ground: Ground) -> AskRole:
    if not job.workers.simulated:
        purse = ground.environment.purse
        return await asking(ground.environment.store, ground.pool, purse and purse.rest())
    simulation = Players(Simulation.of(items, seed=job.workers.seed))
    skills = {each.name: each for each in job.workers.simulated}

    async def ask(name: str, item: Item, material: Material) -> str:
        return simulation.reply(skills[name], worker_prompt(material, cuttable(material), ()))

    return ask


async def _table(job: Job, items: tuple[Item, ...], ground: Ground, tell: Tell) -> Table:
    names = ground.pool.names
    parts = (fingerprint(items), *names, job.workers.model_dump_json(), texts_hash())
    sizes = (settings_of(job).turns, QUESTION_TOKENS, THOUGHT_TOKENS)
    identity = "/".join((*parts, *map(str, sizes)))
    file = job.folder / TABLE
    if (kept := _kept(file)) and kept.of == identity:
        return kept.table
    tell(f"Trying out what {', '.join(names)} make of {len(items)} items in every role")
    profiler = Profiler(
        names,
        await _asks(job, items, ground),
        ground.environment.judges.is_right,
        turns=settings_of(job).turns,
    )
    try:
        table = await profiler.profile(items)
    except JudgeError as error:
        raise TrainingError(
            f"{error} No table was made yet; see to it and type the command again: replies of "
            "workers are kept."
        ) from error
    part = file.with_suffix(".part")
    part.write_text(Kept(of=identity, table=table).model_dump_json(), encoding="utf-8")
    part.replace(file)
    return table


def _kept(file: Path) -> Kept | None:
    try:
        return Kept.model_validate_json(file.read_bytes())
    except (FileNotFoundError, ValidationError):
        return None
