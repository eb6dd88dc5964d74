"""The extension `io.modelcontextprotocol/tasks`: a tool call as a handle that the client polls.

Speaks the protocol of 2026-07-28 and keeps the tasks in the ledger. What a task looks at is left to
a `TaskSource`: for Podium's own tools that is their runs (`run_tasks`).

Status is not pushed as `notifications/tasks`: the SDK's stream for subscriptions carries its own
kinds of events only, and acknowledges no others.
"""

import secrets
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import cast

from mcp import MCPError
from mcp.server.context import CallNext, HandlerResult
from mcp.server.extension import Extension, MethodBinding
from mcp.server.mcpserver import require_client_extension
from mcp.shared.inbound import MCP_NAME_HEADER, decode_header_value
from mcp.types import (
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    CallToolRequestParams,
    RequestParams,
)
from pydantic import JsonValue

from podium.app.task_source import Asked, Begun, TaskCall, TaskSource
from podium.errors import PodiumError
from podium.task_book import TaskBook, TaskRow, TaskState
from podium_workers.worker import mend

EXTENSION = "io.modelcontextprotocol/tasks"
MODERN = frozenset({"2026-07-28"})
"""The protocol versions in which there are such tasks."""
TTL_S = 24 * 3600.0
"""How long a task is known; the run that it looks at stays until it is pruned."""
POLL_MS = (500, 5000)
"""A client is to look this often, at first and at last."""
_ID_BYTES = 24


class TaskIdParams(RequestParams):
    """Parameters of `tasks/get` and `tasks/cancel`."""

    task_id: str


class TaskUpdateParams(TaskIdParams):
    """Parameters of `tasks/update`."""

    input_responses: dict[str, dict[str, JsonValue]]


