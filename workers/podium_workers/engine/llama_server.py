"""The process that serves one model with llama.cpp's own HTTP server; run by the supervisor.

It reads its order from its input, prints one line when it serves, and ends when its input does.
"""

import importlib
import os
import sys
from typing import Protocol, TextIO, cast

from podium_workers.engine.child import die_with
from podium_workers.engine.llama import LlamaOrder, LlamaReady

_BATCH = 128
"""Tokens of a prompt that are read at a time: in between, a dropped call is noticed and other
calls have their turn. Fewer cost speed, more delay both."""
_ERRORS_ONLY = 1


class _Path(Protocol):
    path: str


class _Threads(Protocol):
    n_threads: int


class _Parameters(Protocol):
    """What is set of llama.cpp's parameters."""

    model: _Path
    cpuparams: _Threads
    cpuparams_batch: _Threads
    n_ctx: int
    n_parallel: int
    n_batch: int
    n_ubatch: int
    cache_ram_mib: int
    no_extra_bufts: bool
    ui: bool
    embedding: bool
    pooling_type: object
    api_keys: list[str]
    verbosity: int


class _Server(Protocol):
    listening_address: str


class _Poolings(Protocol):
    LLAMA_POOLING_TYPE_LAST: object


class _Engine(Protocol):
    """What is used of xllamacpp, which has no annotations."""

    llama_pooling_type: _Poolings

    def CommonParams(self) -> _Parameters: ...

    def Server(self, parameters: _Parameters) -> _Server: ...


def main() -> None:
    """Serve until the supervisor ends."""
    order = LlamaOrder.model_validate_json(sys.stdin.buffer.readline())
    end_of_input = die_with(order.parent)
    answers = _take_output()
    # OpenMP reads this when the engine is loaded: threads that spin while they wait starve each
    # other on a busy machine, down to a tenth of the speed.
    os.putenv("OMP_WAIT_POLICY", "passive")
    try:
        server = _serve(order)
        ready = LlamaReady(url=server.listening_address)
    except ImportError as error:
        ready = LlamaReady(error=f"{error} (`podium doctor` says what to type)")
    except RuntimeError as error:
        ready = LlamaReady(error=str(error).rstrip("."))
    answers.write(ready.model_dump_json() + "\n")
    answers.flush()
    if ready.error:
        # At once, since the engine's threads may not survive an orderly end.
        os._exit(1)
    end_of_input.join()


def _take_output() -> TextIO:
    """The process's output; what the engine prints goes to the log from now on."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


def _serve(order: LlamaOrder) -> _Server:
    engine = cast("_Engine", importlib.import_module("xllamacpp"))
    parameters = engine.CommonParams()
    parameters.model.path = str(order.spec.path)
    parameters.n_parallel = order.spec.slots
    parameters.n_ctx = order.spec.context * order.spec.slots
    parameters.cpuparams.n_threads = order.spec.threads
    parameters.cpuparams_batch.n_threads = order.spec.threads
    parameters.n_batch = _BATCH
    parameters.n_ubatch = _BATCH
    parameters.cache_ram_mib = order.prompt_cache_mib
    # Without a second, rearranged copy of the weights: a third less memory, as fast here.
    parameters.no_extra_bufts = True
    parameters.ui = False
    if order.spec.gives == "states":
        # Of the last token alone: then a text may be read in pieces, and no other state is sent.
        parameters.embedding = True
        parameters.pooling_type = engine.llama_pooling_type.LLAMA_POOLING_TYPE_LAST
    parameters.api_keys = [order.key]
    parameters.verbosity = _ERRORS_ONLY
    return engine.Server(parameters)


if __name__ == "__main__":
    main()
