"""The questions that are asked of the ledger, each a function of an open connection.

Knows SQL and the layout of the tables; knows nothing of threads, files or writing.
"""

import itertools
import json
import sqlite3
from collections.abc import Sequence

from podium import rows, search
from podium.database import Row, Value, select
from podium.errors import QuestionError, RunError, StoreError
from podium.trace import CallRecord, Round, Run, RunStatus, RunSummary, StepResult
from podium_workers.worker import Frozen, Usage

NEWEST = 3
"""Ids that the error of an unknown one names."""
SHORTEST_PREFIX = 6
"""Characters of a run's id that are enough to name it, as long as they fit one run only."""
_SHOWN = 80
"""Characters that the error of an unknown id repeats of it."""
HISTORY = 200
"""How many of a worker's newest calls its history is made of."""
NEWEST_VERSION = (
    "version = (SELECT max(version) FROM steps AS every "
    "WHERE every.run_id = steps.run_id AND every.number = steps.number)"
)
"""Condition on `steps`: not replaced by a later version."""


class SearchHit(Frozen):
    """A run in which something was found."""

    summary: RunSummary
    snippet: str
    """The text around the place where it was found, on one line."""


class WorkerHistory(Frozen):
    """What a worker's recent finished calls were like; zeros when there are none."""

    mean_output_tokens: float = 0.0
    output_tokens_per_s: float = 0.0


class Filter(Frozen):
    """Which runs are asked for; None means any."""

    principal: str | None = None
    since: float | None = None
    """Made at this Unix time or later."""
    until: float | None = None
    """Made at this Unix time or earlier."""
    status: RunStatus | None = None
    nested: bool | None = None
    """Whether it is a step of another run."""

    def where(self) -> tuple[str, dict[str, Value]]:
        """The filter as a condition on `runs`, and the values in it.

        Raises:
            QuestionError: it begins later than it ends.
        """
        tests = {
            "principal": "runs.principal = :principal",
            "since": "runs.created_at >= :since",
            "until": "runs.created_at <= :until",
            "status": "runs.status = :status",
            "nested": "(runs.parent_id IS NOT NULL) = :nested",
        }
        if self.since is not None and self.until is not None and self.since > self.until:
            raise QuestionError("since", "is later than until; give the earlier date as since.")
        values: dict[str, Value] = self.model_dump(exclude_none=True)
        return " AND ".join(tests[name] for name in values) or "TRUE", values


def unknown_run(run_id: str, newest: Sequence[str] = ()) -> RunError:
    """The error of an id that is nobody's; *newest* are ids of whoever asks."""
    told = f" The newest are {', '.join(newest)}." if newest else ""
    shown = run_id if len(run_id) <= _SHOWN else f"{run_id[: _SHOWN - 1]}…"
    return RunError(
        f"There is no run {shown!r}; `podium runs` or search_runs lists "
        f"the ids ({SHORTEST_PREFIX} characters of one are enough).{told}"
    )


def newest_ids(connection: sqlite3.Connection, only: Filter) -> tuple[str, ...]:
    """A few ids of runs that were asked for, newest first."""
    where, values = only.where()
    sql = (
        f"SELECT run_id FROM runs WHERE {where} AND parent_id IS NULL "
        f"ORDER BY created_at DESC LIMIT {NEWEST}"
    )
    return tuple(str(row["run_id"]) for row in select(connection, sql, values))


def run(connection: sqlite3.Connection, run_id: str, only: Filter) -> Run:
    where, values = only.where()
    run_id = run_id.strip().lower()  # as ids are made; people copy them with what is around
    values |= {"id": run_id, "end": run_id + "\U0010ffff"}
    sql = (
        "SELECT * FROM runs WHERE (run_id = :id OR run_id > :id AND run_id < :end) "
        f"AND {where} ORDER BY run_id LIMIT 2"
    )
    found = list(select(connection, sql, values))
    if not found or (len(run_id) < SHORTEST_PREFIX and found[0]["run_id"] != run_id):
        raise unknown_run(run_id, newest_ids(connection, only))
    row = _the_one(run_id, found)
    sql = (
        "SELECT name, bytes, text FROM files JOIN blobs USING (sha) "
        "WHERE run_id = :run_id ORDER BY position"
    )
    return rows.run(row, select(connection, sql, {"run_id": row["run_id"]}))


def _the_one(run_id: str, found: Sequence[Row]) -> Row:
    if found[0]["run_id"] == run_id:
        return found[0]
    if len(found) > 1:
        raise RunError(
            f"Several runs begin with {run_id!r}, {found[0]['run_id']} and {found[1]['run_id']} "
            "among them; type more of the id."
        )
    return found[0]


def children(connection: sqlite3.Connection, run_id: str) -> tuple[Run, ...]:
    sql = "SELECT run_id FROM runs WHERE parent_id = :run_id ORDER BY id"
    ids = [str(row["run_id"]) for row in select(connection, sql, {"run_id": run_id})]
    return tuple(run(connection, child, Filter()) for child in ids)


def rounds(connection: sqlite3.Connection, run_id: str) -> tuple[Round, ...]:
    results = steps(connection, run_id, every_version=False)
    sql = "SELECT * FROM rounds WHERE run_id = :run_id ORDER BY number"
    return tuple(rows.round_(row, results) for row in select(connection, sql, {"run_id": run_id}))


def steps(
    connection: sqlite3.Connection, run_id: str, *, every_version: bool
) -> tuple[StepResult, ...]:
    which = "TRUE" if every_version else NEWEST_VERSION
    sql = f"SELECT * FROM steps WHERE run_id = :run_id AND {which} ORDER BY number, version"
    return tuple(map(rows.step, select(connection, sql, {"run_id": run_id})))


