"""A provider on loopback that speaks real HTTP and server-sent events, and fails on demand.

Serves OpenAI's Chat Completions and Anthropic's Messages at once: what an answer looks like is
for the test to say, through the functions at the end.
"""

import json
import threading
import time
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, cast
from urllib.parse import parse_qsl

import uvicorn

Scope = Mapping[str, object]
Receive = Callable[[], Awaitable[Mapping[str, object]]]
Send = Callable[[dict[str, object]], Awaitable[None]]
Document = Mapping[str, object]

Piece = Document | str | Literal["STALL", "HANG UP"]
"""A JSON event, a raw text to send as it is, or what the provider does instead of sending."""


@dataclass(frozen=True)
class Answer:
    """What comes back for one request."""

    pieces: Sequence[Piece] = ()
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    document: Document | Sequence[object] | str | None = None
    """A whole body instead of a stream of pieces."""
    before: Literal["", "STALL"] = ""
    """Whether it keeps even the first byte back."""


@dataclass(frozen=True)
class Asked:
    """A request as it arrived."""

    path: str
    headers: Mapping[str, str]
    body: Mapping[str, object]
    method: str = "POST"
    query: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def messages(self) -> list[Mapping[str, object]]:
        return cast("list[Mapping[str, object]]", self.body["messages"])


Rule = Callable[[Asked], Answer]
"""Decides by the request, so that the order in which requests arrive does not matter."""


