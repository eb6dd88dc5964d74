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
BEGIN: dict[str, JsonValue] = {
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", **ABOUT},
}
BEGUN: dict[str, JsonValue] = {"method": "notifications/initialized"}


def write(server: "subprocess.Popen[bytes]", line: dict[str, JsonValue]) -> None:
    assert server.stdin is not None
    server.stdin.write(json.dumps({"jsonrpc": "2.0", **line}).encode() + b"\n")
    server.stdin.flush()


def call(server: "subprocess.Popen[bytes]", tool: str, arguments: dict[str, JsonValue]) -> None:
    """Begin a conversation, and call a tool in it."""
    assert server.stdout is not None
    write(server, BEGIN)
    assert b"podium" in server.stdout.readline()
    write(server, BEGUN)
    parameters: dict[str, JsonValue] = {"name": tool, "arguments": arguments}
    write(server, {"id": 2, "method": "tools/call", "params": parameters})


@contextmanager
def asked(podium: CommandLine, provider: Provider) -> Generator["subprocess.Popen[bytes]"]:
    """A server in the middle of the second step of a run."""
    provider.answers(openai_reply("One."), Answer(before="STALL"))
    add_hosted(podium, provider.url)
    with podium.start("serve", piped=True) as server:
        try:
            call(server, "orchestrate", {"question": "Which?", "plan": PLAN})
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

    with podium.start("serve", piped=True) as another:
        call(another, "list_workers", {})
        assert another.stdout is not None
        assert b"far" in another.stdout.readline()
        another.terminate()

    assert podium.inside("runs", "--json").rows[0]["status"] == "interrupted"
    assert len(provider.requests) == 2
