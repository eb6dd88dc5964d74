"""The engine's HTTP surface, for this user's Podium processes alone: a key opens it.

`/v1/chat/completions` speaks OpenAI's wire, with the field `podium_model` (a `ModelSpec`) naming
what is to be served; replies of the model's server pass through as they come, errors included.
`/tokenize` and `/embedding` are those of llama.cpp's own server. A caller that hangs up ends its
call all the way down.
"""

import hmac
import json
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import anyio
import httpx2
from pydantic import JsonValue, TypeAdapter, ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from podium_workers.engine.llama import LlamaServer
from podium_workers.engine.models import Models
from podium_workers.engine.presence import Presence
from podium_workers.engine.servers import Servers
from podium_workers.engine.state import EngineStatus, ModelSpec, VllmAddress, VllmOrder
from podium_workers.errors import (
    ModelFileError,
    OverloadedError,
    UnreachableError,
    UnsupportedParameterError,
    WorkerError,
)

CALLS = ("/v1/chat/completions", "/tokenize", "/embedding")
"""What a model's server is asked through the engine."""
_REQUEST = TypeAdapter(dict[str, JsonValue])
_STATUS_OF: dict[type[WorkerError], int] = {
    ModelFileError: 422,
    UnsupportedParameterError: 400,
    UnreachableError: 502,
    OverloadedError: 503,
}


def build_app(
    key: str, presence: Presence, models: Models, servers: Servers, http: httpx2.AsyncClient
) -> ASGIApp:
    """The application; *http* reaches the servers of *models*."""

    async def status(request: Request) -> JSONResponse:
        return JSONResponse(_status(presence, models, servers).model_dump(mode="json"))

    async def stop(request: Request) -> JSONResponse:
        model = request.query_params.get("model", "")
        return JSONResponse(list(await servers.stop(model)))

    routes = [
        Route("/status", status),
        Route("/hold", Hold(presence)),
        *(Route(path, ModelCall(path, presence, models, http), methods=["POST"]) for path in CALLS),
        Route("/vllm", Lease(presence, servers), methods=["POST"]),
        Route("/vllm/stop", stop, methods=["POST"]),
    ]
    return Locked(Starlette(routes=routes), key)


def _status(presence: Presence, models: Models, servers: Servers) -> EngineStatus:
    limit = presence.memory_limit
    over = limit is not None and models.used_bytes > limit
    return EngineStatus(
        pid=os.getpid(),
        clients=presence.clients,
        memory_limit_bytes=limit,
        warning="The loaded models take more memory than local_memory_gb allows." if over else "",
        models=models.statuses,
        servers=servers.statuses,
    )


@dataclass(frozen=True)
class Locked:
    """Lets nobody in without the key."""

    app: ASGIApp
    key: str

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        given = Request(scope).headers.get("authorization", "")
        if hmac.compare_digest(given.encode(), f"Bearer {self.key}".encode()):
            await self.app(scope, receive, send)
        else:
            refusal = JSONResponse(_body("authentication", "The key is wrong."), status_code=401)
            await refusal(scope, receive, send)


@dataclass(frozen=True)
class Hold:
    """An answer that never ends: whoever reads it is a client for as long as it does."""

    presence: Presence

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.presence.closed:
            await _refuse(OverloadedError("The engine is ending."), scope, receive, send)
            return
        limit = int(Request(scope).query_params.get("memory_limit_bytes", "0"))
        with self.presence.client(limit):
            await send(_start(200, b"application/json"))
            await send(_piece(json.dumps({"pid": os.getpid()}).encode() + b"\n"))
            await _until_gone(receive)


