"""Between the tools and the wire: failures as text, and nothing sent that breaks a connection."""

import math
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import ParamSpec, TypeVar, cast

from mcp import MCPError
from mcp.server import ServerRequestContext
from mcp.server.context import CallNext, HandlerResult
from mcp.server.mcpserver.exceptions import ResourceNotFoundError, ToolError
from mcp.types import SERVER_INFO_META_KEY
from pydantic import BaseModel, JsonValue

from podium.app.errors import EXPECTED, sentence, short
from podium_workers.worker import mend

P = ParamSpec("P")
R = TypeVar("R")


def answers_errors(tool: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R]]:
    """Turn expected failures of a tool into text that the calling model can act on."""

    @wraps(tool)
    async def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return await tool(*args, **kwargs)
        except EXPECTED as error:
            raise ToolError(sentence(error)) from error

    return guarded


def answers_reader(resource: Callable[P, Awaitable[str]]) -> Callable[P, Awaitable[str]]:
    """Turn expected failures of a resource into text for its reader."""

    @wraps(resource)
    async def guarded(*args: P.args, **kwargs: P.kwargs) -> str:
        try:
            return await resource(*args, **kwargs)
        except EXPECTED as error:
            raise ResourceNotFoundError(sentence(error)) from error

    return guarded


def clean(value: JsonValue, *, numbers: bool = True) -> JsonValue:
    """*value* fit for every wire: no half emoji and, of *numbers*, null for those JSON lacks."""
    match value:
        case str():
            return mend(value)
        case float() if numbers and not math.isfinite(value):
            return None
        case dict():
            return {mend(key): clean(inner, numbers=numbers) for key, inner in value.items()}
        case list():
            return [clean(inner, numbers=numbers) for inner in value]
        case _:
            return value


async def send_clean(
    ctx: ServerRequestContext[object, object], call_next: CallNext
) -> HandlerResult:
    """Middleware: a lone surrogate in any result or error would end the whole connection."""
    try:
        result = await call_next(ctx)
    except MCPError as error:
        message = short(error.error.message.strip() or "The request failed.")
        raise MCPError(error.error.code, message, clean(error.error.data)) from error
    if isinstance(result, BaseModel):
        result = result.model_dump(by_alias=True, mode="json", exclude_none=True)
    if result is None:
        return None
    cleaned = cast("dict[str, JsonValue]", clean(result))
    return cleaned if ctx.method == "server/discover" else _without_icons(cleaned)


def _without_icons(result: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """*result*, in whose `_meta` the SDK names the server, without repeating its pictures."""
    match result.get("_meta"):
        case {**meta}:
            server = meta.get(SERVER_INFO_META_KEY)
            if isinstance(server, dict):
                named = {key: value for key, value in server.items() if key != "icons"}
                return {**result, "_meta": {**meta, SERVER_INFO_META_KEY: named}}
        case _:
            pass
    return result
