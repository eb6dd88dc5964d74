"""A client of the tasks extension: sees what goes over the wire, or waits for the result."""

from collections.abc import Mapping
from typing import cast

import anyio
from mcp import Client
from mcp.client.context import ClientRequestContext
from mcp.client.extension import ClientExtension, advertise
from mcp.types import ElicitRequestParams, ElicitResult, ErrorData, Request, RequestParams
from pydantic import ConfigDict, JsonValue, RootModel

from podium.app.tasks import EXTENSION

Wire = dict[str, JsonValue]
DECLARED: ClientExtension = advertise(EXTENSION)
"""What a client gives to `extensions` that can take tasks."""
ENDED = ("completed", "failed", "cancelled")
BOUND_S = 60


class _Reply(RootModel[Wire]):
    """Whatever comes back, as it is."""


class _Params(RequestParams):
    model_config = ConfigDict(extra="allow")


class _Request(Request[_Params, str]):
    pass


class _Ask(_Request):
    """A question about a task, which over HTTP names it in a header."""

    name_param = "taskId"


async def never_asked(
    context: ClientRequestContext, params: ElicitRequestParams
) -> ElicitResult | ErrorData:
    """For clients that can ask their user, in tests where only a task may do so."""
    raise AssertionError(params)


async def raw(client: Client, method: str, params: Mapping[str, JsonValue]) -> Wire:
    """Send any request, without a header that names what it is about."""
    request = _Request(method=method, params=_Params.model_validate(params))
    return (await client.session.send_request(request, _Reply)).root


async def call(client: Client, tool: str, /, **arguments: JsonValue) -> Wire:
    """What a call of a tool gives: a result, or a task."""
    return await raw(client, "tools/call", {"name": tool, "arguments": arguments})


async def task_of(client: Client, tool: str, /, **arguments: JsonValue) -> str:
    """The id of the task that a call has become."""
    made = await call(client, tool, **arguments)
    assert made["resultType"] == "task", made
    return str(made["taskId"])


async def about(client: Client, method: str, task_id: str, **more: JsonValue) -> Wire:
    params = _Params.model_validate({"taskId": task_id, **more})
    return (await client.session.send_request(_Ask(method=method, params=params), _Reply)).root


async def look(client: Client, task_id: str) -> Wire:
    return await about(client, "tasks/get", task_id)


async def cancel(client: Client, task_id: str) -> Wire:
    return await about(client, "tasks/cancel", task_id)


async def update(client: Client, task_id: str, responses: Mapping[str, JsonValue]) -> Wire:
    return await about(client, "tasks/update", task_id, inputResponses=dict(responses))


async def until(client: Client, task_id: str, *statuses: str, every_s: float = 0.02) -> Wire:
    """Poll a task until it has one of these statuses, or has ended."""
    with anyio.fail_after(BOUND_S):
        while True:
            seen = await look(client, task_id)
            if seen["status"] in statuses or seen["status"] in ENDED:
                return seen
            await anyio.sleep(every_s)


async def ended(client: Client, task_id: str, *, every_s: float = 0.02) -> Wire:
    return await until(client, task_id, every_s=every_s)


def requests(seen: Wire) -> dict[str, Wire]:
    """What a client is asked for, by key."""
    assert seen["status"] == "input_required", seen
    return cast("dict[str, Wire]", seen["inputRequests"])


def result(seen: Wire) -> Wire:
    """What the tool gave in the end."""
    assert seen["status"] == "completed", seen
    return cast("Wire", seen["result"])


def data(seen: Wire) -> Wire:
    found = result(seen)
    assert not found.get("isError"), found
    return cast("Wire", found["structuredContent"])


def text(seen: Wire) -> str:
    """What a model reads of the result."""
    (first, *_) = cast("list[dict[str, str]]", result(seen)["content"])
    return first["text"]