def calls(connection: sqlite3.Connection, run_id: str) -> tuple[CallRecord, ...]:
    sql = "SELECT * FROM calls WHERE run_id = :run_id ORDER BY started_at, id"
    return tuple(map(rows.call, select(connection, sql, {"run_id": run_id})))


def text(connection: sqlite3.Connection, sha: str) -> str:
    for row in select(connection, "SELECT text FROM blobs WHERE sha = :sha", {"sha": sha}):
        return str(row["text"])
    raise StoreError(f"The ledger holds no text {sha!r}; it was removed or never stored.")


def summaries(
    connection: sqlite3.Connection, only: Filter, now: float, *, limit: int
) -> tuple[RunSummary, ...]:
    where, values = only.where()
    where += " ORDER BY created_at DESC, id DESC LIMIT :limit"
    return _summaries(connection, where, values | {"limit": limit}, now)


def search_hits(
    connection: sqlite3.Connection, words: str, only: Filter, now: float, *, limit: int
) -> tuple[SearchHit, ...]:
    snippets = _first_hits(connection, words, only, limit, whole=True)
    if len(snippets) < limit:
        snippets = _first_hits(connection, words, only, limit, whole=False)
    these = "run_id IN (SELECT value FROM json_each(:ids))"
    found = _summaries(connection, these, {"ids": json.dumps(list(snippets))}, now)
    by_id = {summary.run_id: summary for summary in found}
    return tuple(SearchHit(summary=by_id[it], snippet=snippets[it]) for it in snippets)


def _first_hits(
    connection: sqlite3.Connection, words: str, only: Filter, limit: int, *, whole: bool
) -> dict[str, str]:
    hits = search.find(connection, words, *only.where(), whole=whole)
    return {hit.run_id: hit.excerpt for hit in itertools.islice(hits, limit)}


def _summaries(
    connection: sqlite3.Connection, where: str, values: dict[str, Value], now: float
) -> tuple[RunSummary, ...]:
    sql = f"SELECT {rows.SUMMARY_COLUMNS} FROM runs WHERE {where}"
    found = list(select(connection, sql, values))
    sql = (
        "WITH RECURSIVE family (head, run_id) AS (SELECT value, value FROM json_each(:ids) UNION "
        "SELECT head, runs.run_id FROM runs JOIN family ON runs.parent_id = family.run_id) "
        f"SELECT head AS run_id, {rows.USAGE_COLUMNS} FROM calls JOIN family USING (run_id) "
        "GROUP BY head"
    )
    ids = {"ids": json.dumps([row["run_id"] for row in found])}
    spent = {row["run_id"]: rows.usage(row) for row in select(connection, sql, ids)}
    return tuple(rows.summary(row, spent.get(row["run_id"], Usage()), now) for row in found)


def usage(connection: sqlite3.Connection, run_id: str) -> Usage:
    sql = f"{FAMILY} SELECT {rows.USAGE_COLUMNS} FROM calls WHERE run_id IN family"
    (total,) = select(connection, sql, {"run_id": run_id})
    return rows.usage(total)


FAMILY = (
    "WITH RECURSIVE family (run_id) AS (SELECT :run_id UNION SELECT runs.run_id "
    "FROM runs JOIN family ON runs.parent_id = family.run_id)"
)
"""A run and those below it: all that was paid for it."""
LINE = (
    "WITH RECURSIVE line (run_id) AS (SELECT :run_id UNION SELECT runs.parent_id "
    "FROM runs JOIN line ON runs.run_id = line.run_id WHERE runs.parent_id IS NOT NULL)"
)
"""A run and those above it: whoever holds one of these works on the nested run too."""


TOLD_WITHIN_S = 86_400.0
"""How long an answer that nobody was there to be told waits for the same question."""


def asked_before(connection: sqlite3.Connection, key: str, now: float) -> str | None:
    """The newest run for the same request, if it goes on, or nobody has been told its end.

    One that waits for its caller, or for a yes to its plan, goes on as well.
    """
    sql = (
        "SELECT run_id, status, owner, told, finished_at, created_at, status = 'needs_caller' OR "
        "status = 'planned' AND json_extract(request, '$.approve') = 'plan' AS waits "
        "FROM runs WHERE request_key = :key ORDER BY created_at DESC, id DESC LIMIT 1"
    )
    for row in select(connection, sql, {"key": key}):
        at_work = row["owner"] is not None or row["status"] == "running"
        ended = row["status"] in ("finished", "partial") and not row["told"]
        since = float(row["finished_at"] or row["created_at"] or 0.0)
        recent = now - since <= TOLD_WITHIN_S
        if at_work or ((ended or row["waits"]) and recent):
            return str(row["run_id"])
    return None


def worker_history(connection: sqlite3.Connection, worker: str, model: str) -> WorkerHistory:
    sql = (
        "SELECT coalesce(avg(output_tokens), 0) AS mean_output_tokens, "
        "coalesce(sum(output_tokens) / nullif(total(seconds), 0), 0) AS output_tokens_per_s "
        "FROM (SELECT * FROM calls WHERE worker = :worker AND model = :model "
        "AND status = 'finished' AND json_extract(data, '$.request.replayed') IS NOT TRUE "
        "ORDER BY started_at DESC LIMIT :newest)"
    )
    (figures,) = select(connection, sql, {"worker": worker, "model": model, "newest": HISTORY})
    return WorkerHistory.model_validate(figures)


def is_held(connection: sqlite3.Connection, run_id: str, now: float) -> bool:
    sql = f"{LINE} SELECT 1 AS held FROM runs WHERE run_id IN line AND lease_until > :now"
    return any(select(connection, sql, {"run_id": run_id, "now": now}))