@dataclass(frozen=True)
class ModelCall:
    """One call of a model."""

    path: str
    presence: Presence
    models: Models
    http: httpx2.AsyncClient

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await Request(scope, receive).body()
        with self.presence.call():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_cancel_when_gone, receive, tasks.cancel_scope)
                try:
                    await self._answer(body, send)
                except WorkerError as error:
                    await _refuse(error, scope, receive, send)
                tasks.cancel_scope.cancel()

    async def _answer(self, body: bytes, send: Send) -> None:
        if self.presence.closed:
            raise OverloadedError("The engine is ending.")
        spec, request = _parse(body)
        async with self.models.lease(spec) as server:
            await self._forward(server, request, send)

    async def _forward(self, server: LlamaServer, request: bytes, send: Send) -> None:
        begun = False
        try:
            async with self.http.stream(
                "POST",
                f"{server.url}{self.path}",
                content=request,
                headers={
                    "Authorization": f"Bearer {server.key}",
                    "Content-Type": "application/json",
                },
            ) as reply:
                kind = reply.headers.get("content-type", "application/json")
                await send(_start(reply.status_code, kind.encode()))
                begun = True
                async for piece in reply.aiter_raw():
                    await send(_piece(piece))
                await send(_piece(b"", more=False))
        except httpx2.TransportError as error:
            ended = UnreachableError("The process of the model ended; the next call starts it.")
            if not begun:
                raise ended from error
            # What has been sent stands, so the error goes into the stream, as OpenAI's wire has it.
            event = json.dumps(_body(ended.code, ended.message))
            await send(_piece(f"data: {event}\n\n".encode(), more=False))


@dataclass(frozen=True)
class Lease:
    """A vLLM server for as long as the caller reads: lines of news, then the address or an error.

    The call itself goes straight to the server.
    """

    presence: Presence
    servers: Servers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await Request(scope, receive).body()
        if self.presence.closed:
            await _refuse(OverloadedError("The engine is ending."), scope, receive, send)
            return
        with self.presence.call():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_cancel_when_gone, receive, tasks.cancel_scope)
                await send(_start(200, b"application/x-ndjson"))
                await self._hold(body, send)
                await send(_piece(b"", more=False))
                tasks.cancel_scope.cancel()

    async def _hold(self, body: bytes, send: Send) -> None:
        async def say(said: JsonValue) -> None:
            await send(_piece(json.dumps(said).encode() + b"\n"))

        async def tell(news: str) -> None:
            await say({"news": news})

        try:
            order = VllmOrder.model_validate_json(body)
            async with self.servers.lease(order, tell) as server:
                address = VllmAddress(url=server.url, key=server.key)
                await say({"address": address.model_dump(mode="json")})
                await anyio.sleep_forever()
        except ValidationError:
            await say(_body("unsupported_parameter", "The request is no order for a server."))
        except WorkerError as error:
            fault = {"type": error.code, "message": error.message, "transient": error.transient}
            await say({"error": {**fault}})


def _parse(body: bytes) -> tuple[ModelSpec, bytes]:
    """The model that a request asks for, and the request for its server."""
    try:
        request = _REQUEST.validate_json(body)
        spec = ModelSpec.model_validate(request.pop("podium_model", None))
    except ValidationError as error:
        raise UnsupportedParameterError(
            "The request is not JSON with the field podium_model.", parameter="podium_model"
        ) from error
    return spec, json.dumps(request).encode()


async def _refuse(error: WorkerError, scope: Scope, receive: Receive, send: Send) -> None:
    answer = JSONResponse(
        _body(error.code, error.message), status_code=_STATUS_OF.get(type(error), 500)
    )
    await answer(scope, receive, send)


def _body(code: str, message: str) -> dict[str, JsonValue]:
    return {"error": {"type": code, "message": message}}


def _start(status: int, content_type: bytes) -> Message:
    headers = [(b"content-type", content_type)]
    return {"type": "http.response.start", "status": status, "headers": headers}


def _piece(content: bytes, *, more: bool = True) -> Message:
    return {"type": "http.response.body", "body": content, "more_body": more}


async def _until_gone(receive: Callable[[], Awaitable[Message]]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _cancel_when_gone(receive: Receive, scope: anyio.CancelScope) -> None:
    await _until_gone(receive)
    scope.cancel()
