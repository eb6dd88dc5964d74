"""A trained conductor on the pool of its training, live, through the server.

    python -m podium_lab.bench.trained local_pool.toml CONDUCTOR --out results.jsonl
    python -m podium_lab.bench.trained --table results.jsonl

The questions are the sealed test part of the job that profiled the pool (`workers.manifest`). Each
is asked of every worker alone, of the conductor that the pool names, prompted, and of the trained
one: a folder from `podium train export`, or a GGUF file. Each line is one run; a command
that was stopped goes on with what its file lacks.
"""

import argparse
import os
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
from anyio import to_thread

from podium.cli.compose import Podium, open_podium
from podium.config import Settings, load_settings
from podium.trace import RunRequest
from podium_lab.bench.answered import Answered, append, compared, read, resumed, table
from podium_lab.bench.live import ask
from podium_lab.train.config import Job, named_job
from podium_lab.train.items import Item, in_part
from podium_lab.train.judging import Judges
from podium_lab.train.opening import load_items
from podium_workers.manifest import load_manifest

TRAINED, PROMPTED = "trained conductor", "prompted conductor"


class Result(Answered):
    """One question answered in one way."""

    kind: str
    """Of the question."""
    answer: str
    planning_tokens: int = 0
    """Tokens, in and out, that the plan took; they are among those of the run."""

    @property
    def remark(self) -> str:
        return "" if self.plan_source in ("fixed", "model") else f"plan: {self.plan_source}"


@dataclass(frozen=True)
class Way:
    """A way to answer."""

    name: str
    podium: Podium
    strategy: str
    workers: tuple[str, ...]


async def measure(ways: Sequence[Way], items: Sequence[Item], out: Path) -> None:
    """Answer every item in every way, unless *out* has that already; append each result."""
    judges = Judges()
    done = {result.about for result in await to_thread.run_sync(resumed, out, Result)}
    for item in items:
        for way in ways:
            if (item.id, way.name) in done:
                continue
            result = await _answered(way, item, judges)
            await to_thread.run_sync(append, out, result)
            verdict = "right" if result.right else "wrong"
            print(f"{way.name} {item.kind}: {verdict}, {result.seconds:.0f} s", file=sys.stderr)


async def _answered(way: Way, item: Item, judges: Judges) -> Result:
    request = RunRequest(question=item.question, strategy=way.strategy, workers=way.workers)
    seen = await ask(way.podium, request)
    right = seen.status == "finished" and await judges.is_right(item, seen.answer)
    calls = await way.podium.store.calls(seen.run_id)
    planning = sum(
        call.usage.input_tokens + call.usage.output_tokens for call in calls if call.step is None
    )
    known = {"kind": item.kind, "answer": seen.answer, "planning_tokens": planning}
    return Result.of(seen, item.id, way.name, right=right, **known)


@asynccontextmanager
async def open_ways(
    job: Job, conductor: str, settings: Settings, environment: Mapping[str, str]
) -> AsyncGenerator[tuple[Way, ...]]:
    """Every worker of the job's pool alone, and both conductors over all of them."""
    assert job.workers.manifest is not None, "asked for by main"
    pool = settings.model_copy(update={"pool": job.workers.manifest})
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


async def _measure(job: Job, conductor: str, out: Path) -> None:
    settings = load_settings(os.environ).settings
    items = in_part(load_items(job), "test")
    async with open_ways(job, conductor, settings, os.environ) as ways:
        await measure(ways, items, out)


def told(results: Sequence[Result]) -> str:
    """The table, and how each way does with each kind of question."""
    ways = tuple(dict.fromkeys(result.way for result in results))
    order = (TRAINED, *(name for name in ways if name != TRAINED))
    kinds = sorted({result.kind for result in results})
    lines = [*table(results, order), "", "| way | " + " | ".join(kinds) + " | planning tokens |"]
    lines.append("|---" * (len(kinds) + 2) + "|")
    for name in order:
        own = [result for result in results if result.way == name]
        shares = [_share([it.right for it in own if it.kind == kind]) for kind in kinds]
        planning = sum(result.planning_tokens for result in own)
        lines.append(f"| {name} | " + " | ".join(shares) + f" | {planning} |")
    return "\n".join(lines)


def _share(rights: Sequence[bool]) -> str:
    return f"{sum(rights)} of {len(rights)}"


def main() -> None:
    """Measure, or print the table of a file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("job", nargs="?", type=Path, help="the job that profiled the pool")
    parser.add_argument("conductor", nargs="?", help="folder or GGUF file of the trained one")
    parser.add_argument("--out", type=Path, help="file to which results are appended")
    parser.add_argument("--table", type=Path, help="print the table of this file")
    given = parser.parse_args()
    if given.table:
        print(told(compared(read(given.table, Result))))
        return
    if not (given.job and given.conductor and given.out):
        parser.error("name a job, a conductor and --out, or --table")
    job = named_job(given.job)
    if job.workers.manifest is None:
        parser.error(f"{given.job}: workers.manifest is missing: its pool has to answer live")
    anyio.run(_measure, job, given.conductor, given.out)


if __name__ == "__main__":
    main()
