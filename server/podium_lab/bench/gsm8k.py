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
from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.resources import as_file, files
from pathlib import Path

import anyio
from anyio import to_thread
from pydantic import BaseModel

from podium.cli.compose import Podium, open_podium
from podium.config import load_settings
from podium.trace import RunRequest
from podium_lab.bench.live import ask
from podium_lab.bench.scoring import last_number, median, plain_number, sign_test, wilson
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


class Result(Frozen):
    """One problem answered in one way."""

    item: str
    way: str
    right: bool
    expected: str
    found: str
    """The number that the answer comes to; empty when there is none."""
    status: str
    """How the run ended."""
    plan_source: str
    workers: tuple[str, ...]
    """Who did the steps."""
    in_words: bool = False
    """Whether a step of the program worker shows no program, since none gave a result."""
    seconds: float
    input_tokens: int
    output_tokens: int
    run_id: str


async def run_item(podium: Podium, problem: Problem, name: str) -> Result:
    """Ask one problem in one way and judge the answer."""
    way = WAYS[name]
    request = RunRequest(question=problem.question, strategy=way.strategy, workers=way.workers)
    seen = await ask(podium, request)
    expected, found = plain_number(problem.answer), last_number(seen.answer)
    done = [step for step in seen.steps if step.status == "finished"]
    return Result(
        item=problem.id,
        way=name,
        right=found == expected,
        expected=expected,
        found=found,
        status=seen.status,
        plan_source=seen.plan_source or "none",
        workers=tuple(step.worker for step in done),
        in_words=any(step.worker == PROGRAM and "```python" not in step.reply for step in done),
        seconds=seen.seconds,
        input_tokens=seen.usage.input_tokens,
        output_tokens=seen.usage.output_tokens,
        run_id=seen.run_id,
    )


async def measure(
    podiums: Mapping[str, Podium], ways: Sequence[str], problems: Sequence[Problem], out: Path
) -> None:
    """Answer every problem in every way, unless *out* has that already; append each result.

    Problem by problem, so that a file of a command that was stopped compares the same ones.
    """
    done = {(result.item, result.way) for result in await to_thread.run_sync(resumed, out)}
    for problem in problems:
        for name in ways:
            if (problem.id, name) in done:
                continue
            result = await run_item(podiums[WAYS[name].pool], problem, name)
            with out.open("a", encoding="utf-8") as file:
                file.write(result.model_dump_json() + "\n")
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


def resumed(path: Path) -> tuple[Result, ...]:
    """The results of a file to which more are to be added; none where there is no file yet.

    A last line that was cut off when its command died is taken away.
    """
    if not path.exists():
        return ()
    text = path.read_bytes()
    path.write_bytes(text[: text.rfind(b"\n") + 1])
    return read(path)


def read(path: Path) -> tuple[Result, ...]:
    """The results of a file."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return tuple(Result.model_validate_json(line) for line in lines)


def problems_in(path: Path, *, first: int, count: int) -> tuple[Problem, ...]:
    """Some problems of the data, by their place in it."""
    lines = path.read_text(encoding="utf-8").splitlines()[first : first + count]
    return tuple(Problem.model_validate(json.loads(line)) for line in lines)


def compared(results: Sequence[Result]) -> tuple[Result, ...]:
    """Those of the problems that were answered in every way that occurs."""
    ways = {result.way for result in results}
    answered = Counter(result.item for result in results)
    return tuple(result for result in results if answered[result.item] == len(ways))


def table(results: Sequence[Result]) -> Iterator[str]:
    """Markdown: one row a way, then pairs against the first way on the same problems."""
    ways = [name for name in WAYS if any(result.way == name for result in results)]
    yield "| way | right | 95 % | seconds, median | tokens in | tokens out | steps |"
    yield "|---|---|---|---|---|---|---|"
    for name in ways:
        yield _row(name, [result for result in results if result.way == name])
    yield ""
    for name in ways[1:]:
        yield _pairs(results, name, ways[0])
    if len(ways) > 1:
        yield _either(results, ways[:2])


def _row(name: str, results: Sequence[Result]) -> str:
    right = sum(result.right for result in results)
    low, high = wilson(right, len(results))
    steps = Counter(worker for result in results for worker in result.workers)
    shown = ", ".join(f"{count} {worker}" for worker, count in steps.most_common())
    words = sum(result.in_words for result in results)
    return (
        f"| {name} | {right} of {len(results)} | {low:.0%} to {high:.0%} "
        f"| {median([result.seconds for result in results]):.0f} "
        f"| {sum(result.input_tokens for result in results)} "
        f"| {sum(result.output_tokens for result in results)} "
        f"| {shown}{f' ({words} in words)' if words else ''} |"
    )


def _pairs(results: Sequence[Result], name: str, base: str) -> str:
    own, other = _right(results, name), _right(results, base)
    both = own.keys() & other.keys()
    better = sum(own[item] and not other[item] for item in both)
    worse = sum(other[item] and not own[item] for item in both)
    chance = sign_test(better, worse)
    return (
        f"- {name} against {base}, on {len(both)} problems: right where {base} is wrong {better} "
        f"times, wrong where it is right {worse} times (sign test: p = {chance:.2f})."
    )


def _either(results: Sequence[Result], names: Sequence[str]) -> str:
    first, second = (_right(results, name) for name in names)
    both = first.keys() & second.keys()
    count = sum(first[item] or second[item] for item in both)
    return f"- {names[0]} or {names[1]} is right on {count} of {len(both)}."


def _right(results: Sequence[Result], name: str) -> dict[str, bool]:
    return {result.item: result.right for result in results if result.way == name}


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
        print("\n".join(table(compared(read(given.table)))))
    elif given.data and given.out:
        problems = problems_in(given.data, first=given.first, count=given.items)
        anyio.run(_measure, ways, problems, given.out)
    else:
        parser.error("name --data and --out, or --table")


if __name__ == "__main__":
    main()
