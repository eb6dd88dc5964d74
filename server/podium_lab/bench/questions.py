"""Strategies against each other on twelve questions and the local pool, with real models.

    python -m podium_lab.bench.questions --out results.jsonl conductor single chain
    python -m podium_lab.bench.questions --out results.jsonl --rounds 2 --hard conductor
    python -m podium_lab.bench.questions --table results.jsonl

Each line of the file is one run (live: real models answered); the tables are made from the file.
"""

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import anyio
from pydantic import JsonValue

from podium.cli.compose import Podium, open_podium
from podium.config import load_settings
from podium.trace import RunRequest
from podium.views import RunView
from podium_lab.bench.items import ITEMS, Item
from podium_lab.bench.live import ask
from podium_workers.worker import Frozen


class Result(Frozen):
    """One question answered by one strategy."""

    item: str
    kind: str
    strategy: str
    rounds: int
    right: bool
    first_right: bool
    """Whether the last reply of the first round was right."""
    plan_source: str
    plan: tuple[str, ...]
    """`worker(reads)` of each step."""
    seconds: float
    tokens: int
    answer: str
    run_id: str


async def run_item(podium: Podium, item: Item, strategy: str, rounds: int) -> Result:
    """Ask one question and judge the answer."""
    request = RunRequest(question=item.question, strategy=strategy, rounds=rounds)
    seen = await ask(podium, request)
    first = _first_reply(seen)
    return Result(
        item=item.name,
        kind=item.kind,
        strategy=strategy,
        rounds=rounds,
        right=item.is_right(seen.answer),
        first_right=item.is_right(first),
        plan_source=seen.plan_source or "none",
        plan=tuple(f"{step.round}:{step.worker}{step.access}" for step in seen.steps),
        seconds=seen.seconds,
        tokens=seen.usage.input_tokens + seen.usage.output_tokens,
        answer=seen.answer,
        run_id=seen.run_id,
    )


def _first_reply(seen: RunView) -> str:
    replies = [step.reply for step in seen.steps if step.round == 0 and step.status == "finished"]
    return replies[-1] if replies else ""


async def measure(strategies: Sequence[str], rounds: int, items: Sequence[Item], out: Path) -> None:
    """Run every item with every strategy, one after another; append each result to *out*."""
    settings = load_settings(os.environ).settings
    async with open_podium(settings, os.environ) as podium:
        for strategy in strategies:
            for item in items:
                result = await run_item(podium, item, strategy, rounds)
                with out.open("a", encoding="utf-8") as file:
                    file.write(result.model_dump_json() + "\n")
                verdict = "right" if result.right else "wrong"
                print(f"{strategy} {item.name}: {verdict}, {result.seconds:.0f} s", file=sys.stderr)


def read(path: Path) -> tuple[Result, ...]:
    """The results of a file."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return tuple(Result.model_validate_json(line) for line in lines)


def table(results: Sequence[Result]) -> Iterator[str]:
    """Markdown: one row a question, one column a strategy; then sums."""
    single_round = [result for result in results if result.rounds == 1]
    strategies = list(dict.fromkeys(result.strategy for result in single_round))
    yield "| question | kind | " + " | ".join(strategies) + " |"
    yield "|---|---|" + "---|" * len(strategies)
    found = {(result.item, result.strategy): result for result in single_round}
    for item in ITEMS:
        cells = [_cell(found.get((item.name, strategy))) for strategy in strategies]
        yield f"| {item.name} | {item.kind} | " + " | ".join(cells) + " |"
    sums = [_sum([r for r in single_round if r.strategy == strategy]) for strategy in strategies]
    yield "| **all** | | " + " | ".join(sums) + " |"


def _cell(result: Result | None) -> str:
    if result is None:
        return ""
    plan = " → ".join(step.split(":", 1)[1] for step in result.plan)
    verdict = "right" if result.right else "**wrong**"
    return f"{verdict}, {result.seconds:.0f} s, {len(result.plan)}: {plan}"


def _sum(results: Sequence[Result]) -> str:
    right = sum(result.right for result in results)
    seconds = sum(result.seconds for result in results)
    tokens = sum(result.tokens for result in results)
    return f"{right} of {len(results)}, {seconds:.0f} s, {tokens} tokens"


def transitions(results: Sequence[Result]) -> Iterator[str]:
    """What a second round did to right and wrong first ones."""
    again = [result for result in results if result.rounds > 1]
    names = {True: "right", False: "wrong"}
    counts = Counter((names[result.first_right], names[result.right]) for result in again)
    yield "| first round | second round | questions |"
    yield "|---|---|---|"
    for before in ("right", "wrong"):
        for after in ("right", "wrong"):
            yield f"| {before} | {after} | {counts[before, after]} |"
    accepted = sum(all(step.startswith("0:") for step in result.plan) for result in again)
    yield f"\nAccepted without a second plan: {accepted} of {len(again)}."


def adaptivity(results: Sequence[Result]) -> dict[str, JsonValue]:
    """Steps of the conductor's plans by kind of question."""
    own = [r for r in results if r.strategy == "conductor" and r.rounds == 1]
    return {
        "facts_one_step": sum(r.kind == "fact" and len(r.plan) == 1 for r in own),
        "facts": sum(r.kind == "fact" for r in own),
        "others_two_or_more": sum(r.kind != "fact" and len(r.plan) > 1 for r in own),
        "others": sum(r.kind != "fact" for r in own),
        "written_by_model": sum(r.plan_source == "model" for r in own),
    }


def main() -> None:
    """Measure, or print the tables of a file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("strategies", nargs="*", help="conductor, single, chain")
    parser.add_argument("--out", type=Path, help="file to which results are appended")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--hard", action="store_true", help="only the eight that are not facts")
    names = [item.name for item in ITEMS]
    parser.add_argument("--only", choices=names, action="append", help="only this question (again)")
    parser.add_argument("--table", type=Path, help="print the tables of this file")
    given = parser.parse_args()
    if given.table:
        results = read(given.table)
        print("\n".join(table(results)))
        print("\n" + json.dumps(adaptivity(results)))
        if any(result.rounds > 1 for result in results):
            print("\n" + "\n".join(transitions(results)))
    elif given.strategies and given.out:
        only = given.only or names
        items = [item for item in ITEMS if item.name in only and (item.hard or not given.hard)]
        anyio.run(measure, given.strategies, given.rounds, items, given.out)
    else:
        parser.error("name strategies and --out, or --table")


if __name__ == "__main__":
    main()
