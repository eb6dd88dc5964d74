"""What `podium doctor` says of clients that have Podium in their settings."""

import json
import sys
from pathlib import Path
from typing import cast

import pytest
from tests.command_line import CommandLine

from podium import __version__
from podium.cli.installing.clients import CLIENTS
from podium.cli.installing.launch import this_podium

OWN = this_podium()
SERVE = [*OWN.args, "serve"]


def of_clients(podium: CommandLine) -> dict[str, list[dict[str, str]]]:
    """The checks of clients, by area; that the doctor finds nothing else wrong is not looked at."""
    found = cast("list[dict[str, str]]", podium.inside("doctor", "--json").data["checks"])
    areas: dict[str, list[dict[str, str]]] = {}
    for check in found:
        if check["area"].startswith("client"):
            areas.setdefault(check["area"], []).append(check)
    return areas


def written(podium: CommandLine, name: str, data: object) -> Path:
    file = podium.folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(data if isinstance(data, str) else json.dumps(data))
    return file


def script(podium: CommandLine, name: str, says: str) -> str:
    """A program that calls itself so."""
    file = written(podium, f"{name}/podium", f"#!/bin/sh\necho '{says}'\necho $0 >> $HOME/asked\n")
    file.chmod(0o755)
    return str(file)


def test_where_no_client_has_podium_it_is_said_how_to_put_it_there(podium: CommandLine):
    (check,) = of_clients(podium)["clients"]
    assert check["level"] == "ok"
    assert all(client.name in check["remedy"] for client in CLIENTS)


def test_what_install_writes_is_well(podium: CommandLine):
    for client in CLIENTS:
        if client.name != "claude-code":
            podium.inside("install", client.name)
    project = podium.inside("install", "claude-code", "--project", ".")
    assert project.code == 0
    checks = of_clients(podium)
    assert set(checks) == {f"client {client.name}" for client in CLIENTS}
    for (check,) in checks.values():
        assert check["level"] == "ok"
        assert check["found"].endswith(f"podium starts {sys.executable}")


@pytest.mark.parametrize(
    ("entry", "fault"),
    [
        ({"command": "/gone/bin/podium", "args": ["serve"]}, "/gone/bin/podium does not exist"),
        ({"command": "{dead}", "args": ["serve"]}, "{dead} cannot be run"),
        ({"command": "{old}", "args": ["serve"]}, "{old} is 0.0.1, this is Podium"),
        ({"command": "{strange}", "args": ["serve"]}, "{strange} is no Podium that works"),
        ({"command": OWN.command, "args": list(OWN.args)}, "it does not start `serve`"),
        (
            {"command": OWN.command, "args": [*OWN.args, "--pool", "/gone.toml", "serve"]},
            "--pool /gone.toml does not exist",
        ),
        (
            {"command": OWN.command, "args": [*OWN.args, "--config=/gone.toml", "serve"]},
            "--config /gone.toml does not exist",
        ),
        (
            {"command": OWN.command, "args": SERVE, "env": {"OPENAI_API_KEY": "sk-secret"}},
            "OPENAI_API_KEY stands there in the clear",
        ),
    ],
)
def test_an_entry_that_does_not_work_is_told(
    entry: dict[str, object], fault: str, podium: CommandLine
):
    programs = {
        "old": script(podium, "old", "podium, version 0.0.1"),
        "strange": script(podium, "strange", "podium racing 2"),
        "dead": script(podium, "dead", ""),
    }
    Path(programs["dead"]).chmod(0o644)
    command = str(entry["command"]).format(**programs)
    written(podium, ".cursor/mcp.json", {"mcpServers": {"podium": entry | {"command": command}}})

    (check,) = of_clients(podium)["client cursor"]

    assert check["level"] == "note"
    assert fault.format(**programs) in check["found"]
    assert "sk-secret" not in str(check)
    if "/gone.toml" in fault:
        assert check["remedy"] == f"podium {fault.split()[0]} FILE install cursor"
        return
    assert check["remedy"].startswith("podium install cursor")
    env = ("--env", "OPENAI_API_KEY") if "env" in entry else ()
    if "racing" not in fault:
        podium.inside("install", "cursor", *env)
        (check,) = of_clients(podium)["client cursor"]
        assert check["level"] == "ok"


