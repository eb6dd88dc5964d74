"""Real clients read what `podium install` writes for them, and start Podium from it."""

import json
import subprocess
from typing import cast

import pytest
from pydantic import JsonValue
from tests.clients.programs import Client
from tests.command_line import CommandLine

pytestmark = pytest.mark.clients

BOUND_S = 120
QUIET = {"DISABLE_TELEMETRY": "1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
KEY = {"ONE_API_KEY": "sk-very-secret"}
Data = dict[str, JsonValue]


def said_by(client: Client, *arguments: str) -> str:
    """What a command of the client says, in a place where a key is set."""
    done = subprocess.run(
        [client.program, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=False,
        cwd=client.home,
        env=client.environ | QUIET | KEY,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def at_home(podium: CommandLine, client: Client) -> CommandLine:
    """Podium as one would type it at the client's home."""
    return CommandLine(podium.folder, client.environ | KEY)


def test_claude_code_connects_to_what_was_installed(podium: CommandLine):
    client = Client.of("claude", podium)
    home = at_home(podium, client)
    done = home.inside("--store", "ledger.db", "install", "claude-code", "--env", "ONE_API_KEY")
    assert done.code == 0, done.err
    said = said_by(client, "mcp", "get", "podium")
    assert "User config" in said
    assert "✔ Connected" in said
    assert "ONE_API_KEY=${ONE_API_KEY:-}" in said
    assert "already there" in home.inside("install", "claude-code", "--env", "ONE_API_KEY").err

    changed = home.inside("install", "claude-code", "--env", "TWO_API_KEY")
    assert (changed.code, "podium was changed" in changed.err) == (0, True)
    assert "TWO_API_KEY" in said_by(client, "mcp", "get", "podium")
    assert home.inside("uninstall", "claude-code").code == 0
    assert "podium" not in said_by(client, "mcp", "list")


def test_codex_reads_what_was_installed(podium: CommandLine):
    client = Client.of("codex", podium)
    home = at_home(podium, client)
    assert home.inside("install", "codex", "--env", "ONE_API_KEY").code == 0
    listed = said_by(client, "mcp", "list", "--json")
    (server,) = cast("list[Data]", json.loads(listed[listed.index("[\n") : listed.rindex("]") + 1]))
    transport = cast("Data", server["transport"])
    assert (server["name"], server["enabled"]) == ("podium", True)
    assert cast("list[str]", transport["args"])[-1] == "serve"
    assert transport["env_vars"] == ["ONE_API_KEY"]
    assert (server["startup_timeout_sec"], server["tool_timeout_sec"]) == (60, 1800)
    url = "http://127.0.0.1:8000/mcp"
    home.inside("install", "codex", "--http", url, "--token-env", "A_TOKEN")
    assert f'"url": "{url}"' in said_by(client, "mcp", "list", "--json")


def test_gemini_connects_to_what_was_installed(podium: CommandLine):
    client = Client.of("gemini", podium)
    file = client.home / ".gemini" / "settings.json"
    file.parent.mkdir()
    file.write_text(
        '{ // mine\n  "security": {"folderTrust": {"enabled": false}},\n'
        '  "privacy": {"usageStatisticsEnabled": false}\n}\n'
    )
    done = at_home(podium, client).inside("install", "gemini", "--env", "ONE_API_KEY")
    assert done.code == 0
    assert "// mine" in file.read_text()
    line = next(line for line in said_by(client, "mcp", "list").splitlines() if "podium:" in line)
    assert "Connected" in line
    assert "Disconnected" not in line
