"""A provider on loopback, in a process of its own, that says what it is paid for.

    python -m podium_lab.bench.durable.paying --delay-s 0.2

Answers streamed chat completions at `/NAME/v1`, where NAME is whoever asks. Prints its port, then
one JSON object a line for all that happens to a call. A call is paid once its reply has been
generated, whether or not somebody is there to take it. With `--held` no reply is begun before a
line has come on stdin.
"""

import argparse
import json
import re
import sys
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Literal

import anyio
import anyio.to_thread
from anyio.abc import Process, SocketAttribute, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream
from pydantic import BaseModel

from podium_workers.worker import Frozen

LONGEST = 65_536
"""Bytes of a request's head, and of a line that is printed."""
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
USAGE = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
GONE = (anyio.EndOfStream, anyio.IncompleteRead, anyio.BrokenResourceError)
"""How a client's end of a connection looks from here."""


class Told(Frozen):
    """Something that happened to a call."""

    kind: Literal["begun", "paid", "taken", "gone"]
    """Asked for; its reply generated; its reply sent whole; its client gone before that."""
    call: int
    server: str
    question: str
    part: int
    at: float
    """Unix time."""


class _Message(BaseModel):
    content: str


class _Body(BaseModel):
    messages: list[_Message]


def about(body: bytes) -> tuple[str, int]:
    """Which question, written `[NAME]`, and which part of it a request is about."""
    text = _Body.model_validate_json(body).messages[-1].content
    question = re.search(r"\[(\w+)\]", text)
    part = re.search(r"Do part (\d+)\.\s*$", text)
    return question[1] if question else "", int(part[1]) if part else 0


@dataclass(frozen=True)
class Provider:
    """Answers every call after the same time, and tells of it."""

    delay_s: float
    tell: Callable[[Told], None]
    may_begin: anyio.Event
    _numbers: "count[int]" = field(default_factory=lambda: count(1))

    async def serve(self, stream: SocketStream) -> None:
        """Answer the one request of a connection."""
        reader = BufferedByteReceiveStream(stream)
        async with stream:
            try:
                await self._answer(stream, reader)
            except GONE:
                return

    async def _answer(self, stream: SocketStream, reader: BufferedByteReceiveStream) -> None:
        head = (await reader.receive_until(b"\r\n\r\n", LONGEST)).decode("latin-1")
        length = re.search(r"(?im)^content-length: *(\d+)", head)
        body = await reader.receive_exactly(int(length[1]) if length else 0)
        question, part = about(body)
        number, server = next(self._numbers), head.split("/")[1]

        def tell(kind: Literal["begun", "paid", "taken", "gone"]) -> None:
            told = Told(
                kind=kind, call=number, server=server, question=question, part=part, at=time.time()
            )
            self.tell(told)

        tell("begun")
        there = [True]
        async with anyio.create_task_group() as group:
            group.start_soon(_notice_end, reader, there, tell)
            await self.may_begin.wait()
            await _send(stream, HEAD + events(f"call-{number}", "", done=False), there)
            await anyio.sleep(self.delay_s)
            tell("paid")
            text = f"Part {part} of {question} is done: reply {number}."
            await _send(stream, events(f"call-{number}", text, done=True), there)
            group.cancel_scope.cancel()
        if there[0]:
            tell("taken")


async def _notice_end(
    reader: BufferedByteReceiveStream, there: list[bool], tell: Callable[[Literal["gone"]], None]
) -> None:
    """A client says nothing more; so the next thing to be read is that it has gone."""
    try:
        await reader.receive()
    except GONE:
        there[0] = False
        tell("gone")


async def _send(stream: SocketStream, data: bytes, there: list[bool]) -> None:
    """Send what a client is there to take; generating goes on without one."""
    if not there[0]:
        return
    try:
        await stream.send(data)
    except GONE:
        # `_notice_end` sees it as well.
        await anyio.lowlevel.checkpoint()


def events(name: str, text: str, *, done: bool) -> bytes:
    """Server-sent events that say *text*, and the end of the reply."""
    delta = {"content": text} if text else {"role": "assistant", "content": ""}
    chunks: list[dict[str, object]] = [{"choices": [_choice(delta, None)]}]
    if done:
        chunks.append({"choices": [_choice({}, "stop")]})
        chunks.append({"choices": [], "usage": USAGE})
    frame = {"id": name, "object": "chat.completion.chunk", "created": 1, "model": "simulated"}
    lines = [f"data: {json.dumps(frame | chunk)}\n\n" for chunk in chunks]
    return "".join([*lines, "data: [DONE]\n\n" if done else ""]).encode()


def _choice(delta: dict[str, str], finish: str | None) -> dict[str, object]:
    return {"index": 0, "delta": delta, "finish_reason": finish}


async def _serve(delay_s: float, *, held: bool) -> None:
    may_begin = anyio.Event()
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", backlog=1024)
    print(listener.listeners[0].extra(SocketAttribute.local_port), flush=True)
    async with anyio.create_task_group() as group:
        provider = Provider(delay_s, _print, may_begin)
        group.start_soon(listener.serve, provider.serve)
        if held:
            await anyio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)
        may_begin.set()


def _print(told: Told) -> None:
    print(told.model_dump_json(), flush=True)


# As the tests see it.


@dataclass
class Paid:
    """A running provider, and all that it has told."""

    port: int
    process: Process
    told: list[Told] = field(default_factory=list[Told])
    watchers: list[Callable[[Told], None]] = field(default_factory=list[Callable[[Told], None]])
    """Called with whatever is told, at once."""

    def url(self, server: str) -> str:
        """Where *server* asks."""
        return f"http://127.0.0.1:{self.port}/{server}/v1"

    async def let_go(self) -> None:
        """Let a held provider begin its replies."""
        assert self.process.stdin is not None, "it was asked for"
        await self.process.stdin.send(b"go\n")

    def calls(self, kind: str) -> set[int]:
        """The calls to which that has happened."""
        return {it.call for it in self.told if it.kind == kind}

    async def read(self, lines: BufferedByteReceiveStream) -> None:
        """Take in what is told, until the provider ends."""
        while True:
            try:
                line = await lines.receive_until(b"\n", LONGEST)
            except GONE:
                return
            told = Told.model_validate_json(line)
            self.told.append(told)
            for watcher in self.watchers:
                watcher(told)


@asynccontextmanager
async def open_provider(delay_s: float, *, held: bool = False) -> AsyncGenerator[Paid]:
    """The provider in a process of its own."""
    command = [sys.executable, "-m", "podium_lab.bench.durable.paying", "--delay-s", str(delay_s)]
    async with await anyio.open_process(
        [*command, *(["--held"] if held else [])], stderr=None
    ) as process:
        assert process.stdout is not None, "it was asked for"
        lines = BufferedByteReceiveStream(process.stdout)
        try:
            paid = Paid(int(await lines.receive_until(b"\n", LONGEST)), process)
            async with anyio.create_task_group() as group:
                group.start_soon(paid.read, lines)
                yield paid
                group.cancel_scope.cancel()
        finally:
            process.terminate()


def main() -> None:
    """Serve until the process is ended."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--delay-s", type=float, default=0.2)
    parser.add_argument("--held", action="store_true")
    given = parser.parse_args()

    async def serve() -> None:
        await _serve(given.delay_s, held=given.held)

    anyio.run(serve)


if __name__ == "__main__":
    main()
