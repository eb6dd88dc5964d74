"""Who carries out which run, as statements on an open connection.

A lease has an epoch, which grows with every process that takes the run. Writing for a run names
the epoch, so that a process that was suspended and has lost the run can no longer write to it.
"""

import json
import sqlite3
from collections.abc import Iterable, Mapping

from podium.database import Value, execute, select
from podium.errors import LeaseLostError
from podium.queries import FAMILY, LINE
from podium_workers.worker import Frozen


class Held(Frozen):
    """A run that somebody carries out, or did when he died."""

    run_id: str
    owner: str
    until: float
    """Unix time at which the lease ends unless it is renewed."""
    epoch: int


class Lease(Frozen):
    """The right to carry out a run and the runs that are its steps."""

    run_id: str
    epoch: int


def holder(connection: sqlite3.Connection, run_id: str) -> Held | None:
    """Who carries out a run, or a run above it; None when nobody does."""
    sql = (
        f"{LINE} SELECT run_id, owner, lease_until AS until, epoch FROM runs "
        "WHERE run_id IN line AND owner IS NOT NULL LIMIT 1"
    )
    for row in select(connection, sql, {"run_id": run_id}):
        return Held.model_validate(row)
    return None


def running(connection: sqlite3.Connection) -> tuple[Held, ...]:
    """All runs that somebody carries out to their answer, as far as the ledger knows."""
    sql = (
        "SELECT run_id, owner, lease_until AS until, epoch FROM runs "
        "WHERE owner IS NOT NULL AND status = 'running' AND parent_id IS NULL ORDER BY id"
    )
    return tuple(map(Held.model_validate, select(connection, sql)))


def claim(
    connection: sqlite3.Connection,
    run_id: str,
    owner: str,
    over: Held | None,
    *,
    now: float,
    ttl_s: float,
) -> Lease | None:
    """Take a run that nobody has, or that is still exactly as *over* saw it."""
    above = (
        f"{LINE} SELECT 1 AS held FROM runs WHERE run_id IN line AND owner IS NOT NULL "
        "AND NOT (owner = :from_owner AND lease_until = :from_until)"
    )
    values: dict[str, Value] = {
        "run_id": run_id,
        "owner": owner,
        "until": now + ttl_s,
        "from_owner": over.owner if over else "",
        "from_until": over.until if over else 0.0,
    }
    if any(select(connection, above, values)):
        return None
    sql = (
        "UPDATE runs SET owner = :owner, lease_until = :until, epoch = epoch + 1, stop_asked = 0 "
        "WHERE run_id = :run_id RETURNING epoch"
    )
    row = execute(connection, sql, values).fetchone()
    if row is None:
        return None
    if over:
        _bury(connection, over, now)
    return Lease(run_id=run_id, epoch=row[0])


def _bury(connection: sqlite3.Connection, over: Held, now: float) -> None:
    """End what the process that is gone had begun: its calls may have been paid, so they count."""
    values = {"run_id": over.run_id, "until": min(over.until, now)}
    begun = f"{FAMILY} SELECT call_id FROM calls WHERE run_id IN family AND status = 'running'"
    ids = [call_id for (call_id,) in execute(connection, begun, values).fetchall()]
    named: dict[str, Value] = {"ids": json.dumps(ids)}
    these = "call_id IN (SELECT value FROM json_each(:ids))"
    execute(connection, f"UPDATE reservations SET kept = 1 WHERE {these}", named)
    unknown = (
        "CASE WHEN call_id IN (SELECT call_id FROM reservations WHERE nano_usd > 0) "
        "THEN NULL ELSE cost_usd END"
    )
    sql = f"UPDATE calls SET status = 'stopped', cost_usd = {unknown} WHERE {these}"
    execute(connection, sql, named)
    # The clock of its run went on until its lease ended, or until now, at the latest.
    worked = (
        "coalesce(json_extract(data, '$.worked_s'), 0.0) "
        "+ max(0.0, :until - json_extract(data, '$.resumed_at'))"
    )
    sql = (
        f"{FAMILY} UPDATE runs SET data = json_set(data, '$.worked_s', {worked}, "
        "'$.resumed_at', NULL) WHERE run_id IN family "
        "AND json_extract(data, '$.resumed_at') IS NOT NULL"
    )
    execute(connection, sql, values)
    # Where that was a run above the one that is taken.
    free = "UPDATE runs SET owner = NULL, lease_until = NULL WHERE run_id = :run_id"
    execute(connection, f"{free} AND epoch = :epoch AND owner = :owner", over.model_dump())


def check(connection: sqlite3.Connection, lease: Lease) -> None:
    """Refuse to go on with a run that another process has taken over.

    Raises:
        LeaseLostError: it has.
    """
    sql = "SELECT 1 FROM runs WHERE run_id = :run_id AND epoch = :epoch AND owner IS NOT NULL"
    if execute(connection, sql, lease.model_dump()).fetchone() is None:
        raise LeaseLostError(f"Run {lease.run_id} was taken over by another process.")


def renew(
    connection: sqlite3.Connection, owner: str, until: float, run_ids: Iterable[str]
) -> set[str]:
    """Prolong an owner's leases; gives back those of the runs that are still its own."""
    sql = (
        "UPDATE runs SET lease_until = :until WHERE owner = :owner "
        "AND run_id IN (SELECT value FROM json_each(:ids)) RETURNING run_id"
    )
    return _ids(connection, sql, {"owner": owner, "until": until, "ids": _listed(run_ids)})


def release(connection: sqlite3.Connection, lease: Lease) -> None:
    """Give a run up, if it has not been taken over."""
    sql = (
        "UPDATE runs SET owner = NULL, lease_until = NULL, stop_asked = 0 "
        "WHERE run_id = :run_id AND epoch = :epoch"
    )
    execute(connection, sql, lease.model_dump())


def ask_stop(connection: sqlite3.Connection, run_id: str) -> None:
    """Tell whoever carries out a run to stop it."""
    sql = "UPDATE runs SET stop_asked = 1 WHERE run_id = :run_id AND owner IS NOT NULL"
    execute(connection, sql, {"run_id": run_id})


def stops_asked(connection: sqlite3.Connection, owner: str) -> set[str]:
    """The runs of an owner that he has been told to stop."""
    sql = "SELECT run_id FROM runs WHERE owner = :owner AND stop_asked"
    return _ids(connection, sql, {"owner": owner})


def _ids(connection: sqlite3.Connection, sql: str, values: Mapping[str, Value]) -> set[str]:
    return {run_id for (run_id,) in execute(connection, sql, values).fetchall()}


def _listed(run_ids: Iterable[str]) -> str:
    return json.dumps(list(run_ids))
