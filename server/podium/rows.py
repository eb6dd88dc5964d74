"""How the data of a run lies in the tables of the ledger, and how it is read back.

What is asked for by the database has a column of its own; the rest of an object is JSON in its
`data` column. Nothing is in both places.
"""

import hashlib
import json
import sqlite3
from collections.abc import Iterable, Mapping
from typing import TypeVar

from pydantic import JsonValue, ValidationError

from podium.database import Row, Value, execute
from podium.errors import PlanError, StoreError
from podium.plan import Plan, Proposal
from podium.trace import CallRecord, Round, Run, RunSummary, StepResult, seconds_of
from podium_workers.worker import Frozen, Usage, mend

Model = TypeVar("Model", bound=Frozen)

_RUN_COLUMNS = (
    "run_id", "principal", "parent_id", "status", "created_at", "started_at", "finished_at",
    "answer",
)  # fmt: skip
_FIXED_COLUMNS = ("principal", "parent_id", "created_at", "question", "strategy", "request")
_STEP_COLUMNS = (
    "number", "version", "round", "worker", "planned_worker", "status", "prompt", "nested_run",
)  # fmt: skip
_CALL_COLUMNS = (
    "call_id", "run_id", "round", "step", "version", "worker", "model", "status", "prompt",
    "reply", "request_id", "finish_reason", "started_at", "seconds",
)  # fmt: skip
_USAGE_COLUMNS = tuple(Usage.model_fields)
_SUMMARY_COLUMNS = (
    "run_id", "status", "question", "policy", "plan_source", "steps", "rounds", "created_at",
    "parent_id",
)  # fmt: skip

_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))

SUMMARY_COLUMNS = """
    runs.id, runs.run_id, runs.status, runs.question, runs.strategy AS policy, runs.created_at,
    runs.lease_until, runs.parent_id,
    coalesce(json_extract(runs.data, '$.worked_s'), 0.0) AS worked_s,
    json_extract(runs.data, '$.resumed_at') AS resumed_at,
    (SELECT source FROM rounds WHERE rounds.run_id = runs.run_id AND steps > 0
        ORDER BY number DESC LIMIT 1) AS plan_source,
    EXISTS (SELECT 1 FROM rounds WHERE rounds.run_id = runs.run_id AND source = 'fallback')
        OR EXISTS (SELECT 1 FROM steps WHERE steps.run_id = runs.run_id
            AND worker <> planned_worker) AS fallback,
    (SELECT coalesce(sum(steps), 0) FROM rounds WHERE rounds.run_id = runs.run_id) AS steps,
    (SELECT count(*) FROM rounds WHERE rounds.run_id = runs.run_id AND steps > 0) AS rounds
"""
"""What `summary` reads of a run, beside its usage."""

USAGE_COLUMNS = """
    coalesce(sum(input_tokens), 0) AS input_tokens,
    coalesce(sum(cached_tokens), 0) AS cached_tokens,
    coalesce(sum(output_tokens), 0) AS output_tokens,
    coalesce(sum(reasoning_tokens), 0) AS reasoning_tokens,
    CASE WHEN count(*) = count(cost_usd) THEN total(cost_usd) END AS cost_usd
"""
"""What `usage` reads of some calls: their sum, without a cost when that of any is unknown."""


def sha(text: str) -> str:
    """The name of a stored text."""
    return hashlib.sha256(mend(text).encode()).hexdigest()


def put_texts(connection: sqlite3.Connection, texts: Iterable[str]) -> None:
    """Store texts under their names; the same text is stored once.

    In the transaction of the record that names them: a text that nothing names is in the way.
    """
    sql = "INSERT OR IGNORE INTO blobs (sha, text) VALUES (:sha, :text)"
    for text in texts:
        execute(connection, sql, {"sha": sha(text), "text": text})


def run_row(run: Run) -> Row:
    row = _columns(run, _RUN_COLUMNS)
    row["strategy"] = run.request.strategy
    row["question"] = run.request.question
    row["request"] = _json(run.request.model_dump(mode="json", exclude={"question", "files"}))
    row["pool"] = _json([card.model_dump(mode="json") for card in run.pool])
    row["data"] = _data(run, {*_RUN_COLUMNS, "request", "pool"})
    return row


def run_changes(run: Run) -> Row:
    """What of a run's row may change after it was made."""
    return {name: value for name, value in run_row(run).items() if name not in _FIXED_COLUMNS}


def file_rows(run: Run) -> list[Row]:
    """A run's files in order; their texts are blobs."""
    return [
        {"run_id": run.run_id, "position": at, "name": file.name, "bytes": file.bytes,
         "sha": sha(file.text)}
        for at, file in enumerate(run.request.files)
    ]  # fmt: skip


