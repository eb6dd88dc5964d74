"""vLLM servers, as the supervisor sees them: start one, wait until it serves, say why it does not.

What a server is given to do is its order's matter, whose arguments `vllm_options` makes.
"""

import re
import socket
import sys
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex

import anyio
import httpx2
from pydantic import Field

from podium_workers.engine import vllm_server
from podium_workers.engine.child import Child, open_child
from podium_workers.engine.state import VllmOrder, VllmSpec
from podium_workers.errors import (
    ModelFileError,
    NotInstalledError,
    SlowReplyError,
    UnreachableError,
    UnsupportedParameterError,
    WorkerError,
)
from podium_workers.wire import scrub
from podium_workers.worker import Frozen

Tell = Callable[[str], None]

_POLL_S = 0.25
_TELL_EVERY_S = 10.0
_HEALTH_WITHIN_S = 5.0
_STOP_WITHIN_S = 10.0
_TAIL_LINES = 5
_LONGEST_LINE = 300
_LONGEST_NAME = 80


class _Line(Frozen):
    """What the server's process reads from its input."""

    arguments: tuple[str, ...]
    environment: dict[str, str]
    key: str = Field(repr=False)


@dataclass(frozen=True)
class VllmServer:
    """A vLLM server that has loaded its model."""

    child: Child
    url: str
    """Where it listens, without a path."""
    key: str

    async def is_dead(self) -> bool:
        """Whether it has ended, or has lost its engine; one that is merely slow is not dead."""
        if self.child.has_ended:
            return True
        async with _client() as http:
            return await _health(http, self.url) is False


def vllm_log(logs: Path, spec: VllmSpec) -> Path:
    """Where the server of *spec* logs."""
    name = re.sub(r"[^A-Za-z0-9.-]+", "-", spec.model).strip("-.")
    return logs / f"vllm-{name[-_LONGEST_NAME:]}.log"


@asynccontextmanager
async def open_vllm(order: VllmOrder, logs: Path, tell: Tell) -> AsyncGenerator[VllmServer]:
    """A server for *order*, which has loaded its model; ended, with all its processes, with the
    block. *tell* hears in a sentence how the start comes along.

    Raises:
        WorkerError: it did not begin to serve; the text holds the end of its log.
    """
    spec, log = order.spec, vllm_log(logs, order.spec)
    if log.exists():  # it may say why the server before this one ended
        log.replace(log.with_suffix(".before.log"))
    async with AsyncExitStack() as stack:
        with _reserved_port() as port:
            key, url = token_hex(32), f"http://127.0.0.1:{port}"
            line = _Line(
                arguments=(*spec.arguments, "--host", "127.0.0.1", "--port", str(port)),
                environment=dict(spec.environment),
                key=key,
            )
            opened = open_child(
                _command(spec),
                log=log,
                first_line=line.model_dump_json().encode(),
                stop_within_s=_STOP_WITHIN_S,
                leads_group=True,
            )
            try:
                child = await stack.enter_async_context(opened)
            except OSError as error:
                raise NotInstalledError(f"{spec.python} cannot be run: {error}.") from error
            await _until_it_serves(order, child, url, log, tell)
        yield VllmServer(child=child, url=url, key=key)


def _command(spec: VllmSpec) -> list[str]:
    # -E: what was set for this Python is not for another one.
    options = [] if str(spec.python) == sys.executable else ["-E"]
    return [str(spec.python), *options, vllm_server.__file__]


@contextmanager
def _reserved_port() -> Generator[int]:
    """A free port of this machine that nobody else is given while the block runs.

    vLLM can bind it all the same, since neither socket minds the other until one listens.
    """
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if sys.platform != "win32":
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


async def _until_it_serves(order: VllmOrder, child: Child, url: str, log: Path, tell: Tell) -> None:
    began = anyio.current_time()
    tell(f"vLLM is starting with {order.spec.model}; its log is {log}.")
    next_told = began + _TELL_EVERY_S
    async with _client() as http:
        with anyio.move_on_after(order.start_within_s):
            while not child.has_ended:
                if await _health(http, url):
                    tell(f"vLLM serves {order.spec.model}.")
                    return
                if anyio.current_time() >= next_told:
                    next_told += _TELL_EVERY_S
                    tell(f"vLLM is starting, {anyio.current_time() - began:.0f} s: {_news(log)}")
                await anyio.sleep(_POLL_S)
    if child.has_ended:
        raise why_it_failed(order.spec, log, await child.wait())
    raise SlowReplyError(
        f"vLLM did not serve {order.spec.model} within {order.start_within_s:g} s; raise "
        f"start_within_s in the pool. {_tail(log)}",
        limit="first_byte",
    )


