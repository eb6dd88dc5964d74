"""A stdio server that is told to end while it works: quick, and nothing is paid twice."""

import json
import signal
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager

import pytest
from pydantic import JsonValue
from tests.command_line import CommandLine, add_hosted
from tests.provider_simulator import Answer, Provider, openai_reply

ENDS_WITHIN_S = 5.0
PLAN: list[JsonValue] = [
    {"worker": "far", "subtask": "First.", "access": []},
    {"worker": "far", "subtask": "Second.", "access": [0]},
]
ABOUT: dict[str, JsonValue] = {"capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
LINES: list[dict[str, JsonValue]] = [
    {"id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18", **ABOUT}},
    {"method": "notifications/initialized"},
    {
        "id": 2,
        "method": "tools/call",
        "params": {"name": "orchestrate", "arguments": {"question": "Which?", "plan": PLAN}},
    },
]


@contextmanager
def asked(podium: CommandLine, provider: Provider) -> Generator["subprocess.Popen[bytes]"]:
    """A server in the middle of the second step of a run."""
    provider.answers(openai_reply("One."), Answer(before="STALL"))
    add_hosted(podium, provider.url)
    with podium.start("serve", piped=True) as server:
        try:
            assert server.stdin is not None
            for line in LINES:
                server.stdin.write(json.dumps({"jsonrpc": "2.0", **line}).encode() + b"\n")
            server.stdin.flush()
            assert provider.stalling.wait(60)
            yield server
        finally:
            server.kill()


@pytest.mark.parametrize("how", ["SIGTERM", "SIGINT", "stdin closed", "SIGTERM, nobody reads"])
def test_a_server_that_ends_in_the_middle_of_a_run_leaves_it_to_be_resumed(
    podium: CommandLine, provider: Provider, how: str
):
    with asked(podium, provider) as server:
        began = time.monotonic()
        if how == "stdin closed":
            assert server.stdin is not None
            server.stdin.close()
        else:
            if how.endswith("nobody reads"):
                assert server.stdout is not None
                server.stdout.close()
            server.send_signal(signal.SIGINT if how == "SIGINT" else signal.SIGTERM)
        server.wait(30)
        assert time.monotonic() - began < ENDS_WITHIN_S

    assert provider.disconnected.wait(5)
    run = podium.newest_run()
    assert podium.inside("runs", "--json").rows[0]["status"] == "interrupted"

    provider.answers(openai_reply("Two."))
    done = podium("resume", run)
    assert (done.code, done.out) == (0, "Two.\n")
    assert len(provider.requests) == 3


def test_an_interrupted_run_waits_to_be_asked_and_a_new_server_leaves_it_alone(
    podium: CommandLine, provider: Provider
):
    with asked(podium, provider) as server:
        server.send_signal(signal.SIGTERM)
        server.wait(30)
    provider.answers(openai_reply("Another."))

    ended = podium("serve", stdin=_look_at_the_pool())

    assert '"id":2' in ended.out.replace(" ", "")
    assert podium.inside("runs", "--json").rows[0]["status"] == "interrupted"
    assert len(provider.requests) == 2


def _look_at_the_pool() -> str:
    look: dict[str, JsonValue] = {
        "id": 2, "method": "tools/call", "params": {"name": "list_workers", "arguments": {}},
    }  # fmt: skip
    lines = [*LINES[:2], look]
    return "".join(json.dumps({"jsonrpc": "2.0", **line}) + "\n" for line in lines)
