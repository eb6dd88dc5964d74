"""Ledgers as earlier Podiums left them, and what is in them as today's Podium has to read it.

`tests/server/ledgers/format_N.sql` holds rows as format N wrote them. Such a file is never changed.
"""

from contextlib import closing
from pathlib import Path

from podium.database import connect
from podium.migrations import MIGRATIONS, migrate
from podium.plan import Accept, Cut, Plan, Proposal, Step
from podium.task_book import TaskRow, TaskState
from podium.trace import CallRecord, Failure, Run, RunRequest, StepResult, TextFile
from podium_workers.worker import Price, Prompt, Usage, WorkerCard

ROWS = Path(__file__).parent / "server" / "ledgers"

PROMPT = "fcc7feab18744154471fc58f17b4812c8e7caa333fb789382662bdb6732becd4"
REPLY = "b3906543d7edc3389be8ef99e0985c652a34a4e37b535422e90ab1829ec26dc7"
REASONING = "1e59f968e4cf921181be104348303357db3637f2c1a80cf6b1bc6e84bb958941"
TEXTS = {
    PROMPT: Prompt.of("Check it.", system="You check.").model_dump_json(),
    REPLY: "Neither.",
    REASONING: "Let me see.",
}
SOLVER = WorkerCard(
    name="solver", kind="openai", model="solver-1", where="hosted", context_window=4096,
    price=Price(input=1.0, output=2.0),
)  # fmt: skip
CHECKER = WorkerCard(
    name="checker", kind="local", model="checker-1", where="local", context_window=8192,
    price=None, role="You check.",
)  # fmt: skip
OUTER = Run(
    run_id="a" * 16, principal="local", pool=(SOLVER, CHECKER), fence="f3nc3", seed=7,
    request=RunRequest(
        question="Which is longer?\n東京", files=(TextFile(name="a.txt", text="A file.", bytes=7),),
        conductor="solver", rounds=2, depth=1, workers=("solver", "checker"), max_seconds=60,
        follow_up="f0" * 8, earlier="What came before.",
    ),
    status="finished", created_at=1000.0, started_at=1001.0, finished_at=1009.5, worked_s=8.5,
    answer="Neither.", answer_step=1, notes=("A note.",),
)  # fmt: skip
INNER = Run(
    run_id="b" * 16, principal="local", pool=(SOLVER,), fence="1nn3r", seed=8, parent_id="a" * 16,
    request=RunRequest(question="Inner?", strategy="single"), status="failed", created_at=1003.0,
    started_at=1003.0, error=Failure(worker="solver", code="timeout", message="slow", status=504),
)  # fmt: skip
HELD = Run(
    run_id="c" * 16, principal="local", pool=(SOLVER,), fence="w41t", seed=9,
    request=RunRequest(question="Who knows?"), status="running", created_at=2000.0,
    started_at=2000.0, resumed_at=2000.0,
)  # fmt: skip
BUSY = Failure(worker="solver", code="overloaded", message="busy", status=529)
SPENT = Usage(input_tokens=30, cached_tokens=10, output_tokens=5, reasoning_tokens=2, cost_usd=None)
PROPOSALS = (
    Proposal(
        next=Plan(
            steps=(
                Step(worker="podium", subtask="Solve it."),
                Step(worker="checker", subtask="Check it.", access="all"),
            )
        ),
        source="model", raw_text="model_id = ...", worker="solver", prompt_hash="abc",
        refused=("Not a plan.",), cuts=(Cut(part="question", given=10, sent=5),),
    ),
    Proposal(next=Accept(step=1), source="model"),
)  # fmt: skip
STEPS = (
    StepResult(
        number=0, round=0, worker="podium", planned_worker="podium", subtask="Solve it.",
        access=(), status="finished", reply="Both.", nested_run=INNER.run_id, seconds=1.5,
        started_at=1003.0, usage=Usage(input_tokens=3, output_tokens=4, cost_usd=0.5),
    ),
    StepResult(
        number=1, round=0, worker="checker", planned_worker="checker", subtask="Check.",
        access=(0,), status="stale", reply="Both?", prompt=PROMPT, window=(4000, 1.25),
    ),
    StepResult(
        number=1, version=1, round=0, worker="solver", planned_worker="checker",
        subtask="Check it.", access="all", status="finished", reply="Neither.",
        finish_reason="stop", prompt=PROMPT, template="t3mp", final=True, window=(4000, 1.25),
        failures=(BUSY.model_copy(update={"worker": "checker"}),),
        cuts=(Cut(part="step:0", given=100, sent=50),), usage=SPENT, seconds=2.5,
        started_at=1005.0,
    ),
)  # fmt: skip
CALLS = (
    CallRecord(
        call_id="call-1", run_id=OUTER.run_id, round=0, step=None, worker="solver",
        model="solver-1", prompt=PROMPT, status="failed", error=BUSY, started_at=1001.0,
        seconds=0.5,
    ),
    CallRecord(
        call_id="call-2", run_id=OUTER.run_id, round=0, step=1, version=1, worker="solver",
        model="solver-1", prompt=PROMPT, request={"model": "solver-1", "max_output_tokens": 100},
        request_id="req-2", status="finished", reply=REPLY, reasoning=REASONING,
        served_by="solver-1-0613", usage=SPENT, finish_reason="stop", started_at=1005.0,
        seconds=2.5,
    ),
)  # fmt: skip
INNER_CALL = CallRecord(
    call_id="call-3", run_id=INNER.run_id, round=0, step=0, version=0, worker="solver",
    model="solver-1", prompt=PROMPT, status="running", started_at=1003.0,
    usage=Usage(input_tokens=1, cost_usd=0.25),
)  # fmt: skip

TASKS = (
    TaskRow(
        task_id="t4sk-done", principal="local", tool="orchestrate", run_id=OUTER.run_id,
        created_at=1000.0, updated_at=1009.5, expires_at=87400.0, asks=True, answered=("step-0",),
        outcome=TaskState(
            status="completed", message=f"Run {OUTER.run_id}: finished.", since=1009.5,
            result={
                "content": [{"type": "text", "text": "Neither."}], "isError": False,
                "resultType": "complete",
            },
        ).model_dump_json(),
    ),
    TaskRow(
        task_id="t4sk-open", principal="local", tool="run_step", run_id=HELD.run_id,
        created_at=2000.0, updated_at=2001.0, expires_at=88400.0, cancelled=True,
        answered=("step-0", "plan"), declined=("plan",),
    ),
)  # fmt: skip
"""From format 3 on."""


def make_earlier(path: Path, version: int) -> None:
    """A ledger of that format: rows of the first one, brought up to it as its users did."""
    with closing(connect(str(path), busy_timeout_s=5)) as connection:
        for reached in range(1, version + 1):
            migrate(connection, str(path), MIGRATIONS[:reached])
            rows = ROWS / f"format_{reached}.sql"
            if rows.exists():  # not every format writes anything that its earlier ones did not
                connection.executescript(rows.read_text(encoding="utf-8"))
