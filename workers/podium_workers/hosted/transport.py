"""The bytes below the client libraries: hears every piece, and says what broken transport means.

Apart, since it needs httpx2, whose import only a call that is really made should pay for.
"""

import json
import ssl
from collections.abc import AsyncGenerator, Callable

import anyio
import httpx2

from podium_workers.errors import (
    MalformedReplyError,
    SlowReplyError,
    UnreachableError,
    WorkerError,
)
from podium_workers.wire import ApiKey

CONNECT_TIMEOUT_S = 10.0
"""Seconds that a connection may take to stand."""
TIMEOUT = httpx2.Timeout(None, connect=CONNECT_TIMEOUT_S)
"""For the client libraries: `wire.Patience` holds the other limits."""
BROKEN = (
    httpx2.HTTPError,
    httpx2.StreamError,
    ssl.SSLError,
    anyio.EndOfStream,
    json.JSONDecodeError,
    UnicodeDecodeError,
)
"""What a transport that fails in the middle of a reply can raise."""


class Heard(httpx2.AsyncByteStream):
    """A response's bytes as they are, with *hear* called for each piece."""

    def __init__(self, stream: httpx2.AsyncByteStream, hear: Callable[[], None]) -> None:
        self._stream = stream
        self._hear = hear

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        async for piece in self._stream:
            self._hear()
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()


def listen(response: httpx2.Response, hear: Callable[[], None]) -> None:
    """Call *hear* for every piece of *response*'s body from now on."""
    if isinstance(response.stream, httpx2.AsyncByteStream):
        response.stream = Heard(response.stream, hear)


def meaning_of_broken(error: BaseException, key: ApiKey) -> WorkerError:
    """The error that a failure of the transport, or a library's wrapping of one, stands for."""
    cause = error if isinstance(error, BROKEN) else error.__cause__ or error
    if isinstance(cause, httpx2.ConnectTimeout):
        return UnreachableError(f"No connection could be made within {CONNECT_TIMEOUT_S:g} s.")
    if isinstance(cause, httpx2.TimeoutException):
        return SlowReplyError("The connection timed out.", limit="first_byte")
    if isinstance(cause, json.JSONDecodeError | UnicodeDecodeError | httpx2.DecodingError):
        return MalformedReplyError("The endpoint answered with something that is no reply.")
    why = " ".join(key.scrub(str(cause)).split()) or type(cause).__name__
    return UnreachableError(f"The connection failed: {why}")
