"""A provider on loopback, in a process of its own: answers chat completions after a fixed time.

    python -m podium_lab.bench.engine.simulator --delay-s 0.05

Speaks just enough HTTP to cost little; prints its port. `GET /calls` tells how often it was asked.
"""

import argparse
import http.client
import json
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import anyio
from anyio.abc import SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

LONGEST_HEAD = 65_536
USAGE = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
TEXT = "This part is done."


@dataclass
class Provider:
    """Answers every completion alike, and counts them."""

    delay_s: float
    calls: int = 0

    async def serve(self, stream: SocketStream) -> None:
        """Answer the requests of one connection until it is closed."""
        reader = BufferedByteReceiveStream(stream)
        async with stream:
            try:
                while True:
                    await stream.send(await self._answer(reader))
            except (anyio.EndOfStream, anyio.IncompleteRead, anyio.BrokenResourceError):
                return

    async def _answer(self, reader: BufferedByteReceiveStream) -> bytes:
        head = (await reader.receive_until(b"\r\n\r\n", LONGEST_HEAD)).decode("latin-1")
        request, *lines = head.split("\r\n")
        headers = {name.lower(): it for name, _, it in (line.partition(": ") for line in lines)}
        body = await reader.receive_exactly(int(headers.get("content-length", "0")))
        if request.startswith("GET /calls "):
            return response("application/json", json.dumps({"calls": self.calls}))
        self.calls += 1
        await anyio.sleep(self.delay_s)
        streamed = json.loads(body).get("stream", False)
        return STREAMED if streamed else WHOLE


def response(kind: str, body: str) -> bytes:
    """A response with that body."""
    data = body.encode()
    head = f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {len(data)}\r\n\r\n"
    return head.encode() + data


def _completion(kind: str, **more: object) -> dict[str, object]:
    return {"id": "c-1", "object": kind, "created": 1, "model": "simulated", **more}


def _streamed() -> str:
    said: list[tuple[dict[str, str], str | None]] = [
        ({"role": "assistant", "content": ""}, None),
        ({"content": TEXT}, None),
        ({}, "stop"),
    ]
    choices = [[{"index": 0, "delta": it, "finish_reason": finish}] for it, finish in said]
    events = [_completion("chat.completion.chunk", choices=choice) for choice in choices]
    events.append(_completion("chat.completion.chunk", choices=[], usage=USAGE))
    return "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"


def _whole() -> str:
    message = {"role": "assistant", "content": TEXT}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return json.dumps(_completion("chat.completion", choices=[choice], usage=USAGE))


STREAMED = response("text/event-stream", _streamed())
WHOLE = response("application/json", _whole())


async def serve(delay_s: float) -> None:
    """Serve on a free port until the process is ended."""
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    print(listener.listeners[0].extra(anyio.abc.SocketAttribute.local_port), flush=True)
    await listener.serve(Provider(delay_s).serve)


@dataclass(frozen=True)
class Simulator:
    """A running simulator, as the benchmark sees it."""

    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def calls(self) -> int:
        """How many completions it has been asked for."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", "/calls")
            return int(json.loads(connection.getresponse().read())["calls"])
        finally:
            connection.close()


@contextmanager
def run_simulator(delay_s: float) -> Generator[Simulator]:
    """The simulator in a process of its own."""
    command = [sys.executable, "-m", "podium_lab.bench.engine.simulator"]
    with subprocess.Popen(
        [*command, "--delay-s", str(delay_s)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None, "it was asked for"
        try:
            yield Simulator(int(process.stdout.readline()))
        finally:
            process.terminate()


def main() -> None:
    """Serve until the process is ended."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--delay-s", type=float, default=0.05)
    anyio.run(partial(serve, parser.parse_args().delay_s))


if __name__ == "__main__":
    main()
