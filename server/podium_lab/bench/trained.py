"""A trained conductor on the pool of its training, live, through the server.

    python -m podium_lab.bench.trained local_pool.toml CONDUCTOR --out results.jsonl
    python -m podium_lab.bench.trained --table results.jsonl

The questions are the sealed test part of the job that profiled the pool (`workers.manifest`). Each
is asked of every worker alone, of the conductor that the pool names, prompted, and of the trained
one: a folder from `podium train export`, or a GGUF file. Each line is one run; a command
that was stopped goes on with what its file lacks, and asks again where a run failed or could not
be judged. That is one look at the sealed part, noted in the job's folder; another file or
conductor is a second look, and needs --again.
"""

import argparse
import os
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import anyio
from anyio import to_thread

from podium.cli.compose import Podium, open_podium
from podium.config import Settings, load_settings
from podium.trace import RunRequest
from podium_lab.bench.answered import append, read, resumed
from podium_lab.bench.live import ask
from podium_lab.bench.sealed import Seal
from podium_lab.bench.trained_table import PROMPTED, TRAINED, UNDECIDED, Result, answers, told
from podium_lab.train.config import Job, named_job
from podium_lab.train.environment import Score
from podium_lab.train.errors import TrainingError
from podium_lab.train.items import Item, in_part
from podium_lab.train.judging import JudgeError, Judges
from podium_lab.train.opening import load_items
from podium_workers.manifest import load_manifest
from podium_workers.worker import Usage


@dataclass(frozen=True)
class Way:
    """A way to answer."""

    name: str
    podium: Podium
    strategy: str
    workers: tuple[str, ...]


async def measure(
    ways: Sequence[Way],
    items: Sequence[Item],
    out: Path,
    judges: Judges | None = None,
    *,
    parallel: int = 1,
) -> None:
    """Ask every item in every way, unless *out* has its answer already; append each result.

    So many are asked at a time. Each then takes longer; what is answered stays the same as far as
    the servers of the models let it.
    """
    judges = judges or Judges()
    kept = answers(await to_thread.run_sync(resumed, out, Result))
    done = {result.about for result in kept}
    limiter, appending = anyio.CapacityLimiter(parallel), anyio.Lock()

    async def answer(way: Way, item: Item) -> None:
        async with limiter:
            found = await _asked(way, item, judges)
        result = found.model_copy(update={"part": len(items)})
        async with appending:
            await to_thread.run_sync(append, out, result)
        judged = "right" if result.right else "wrong"
        verdict = judged if result.is_answer else f"{result.status}, to be asked again"
        print(f"{way.name} {item.kind}: {verdict}, {result.seconds:.0f} s", file=sys.stderr)

    async with anyio.create_task_group() as group:
        for item, way in product(items, ways):
            if (item.id, way.name) not in done:
                group.start_soon(answer, way, item)


async def _asked(way: Way, item: Item, judges: Judges) -> Result:
    request = RunRequest(question=item.question, strategy=way.strategy, workers=way.workers)
    seen = await ask(way.podium, request)
    calls = await way.podium.store.calls(seen.run_id)
    planning = sum(
        call.usage.input_tokens + call.usage.output_tokens for call in calls if call.step is None
    )
    rounds = await way.podium.store.rounds(seen.run_id)
    proposals = [it.proposal for it in rounds if it.plan]
    known = {
        "kind": item.kind,
        "answer": seen.answer,
        "planning_tokens": planning,
        "planner": proposals[-1].worker if proposals else "",
        "stood_in": any(proposal.failed for proposal in proposals),
    }
    right = False
    if seen.status == "finished":
        try:
            right = await judges.is_right(item, seen.answer)
        except JudgeError as error:
            print(f"{way.name} {item.kind}: {error}", file=sys.stderr)
            known["status"] = UNDECIDED
    return Result.of(seen, item.id, way.name, right=right, **known)


@asynccontextmanager
async def open_ways(
    job: Job, conductor: str, settings: Settings, environment: Mapping[str, str]
) -> AsyncGenerator[tuple[Way, ...]]:
    """Every worker of the job's pool alone, and both conductors over all of them.

    Only the trained one is asked as *conductor*, whatever the user's own settings lead a pool by.
    """
    assert job.workers.manifest is not None, "asked for by main"
    pool = settings.model_copy(update={"pool": job.workers.manifest, "conductor": None})
    led = pool.model_copy(update={"conductor": conductor})
    names = job.workers.only or tuple(it.name for it in load_manifest(job.workers.manifest).doers)
    async with AsyncExitStack() as stack:
        plain = await stack.enter_async_context(open_podium(pool, environment))
        trained = await stack.enter_async_context(open_podium(led, environment))
        yield (
            *(Way(name, plain, "single", (name,)) for name in names),
            Way(PROMPTED, plain, "conductor", names),
            Way(TRAINED, trained, "conductor", names),
        )


async def _measure(job: Job, seal: Seal, parallel: int) -> None:
    settings = load_settings(os.environ).settings
    items = in_part(load_items(job), "test")
    async with open_ways(job, seal.conductor, settings, os.environ) as ways:
        seal.open()
        judges = Judges(seconds=job.judge_seconds)
        await measure(ways, items, seal.out, judges, parallel=parallel)
    seal.note(scores(read(seal.out, Result)))


def scores(results: Sequence[Result]) -> tuple[Score, ...]:
    """The trained conductor's answers, as the records of a training have them."""
    return tuple(
        Score(
            item=it.item, reward=float(it.right), valid=it.plan_source == "model", right=it.right,
            workers=it.workers, answer=it.answer, run_id=it.run_id,
            usage=Usage(input_tokens=it.input_tokens, output_tokens=it.output_tokens),
        )
        for it in answers(results) if it.way == TRAINED
    )  # fmt: skip


def main() -> None:
    """Measure, or print the table of a file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("job", nargs="?", type=Path, help="the job that profiled the pool")
    parser.add_argument("conductor", nargs="?", help="folder or GGUF file of the trained one")
    parser.add_argument("--out", type=Path, help="file to which results are appended")
    parser.add_argument("--again", action="store_true", help="open the sealed part once more")
    parser.add_argument("--parallel", type=int, default=1, help="runs at a time")
    parser.add_argument("--table", type=Path, help="print the table of this file")
    given = parser.parse_args()
    if given.table:
        print(told(read(given.table, Result)))
        return
    if not (given.job and given.conductor and given.out):
        parser.error("name a job, a conductor and --out, or --table")
    job = named_job(given.job)
    if job.workers.manifest is None:
        parser.error(f"{given.job}: workers.manifest is missing: its pool has to answer live")
    if given.parallel < 1:
        parser.error("--parallel: one run at a time is the least")
    seal = Seal(job.folder, given.conductor, given.out)
    try:
        seal.check(again=given.again)
    except TrainingError as error:
        parser.error(str(error))
    anyio.run(_measure, job, seal, given.parallel)


if __name__ == "__main__":
    main()
