"""Requests and tokens a minute of an account, shared by all processes through the ledger.

A row says from when on the next request may be made. It moves on by what each one takes, and may
run ahead of the clock by a burst (generic cell rate algorithm, ITU-T I.371). An endpoint that says
how long to stay away moves it too, for every process at once.
"""

import sqlite3

from podium.database import Value, execute
from podium_workers.worker import RateLimits

BURST_S = 10.0
"""Seconds of an account's rate that may be used at once after it was left alone."""
_LOST_S = 600.0
"""A row further ahead than this was left by a clock that has been set back since."""


def take(connection: sqlite3.Connection, limits: RateLimits, tokens: int, now: float) -> float:
    """Take the turn for a request of so many tokens; else the seconds until it may be taken.

    Nothing is taken while there is something to wait for.
    """
    wanted = (
        (f"requests {limits.account}", 1, limits.requests_per_minute),
        (f"tokens {limits.account}", tokens, limits.tokens_per_minute),
    )
    ends: dict[str, float] = {}
    wait = _ready_at(connection, _pause(limits.account), now) - now
    for name, amount, per_minute in wanted:
        if per_minute is None:
            continue
        ready = max(now, _ready_at(connection, name, now))
        # More than a burst at once is possible only for a row that has come to rest.
        wait = max(wait, ready - now - BURST_S)
        ends[name] = ready + 60.0 * amount / per_minute
    if wait > 0:
        return wait
    for name, ready in ends.items():
        _set(connection, name, ready)
    return 0.0


def give_back(connection: sqlite3.Connection, limits: RateLimits, tokens: int) -> None:
    """Give back tokens that a request was given and has not used."""
    if limits.tokens_per_minute is not None and tokens > 0:
        sql = "UPDATE turns SET ready_at = ready_at - :seconds WHERE name = :name"
        seconds = 60.0 * tokens / limits.tokens_per_minute
        execute(connection, sql, {"name": f"tokens {limits.account}", "seconds": seconds})


def stay_away(connection: sqlite3.Connection, account: str, until: float) -> None:
    """Let nobody ask an account before that Unix time."""
    sql = (
        "INSERT INTO turns (name, ready_at) VALUES (:name, :until) "
        "ON CONFLICT (name) DO UPDATE SET ready_at = max(ready_at, excluded.ready_at)"
    )
    execute(connection, sql, {"name": _pause(account), "until": until})


def _pause(account: str) -> str:
    return f"pause {account}"


def _ready_at(connection: sqlite3.Connection, name: str, now: float) -> float:
    values: dict[str, Value] = {"name": name}
    row = execute(connection, "SELECT ready_at FROM turns WHERE name = :name", values).fetchone()
    ready = row[0] if row else now
    return ready if ready - now < _LOST_S else now


def _set(connection: sqlite3.Connection, name: str, ready: float) -> None:
    sql = (
        "INSERT INTO turns (name, ready_at) VALUES (:name, :ready) "
        "ON CONFLICT (name) DO UPDATE SET ready_at = excluded.ready_at"
    )
    execute(connection, sql, {"name": name, "ready": ready})