def _client() -> httpx2.AsyncClient:
    limits = httpx2.Limits(max_keepalive_connections=0)
    return httpx2.AsyncClient(timeout=_HEALTH_WITHIN_S, trust_env=False, limits=limits)


async def _health(http: httpx2.AsyncClient, url: str) -> bool | None:
    """Whether a server is well; None when it does not say."""
    try:
        response = await http.get(f"{url}/health")
    except httpx2.ConnectError:
        return False
    except httpx2.TransportError:
        return None
    return response.is_success


_MESSAGE = re.compile(r"^(?:\([^)]*\)\s+)*(?:[A-Z]+ \S+ \S+ \[[^]]*\]\s+)?(?P<text>.*)$")
"""A line of vLLM's log without process, level, time and place."""
_REASON = re.compile(
    r"^(?:[\w.]+\.)?(?P<kind>\w+(?:Error|Exception|Interrupt)): (?P<text>\S.*)$"
    r"|^.*?: error: (?P<usage>.+)$"
)
_NO_REASON = re.compile("see root cause above|Engine core initialization failed", re.I)
_NO_ROOM = re.compile(
    r"out of memory|No available memory for the cache|free memory on device|KV cache is needed"
    r"|tokens that can be stored in KV cache|can't allocate memory|exceeds available memory"
    r"|not enough memory",
    re.I,
)
_BAD_FLAG = re.compile(r"unrecognized arguments|argument -|invalid choice|expected one argument")
_PORT_TAKEN = re.compile("Address already in use", re.I)


def why_it_failed(spec: VllmSpec, log: Path, code: int) -> WorkerError:
    """The error for a server that ended with *code* before it served."""
    lines = _lines(log)
    text = next((line for line in lines if line.startswith(vllm_server.MISSING)), "")
    if text:
        return NotInstalledError(
            f"{spec.python} has no vLLM that can be used ({text.removeprefix(vllm_server.MISSING)}"
            " ): install vLLM there, or name another interpreter as python in the pool."
        )
    reason = _reason(lines)
    said = f"{reason or f'its process ended with exit code {code}'}. {_tail(log)}"
    if any(_PORT_TAKEN.search(line) for line in lines):
        return UnreachableError(f"vLLM lost its port to another program: {said}")
    if any(_NO_ROOM.search(line) for line in lines):
        return ModelFileError(
            f"{spec.model} does not fit into memory under vLLM; lower context_window, set "
            f"gpu_memory_utilization, or choose a quantised model: {said}"
        )
    if _BAD_FLAG.search(reason):
        return UnsupportedParameterError(
            f"vLLM does not take what the pool gives it: {said}", parameter="flags"
        )
    if not reason and code < 0:
        return UnreachableError(f"vLLM was ended by signal {-code} while it started. {_tail(log)}")
    return ModelFileError(f"vLLM cannot serve {spec.model}: {said}")


def _reason(lines: list[str]) -> str:
    """The last error of the log that says what was wrong."""
    for line in reversed(lines):
        found = _REASON.match(line)
        if found and not _NO_REASON.search(line):
            return (found["text"] or found["usage"])[:_LONGEST_LINE].rstrip(" .")
    return ""


def _tail(log: Path) -> str:
    lines = [line[:_LONGEST_LINE] for line in _lines(log) if line.strip()][-_TAIL_LINES:]
    return f"Its log, {log}, ends: {' | '.join(lines)}" if lines else f"Its log, {log}, is empty."


def _news(log: Path) -> str:
    lines = [line for line in _lines(log) if line.strip()]
    return lines[-1][:_LONGEST_LINE] if lines else "nothing in its log yet"


def _lines(log: Path) -> list[str]:
    """What the log says, without what stands before each message."""
    if not log.exists():
        return []
    text = scrub(log.read_text(encoding="utf-8", errors="replace")).replace("\r", "\n")
    return [_MESSAGE.sub(r"\g<text>", line).rstrip() for line in text.splitlines()]
