"""The shape of the ledger file, as numbered steps from an empty file to today's.

A step that has been released is never changed; a new shape is a new step at the end.
"""

import sqlite3
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from podium.database import database, explain, roll_back
from podium.errors import StoreError

if TYPE_CHECKING:
    from sqlite_utils import Database

Migration = Callable[["Database"], None]
"""Changes the shape of the file inside a transaction that is already open."""

APPLICATION_ID = 0x506F6469
"""Marks an SQLite file as a ledger of Podium (`Podi`)."""

_FIRST_SCHEMA = """
CREATE TABLE migrations (
    number INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    applied_at REAL NOT NULL
) STRICT;

-- Texts by the sha256 of their UTF-8: prompts, replies, files.
CREATE TABLE blobs (
    sha TEXT PRIMARY KEY,
    text TEXT NOT NULL
) STRICT;

CREATE TABLE runs (
    id INTEGER PRIMARY KEY,  -- ascending by age; upper bits of the rowids in `search`
    run_id TEXT NOT NULL UNIQUE,
    principal TEXT NOT NULL,
    parent_id TEXT REFERENCES runs (run_id) ON DELETE CASCADE,
    status TEXT NOT NULL,
    strategy TEXT NOT NULL,
    question TEXT NOT NULL,
    created_at REAL NOT NULL,
    started_at REAL,
    finished_at REAL,
    answer TEXT,
    owner TEXT,              -- the process that carries it out
    lease_until REAL,        -- until when, unless it renews
    request TEXT NOT NULL,   -- JSON, without question and files
    pool TEXT NOT NULL,      -- JSON
    data TEXT NOT NULL       -- JSON of everything else
) STRICT;
CREATE INDEX runs_by_age ON runs (created_at);
CREATE INDEX runs_by_principal ON runs (principal, created_at);
CREATE INDEX runs_by_status ON runs (status, created_at);
CREATE INDEX runs_by_parent ON runs (parent_id) WHERE parent_id IS NOT NULL;

CREATE TABLE files (
    run_id TEXT NOT NULL REFERENCES runs (run_id) ON DELETE CASCADE,
    position INTEGER NOT NULL,
    name TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    sha TEXT NOT NULL REFERENCES blobs (sha),
    PRIMARY KEY (run_id, position)
) STRICT;
CREATE INDEX files_by_blob ON files (sha);

CREATE TABLE rounds (
    run_id TEXT NOT NULL REFERENCES runs (run_id) ON DELETE CASCADE,
    number INTEGER NOT NULL,
    source TEXT NOT NULL,
    steps INTEGER NOT NULL,  -- of its plan; 0 when it accepts
    proposal TEXT NOT NULL,  -- JSON
    PRIMARY KEY (run_id, number)
) STRICT;

CREATE TABLE steps (
    run_id TEXT NOT NULL,
    number INTEGER NOT NULL,
    version INTEGER NOT NULL,
    round INTEGER NOT NULL,
    worker TEXT NOT NULL,
    planned_worker TEXT NOT NULL,
    status TEXT NOT NULL,
    prompt TEXT NOT NULL,    -- sha of a blob, or empty
    nested_run TEXT,
    data TEXT NOT NULL,      -- JSON of everything else
    PRIMARY KEY (run_id, number, version),
    FOREIGN KEY (run_id, round) REFERENCES rounds (run_id, number) ON DELETE CASCADE
) STRICT;
CREATE INDEX steps_by_round ON steps (run_id, round);

CREATE TABLE calls (
    id INTEGER PRIMARY KEY,
    call_id TEXT NOT NULL UNIQUE,
    run_id TEXT NOT NULL REFERENCES runs (run_id) ON DELETE CASCADE,
    round INTEGER NOT NULL,
    step INTEGER,
    version INTEGER,
    worker TEXT NOT NULL,
    model TEXT NOT NULL,
    status TEXT NOT NULL,
    prompt TEXT NOT NULL,    -- sha of a blob
    reply TEXT,              -- sha of a blob
    request_id TEXT,
    finish_reason TEXT,
    started_at REAL NOT NULL,
    seconds REAL NOT NULL,
    input_tokens INTEGER NOT NULL,
    cached_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    reasoning_tokens INTEGER NOT NULL,
    cost_usd REAL,           -- NULL when a price is unknown
    data TEXT NOT NULL       -- JSON of everything else
) STRICT;
CREATE INDEX calls_by_run ON calls (run_id, started_at);
CREATE INDEX calls_by_worker ON calls (worker, model, status, started_at);

-- One row for question and answer of a run, one for each of its steps, as `search.py` writes them.
CREATE VIRTUAL TABLE search USING fts5 (text, tokenize = "unicode61 remove_diacritics 2");
CREATE TRIGGER runs_leave_search AFTER DELETE ON runs BEGIN
    DELETE FROM search WHERE rowid BETWEEN old.id << 20 AND (old.id << 20) + 1048575;
END;
"""


def m001_first_schema(db: "Database") -> None:
    """Runs, their rounds, steps and calls, texts by content, full-text search."""
    db.executescript(_FIRST_SCHEMA)


