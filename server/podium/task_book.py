"""Tasks in the ledger: tool calls that a client was given a task for, and how each one ended.

A task is a view of something else, mostly of a run. Any process that has the ledger can look one
up. Knows nothing of MCP.
"""

import json
import sqlite3
import time
from collections.abc import Callable
from functools import partial
from typing import Literal

from pydantic import Field, JsonValue

from podium.database import Row, Value, execute, insert, select
from podium.store import Store, Write
from podium_workers.worker import Frozen

TaskStatus = Literal["working", "input_required", "completed", "failed", "cancelled"]
_COLUMNS = (
    "task_id", "principal", "tool", "run_id", "created_at", "updated_at", "expires_at", "outcome",
)  # fmt: skip


class TaskState(Frozen):
    """How a task stands."""

    status: TaskStatus
    message: str = ""
    """One line for a person."""
    since: float = 0.0
    """Unix time of the last thing that happened."""
    result: dict[str, JsonValue] | None = None
    """What the tool gives, once it is completed."""
    error: dict[str, JsonValue] | None = None
    """The JSON-RPC error with which the call failed."""
    requests: dict[str, dict[str, JsonValue]] = Field(default_factory=dict)
    """What the client is asked for, by key."""

    @property
    def ended(self) -> bool:
        """Whether it stays like this for ever."""
        return self.status not in ("working", "input_required")


class TaskRow(Frozen):
    """What is kept of a task."""

    task_id: str
    principal: str
    tool: str
    run_id: str | None = None
    """The run that it looks at; None when it looks at something that is no run."""
    created_at: float
    updated_at: float
    """Unix time of the last change to the task itself."""
    expires_at: float
    """From then on it is unknown."""
    outcome: str | None = None
    """The `TaskState` with which it ended, as JSON."""
    asks: bool = False
    """Whether the client can ask its user something."""
    cancelled: bool = False
    """Whether the client has cancelled it."""
    answered: tuple[str, ...] = ()
    """Keys of the requests that the client has answered, whatever it said."""
    declined: tuple[str, ...] = ()
    """What the user did not want to answer, in the words of whoever asks."""

    @property
    def end(self) -> TaskState | None:
        """How it ended, if it has."""
        return None if self.outcome is None else TaskState.model_validate_json(self.outcome)


class TaskBook:
    """The tasks in a ledger. Every method may raise StoreError, as those of `Store`."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self.clock = clock
        """Gives Unix time; may be asked from any thread."""

    async def put(self, row: TaskRow) -> None:
        """Store a new task; it is durable when this returns. Those that have expired go."""

        def write(connection: sqlite3.Connection) -> None:
            expired = "DELETE FROM tasks WHERE expires_at <= :now"
            execute(connection, expired, {"now": self.clock()})
            insert(connection, "tasks", _stored(row))

        await self._store.writer.do(write)

    async def find(self, task_id: str, *, principal: str | None = None) -> TaskRow | None:
        """The task with that id, if there is one, it is *principal*'s, and it has not expired."""
        read = partial(_found, task_id=task_id, principal=principal, now=self.clock())
        return await self._store.reader.do(read)

    async def settle(self, task_id: str, state: TaskState) -> None:
        """Store how a task has ended, unless that is known already: then it stays so."""
        await self._store.writer.do(self.settling(task_id, state))

    def settling(self, task_id: str, state: TaskState) -> Write:
        """What `settle` writes."""
        return self._changing(
            f"{_SET} outcome = :outcome {_OPEN}", task_id, outcome=state.model_dump_json()
        )

    async def mark_cancelled(self, task_id: str) -> None:
        """Store that the client wants no more of it."""
        data = "json_set(data, '$.cancelled', json('true'))"
        await self._store.writer.do(self._changing(f"{_SET} data = {data} {_OPEN}", task_id))

    async def mark_answered(self, task_id: str, key: str, declined: str | None = None) -> None:
        """Store that a request was answered, or else *declined*."""
        data = "json_insert(data, '$.answered[#]', :key)"
        if declined is not None:
            data = f"json_insert({data}, '$.declined[#]', :declined)"
        sql = f"{_SET} data = {data} {_OPEN}"
        await self._store.writer.do(self._changing(sql, task_id, key=key, declined=declined))

    def _changing(self, sql: str, task_id: str, **values: Value) -> Write:
        named: Row = {**values, "task_id": task_id, "now": self.clock()}
        return lambda connection: execute(connection, sql, named)


_SET = "UPDATE tasks SET updated_at = :now,"
_OPEN = "WHERE task_id = :task_id AND outcome IS NULL"


def _found(
    connection: sqlite3.Connection, task_id: str, principal: str | None, now: float
) -> TaskRow | None:
    sql = (
        "SELECT * FROM tasks WHERE task_id = :task_id AND expires_at > :now "
        "AND (:principal IS NULL OR principal = :principal)"
    )
    for row in select(connection, sql, {"task_id": task_id, "principal": principal, "now": now}):
        columns = {name: row[name] for name in _COLUMNS}
        return TaskRow.model_validate(json.loads(str(row["data"])) | columns)
    return None


def _stored(row: TaskRow) -> Row:
    columns = {name: getattr(row, name) for name in _COLUMNS}
    return columns | {"data": row.model_dump_json(exclude=set(_COLUMNS))}
