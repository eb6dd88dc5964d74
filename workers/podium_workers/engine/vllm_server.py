"""Becomes `vllm serve`: run as a file by the Python that has vLLM, for the supervisor.

It reads its order from its input, and ends with all its processes when its input does. Only the
standard library, since Podium is not installed where vLLM is.
"""

import importlib
import json
import os
import signal
import sys
import threading
from typing import Protocol, cast

MISSING = "podium: vLLM cannot be imported:"
"""Begins the line of the log that says so."""
_DEFAULTS = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
"""Nothing about this machine is reported to anybody, unless the user wants that."""


class _CommandLine(Protocol):
    """What is used of vLLM."""

    def main(self) -> None: ...


def main() -> None:
    """Serve until the supervisor ends, or asks for the end."""
    order = cast("dict[str, object]", json.loads(sys.stdin.buffer.readline()))
    threading.Thread(target=_end_with_input, daemon=True).start()
    os.dup2(2, 1)
    # The folder of this file holds modules that must not stand in for others.
    own = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if path != own]
    wanted = cast("dict[str, str]", order["environment"])
    os.environ.update({**_DEFAULTS, **os.environ, **wanted})
    os.environ["VLLM_API_KEY"] = str(order["key"])
    sys.argv = ["vllm", "serve", *cast("list[str]", order["arguments"])]
    try:
        module = importlib.import_module("vllm.entrypoints.cli.main")
    except ImportError as error:
        sys.exit(f"{MISSING} {error}")
    cast("_CommandLine", module).main()


def _end_with_input() -> None:
    while os.read(0, 1024):
        pass
    # The group: vLLM's engine runs in processes of its own.
    os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    main()