_LEASES_AND_BUDGETS = """
-- Counts the processes that have carried the run out: one that has lost it may not write.
ALTER TABLE runs ADD COLUMN epoch INTEGER NOT NULL DEFAULT 0;
-- Whether whoever carries it out has been told to stop.
ALTER TABLE runs ADD COLUMN stop_asked INTEGER NOT NULL DEFAULT 0;
-- Hash over principal, question, inputs and settings: the same again attaches.
ALTER TABLE runs ADD COLUMN request_key TEXT;
-- Whether somebody was there to be told how it ended.
ALTER TABLE runs ADD COLUMN told INTEGER NOT NULL DEFAULT 0;
CREATE INDEX runs_by_request ON runs (request_key, created_at) WHERE request_key IS NOT NULL;
CREATE INDEX runs_by_owner ON runs (owner) WHERE owner IS NOT NULL;

-- What a principal has spent on a day; spending of one run is the sum over its calls.
CREATE TABLE budgets (
    scope TEXT PRIMARY KEY,      -- principal and date, as JSON
    nano_usd INTEGER NOT NULL    -- billionths of a dollar
) STRICT;

-- What a call may cost at most, until it is known what it has cost.
CREATE TABLE reservations (
    call_id TEXT PRIMARY KEY REFERENCES calls (call_id) ON DELETE CASCADE,
    scope TEXT NOT NULL,         -- of its day in `budgets`
    nano_usd INTEGER NOT NULL,
    tokens INTEGER NOT NULL,
    kept INTEGER NOT NULL        -- whether the call broke off, so that nobody will ever know
) STRICT;
CREATE INDEX reservations_by_scope ON reservations (scope, nano_usd);

-- From when on an account may be asked again: its requests, its tokens, or all that it has.
CREATE TABLE turns (
    name TEXT PRIMARY KEY,
    ready_at REAL NOT NULL
) STRICT;
"""


def m002_leases_and_budgets(db: "Database") -> None:
    """Fenced leases, stopping across processes, attaching to the same request, limits."""
    db.executescript(_LEASES_AND_BUDGETS)


_TASKS = """
-- Calls of tools that clients come back for; what such a task looks at is a run, mostly.
CREATE TABLE tasks (
    task_id TEXT PRIMARY KEY,
    principal TEXT NOT NULL,
    tool TEXT NOT NULL,
    run_id TEXT REFERENCES runs (run_id) ON DELETE CASCADE,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    expires_at REAL NOT NULL,
    outcome TEXT,            -- JSON, once it has ended
    data TEXT NOT NULL       -- JSON of everything else
) STRICT;
CREATE INDEX tasks_by_run ON tasks (run_id) WHERE run_id IS NOT NULL;
CREATE INDEX tasks_by_end ON tasks (expires_at);
"""


def m003_tasks(db: "Database") -> None:
    """Tool calls that a client was given a task for."""
    db.executescript(_TASKS)


MIGRATIONS: tuple[Migration, ...] = (m001_first_schema, m002_leases_and_budgets, m003_tasks)


def migrate(
    connection: sqlite3.Connection, path: str, migrations: tuple[Migration, ...] = MIGRATIONS
) -> None:
    """Bring the file up to the shape that *migrations* end with, one transaction each.

    Any number of processes may do this at once.

    Raises:
        StoreError: the file is of a newer Podium or of another program, or cannot be written.
    """
    try:
        _check_owner(connection, path)
        while _pending(connection, path, migrations):
            _apply_next(connection, path, migrations)
    except sqlite3.Error as error:
        raise explain(error, path) from error


def check_shape(connection: sqlite3.Connection, path: str) -> None:
    """Refuse to write a file that a newer Podium has changed since it was opened.

    Raises:
        StoreError: it has.
    """
    _pending(connection, path, MIGRATIONS)


def _pending(connection: sqlite3.Connection, path: str, migrations: tuple[Migration, ...]) -> bool:
    version = _pragma(connection, "user_version")
    if version > len(migrations):
        raise StoreError(
            f"The ledger {path} has format {version}, but this Podium knows formats up to "
            f"{len(migrations)}; update Podium, or name another file with --store FILE."
        )
    return version < len(migrations)


def _apply_next(
    connection: sqlite3.Connection, path: str, migrations: tuple[Migration, ...]
) -> None:
    # At once a writer, so that of several processes one migrates and the others see it done.
    connection.execute("BEGIN IMMEDIATE")
    try:
        if _pending(connection, path, migrations):
            version = _pragma(connection, "user_version")
            _apply(connection, version + 1, migrations[version])
        connection.execute("COMMIT")
    except BaseException:
        roll_back(connection)
        raise


def _apply(connection: sqlite3.Connection, number: int, migration: Migration) -> None:
    migration(database(connection))
    connection.execute(
        "INSERT INTO migrations (number, name, applied_at) VALUES (?, ?, ?)",
        (number, migration.__name__, time.time()),
    )
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {number}")


def _check_owner(connection: sqlite3.Connection, path: str) -> None:
    # In this order: another process may be making the tables and their mark right now.
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    owner = _pragma(connection, "application_id")
    if tables and owner != APPLICATION_ID:
        raise StoreError(
            f"The file {path} is a database of another program; "
            "name another file with --store FILE."
        )


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    (value,) = connection.execute(f"PRAGMA {name}").fetchone()
    return value
