"""Which runs may leave the ledger, what they take up in it, and how they leave it.

Functions of an open connection. Knows nothing of files, processes or threads.
"""

import json
import sqlite3
from collections.abc import Iterable, Sequence
from typing import get_args

from podium.database import Value, execute, select
from podium.trace import RunStatus
from podium_workers.worker import Frozen

UNTOUCHED_S = 60.0
"""Seconds that a run has been left alone before it may go: it may be about to be begun."""

_DEAD = "dead"
"""Standing of a run whose process has died: others may still take it over."""
_AT_WORK = "at work"

_LAST_AT = """max(
    created_at, coalesce(started_at, 0.0), coalesce(finished_at, 0.0),
    coalesce((SELECT max(calls.started_at) FROM calls WHERE calls.run_id = runs.run_id), 0.0)
)"""
"""When something was last done for a run."""

_STANDINGS = f"""
WITH RECURSIVE owned (run_id, until) AS (
    SELECT run_id, coalesce(lease_until, 0.0) FROM runs WHERE owner IS NOT NULL
    UNION
    SELECT parent_id, until FROM runs JOIN owned USING (run_id) WHERE parent_id IS NOT NULL
),
standings AS (
    SELECT id, run_id, principal, question, created_at, {_LAST_AT} AS last_at,
        CASE
            WHEN run_id IN (SELECT run_id FROM owned WHERE until > :now) THEN '{_AT_WORK}'
            WHEN status = 'running' OR run_id IN (SELECT run_id FROM owned) THEN '{_DEAD}'
            ELSE status
        END AS standing
    FROM runs WHERE parent_id IS NULL
)
"""
"""Every run that is no step of another, and how it stands: a run holds all that is below it."""

_REFERENCES = (
    ("steps", "prompt", "prompt <> ''"),
    ("calls", "prompt", "prompt <> ''"),
    ("calls", "reply", "reply IS NOT NULL"),
    ("calls", "json_extract(data, '$.reasoning')", "json_extract(data, '$.reasoning') IS NOT NULL"),
    ("files", "sha", "TRUE"),
)
"""Wherever a record names a stored text: table, expression, and which rows have one."""

_FAMILIES = """
families (head, run_id) AS (
    SELECT id, run_id FROM runs WHERE parent_id IS NULL
    UNION ALL
    SELECT head, runs.run_id FROM runs JOIN families ON runs.parent_id = families.run_id
)
"""
"""Every run with the row id of the run at the top of it."""

# What a row takes beside its texts: its keys, again in its indexes, and their overhead.
_RUN_BYTES, _STEP_BYTES, _CALL_BYTES, _OTHER_BYTES = 400, 300, 450, 200


class Wanted(Frozen):
    """Which runs are to go: those that are too old, and the oldest of a ledger that is too big.

    Without either limit, all of them.
    """

    principal: str | None = None
    """Only this one's; None means everybody's."""
    before: float | None = None
    """Those that were last worked on before this Unix time."""
    keep_bytes: int | None = None
    """As many of the oldest as it takes to leave a ledger of this size."""
    statuses: tuple[RunStatus, ...] = ()
    """Empty means all but those that wait for the caller and those whose process has died."""


class OldRun(Frozen):
    """A run that may go, together with the runs that are its steps."""

    run_id: str
    status: RunStatus
    question: str
    created_at: float
    last_at: float
    """Unix time at which something was last done for it."""
    bytes: int
    """About what its going frees."""


class Room(Frozen):
    """The bytes of a ledger: those in use, and those that are free for what is stored next."""

    used: int
    free: int


def removable(connection: sqlite3.Connection, wanted: Wanted, now: float) -> tuple[OldRun, ...]:
    """The runs that are to go, the one that lay untouched longest first."""
    weights = _weights(connection)
    ledger = room(connection).used
    # Weights count what is stored; pages are never quite full, and the search has its own index.
    share = (ledger - _empty_bytes(connection)) / max(1, sum(weights.values()))
    to_free = _to_free(wanted, ledger, weights.get(None, 0) * share)
    old_before = float("-inf") if wanted.before is None else wanted.before
    found: list[OldRun] = []
    for row in _standing(connection, wanted, now):
        if to_free <= 0 and float(row["last_at"] or 0.0) >= old_before:
            break
        run_bytes = int(weights.get(row["id"], 0) * share)
        status = "interrupted" if row["standing"] == _DEAD else row["standing"]
        fields = {name: row[name] for name in ("run_id", "question", "created_at", "last_at")}
        found.append(OldRun.model_validate({**fields, "status": status, "bytes": run_bytes}))
        to_free -= run_bytes
    return tuple(found)


def remove(
    connection: sqlite3.Connection, runs: Sequence[OldRun], wanted: Wanted, now: float
) -> int:
    """Remove the runs that nobody has touched since, with all that is theirs; how many went.

    What they have cost stays on the account of its day.
    """
    last_at = {run.run_id: run.last_at for run in runs}
    still = _standing(connection, wanted, now, tuple(last_at))
    gone = [run_id for row in still if last_at[run_id := str(row["run_id"])] == row["last_at"]]
    values: dict[str, Value] = {"ids": json.dumps(gone)}
    execute(connection, _BOOK_RESERVED, values)
    execute(connection, f"DELETE FROM runs WHERE run_id IN ({_IDS})", values)
    return len(gone)


def unused_texts(connection: sqlite3.Connection) -> tuple[str, ...]:
    """Hashes of the texts that no record names."""
    named = " UNION ".join(
        f"SELECT {named} FROM {table} WHERE {there}" for table, named, there in _REFERENCES
    )
    sql = f"SELECT sha FROM blobs WHERE sha NOT IN ({named})"
    return tuple(sha for (sha,) in connection.execute(sql))


