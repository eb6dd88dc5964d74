"""What Claude Code and Gemini CLI, without an account, say of a Podium in their settings."""

import json
import subprocess
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from tests.clients.programs import Client
from tests.command_line import CommandLine
from tests.flow.client import Transport, connected, http_server

pytestmark = pytest.mark.clients

BOUND_S = 120
TRIES = 3
SLOW_S = 3.0
"""Gemini gives a server five seconds, its own start included: a busy machine may need longer."""
QUIET = {"DISABLE_TELEMETRY": "1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
GEMINI = {
    "security": {"folderTrust": {"enabled": False}},
    "privacy": {"usageStatisticsEnabled": False},
}


def run(client: Client, *arguments: str) -> str:
    """What a command of the client says."""
    done = subprocess.run(
        [client.program, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=False,
        cwd=client.home,
        env=client.environ | QUIET,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def add_to_claude(client: Client, podium: CommandLine, url: str) -> None:
    if url:
        run(client, "mcp", "add", "--transport", "http", "podium", url)
        return
    variables = [f"-e{name}={value}" for name, value in podium.environ.items()]
    run(client, "mcp", "add", "podium", *variables, "--", *podium.argv("serve"))


def add_to_gemini(client: Client, podium: CommandLine, url: str) -> None:
    """Written, since its own command for it takes three seconds."""
    command, *arguments = podium.argv("serve")
    over_stdio = {"command": command, "args": arguments, "env": podium.environ}
    server = {"httpUrl": url} if url else over_stdio
    folder = client.home / ".gemini"
    folder.mkdir()
    (folder / "settings.json").write_text(json.dumps(GEMINI | {"mcpServers": {"podium": server}}))


def health(name: str, podium: CommandLine, url: str = "", *, tries: int = TRIES) -> str:
    """The line about Podium in the client's list of servers, once it is in its settings."""
    client = Client.of(name, podium)
    (add_to_claude if name == "claude" else add_to_gemini)(client, podium, url)
    line = ""
    while tries and not line.rstrip().endswith("Connected"):
        listed = run(client, "mcp", "list")
        (line,) = (line for line in listed.splitlines() if "podium: " in line)
        tries -= 1
    return line


@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize("name", ["claude", "gemini"])
async def test_a_client_connects(podium: CommandLine, name: str, transport: Transport) -> None:
    if transport == "stdio":
        line = await anyio.to_thread.run_sync(health, name, podium)
    else:
        async with http_server(podium) as url:
            line = await anyio.to_thread.run_sync(health, name, podium, url)
    if "Disconnected" in line and (took := await seconds_to_connect(podium)) > SLOW_S:
        pytest.skip(f"{name} waits for five seconds, and here Podium takes {took:.1f} to start")
    assert line.rstrip().endswith("Connected"), line


async def seconds_to_connect(podium: CommandLine) -> float:
    began = anyio.current_time()
    async with connected(podium, era="legacy"):
        return anyio.current_time() - began


@pytest.mark.parametrize("name", ["claude", "gemini"])
def test_a_client_that_cannot_connect_says_so(tmp_path: Path, name: str) -> None:
    """So that the test above shows something."""
    line = health(name, CommandLine(tmp_path), "http://127.0.0.1:9/mcp", tries=1)
    assert "Connected" not in line
