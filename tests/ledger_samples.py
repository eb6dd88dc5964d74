"""Stored things that tests of the ledger begin with, and a clock that they set."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from podium.plan import Plan, Proposal, Step
from podium.rows import put_texts
from podium.store import Store, text_hash
from podium.trace import CallRecord, Run, RunRequest, StepResult, TextFile
from podium_workers.worker import Price, WorkerCard

CARD = WorkerCard(
    name="solver",
    kind="scripted",
    model="solver-1",
    where="hosted",
    context_window=4096,
    price=Price(input=1.0, output=2.0),
)
PLAN = Plan(
    steps=(
        Step(worker="solver", subtask="Solve it."),
        Step(worker="checker", subtask="Check it.", access="all"),
    )
)
WRITTEN = Proposal(next=PLAN, source="model", raw_text="model_id = …", prompt_hash="abc")


FULL_REQUEST = RunRequest(
    question="Which file is longer?\n東京 🎉 \x00",
    files=(
        TextFile(name="a.txt", text="same text", bytes=9),
        TextFile(name="b.txt", text="same text", bytes=9),
        TextFile(name="c.txt", text="other", bytes=5),
    ),
    strategy="chain",
    conductor="solver",
    rounds=3,
    depth=2,
    workers=("solver", "checker"),
    exclude=("other",),
    local_only=True,
    max_seconds=1.5,
    follow_up="run-000000",
    earlier="What came before.",
)


class Clock:
    """Unix time as a test sets it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def a_run(run_id: str = "run-000001", **changes: object) -> Run:
    run = Run(
        run_id=run_id,
        principal="me",
        request=RunRequest(question=f"Question of {run_id}?"),
        pool=(CARD,),
        fence="f3nc3",
        seed=7,
        status="planned",
        created_at=100.0,
    )
    return run.model_copy(update=changes)


def a_step(number: int = 0, **changes: object) -> StepResult:
    result = StepResult(
        number=number,
        round=0,
        worker="solver",
        planned_worker="solver",
        subtask="Solve it.",
        access=(),
        status="finished",
        reply="42",
    )
    return result.model_copy(update=changes)


def a_call(call_id: str, run_id: str = "run-000001", **changes: object) -> CallRecord:
    record = CallRecord(
        call_id=call_id,
        run_id=run_id,
        round=0,
        step=0,
        worker="solver",
        model="solver-1",
        prompt="hash",
        status="finished",
    )
    return record.model_copy(update=changes)


async def stored(store: Store, run: Run, *proposals: Proposal) -> Run:
    """*run* in the ledger, with a round for each proposal."""
    await store.create_run(run)
    for number, proposal in enumerate(proposals):
        await store.save_round(run.run_id, number, proposal)
    return run


def damage(path: Path, table: str) -> None:
    """Overwrite the first page of a table in a ledger that nobody has open."""
    with closing(sqlite3.connect(path)) as connection:
        sql = "SELECT rootpage FROM sqlite_schema WHERE name = ?"
        (page,) = connection.execute(sql, (table,)).fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    with path.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(os.urandom(size))


async def put_text(store: Store, text: str) -> str:
    """Store a text that no record names yet; the name that it has."""
    await store.writer.do(lambda connection: put_texts(connection, [text]))
    return text_hash(text)
