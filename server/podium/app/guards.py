"""Between the tools and the SDK: errors as text, unknown arguments refused, brief lists."""

import difflib
from collections.abc import Awaitable, Callable, Mapping
from functools import wraps
from typing import ParamSpec, TypeVar

from mcp.server import MCPServer, ServerRequestContext
from mcp.server.context import CallNext, HandlerResult, ServerMiddleware
from mcp.server.mcpserver.exceptions import ResourceNotFoundError, ToolError
from mcp.types import (
    CallToolRequestParams,
    CallToolResult,
    TextContent,
    Tool,
)
from pydantic import ValidationError

from podium.arguments import (
    untitled,
)
from podium.errors import PodiumError
from podium_workers.errors import WorkerError
from podium_workers.worker import mend

EXPECTED = (PodiumError, WorkerError, ValidationError)
"""Failures whose text is written for the caller."""
P = ParamSpec("P")
R = TypeVar("R")


def answers_errors(tool: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R]]:
    """Turn expected failures of a tool into text that the calling model can act on."""

    @wraps(tool)
    async def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return await tool(*args, **kwargs)
        except EXPECTED as error:
            raise ToolError(_sentence(error)) from error

    return guarded


def answers_reader(resource: Callable[P, Awaitable[str]]) -> Callable[P, Awaitable[str]]:
    """Turn expected failures of a resource into text for its reader."""

    @wraps(resource)
    async def guarded(*args: P.args, **kwargs: P.kwargs) -> str:
        try:
            return mend(await resource(*args, **kwargs))
        except EXPECTED as error:
            raise ResourceNotFoundError(_sentence(error)) from error

    return guarded


def _sentence(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return mend(f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}.")
    return mend(str(error))


class BriefServer(MCPServer):
    """Lists tools without the titles that the SDK makes of argument names."""

    async def list_tools(self) -> list[Tool]:
        tools = await super().list_tools()
        for tool in tools:
            untitled(tool.input_schema)
        return tools


def refusing_unknown(parameters: Mapping[str, frozenset[str]]) -> ServerMiddleware[object]:
    """Refuses arguments that a tool does not have; *parameters* are those that it has.

    The SDK drops them, but a misspelled limit must not be ignored.
    """

    async def refuse(
        ctx: ServerRequestContext[object, object], call_next: CallNext
    ) -> HandlerResult:
        if ctx.method == "tools/call" and isinstance(ctx.params, Mapping):
            called = CallToolRequestParams.model_validate(ctx.params)
            arguments = called.arguments or {}
            known = sorted(parameters.get(called.name, arguments))
            if problem := _unknown_argument(called.name, arguments, known):
                text = TextContent(type="text", text=problem)
                return CallToolResult(content=[text], is_error=True)
        return await call_next(ctx)

    return refuse


def _unknown_argument(tool: str, arguments: Mapping[str, object], known: list[str]) -> str:
    for name in sorted(set(arguments).difference(known)):
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(known)}."
        return f"{mend(name)}: {tool} has no such argument; {hint}"
    return ""