def run(row: Row, files: Iterable[Row]) -> Run:
    """A run from its row and its files' rows (name, bytes, text)."""
    what = f"Run {row['run_id']}"
    request = _object(what, row["request"])
    request |= {"question": row["question"], "files": [dict(file) for file in files]}
    pool = _parsed(what, row["pool"])
    return _read(Run, what, row, _RUN_COLUMNS, {"request": request, "pool": pool})


def round_row(run_id: str, number: int, proposal: Proposal) -> Row:
    plan = proposal.next
    return {
        "run_id": run_id, "number": number, "source": proposal.source,
        "steps": len(plan.steps) if isinstance(plan, Plan) else 0,
        "proposal": _json(proposal.model_dump(mode="json")),
    }  # fmt: skip


def round_(row: Row, results: tuple[StepResult, ...]) -> Round:
    """A round from its row, with those of *results* that are its own."""
    what = f"Round {row['number']} of run {row['run_id']}"
    proposal = _parsed(what, row["proposal"])
    own = tuple(result for result in results if result.round == row["number"])
    return _built(Round, what, {"number": row["number"], "proposal": proposal, "results": own})


def step_row(run_id: str, result: StepResult) -> Row:
    row = _columns(result, _STEP_COLUMNS)
    return row | {"run_id": run_id, "data": _data(result, set(_STEP_COLUMNS))}


def step(row: Row) -> StepResult:
    what = f"Step {row['number']} of run {row['run_id']}"
    return _read(StepResult, what, row, _STEP_COLUMNS)


def call_row(record: CallRecord) -> Row:
    row = _columns(record, _CALL_COLUMNS) | _columns(record.usage, _USAGE_COLUMNS)
    row["data"] = _data(record, {*_CALL_COLUMNS, "usage"})
    return row


def call(row: Row) -> CallRecord:
    what = f"Call {row['call_id']} of run {row['run_id']}"
    return _read(CallRecord, what, row, _CALL_COLUMNS, {"usage": usage(row).model_dump()})


def usage(row: Row) -> Usage:
    return _built(Usage, "A usage", {name: row[name] for name in _USAGE_COLUMNS})


def summary(row: Row, spent: Usage, now: float) -> RunSummary:
    """One line of a list, from the columns of `SUMMARY_COLUMNS`."""
    # A process that died was at work until its lease ran out, at most.
    until = min(now, float(row["lease_until"] or now))
    resumed_at = None if row["resumed_at"] is None else float(row["resumed_at"])
    seconds = seconds_of(float(row["worked_s"] or 0.0), resumed_at, until)
    fields = {name: row[name] for name in _SUMMARY_COLUMNS}
    if row["status"] == "running" and row["lease_until"] and float(row["lease_until"]) <= now:
        fields["status"] = "interrupted"  # its process has died
    more = {"fallback": bool(row["fallback"]), "seconds": seconds, "usage": spent}
    return _built(RunSummary, f"Run {row['run_id']}", fields | more)


def _columns(model: Frozen, names: tuple[str, ...]) -> Row:
    return {name: getattr(model, name) for name in names}


def _data(model: Frozen, columns: set[str]) -> str:
    return _json(model.model_dump(mode="json", exclude=columns))


def _json(value: JsonValue) -> str:
    # By way of Python: pydantic's own writer refuses lone surrogates.
    return _ENCODER.encode(value)


def _parsed(what: str, text: Value) -> JsonValue:
    try:
        return json.loads(str(text))
    except ValueError as error:
        raise _unreadable(what, error) from error


def _object(what: str, text: Value) -> dict[str, JsonValue]:
    value = _parsed(what, text)
    if not isinstance(value, dict):
        raise _unreadable(what, ValueError("not an object"))
    return value


def _read(
    model: type[Model],
    what: str,
    row: Row,
    columns: tuple[str, ...],
    more: Mapping[str, object] | None = None,
) -> Model:
    fields = _object(what, row["data"]) | {name: row[name] for name in columns}
    return _built(model, what, {**fields, **(more or {})})


def _built(model: type[Model], what: str, fields: Mapping[str, object]) -> Model:
    try:
        return model.model_validate(fields)
    except (ValidationError, PlanError) as error:
        raise _unreadable(what, error) from error


def _unreadable(what: str, error: Exception) -> StoreError:
    reason = str(error).splitlines()
    return StoreError(
        f"{what} in the ledger cannot be read ({' '.join(reason[:3])}); it is damaged or was "
        "written by another version of Podium."
    )