class Provider:
    """The simulated provider, as a test sees it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.reset()

    def reset(self) -> None:
        self.requests: list[Asked] = []
        self._answers: list[Answer | Rule] = []
        self._lock = threading.Lock()
        self.stalling = threading.Event()
        """Set while an answer stands still."""
        self.disconnected = threading.Event()
        """Set once a client hung up on an answer that stood still."""

    def answers(self, *answers: Answer | Rule) -> None:
        """Give these in order; the last one repeats. A rule looks at the request first."""
        self._answers = list(answers)

    @property
    def bodies(self) -> list[Mapping[str, object]]:
        return [asked.body for asked in self.requests]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = b""
        more = True
        while more:
            event = await receive()
            body += cast("bytes", event.get("body", b""))
            more = bool(event.get("more_body", False))
        raw = cast("list[tuple[bytes, bytes]]", scope["headers"])
        headers = {name.decode().lower(): value.decode() for name, value in raw}
        asked = Asked(
            str(scope["path"]),
            headers,
            json.loads(body) if body else {},
            method=str(scope["method"]),
            query=dict(parse_qsl(cast("bytes", scope["query_string"]).decode())),
        )
        with self._lock:
            self.requests.append(asked)
            answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        await self._give(answer if isinstance(answer, Answer) else answer(asked), receive, send)

    async def _give(self, answer: Answer, receive: Receive, send: Send) -> None:
        if answer.before == "STALL":
            await self._stall(receive)
            return
        whole = answer.document is not None
        text = isinstance(answer.document, str)
        kind = "text/html" if text else "application/json" if whole else "text/event-stream"
        headers = {"content-type": kind} | dict(answer.headers)
        encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": answer.status, "headers": encoded})
        if whole:
            payload = answer.document if text else json.dumps(answer.document)
            await send({"type": "http.response.body", "body": str(payload).encode()})
            return
        for piece in answer.pieces:
            if piece == "STALL":
                await self._stall(receive)
                return
            if piece == "HANG UP":
                raise ConnectionAbortedError
            sent = piece if isinstance(piece, str) else _event(piece)
            await send({"type": "http.response.body", "body": sent.encode(), "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def _stall(self, receive: Receive) -> None:
        self.stalling.set()
        while (await receive())["type"] != "http.disconnect":
            pass
        self.disconnected.set()


def _event(document: Document) -> str:
    kind = document.get("type")
    named = f"event: {kind}\n" if isinstance(kind, str) else ""
    return f"{named}data: {json.dumps(document)}\n\n"


@contextmanager
def run_provider() -> Generator[Provider]:
    """The provider in a thread of its own, at a free port."""
    provider = Provider("")
    config = uvicorn.Config(
        provider,
        host="127.0.0.1",
        port=0,
        lifespan="off",
        log_config=None,
        log_level="critical",
        ws="none",
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, name="provider")
    thread.start()
    try:
        started = time.monotonic()
        while not server.started:
            assert time.monotonic() - started < 10, "the simulated provider did not start"
            assert thread.is_alive(), "the simulated provider could not start"
            time.sleep(0.005)
        port = server.servers[0].sockets[0].getsockname()[1]
        provider.url = f"http://127.0.0.1:{port}"
        yield provider
    finally:
        server.should_exit = True
        thread.join(10)


DONE = "data: [DONE]\n\n"
OPENAI_USAGE = {
    "prompt_tokens": 100,
    "completion_tokens": 20,
    "total_tokens": 120,
    "prompt_tokens_details": {"cached_tokens": 40},
    "completion_tokens_details": {"reasoning_tokens": 5},
}


def chunk(
    delta: Document | None = None, finish: str | None = None, **more: object
) -> dict[str, object]:
    """One chunk of a streamed chat completion."""
    choice = {"index": 0, "delta": delta or {}, "finish_reason": finish}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "model-as-served",
        "choices": [choice],
    } | more


def openai_reply(
    *texts: str, finish: str = "stop", usage: Document | None = OPENAI_USAGE
) -> Answer:
    """A good streamed chat completion."""
    pieces: list[Piece] = [chunk({"role": "assistant", "content": ""})]
    pieces += [chunk({"content": text}) for text in texts]
    pieces.append(chunk(finish=finish))
    if usage is not None:
        pieces.append(chunk(choices=[], usage=usage))
    return Answer([*pieces, DONE], headers={"x-request-id": "req_1"})


def openai_error(
    status: int, message: str, *, code: str | None = None, param: str | None = None, **headers: str
) -> Answer:
    """An error as OpenAI words it."""
    error = {"message": message, "type": "some_error", "code": code, "param": param}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(status=status, document={"error": error}, headers=named)


ANTHROPIC_USAGE = {
    "input_tokens": 50,
    "cache_read_input_tokens": 40,
    "cache_creation_input_tokens": 10,
    "output_tokens": 1,
}


def message_start(usage: Document = ANTHROPIC_USAGE) -> dict[str, object]:
    message: dict[str, object] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-as-served",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }
    return {"type": "message_start", "message": message}


def block(kind: str, *texts: str, index: int = 0) -> list[Piece]:
    """A content block of text or thinking, with its deltas."""
    empty = {"type": kind, kind: ""} | ({"signature": ""} if kind == "thinking" else {})
    deltas = [{"type": f"{kind}_delta", kind: text} for text in texts]
    return [
        {"type": "content_block_start", "index": index, "content_block": empty},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def message_end(
    reason: str | None = "end_turn", *, output_tokens: int = 20, details: Document | None = None
) -> list[Piece]:
    delta = {"stop_reason": reason, "stop_sequence": None, "stop_details": details}
    usage = {"output_tokens": output_tokens, "output_tokens_details": {"thinking_tokens": 5}}
    return [{"type": "message_delta", "delta": delta, "usage": usage}, {"type": "message_stop"}]


def anthropic_reply(*texts: str, reason: str | None = "end_turn") -> Answer:
    """A good streamed message."""
    pieces = [message_start(), *block("text", *texts), *message_end(reason)]
    return Answer(pieces, headers={"request-id": "req_2"})


def anthropic_error(status: int, kind: str, message: str, **headers: str) -> Answer:
    """An error as Anthropic words it."""
    document = {"type": "error", "error": {"type": kind, "message": message}}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(status=status, document=document, headers=named)
