"""Opens what a job needs to score rollouts: its items, its pool, its ledger."""

from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import TypedDict

from podium.cli.saying import say
from podium.config import Settings
from podium.errors import SettingsError
from podium.store import Store, open_store
from podium_lab.train.caching import cached
from podium_lab.train.config import Job
from podium_lab.train.draws import Draw, draws
from podium_lab.train.environment import Environment, shuffled
from podium_lab.train.items import Item, Part, in_part
from podium_lab.train.judging import Judges, missing
from podium_lab.train.profiled import REPLIES, profiled_pool, profiled_questions
from podium_lab.train.purse import Purse
from podium_lab.train.simulated import Simulation
from podium_lab.train.tasksets import kept_apart, load, merged
from podium_workers.asked import Asked
from podium_workers.manifest import load_manifest
from podium_workers.opening import open_pool
from podium_workers.pool import Pool
from podium_workers.replay import replay_pool
from podium_workers.worker import Frozen, WorkerCard


class Row(TypedDict):
    """One question to the policy, as trainers take it."""

    prompt: list[dict[str, str]]
    draw: str
    """The draw, as JSON."""


@dataclass(frozen=True)
class Ground:
    """What a job stands on."""

    job: Job
    items: tuple[Item, ...]
    """Of all parts."""
    pool: Pool
    environment: Environment
    again: tuple[Pool, ...] = ()
    """The same workers, each time with replies of their own: for asking several times."""

    def part(self, part: Part) -> tuple[Item, ...]:
        return in_part(self.items, part)

    @property
    def label(self) -> str:
        """What a figure measured on this pool has to be called."""
        workers = self.job.workers
        if workers.profiled:
            return "profiled"
        return "live" if workers.manifest else "replay" if workers.recorded else "simulated"


def policy_card(job: Job) -> WorkerCard:
    """The card of the policy that is trained: how much it can read, and write."""
    return WorkerCard(
        name="policy", kind="policy", model="policy", where="local",
        context_window=job.asked.context_window, max_output_tokens=job.grpo.max_tokens,
    )  # fmt: skip


def asked_rows(ground: Ground, drawn: Iterable[Draw]) -> list[Row]:
    """The questions to the policy as trainers take them: the server's own prompt, and the draw."""
    card = policy_card(ground.job)
    return [
        {
            "prompt": [
                {
                    "role": "user",
                    "content": ground.environment.prompt(
                        draw.item, shuffled(ground.pool, draw.workers), card
                    ),
                }
            ],
            "draw": draw.model_dump_json(),
        }
        for draw in drawn
    ]


def training_draws(ground: Ground) -> tuple[Draw, ...]:
    """What is asked in the whole job, in order.

    Raises:
        SettingsError: there is nothing to train on.
    """
    job, items = ground.job, ground.part("train")
    if not items:
        raise SettingsError("taskset: no item falls into the part that is trained on; add items.")
    return tuple(
        draws(
            items,
            ground.pool.names,
            iterations=job.grpo.iterations,
            questions=job.grpo.questions,
            seed=job.seed,
            pools=job.workers.shown,
        )
    )


def load_items(job: Job) -> tuple[Item, ...]:
    """The items of all of a job's tasksets; where workers are profiled, those that they answered.

    Raises:
        SettingsError, ManifestError: a file cannot be used.
    """
    items = kept_apart(merged(item for taskset in job.tasksets for item in load(taskset)))
    if job.workers.profiled is None:
        return items
    answered = profiled_questions(job.workers.profiled, job.workers.only)
    return tuple(item for item in items if item.question in answered)


class Place(Frozen):
    """Which of the processes of a job this is; each has a ledger and a part of the money."""

    number: int = 0
    of: int = 1

    def file(self, name: str) -> str:
        """A file's name for this process; the first one's is plain."""
        stem, dot, suffix = name.partition(".")
        return f"{stem}-{self.number}{dot}{suffix}" if self.number else name

    @staticmethod
    def every(name: str) -> str:
        """A pattern of that file's names for all processes."""
        stem, dot, suffix = name.partition(".")
        return f"{stem}*{dot}{suffix}"


ALONE = Place()
LEDGER = "ledger.db"


@asynccontextmanager
async def open_ground(
    job: Job,
    environment: Mapping[str, str],
    settings: Settings,
    place: Place = ALONE,
    *,
    repeats: int = 1,
) -> AsyncGenerator[Ground]:
    """A job's items, pool and ledger, in its folder.

    *repeats* is how often live workers may be asked the same, with all replies kept.

    Raises:
        SettingsError, ManifestError, StoreError: something cannot be used; nothing is half-written.
        PoolSelectionError: the pool lacks a worker that is named.
    """
    items = load_items(job)
    if told := missing(items):
        raise SettingsError(told)
    job.folder.mkdir(parents=True, exist_ok=True)
    async with (
        _pools(job, items, environment, settings, place, repeats) as (pool, *again),
        open_store(job.folder / place.file(LEDGER)) as store,
    ):
        asked = replace(_trained_on(pool, job.workers.only), asked=Asked.of(job.asked))
        purse = await _purse(job, store, place) if job.max_usd else None
        scoring = Environment(
            store,
            judges=Judges(seconds=job.judge_seconds),
            rewards=job.rewards,
            max_steps=job.asked.plan_steps,
            max_seconds=job.rollout_seconds,
            purse=purse,
        )
        yield Ground(job, items, asked, scoring, tuple(again))


async def _purse(job: Job, own: Store, place: Place) -> Purse:
    """This process's part of what the job may spend, and of what all its processes have spent.

    Raises:
        StoreError: a ledger of theirs cannot be read.
    """
    assert job.max_usd is not None, "money is limited"
    spent = await own.spent_usd()
    for ledger in sorted(job.folder.glob(Place.every(LEDGER))):
        if ledger.name != place.file(LEDGER):
            async with open_store(ledger) as store:
                spent += await store.spent_usd()
    return Purse(job.max_usd / place.of, job.workers.parallel, spent / place.of)


def _trained_on(pool: Pool, only: tuple[str, ...]) -> Pool:
    """Who does the steps; the plans are the policy's."""
    return (pool.allowed(workers=only) if only else pool).without_planner()


@asynccontextmanager
async def _pools(
    job: Job,
    items: tuple[Item, ...],
    environment: Mapping[str, str],
    settings: Settings,
    place: Place,
    repeats: int,
) -> AsyncGenerator[tuple[Pool, ...]]:
    workers = job.workers
    if workers.simulated:
        simulation = Simulation.of(items, seed=workers.seed)
        simulated = tuple(simulation.worker(skills) for skills in workers.simulated)
        yield (Pool(workers=simulated, conductor=simulated[0].card.name),)
    elif workers.profiled:
        yield (profiled_pool(workers.profiled),)
    elif workers.recorded:
        yield (replay_pool(workers.recorded),)
    else:
        assert workers.manifest is not None, "one of them is given"
        opening = open_pool(
            load_manifest(workers.manifest),
            env=environment,
            models_dir=settings.models_dir,
            state_dir=settings.state_dir,
            memory_limit_bytes=int(settings.local_memory_gb * 2**30),
            threads=settings.local_threads,
            notify=say,
            profiles=settings.profiles_dir,
        )
        names = (REPLIES, *(f"replies_{n}.jsonl" for n in range(2, repeats + 1)))
        async with AsyncExitStack() as stack:
            live = await stack.enter_async_context(opening)
            files = (job.folder / place.file(name) for name in names)
            kept = [await stack.enter_async_context(cached(live, file)) for file in files]
            yield tuple(kept)
