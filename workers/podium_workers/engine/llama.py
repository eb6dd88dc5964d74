"""Model servers on llama.cpp, as the supervisor sees them: start one, know its address."""

import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from os import getpid
from pathlib import Path
from secrets import token_hex

from pydantic import Field, ValidationError

from podium_workers.engine.child import Child, open_child
from podium_workers.engine.state import ModelSpec
from podium_workers.errors import ModelFileError, UnreachableError
from podium_workers.weights.gguf import read_gguf
from podium_workers.worker import Frozen

PROMPT_CACHE_MIB = 256
"""Room for the state of earlier prompts. Reading a prompt is the slow part on a processor: a
thousand tokens take the 1.5B model half a minute, from this cache a tenth of a second."""
_WORKING_BYTES = 120_000_000
"""What a server takes beside weights, context and cache; measured, rounded up."""
_REASON_MARKS = ("error loading model: ", "failed to load model")


class LlamaOrder(Frozen):
    """What a llama.cpp server process reads from its input when it starts."""

    spec: ModelSpec
    key: str = Field(repr=False)
    parent: int
    prompt_cache_mib: int = PROMPT_CACHE_MIB


class LlamaReady(Frozen):
    """What it prints when it serves, or why it does not."""

    url: str = ""
    error: str = ""


@dataclass(frozen=True)
class LlamaServer:
    """A server that answers for one model."""

    child: Child
    url: str
    key: str


def memory_needed(spec: ModelSpec) -> int:
    """Bytes that serving *spec* is expected to take. Reads the file's header.

    Raises:
        ModelFileError: the file is missing or damaged.
    """
    facts = read_gguf(spec.path)
    context = facts.kv_bytes_per_token * spec.context * spec.slots
    return facts.size + context + (_prompt_cache_mib(spec) << 20) + _WORKING_BYTES


def _prompt_cache_mib(spec: ModelSpec) -> int:
    return PROMPT_CACHE_MIB if spec.gives == "replies" else 0


@asynccontextmanager
async def open_llama(spec: ModelSpec, logs: Path) -> AsyncGenerator[LlamaServer]:
    """A server for *spec*, which has loaded its model; ended with the block.

    Raises:
        ModelFileError: the model cannot be loaded.
        UnreachableError: its process cannot be started.
    """
    log = logs / f"{spec.path.stem}.log"
    order = LlamaOrder(
        spec=spec, key=token_hex(16), parent=getpid(), prompt_cache_mib=_prompt_cache_mib(spec)
    )
    # -P: nothing in the working folder may stand in for a module.
    command = [sys.executable, "-P", "-m", "podium_workers.engine.llama_server"]
    line = order.model_dump_json().encode()
    async with AsyncExitStack() as stack:
        try:
            log.unlink(missing_ok=True)
            opened = open_child(command, log=log, first_line=line)
            child = await stack.enter_async_context(opened)
        except OSError as error:
            raise UnreachableError(
                f"The process for {spec.path.name} cannot be started: {error}."
            ) from error
        ready = _parse(await child.read_line())
        if not ready.url:
            reason = _reason(log) or ready.error or await _end_of(child)
            raise ModelFileError(f"{spec.path.name} cannot be loaded: {reason}.")
        yield LlamaServer(child=child, url=ready.url, key=order.key)


def _parse(line: bytes) -> LlamaReady:
    try:
        return LlamaReady.model_validate_json(line)
    except ValidationError:
        return LlamaReady()


async def _end_of(child: Child) -> str:
    code = await child.wait()
    return f"its process ended with exit code {code}; `podium doctor` looks at this machine"


def _reason(log: Path) -> str:
    """The first complaint of llama.cpp about the file."""
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
        for mark in _REASON_MARKS:
            if mark in line:
                return line.partition(mark)[2] or line.partition(mark)[1]
    return ""
