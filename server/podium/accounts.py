"""What runs and days have spent, and what is reserved for calls that are running.

Statements on an open connection; the caller's transaction makes looking and reserving one act, so
that calls made at the same time cannot pass a limit together.
"""

import json
import sqlite3
import time

from podium import rows
from podium.budget import NANO, Account, Amount, nano
from podium.database import Row, Value, execute, select, upsert
from podium.errors import RunError
from podium.queries import FAMILY, LINE
from podium.trace import CallRecord

_TOP = (
    f"{LINE} SELECT run_id, principal, json_extract(request, '$.max_usd') AS usd, "
    "json_extract(request, '$.max_tokens') AS tokens "
    "FROM runs WHERE run_id IN line AND parent_id IS NULL"
)
# A call counts as recorded once it is settled, and at its worst while nobody knows.
_SPENT = (
    f"{FAMILY} SELECT "
    "coalesce(sum(CASE WHEN held.call_id IS NULL "
    f"THEN CAST(round(coalesce(cost_usd, 0) * {NANO}) AS INTEGER) "
    "WHEN kept THEN held.nano_usd END), 0) AS usd, "
    "coalesce(sum(CASE WHEN held.call_id IS NULL THEN input_tokens + output_tokens "
    "WHEN kept THEN held.tokens END), 0) AS tokens, "
    "coalesce(sum(CASE WHEN NOT kept THEN held.nano_usd END), 0) AS usd_held, "
    "coalesce(sum(CASE WHEN NOT kept THEN held.tokens END), 0) AS tokens_held "
    "FROM calls LEFT JOIN reservations AS held USING (call_id) WHERE run_id IN family"
)
_DAY = (
    "SELECT coalesce((SELECT nano_usd FROM budgets WHERE scope = :scope), 0) "
    "+ coalesce(sum(CASE WHEN kept THEN nano_usd END), 0) AS usd, "
    "coalesce(sum(CASE WHEN NOT kept THEN nano_usd END), 0) AS usd_held "
    "FROM reservations WHERE scope = :scope"
)


def standing(
    connection: sqlite3.Connection, run_id: str, day_usd: float | None, now: float
) -> tuple[Account, ...]:
    """The limits of a run and of its day, and what stands against them; none when there are none.

    A run that is a step of another one stands under that one's limits.
    """
    return _standing(connection, _top(connection, run_id), day_usd, now)


def _standing(
    connection: sqlite3.Connection, top: Row, day_usd: float | None, now: float
) -> tuple[Account, ...]:
    accounts: list[Account] = []
    if top["usd"] is not None or top["tokens"] is not None:
        (row,) = select(connection, _SPENT, {"run_id": top["run_id"]})
        accounts += _of_run(top, row)
    if day_usd is not None:
        (row,) = select(connection, _DAY, {"scope": _scope(top, now)})
        accounts.append(
            Account(
                limit="day_usd",
                allowed=nano(day_usd),
                spent=int(row["usd"] or 0),
                held=int(row["usd_held"] or 0),
            )
        )
    return tuple(accounts)


def spent_usd(connection: sqlite3.Connection) -> float:
    """What all runs have cost; a call of which nobody knows counts at its worst."""
    sql = (
        "SELECT (SELECT coalesce(sum(nano_usd), 0) FROM budgets) "
        "+ (SELECT coalesce(sum(nano_usd), 0) FROM reservations) AS nano_usd"
    )
    (row,) = select(connection, sql)
    return int(row["nano_usd"] or 0) / NANO


def reserve(
    connection: sqlite3.Connection,
    record: CallRecord,
    amount: Amount,
    day_usd: float | None,
    now: float,
) -> bool:
    """Record a call that is about to be made, with what it may take; False if it passes a limit."""
    top = _top(connection, record.run_id)
    accounts = _standing(connection, top, day_usd, now)
    if any(account.part(amount) > account.left for account in accounts):
        return False
    put_call(connection, record)
    if amount.nano_usd or accounts:
        scope = _scope(top, now)
        row: Row = {"call_id": record.call_id, "scope": scope, **amount.model_dump(), "kept": 0}
        upsert(connection, "reservations", row, ("call_id",))
    return True


def take_up(connection: sqlite3.Connection, record: CallRecord, earlier: str) -> None:
    """Record a call that reads on in what an earlier one has paid: that one's place, and debt."""
    put_call(connection, record)
    named: dict[str, Value] = {"earlier": earlier, "call_id": record.call_id}
    sql = "UPDATE reservations SET call_id = :call_id, kept = 0 WHERE call_id = :earlier"
    execute(connection, sql, named)
    sql = (
        "UPDATE calls SET input_tokens = 0, cached_tokens = 0, output_tokens = 0, "
        "reasoning_tokens = 0, cost_usd = 0 WHERE call_id = :earlier"
    )
    execute(connection, sql, named)


def settle(connection: sqlite3.Connection, record: CallRecord, now: float) -> None:
    """Record a call that has ended, and book what it has cost on its day.

    Where that is unknown its reservation stays: the call may have cost as much.
    """
    put_call(connection, record)
    named: dict[str, Value] = {"call_id": record.call_id}
    cost = record.usage.cost_usd
    if cost is None:
        sql = "UPDATE reservations SET kept = 1 WHERE call_id = :call_id"
        execute(connection, sql, named)
        return
    sql = "DELETE FROM reservations WHERE call_id = :call_id RETURNING scope"
    row = execute(connection, sql, named).fetchone()
    if cost:
        scope = row[0] if row else _scope(_top(connection, record.run_id), now)
        _book(connection, scope, nano(cost))


def put_call(connection: sqlite3.Connection, record: CallRecord) -> None:
    """Record what is known of a call, in place of what was known of it before."""
    upsert(connection, "calls", rows.call_row(record), ("call_id",))


def _book(connection: sqlite3.Connection, scope: str, nano_usd: int) -> None:
    sql = (
        "INSERT INTO budgets (scope, nano_usd) VALUES (:scope, :nano_usd) "
        "ON CONFLICT (scope) DO UPDATE SET nano_usd = nano_usd + excluded.nano_usd"
    )
    execute(connection, sql, {"scope": scope, "nano_usd": nano_usd})


def _top(connection: sqlite3.Connection, run_id: str) -> Row:
    for row in select(connection, _TOP, {"run_id": run_id}):
        return row
    raise RunError(f"There is no run {run_id!r}; nothing can be spent for it.")


def _of_run(top: Row, row: Row) -> list[Account]:
    limits = {"usd": top["usd"], "tokens": top["tokens"]}
    found: list[Account] = []
    if limits["usd"] is not None:
        found.append(_account("usd", nano(float(limits["usd"])), row))
    if limits["tokens"] is not None:
        found.append(_account("tokens", int(limits["tokens"]), row))
    return found


def _account(limit: str, allowed: int, row: Row) -> Account:
    return Account.model_validate(
        {"limit": limit, "allowed": allowed, "spent": row[limit], "held": row[f"{limit}_held"]}
    )


def _scope(top: Row, now: float) -> str:
    """The day of a principal, as this machine's calendar has it."""
    return json.dumps([top["principal"], time.strftime("%Y-%m-%d", time.localtime(now))])