def test_a_podium_of_this_version_somewhere_else_is_well(podium: CommandLine):
    other = script(podium, "other", f"podium, version {__version__}")
    written(
        podium, ".cursor/mcp.json", {"mcpServers": {"p": {"command": other, "args": ["serve"]}}}
    )
    (check,) = of_clients(podium)["client cursor"]
    assert (check["level"], check["found"].endswith(f"p starts {other}")) == ("ok", True)


def test_a_program_that_a_project_names_is_not_started(podium: CommandLine):
    home = podium.folder / "home"
    home.mkdir()
    other = script(podium, "other", "podium, version 0.0.1")
    written(podium, ".mcp.json", {"mcpServers": {"podium": {"command": other, "args": ["serve"]}}})
    checks = of_clients(CommandLine(podium.folder, {"HOME": str(home)}))
    assert [check["level"] for check in checks["client claude-code"]] == ["ok"]
    assert not list(podium.folder.rglob("asked"))


def test_time_limits_that_cut_calls_are_told_and_mended(podium: CommandLine):
    codex = f'[mcp_servers.podium]\ncommand = "{OWN.command}"\nargs = {json.dumps(SERVE)}\n'
    written(podium, ".codex/config.toml", f"{codex}tool_timeout_sec = 20\n")
    gemini = {"command": OWN.command, "args": SERVE, "timeout": 600}
    written(podium, ".gemini/settings.json", {"mcpServers": {"podium": gemini}})
    claude = {"type": "stdio", "command": OWN.command, "args": SERVE, "timeout": 5000}
    written(podium, ".claude.json", {"mcpServers": {"podium": claude}})

    checks = of_clients(podium)

    (check,) = checks["client codex"]
    assert "startup_timeout_sec is not set" in check["found"]
    assert "tool_timeout_sec = 20 is too short (at least 60)" in check["found"]
    assert check["remedy"] == "podium install codex"
    (check,) = checks["client gemini"]
    assert "timeout = 600 is too short (at least 60000)" in check["found"]
    (check,) = checks["client claude-code"]
    assert "timeout = 5000 is too short" in check["found"]
    for client in ("codex", "gemini"):
        podium.inside("install", client)
        assert of_clients(podium)[f"client {client}"][0]["level"] == "ok"


def test_several_entries_of_podium_in_one_client_are_told(podium: CommandLine):
    podium.inside("install", "zed")
    podium.inside("install", "zed", "--name", "team")
    checks = of_clients(podium)["client zed"]
    assert [check["level"] for check in checks] == ["ok", "ok", "note"]
    assert "as podium and team, each a process of its own" in checks[2]["found"]


def test_claude_code_is_looked_at_in_all_its_scopes(podium: CommandLine):
    here = str(podium.folder)
    gone = {"type": "stdio", "command": "/gone/podium", "args": ["serve"]}
    of_here = {"mcpServers": {"podium": gone}}
    written(podium, ".claude.json", {"projects": {here: of_here, "/elsewhere": of_here}})
    reached = {"url": "http://127.0.0.1:8000/mcp"}
    written(podium, ".mcp.json", {"mcpServers": {"podium": reached}})
    local, project = of_clients(podium)["client claude-code"]
    assert local["remedy"].startswith("claude mcp remove --scope local podium && podium install")
    assert "an address without `type` is taken for a program" in project["found"]
    assert (
        project["remedy"] == f"podium install claude-code --project {here} --http {reached['url']}"
    )


def test_a_file_that_cannot_be_read_and_servers_of_others_do_no_harm(podium: CommandLine):
    written(podium, ".cursor/mcp.json", "{")
    others = {"podium": {"command": "/bin/race", "args": ["1"]}, "x": {"url": "http://h/mcp"}}
    written(podium, ".gemini/settings.json", {"mcpServers": others})
    checks = of_clients(podium)
    assert list(checks) == ["client cursor"]
    assert "this is not valid JSON" in checks["client cursor"][0]["found"]