class TaskExtension(Extension):
    """The extension, for the tools of some sources."""

    identifier = EXTENSION

    def __init__(
        self,
        book: TaskBook,
        sources: Sequence[TaskSource],
        principal: Callable[[], str],
        *,
        ttl_s: float = TTL_S,
    ) -> None:
        """*principal* gives the user that the request at hand comes from."""
        self._book = book
        self._sources = {tool: source for source in sources for tool in source.tools}
        self._principal = principal
        self._ttl_s = ttl_s

    def methods(self) -> Sequence[MethodBinding]:
        return [
            MethodBinding("tasks/get", TaskIdParams, self._get, MODERN),
            MethodBinding("tasks/update", TaskUpdateParams, self._update, MODERN),
            MethodBinding("tasks/cancel", TaskIdParams, self._cancel, MODERN),
        ]

    async def intercept_tool_call(
        self, params: CallToolRequestParams, ctx: Asked, call_next: CallNext
    ) -> HandlerResult:
        source = self._sources.get(params.name)
        if source is None:
            return await call_next(ctx)
        if not _declared(ctx):
            if params.name in source.only_as_tasks:
                require_client_extension(ctx, EXTENSION)
            return await call_next(ctx)
        task_id = secrets.token_urlsafe(_ID_BYTES)
        call = TaskCall(task_id, params, ctx, call_next, can_ask(ctx))
        try:
            begun = await source.begin(call)
            return await self._created(call, begun) if isinstance(begun, Begun) else begun
        except PodiumError as error:
            raise MCPError(INTERNAL_ERROR, str(error)) from error
        finally:
            call.stored.set()

    async def _created(self, call: TaskCall, begun: Begun) -> HandlerResult:
        now = self._book.clock()
        row = TaskRow(
            task_id=call.task_id,
            principal=self._principal(),
            tool=call.params.name,
            run_id=begun.run_id,
            created_at=now,
            updated_at=now,
            expires_at=now + self._ttl_s,
            asks=call.asks,
        )
        await self._book.put(row)
        return self._wire(row, TaskState(status="working", message=begun.message), "task")

    async def _get(self, ctx: Asked, params: TaskIdParams) -> HandlerResult:
        row = await self._row(ctx, params)
        source = self._source(row)
        try:
            state = row.end or await source.look(row)
            if state.ended and row.end is None:
                await self._book.settle(row.task_id, state)
                # Whoever stored an end first, it is the one that is told from then on.
                row = await self._row(ctx, params)
                state = row.end or state
            if state.ended:
                await source.delivered(row, state)
        except PodiumError as error:
            raise MCPError(INTERNAL_ERROR, str(error)) from error
        return self._wire(row, state, "complete")

    async def _update(self, ctx: Asked, params: TaskUpdateParams) -> HandlerResult:
        row = await self._row(ctx, params)
        new = {
            key: answer for key, answer in params.input_responses.items() if key not in row.answered
        }
        if row.end is None and new:
            try:
                await self._source(row).answer(row, new)
            except PodiumError as error:
                raise MCPError(INVALID_PARAMS, str(error)) from error
        return {"resultType": "complete"}

    async def _cancel(self, ctx: Asked, params: TaskIdParams) -> HandlerResult:
        row = await self._row(ctx, params)
        if row.end is None:
            try:
                await self._book.mark_cancelled(row.task_id)
                await self._source(row).cancel(row.model_copy(update={"cancelled": True}))
            except PodiumError as error:
                raise MCPError(INTERNAL_ERROR, str(error)) from error
        return {"resultType": "complete"}

    async def _row(self, ctx: Asked, params: TaskIdParams) -> TaskRow:
        """The task that is asked about, if it is that user's."""
        require_client_extension(ctx, EXTENSION)
        _check_routing(ctx, params.task_id)
        try:
            row = await self._book.find(mend(params.task_id), principal=self._principal())
        except PodiumError as error:
            raise MCPError(INTERNAL_ERROR, str(error)) from error
        if row is None or row.tool not in self._sources:
            hours = self._ttl_s / 3600
            raise MCPError(
                INVALID_PARAMS,
                f"There is no task {params.task_id[:80]!r}; one is known for {hours:g} hours. "
                "Unless it was pruned, its run is found with search_runs.",
            )
        return row

    def _source(self, row: TaskRow) -> TaskSource:
        return self._sources[row.tool]

    def _wire(self, row: TaskRow, state: TaskState, result_type: str) -> dict[str, object]:
        updated_at = max(row.updated_at, state.since)
        age_ms = 1000 * (self._book.clock() - row.created_at)
        first, last = POLL_MS
        sent: dict[str, object] = {
            "resultType": result_type,
            "taskId": row.task_id,
            "status": state.status,
            "createdAt": _iso(row.created_at),
            "lastUpdatedAt": _iso(updated_at),
            "ttlMs": round(1000 * (row.expires_at - row.created_at)),
            # Who has waited long can wait a little longer.
            "pollIntervalMs": round(min(max(first, age_ms / 10), last)),
        }
        if state.message:
            sent["statusMessage"] = state.message
        if state.status == "completed":
            sent["result"] = state.result
        elif state.status == "failed":
            sent["error"] = state.error
        elif state.status == "input_required":
            sent["inputRequests"] = state.requests
        return sent


async def refuse_undeclared_listeners(ctx: Asked, call_next: CallNext) -> HandlerResult:
    """Middleware: only who declares the extension may ask to be told how tasks stand."""
    if ctx.method == "subscriptions/listen" and ctx.params:
        match cast("JsonValue", ctx.params.get("notifications")):
            case {"taskIds": _}:
                require_client_extension(ctx, EXTENSION)
            case _:
                pass
    return await call_next(ctx)


def can_ask(ctx: Asked) -> bool:
    """Whether a client can put a form before its user."""
    declared = ctx.session.client_capabilities
    elicits = declared.elicitation if declared else None
    # Without naming a mode it means forms.
    return elicits is not None and (elicits.form is not None or elicits.url is None)


def _declared(ctx: Asked) -> bool:
    declared = ctx.session.client_capabilities
    extensions = declared.extensions if declared else None
    return ctx.protocol_version in MODERN and EXTENSION in (extensions or {})


def _check_routing(ctx: Asked, task_id: str) -> None:
    """Over HTTP a header names the task for whoever routes requests; the body has to agree."""
    headers: object = getattr(ctx.request, "headers", None)
    if isinstance(headers, Mapping):
        named = cast("Mapping[str, str]", headers).get(MCP_NAME_HEADER)
        if decode_header_value(named) != task_id:
            raise MCPError(
                HEADER_MISMATCH, "The header Mcp-Name is missing or does not name the taskId."
            )


def _iso(moment: float) -> str:
    told = datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds")
    return told.replace("+00:00", "Z")
