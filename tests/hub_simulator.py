"""A Hugging Face hub on this machine that has one file."""

import re
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

COMMIT = "0" * 40


@dataclass
class SimulatedHub:
    """What it has, and what it was asked."""

    content: bytes
    url: str = ""
    requests: list[str] = field(default_factory=list[str])
    """Method, path and range of each request."""


@contextmanager
def run_hub(content: bytes) -> Generator[SimulatedHub]:
    """A hub that answers every path with *content*."""
    hub = SimulatedHub(content)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self._begin()

        def do_GET(self) -> None:
            start = self._begin()
            self.wfile.write(hub.content[start:])

        def _begin(self) -> int:
            wanted = self.headers.get("Range", "")
            hub.requests.append(f"{self.command} {self.path} {wanted}".strip())
            found = re.fullmatch(r"bytes=(\d+)-", wanted)
            start = int(found[1]) if found else 0
            size = len(hub.content)
            self.send_response(206 if found else 200)
            self.send_header("Content-Length", str(size - start))
            if found:
                self.send_header("Content-Range", f"bytes {start}-{size - 1}/{size}")
            self.send_header("ETag", '"simulated"')
            self.send_header("X-Repo-Commit", COMMIT)
            self.end_headers()
            return start

        def log_message(self, format: str, *args: object) -> None:
            """Tests have their own account of the requests."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