def remove_texts(connection: sqlite3.Connection, shas: Sequence[str]) -> int:
    """Remove those of the texts that still no record names; how many.

    A text comes into the ledger in the transaction of the record that names it.
    """
    named = " UNION ".join(
        f"SELECT {named} FROM {table} WHERE {there} AND {named} IN ({_IDS})"
        for table, named, there in _REFERENCES
    )
    sql = f"DELETE FROM blobs WHERE sha IN ({_IDS}) AND sha NOT IN ({named})"
    return execute(connection, sql, {"ids": json.dumps(shas)}).rowcount


def room(connection: sqlite3.Connection) -> Room:
    """How big the ledger is."""
    pages, free, size = (
        connection.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("page_count", "freelist_count", "page_size")
    )
    return Room(used=(pages - free) * size, free=free * size)


def _empty_bytes(connection: sqlite3.Connection) -> int:
    """What a ledger without a run would take up: every table and index has a page."""
    (trees,) = connection.execute("SELECT count(*) FROM sqlite_schema WHERE rootpage").fetchone()
    (size,) = connection.execute("PRAGMA page_size").fetchone()
    return trees * size


_IDS = "SELECT value FROM json_each(:ids)"
_BOOK_RESERVED = f"""
WITH RECURSIVE family (run_id) AS (
    {_IDS} UNION SELECT runs.run_id FROM runs JOIN family ON runs.parent_id = family.run_id
)
INSERT INTO budgets (scope, nano_usd)
SELECT scope, sum(reservations.nano_usd) FROM reservations JOIN calls USING (call_id)
WHERE run_id IN family GROUP BY scope
ON CONFLICT (scope) DO UPDATE SET nano_usd = nano_usd + excluded.nano_usd
"""
"""A call of unknown cost counts through its reservation, which goes with its run."""


def _standing(
    connection: sqlite3.Connection,
    wanted: Wanted,
    now: float,
    run_ids: Sequence[str] | None = None,
) -> Iterable[dict[str, Value]]:
    """Rows of the runs that may go, oldest first; with *run_ids*, only of these."""
    values: dict[str, Value] = {
        "now": now,
        "before": now - UNTOUCHED_S,
        "principal": wanted.principal,
        "standings": json.dumps(_allowed(wanted.statuses)),
        "ids": json.dumps(run_ids),
    }
    sql = (
        f"{_STANDINGS} SELECT * FROM standings WHERE last_at < :before "
        "AND (:principal IS NULL OR principal = :principal) "
        "AND standing IN (SELECT value FROM json_each(:standings)) "
        f"AND {'TRUE' if run_ids is None else f'run_id IN ({_IDS})'} ORDER BY last_at, id"
    )
    return select(connection, sql, values)


def _allowed(statuses: Sequence[RunStatus]) -> list[str]:
    if not statuses:
        return [it for it in get_args(RunStatus) if it not in ("running", "needs_caller")]
    named = [it for it in statuses if it != "running"]
    return [*named, _DEAD] if "interrupted" in named else [*named]


def _to_free(wanted: Wanted, ledger: int, unused: float) -> float:
    if wanted.keep_bytes is None:
        return 0.0 if wanted.before is not None else float("inf")
    return ledger - wanted.keep_bytes - unused


def _weights(connection: sqlite3.Connection) -> dict[Value, int]:
    """What each family of runs takes up, by the row id of its head; under None, unused texts.

    A text counts for the newest run that names it, since it goes with that one.
    """
    named = " UNION ALL ".join(
        f"SELECT run_id, {named} AS sha FROM {table} WHERE {there}"
        for table, named, there in _REFERENCES
    )
    tasks = (
        f"UNION ALL SELECT head, {_OTHER_BYTES} + {_bytes('outcome', 'data')} "
        "FROM tasks JOIN families USING (run_id)"
    )
    # A survey reads ledgers of earlier formats as they are.
    if not any(select(connection, "SELECT 1 AS there FROM sqlite_schema WHERE name = 'tasks'")):
        tasks = ""
    sql = f"""
WITH RECURSIVE {_FAMILIES},
last_named (sha, head) AS (
    SELECT sha, max(head) FROM ({named}) JOIN families USING (run_id) GROUP BY sha
),
parts (head, bytes) AS (
    SELECT head, {_RUN_BYTES} + {_bytes("question", "answer")} * 2
        + {_bytes("request", "pool", "data")} FROM runs JOIN families USING (run_id)
    UNION ALL SELECT head, {_OTHER_BYTES} FROM files JOIN families USING (run_id)
    UNION ALL
    SELECT head, {_OTHER_BYTES} + {_bytes("proposal")} FROM rounds JOIN families USING (run_id)
    UNION ALL  -- twice: what a step says is in the search as well
    SELECT head, {_STEP_BYTES} + {_bytes("data")} * 2 FROM steps JOIN families USING (run_id)
    UNION ALL SELECT head, {_CALL_BYTES} + {_bytes("data")} FROM calls JOIN families USING (run_id)
    {tasks}
    UNION ALL
    SELECT head, {_OTHER_BYTES} + {_bytes("text")} FROM blobs LEFT JOIN last_named USING (sha)
)
SELECT head, sum(bytes) AS bytes FROM parts GROUP BY head
"""
    return {row["head"]: int(row["bytes"] or 0) for row in select(connection, sql)}


def _bytes(*columns: str) -> str:
    """SQL for the bytes in some columns of text."""
    return "(" + " + ".join(f"coalesce(length(CAST({it} AS BLOB)), 0)" for it in columns) + ")"
