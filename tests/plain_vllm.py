"""A stand-in for vLLM that starts in a moment: the package `vllm` with its command line and wire.

It does in small what the engine relies on: it listens where it is told, wants the key that it got,
runs a process beside its own, and ends with words that vLLM ends with. What goes wrong is for the
environment variable PLAIN_VLLM to say. To the first prompt that wants a reply for ever it gives
none.
"""

import stat
import sys
from dataclasses import dataclass
from pathlib import Path

_MAIN = """
import json, os, subprocess, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LAST_WORDS = {
    "no room": "(EngineCore pid=7) ERROR 11-30 10:00:00 [core.py:1] ValueError: No available memory"
    " for the cache blocks. Try increasing `gpu_memory_utilization`.\\n"
    "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s)",
    "bad model": "pydantic_core._pydantic_core.ValidationError: 1 validation error\\n"
    "OSError: /no/such is not a local folder and is not a valid model identifier",
    "bad flag": "vllm serve: error: unrecognized arguments: --no-such-flag",
    "port taken": "OSError: [Errno 98] Address already in use",
}


class Answer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def piece(self, text):
        data = text.encode()
        self.wfile.write(b"%x\\r\\n%b\\r\\n" % (len(data), data))

    def empty(self, status):
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *words):
        pass

    def do_GET(self):
        self.empty(200)

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.headers["authorization"] != "Bearer " + os.environ["VLLM_API_KEY"]:
            self.empty(401)
            return
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        once = os.path.join(os.path.dirname(__file__), "asked-for-ever")
        if "for ever" in asked["messages"][-1]["content"] and not os.path.exists(once):
            open(once, "w").close()
            print("asked for ever", flush=True)
            time.sleep(600)
        text = asked["model"] + " " + json.dumps(sys.argv[2:])
        for choice in ({"delta": {"content": text}}, {"delta": {}, "finish_reason": "stop"}):
            event = {"id": "1", "model": asked["model"], "choices": [{"index": 0, **choice}]}
            self.piece("data: " + json.dumps(event) + "\\n\\n")
        usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
        event = {"id": "1", "model": asked["model"], "choices": [], "usage": usage}
        self.piece("data: " + json.dumps(event) + "\\n\\ndata: [DONE]\\n\\n")
        self.piece("")


def main():
    wrong = os.environ.get("PLAIN_VLLM", "")
    print("INFO 11-30 10:00:00 [serve.py:1] starting up", flush=True)
    if wrong == "slow":
        time.sleep(600)
    if wrong in LAST_WORDS:
        sys.exit(LAST_WORDS[wrong])
    beside = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    print("beside:", beside.pid, flush=True)
    port = int(sys.argv[sys.argv.index("--port") + 1])
    ThreadingHTTPServer(("127.0.0.1", port), Answer).serve_forever()
"""


@dataclass(frozen=True)
class PlainVllm:
    """Interpreters, one of which has the stand-in."""

    python: Path
    without: Path
    """An interpreter that has no vLLM."""


def make_plain_vllm(folder: Path) -> PlainVllm:
    """Write the package and the interpreters into *folder*."""
    package = folder / "site" / "vllm" / "entrypoints" / "cli"
    package.mkdir(parents=True)
    for level in (package, package.parent, package.parent.parent):
        (level / "__init__.py").touch()
    (package / "main.py").write_text(_MAIN)
    return PlainVllm(
        python=_interpreter(folder / "python", folder / "site"),
        without=_interpreter(folder / "python-without", folder / "nothing"),
    )


def _interpreter(path: Path, packages: Path) -> Path:
    # Podium tells another interpreter than its own to heed no PYTHONPATH; this is how it has some.
    path.write_text(
        f'#!/bin/sh\n[ "$1" = -E ] && shift\nPYTHONPATH={packages} exec {sys.executable} "$@"\n'
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path
