"""How fast a ledger with very many runs is searched and listed.

python -m podium_lab.bench.engine.search --runs 100000
"""

import argparse
import json
import random
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import accumulate, product
from pathlib import Path

import anyio

from podium import rows, search
from podium.database import insert
from podium.plan import Plan, Proposal, Step
from podium.store import Store, open_store
from podium.trace import CallRecord, Run, RunRequest, StepResult
from podium_workers.worker import Price, Usage, WorkerCard

PRINCIPAL = "bench"
BATCH = 1000
"""Runs that are stored as one transaction."""
WORDS = 8000
LENGTHS = {"question": 20, "subtask": 12, "reply": 60}
"""Words of each kind of text."""
PLAN = Plan(
    steps=(
        Step(worker="solver", subtask="Solve it."),
        Step(worker="solver", subtask="Check it.", access=(0,)),
    )
)
CARD = WorkerCard(
    name="solver",
    kind="openai",
    model="simulated",
    where="hosted",
    context_window=8192,
    price=Price(input=1.0, output=2.0),
)


class Language:
    """Made-up words of which few are common and most are rare, as in real text."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        syllables = [a + b for a, b in product("bdfgklmnprstvz", "aeiou")]
        made = [a + b + c for a, b, c in product(syllables, repeat=3)]
        self.words = self._random.sample(made, WORDS)
        self._weights = list(accumulate(1 / rank for rank in range(1, WORDS + 1)))

    def text(self, kind: str) -> str:
        return " ".join(self.sample(LENGTHS[kind]))

    def sample(self, count: int) -> list[str]:
        """Words as they occur in texts."""
        return self._random.choices(self.words, cum_weights=self._weights, k=count)

    def anywhere(self) -> str:
        """A word, a rare one as likely as a common one."""
        return self._random.choice(self.words)


def fill(connection: sqlite3.Connection, language: Language, numbers: range) -> None:
    """Store finished runs, each with a plan, its steps and their calls."""
    for number in numbers:
        run = a_run(number, language)
        at = insert(connection, "runs", rows.run_row(run))
        search.put_question(connection, at, run.request.question, run.answer or "")
        proposal = Proposal(next=PLAN, source="fixed")
        insert(connection, "rounds", rows.round_row(run.run_id, 0, proposal))
        for step in range(len(PLAN.steps)):
            result = a_step(step, language)
            insert(connection, "steps", rows.step_row(run.run_id, result))
            search.put_step(connection, at, step, result.subtask, result.reply)
            insert(connection, "calls", rows.call_row(a_call(run.run_id, step)))


def a_run(number: int, language: Language) -> Run:
    return Run(
        run_id=f"{number:016x}",
        principal=PRINCIPAL,
        request=RunRequest(question=language.text("question"), strategy="fixed"),
        pool=(CARD,),
        fence="f3nc3",
        seed=number,
        status="finished",
        created_at=float(number),
        answer=language.text("reply"),
        answer_step=1,
    )


def a_step(number: int, language: Language) -> StepResult:
    return StepResult(
        number=number,
        round=0,
        worker="solver",
        planned_worker="solver",
        subtask=language.text("subtask"),
        access=PLAN.steps[number].access,
        status="finished",
        reply=language.text("reply"),
    )


def a_call(run_id: str, step: int) -> CallRecord:
    return CallRecord(
        call_id=f"{run_id}-{step}",
        run_id=run_id,
        round=0,
        step=step,
        worker="solver",
        model="simulated",
        prompt="",
        status="finished",
        usage=Usage(input_tokens=100, output_tokens=20, cost_usd=0.00014),
    )


async def measure(runs: int, queries: int, path: Path) -> dict[str, float | int]:
    """Milliseconds of searches for one and for two words, and of listing the newest runs."""
    language = Language(seed=7)
    begun = time.perf_counter()
    async with open_store(path) as store:
        for start in range(0, runs, BATCH):
            numbers = range(start, min(runs, start + BATCH))
            await store.writer.do(partial(fill, language=language, numbers=numbers))
        filled_s = time.perf_counter() - begun
        one = [language.sample(1)[0] for _ in range(queries // 2)]
        one += [language.anywhere() for _ in range(queries - len(one))]
        two = [" ".join(language.sample(2)) for _ in range(queries // 2)]
        two += [f"{language.sample(1)[0]} {language.anywhere()}" for _ in range(queries - len(two))]
        found: dict[str, float | int] = {"runs": runs, "filled_s": round(filled_s, 1)}
        found |= spread("one_word", await times(lambda text: search_in(store, text), one))
        found |= spread("two_words", await times(lambda text: search_in(store, text), two))
        newest = [""] * queries
        found |= spread("newest", await times(lambda _: list_newest(store), newest))
    size = (await anyio.Path(path).stat()).st_size
    found["file_mb"] = round(size / 2**20, 1)
    return found


async def search_in(store: Store, text: str) -> None:
    await store.search(text, principal=PRINCIPAL)


async def list_newest(store: Store) -> None:
    await store.summaries(principal=PRINCIPAL)


async def times(act: Callable[[str], Awaitable[None]], texts: Sequence[str]) -> list[float]:
    """Milliseconds that each took, one after another."""
    found: list[float] = []
    for text in texts:
        begun = time.perf_counter()
        await act(text)
        found.append((time.perf_counter() - begun) * 1000)
    return found


def spread(name: str, milliseconds: Sequence[float]) -> dict[str, float]:
    """Median, 95th percentile and worst."""
    ordered = sorted(milliseconds)
    return {
        f"{name}_p50_ms": round(statistics.median(ordered), 2),
        f"{name}_p95_ms": round(ordered[min(len(ordered) - 1, len(ordered) * 95 // 100)], 2),
        f"{name}_max_ms": round(ordered[-1], 2),
    }


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=200)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "podium.db"
        print(json.dumps(anyio.run(measure, given.runs, given.queries, path)))


if __name__ == "__main__":
    main()
