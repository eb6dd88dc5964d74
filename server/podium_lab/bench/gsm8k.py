"""Word problems of GSM8K by the local pool: in words, by programs, by a chain, by the conductor.

    python -m podium_lab.bench.gsm8k --data gsm8k_test.jsonl --out results.jsonl
    python -m podium_lab.bench.gsm8k --data gsm8k_test.jsonl --out results.jsonl program --items 10
    python -m podium_lab.bench.gsm8k --table results.jsonl

Each line of the file is one run (live: real models answered). A command that was stopped goes on
with what its file lacks; the table is of the problems that have been answered in every way. The
data is a line of JSON for each problem, with `id`, `question` and `answer`. The prompts were tried
on problems from number 200 on, never on the first.
"""

import argparse
import json
import os
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.resources import as_file, files
from pathlib import Path

import anyio
from anyio import to_thread
from pydantic import BaseModel

from podium.cli.compose import Podium, open_podium
from podium.config import load_settings
from podium.trace import RunRequest
from podium_lab.bench.answered import Answered, append, compared, either, read, resumed, table
from podium_lab.bench.live import ask
from podium_lab.bench.scoring import last_number, plain_number
from podium_workers.worker import Frozen

STRONGEST = "qwen-1.5b"
PROGRAM = "program"
FIRST_ITEMS = 60


class Way(Frozen):
    """One way to answer: a pool that comes with Podium, a strategy, and whom it may ask."""

    pool: str
    strategy: str
    workers: tuple[str, ...] = ()


WAYS: Mapping[str, Way] = {
    "single": Way(pool="local", strategy="single", workers=(STRONGEST,)),
    "program": Way(pool="programs", strategy="single", workers=(PROGRAM,)),
    "chain": Way(pool="local", strategy="chain", workers=(STRONGEST,)),
    "conductor": Way(pool="local", strategy="conductor"),
    "conductor+program": Way(pool="programs", strategy="conductor"),
}


class Problem(BaseModel):
    """A problem of the data; other fields are left alone."""

    id: str
    question: str
    answer: str


class Result(Answered):
    """One problem answered in one way."""

    expected: str
    found: str
    """The number that the answer comes to; empty when there is none."""
    in_words: bool = False
    """Whether a step of the program worker shows no program, since none gave a result."""

    @property
    def remark(self) -> str:
        return "in words" if self.in_words else ""


async def run_item(podium: Podium, problem: Problem, name: str) -> Result:
    """Ask one problem in one way and judge the answer."""
    way = WAYS[name]
    request = RunRequest(question=problem.question, strategy=way.strategy, workers=way.workers)
    seen = await ask(podium, request)
    expected, found = plain_number(problem.answer), last_number(seen.answer)
    done = [step for step in seen.steps if step.status == "finished"]
    in_words = any(step.worker == PROGRAM and "```python" not in step.reply for step in done)
    known = {"expected": expected, "found": found, "in_words": in_words}
    return Result.of(seen, problem.id, name, right=found == expected, **known)


async def measure(
    podiums: Mapping[str, Podium], ways: Sequence[str], problems: Sequence[Problem], out: Path
) -> None:
    """Answer every problem in every way, unless *out* has that already; append each result.

    Problem by problem, so that a file of a command that was stopped compares the same ones.
    """
    done = {result.about for result in await to_thread.run_sync(resumed, out, Result)}
    for problem in problems:
        for name in ways:
            if (problem.id, name) in done:
                continue
            result = await run_item(podiums[WAYS[name].pool], problem, name)
            await to_thread.run_sync(append, out, result)
            verdict = (
                "right" if result.right else f"{result.found or 'nothing'}, not {result.expected}"
            )
            print(f"{name} {problem.id}: {verdict}, {result.seconds:.0f} s", file=sys.stderr)


@asynccontextmanager
async def open_podiums(
    environment: Mapping[str, str], ways: Sequence[str]
) -> AsyncGenerator[Mapping[str, Podium]]:
    """A Podium for each pool that *ways* need, by the pool's name."""
    settings = load_settings(environment).settings
    async with AsyncExitStack() as stack:
        podiums: dict[str, Podium] = {}
        for pool in dict.fromkeys(WAYS[name].pool for name in ways):
            manifest = files("podium_workers") / "pools" / f"{pool}.toml"
            path = stack.enter_context(as_file(manifest))
            chosen = settings.model_copy(update={"pool": path})
            podiums[pool] = await stack.enter_async_context(open_podium(chosen, environment))
        yield podiums


def problems_in(path: Path, *, first: int, count: int) -> tuple[Problem, ...]:
    """Some problems of the data, by their place in it."""
    lines = path.read_text(encoding="utf-8").splitlines()[first : first + count]
    return tuple(Problem.model_validate(json.loads(line)) for line in lines)


async def _measure(ways: Sequence[str], problems: Sequence[Problem], out: Path) -> None:
    async with open_podiums(os.environ, ways) as podiums:
        await measure(podiums, ways, problems, out)


def main() -> None:
    """Measure, or print the table of a file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("ways", nargs="*", metavar="WAY", help=f"all, or of {', '.join(WAYS)}")
    parser.add_argument("--data", type=Path, help="the problems")
    parser.add_argument("--out", type=Path, help="file to which results are appended")
    parser.add_argument("--first", type=int, default=0, help="number of the first problem")
    parser.add_argument("--items", type=int, default=FIRST_ITEMS, help="how many problems")
    parser.add_argument("--table", type=Path, help="print the table of this file")
    given = parser.parse_args()
    ways: list[str] = given.ways or list(WAYS)
    if unknown := [name for name in ways if name not in WAYS]:
        parser.error(f"there is no way {unknown[0]!r}; known are {', '.join(WAYS)}")
    if given.table:
        results = compared(read(given.table, Result))
        ways = [name for name in WAYS if any(result.way == name for result in results)]
        lines = [*table(results, ways), *([either(results, ways[:2])] if len(ways) > 1 else ())]
        print("\n".join(lines))
    elif given.data and given.out:
        problems = problems_in(given.data, first=given.first, count=given.items)
        anyio.run(_measure, ways, problems, given.out)
    else:
        parser.error("name --data and --out, or --table")


if __name__ == "__main__":
    main()
