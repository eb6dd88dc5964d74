"""`podium install` and `podium uninstall`: each client's file, in a home of the test's own."""

import base64
import json
import sys
import tomllib
from pathlib import Path
from typing import cast
from urllib.parse import parse_qs, urlsplit

import pytest
from pydantic import JsonValue
from tests.command_line import CommandLine, Done

from podium.cli.installing.clients import CLIENTS, Machine, client_named, user_file
from podium.cli.installing.launch import end_of_launcher, this_podium

LINE = [sys.executable, "-m", "podium", "serve"]
SECRET = "sk-very-secret"
IN_FILES = [client.name for client in CLIENTS if client.name != "claude-code"]
Data = dict[str, JsonValue]


def file_of(podium: CommandLine, client: str) -> Path:
    return user_file(client_named(client), Machine(sys.platform, podium.environ))


def data_of(file: Path) -> Data:
    text = file.read_text()
    return tomllib.loads(text) if file.suffix == ".toml" else cast("Data", json.loads(text))


def entry_of(podium: CommandLine, client: str, name: str = "podium") -> Data:
    inner: JsonValue = data_of(file_of(podium, client))
    for key in (*client_named(client).place, name):
        assert isinstance(inner, dict)
        inner = inner[key]
    assert isinstance(inner, dict)
    return inner


def unset(podium: CommandLine) -> CommandLine:
    """It, where no variable names its pool and ledger."""
    return CommandLine(podium.folder, {"PODIUM_POOL": "", "PODIUM_STORE": ""})


def backups(file: Path) -> list[Path]:
    return sorted(file.parent.glob(f"{file.name}.podium-*.bak"))


@pytest.mark.parametrize("client", IN_FILES)
def test_podium_is_written_once_and_taken_out_again(client: str, podium: CommandLine):
    file = file_of(podium, client)
    added = podium.inside("install", client)
    assert (added.code, added.out) == (0, "")
    assert f"{file}: podium was added." in added.err
    assert file.stat().st_mode & 0o777 == 0o600
    text = file.read_text()

    again = podium.inside("install", client)
    assert (again.code, file.read_text()) == (0, text)
    assert "is already there; nothing was changed" in again.err
    assert backups(file) == []

    removed = podium.inside("uninstall", client)
    assert removed.code == 0
    assert [copy.read_text() for copy in backups(file)] == [text]
    assert sys.executable not in file.read_text()
    assert "nothing was changed" in podium.inside("uninstall", client).err
    assert len(backups(file)) == 1


@pytest.mark.parametrize("client", [client.name for client in CLIENTS])
def test_what_is_printed_is_what_would_be_written(client: str, podium: CommandLine):
    shown = podium.inside("install", client, "--print")
    assert shown.code == 0
    assert "nothing was written" in shown.err
    assert {path.name for path in podium.folder.iterdir()} == {"pool.toml"}
    project = podium.folder / "project"
    project.mkdir()
    if client == "claude-code":
        podium.inside("install", client, "--project", "project")
        file = project / ".mcp.json"
    else:
        podium.inside("install", client)
        file = file_of(podium, client)
    assert shown.out == file.read_text()


def test_each_client_is_told_in_its_own_way(podium: CommandLine):
    for client in IN_FILES:
        unset(podium).inside("install", client)
    plain = {"command": LINE[0], "args": LINE[1:]}
    for client in ("claude-desktop", "cursor", "windsurf"):
        assert entry_of(podium, client) == plain
    assert entry_of(podium, "vscode") == {"type": "stdio", **plain}
    assert entry_of(podium, "zed") == {**plain, "timeout": 600}
    assert entry_of(podium, "gemini") == {**plain, "timeout": 1_800_000}
    codex = {"startup_timeout_sec": 60, "tool_timeout_sec": 1800}
    assert entry_of(podium, "codex") == {**plain, **codex}
    opencode = {"type": "local", "command": LINE, "timeout": 1_800_000}
    assert entry_of(podium, "opencode") == opencode


def test_an_address_is_told_in_each_clients_own_way(podium: CommandLine):
    url = "http://127.0.0.1:8000/mcp"
    wanted = {
        "vscode": {"type": "http", "url": url},
        "cursor": {"url": url},
        "windsurf": {"serverUrl": url},
        "codex": {"url": url},
        "gemini": {"httpUrl": url},
        "opencode": {"type": "remote", "url": url},
    }
    token = ("--token-env", "A_TOKEN")
    for client, entry in wanted.items():
        named = {"bearer_token_env_var"} if client == "codex" else {"headers"}
        podium.inside("install", client, "--env", "A_KEY")  # as a program first, which has to go
        program = entry_of(podium, client)
        assert podium.inside("install", client, "--http", url, *token).code == 0
        limits = client_named(client).timeouts
        assert entry_of(podium, client).keys() == {*entry, *limits, *named}
        assert entry.items() <= entry_of(podium, client).items()
        podium.inside("install", client, "--env", "A_KEY")  # and back
        assert entry_of(podium, client) == program
    refused = podium.inside("install", "claude-desktop", "--http", url)
    assert refused.code == 1
    assert "takes only programs" in refused.err


def test_a_token_of_an_address_is_named_but_not_written(podium: CommandLine):
    home = CommandLine(podium.folder, {"PODIUM_TOKEN": SECRET})
    asked = ("--http", "https://podium.example/mcp", "--token-env", "PODIUM_TOKEN")
    bearers = {
        "cursor": "Bearer ${env:PODIUM_TOKEN}",
        "gemini": "Bearer ${PODIUM_TOKEN:-}",
        "opencode": "Bearer {env:PODIUM_TOKEN}",
        "vscode": "Bearer ${input:podium-token}",
    }
    for client, bearer in bearers.items():
        assert home.inside("install", client, *asked).code == 0
        assert entry_of(podium, client)["headers"] == {"Authorization": bearer}
    assert home.inside("install", "codex", *asked).code == 0
    assert entry_of(podium, "codex")["bearer_token_env_var"] == "PODIUM_TOKEN"
    assert home.inside("install", "zed", *asked).code == 1
    assert no_file_holds(SECRET, podium.folder)


def no_file_holds(text: str, folder: Path) -> bool:
    return all(text not in file.read_text() for file in folder.rglob("*") if file.is_file())


def test_keys_are_named_where_the_client_knows_variables(podium: CommandLine):
    home = CommandLine(podium.folder, {"ONE_KEY": SECRET})
    for client in IN_FILES:
        done = home.inside("install", client, "--env", "ONE_KEY")
        assert done.code == 0
        assert SECRET not in done.err
    for client in ("cursor", "windsurf"):
        assert entry_of(podium, client)["env"] == {"ONE_KEY": "${env:ONE_KEY}"}
    assert entry_of(podium, "gemini")["env"] == {"ONE_KEY": "${ONE_KEY:-}"}
    assert entry_of(podium, "opencode")["environment"] == {"ONE_KEY": "{env:ONE_KEY}"}
    assert entry_of(podium, "codex")["env_vars"] == ["ONE_KEY"]
    for client in ("claude-desktop", "zed"):
        assert "env" not in entry_of(podium, client)
    assert no_file_holds(SECRET, podium.folder)


def test_keys_of_the_pool_are_passed_on_without_being_asked_for(podium: CommandLine):
    podium.pool.write_text(
        '[[worker]]\nname = "a"\nkind = "openai"\nmodel = "m"\napi_key_env = "A_KEY"\n'
        '[[worker]]\nname = "b"\nkind = "anthropic"\nmodel = "m"\napi_key_env = "B_KEY"\n'
    )
    home = CommandLine(podium.folder, {"B_KEY": SECRET})
    home.inside("install", "codex")
    assert entry_of(podium, "codex")["env_vars"] == ["B_KEY"]
    home.inside("install", "codex", "--env", "A_KEY")
    assert entry_of(podium, "codex")["env_vars"] == ["B_KEY", "A_KEY"]
    assert "A_KEY" in home.inside("install", "zed", "--env", "A_KEY").err


def test_vs_code_asks_its_user_for_keys(podium: CommandLine):
    file = file_of(podium, "vscode")
    file.parent.mkdir(parents=True)
    mine = (
        "{\n  // mine\n"
        '  "inputs": [{"type": "promptString", "id": "mine", "description": "?"}],\n'
        '  "servers": {"other": {"command": "x", "env": {"X": "${input:mine}"}}}\n}\n'
    )
    file.write_text(mine)

    done = podium.inside("install", "vscode", "--env", "ONE_KEY", "--env", "TWO_KEY")

    assert "VS Code will ask for ONE_KEY, TWO_KEY" in done.err
    text = file.read_text()
    assert "// mine" in text
    data = cast("Data", json.loads(text.replace("// mine", "")))
    ids = [cast("Data", one)["id"] for one in cast("list[JsonValue]", data["inputs"])]
    assert ids == ["mine", "one-key", "two-key"]
    assert '"ONE_KEY": "${input:one-key}"' in text
    assert "nothing was changed" in podium.inside("install", "vscode", "--env", "ONE_KEY").err
    podium.inside("uninstall", "vscode")
    assert file.read_text() == mine


@pytest.mark.parametrize("name", ["KEY=sk-very-secret", "sk-very-secret", "", "A B"])
def test_a_key_itself_is_refused_and_not_repeated(name: str, podium: CommandLine):
    done = podium.inside("install", "cursor", "--env", name)
    assert (done.code, done.out) == (1, "")
    assert "--env: write only the name of a variable" in done.err
    assert not file_of(podium, "cursor").exists()


def test_what_else_the_file_and_the_entry_say_stays(podium: CommandLine):
    file = file_of(podium, "codex")
    file.parent.mkdir()
    file.write_text(
        '# mine\nmodel = "gpt"\n\n[mcp_servers.podium] # ours\ncommand = "/old/bin/podium"\n'
        'args = ["--pool", "/my/team.toml", "serve"]\nenabled = false # later\n'
        'tool_timeout_sec = 3600\nstartup_timeout_sec = 5\n\n[tui]\ntheme = "x" # dark\n'
    )
    done = podium.inside("install", "codex")
    assert "podium was changed" in done.err
    entry = entry_of(podium, "codex")
    assert entry["args"] == ["-m", "podium", "--pool", "/my/team.toml", "serve"]
    assert (entry["tool_timeout_sec"], entry["startup_timeout_sec"]) == (3600, 60)
    assert entry["enabled"] is False
    for kept in ("# mine", "# ours", "# later", 'theme = "x" # dark'):
        assert kept in file.read_text()


def test_options_before_the_command_are_written_along(podium: CommandLine):
    podium.write("my.toml", "")
    bare = unset(podium)
    bare.inside("--pool", "pool.toml", "--config", "my.toml", "install", "cursor")
    folder = podium.folder
    wanted = ["--pool", f"{folder}/pool.toml", "--config", f"{folder}/my.toml", "serve"]
    assert entry_of(podium, "cursor")["args"] == ["-m", "podium", *wanted]
    assert "already there" in podium.inside("install", "cursor").err


def test_settings_of_the_environment_are_written_along_or_told(podium: CommandLine):
    podium.config.write_text("")
    folder = podium.folder
    home = CommandLine(folder, {"PODIUM_POOL": "pool.toml", "PODIUM_ROUNDS": "2", "PODIUM_X": "1"})
    done = home.inside("install", "codex")
    wanted = ["--pool", f"{folder}/pool.toml", "--store", f"{folder}/ledger.db"]
    config = ["--config", f"{folder}/podium.toml"]
    assert entry_of(podium, "codex")["args"] == ["-m", "podium", *wanted, *config, "serve"]
    told = next(line for line in done.err.splitlines() if "Set here, and not there" in line)
    assert "PODIUM_ROUNDS" in told
    assert "podium config set" in told
    assert not any(f"PODIUM_{name}" in told for name in ("POOL", "STORE", "CONFIG", "X"))
    passed = home.inside("install", "gemini", "--env", "PODIUM_ROUNDS")
    again = home.inside("install", "gemini")
    for told in (passed.err, again.err):
        assert "PODIUM_ROUNDS" not in told.partition("Set here")[2]
    assert "if Cursor is started with it: PODIUM_ROUNDS" in home.inside("install", "cursor").err


def test_what_the_entry_says_goes_before_the_environment(podium: CommandLine):
    podium.write("other.toml", "")
    added = podium.inside("--pool", "other.toml", "install", "zed")
    assert "PODIUM_POOL" not in added.err
    before = entry_of(podium, "zed")
    done = podium.inside("install", "zed")
    assert entry_of(podium, "zed") == before
    assert "already there" in done.err
    assert "PODIUM_POOL" in done.err


def test_what_is_no_entry_is_not_replaced(podium: CommandLine):
    file = file_of(podium, "cursor")
    file.parent.mkdir()
    for strange in ('"hello"', "null", "[1]"):
        file.write_text(f'{{"mcpServers": {{"podium": {strange}}}}}')
        before = file.read_text()
        done = podium.inside("install", "cursor")
        assert (done.code, file.read_text()) == (1, before)
        assert "'podium' is no entry of a server there; take it out by hand" in done.err


def test_no_folder_is_made_behind_a_link_that_leads_nowhere(podium: CommandLine):
    file = file_of(podium, "cursor")
    gone = podium.folder / "gone" / "deep"
    file.parent.symlink_to(gone)
    done = podium.inside("install", "cursor")
    assert done.code == 1
    assert f"{file.parent}: this is a link to {gone}, which does not exist" in done.err
    file.parent.unlink()
    file.parent.mkdir()
    file.symlink_to(gone / "mcp.json")
    assert f"{file}: this is a link to {gone}/mcp.json" in podium.inside("install", "cursor").err
    assert not gone.parent.exists()


def test_a_file_that_cannot_be_read_is_told_in_words(podium: CommandLine):
    file = file_of(podium, "cursor")
    file.mkdir(parents=True)
    assert f"{file}: cannot be read (Is a directory)." in podium.inside("install", "cursor").err
    file.rmdir()
    file.write_bytes(b'{"a": "\xff"}')
    told = f"{file}: cannot be read, as it is not UTF-8 text."
    assert told in podium.inside("install", "cursor").err
    file.unlink()
    file.symlink_to(file)
    done = podium.inside("install", "cursor")
    assert (done.code, "Errno" in done.err) == (1, False)
    assert f"{file}: cannot be read (Too many levels" in done.err


def test_a_project_has_entries_of_its_own(podium: CommandLine):
    (podium.folder / "project").mkdir()
    files = {
        "claude-code": ".mcp.json",
        "vscode": ".vscode/mcp.json",
        "cursor": ".cursor/mcp.json",
        "zed": ".zed/settings.json",
        "codex": ".codex/config.toml",
        "gemini": ".gemini/settings.json",
        "opencode": "opencode.json",
    }
    for client, name in files.items():
        done = podium.inside("install", client, "--project", "project")
        file = podium.folder / "project" / name
        assert f"{file}: podium was added" in done.err
        assert file.stat().st_mode & 0o777 == 0o644
        assert podium.inside("uninstall", client, "--project", "project").code == 0
        assert sys.executable not in file.read_text()
    for client in ("claude-desktop", "windsurf"):
        done = podium.inside("install", client, "--project", "project")
        assert (done.code, "has no settings of a project" in done.err) == (1, True)
    assert podium.inside("install", "zed", "--project", "gone").code == 1


def test_a_server_of_the_same_name_that_is_another_is_left_alone(podium: CommandLine):
    file = file_of(podium, "cursor")
    file.parent.mkdir()
    theirs = '{"mcpServers": {"podium": {"command": "/bin/race-results", "args": []}}}'
    file.write_text(theirs)
    for command in ("install", "uninstall"):
        done = podium.inside(command, "cursor")
        assert (done.code, file.read_text()) == (1, theirs)
        assert "is not Podium; choose a name with --name" in done.err
    assert podium.inside("install", "cursor", "--name", "podium2").code == 0
    assert entry_of(podium, "cursor", "podium2")["command"] == sys.executable
    assert entry_of(podium, "cursor")["command"] == "/bin/race-results"


@pytest.mark.parametrize(
    ("client", "text"),
    [
        ("claude-desktop", "{} // no comments there"),
        ("cursor", '{"mcpServers": '),
        ("codex", "[mcp_servers"),
        ("zed", '{"context_servers": []}'),
        ("gemini", '{"mcpServers": {"podium": {}, "podium": {}}}'),
    ],
)
def test_a_file_that_cannot_be_changed_safely_is_left_alone(
    client: str, text: str, podium: CommandLine
):
    file = file_of(podium, client)
    file.parent.mkdir(parents=True)
    file.write_text(text)
    done = podium.inside("install", client)
    assert (done.code, file.read_text()) == (1, text)
    assert done.err.startswith(f"Error: {file}")
    assert backups(file) == []


def test_opencode_is_understood_in_its_second_form_too(podium: CommandLine):
    file = file_of(podium, "opencode").with_suffix(".jsonc")
    file.parent.mkdir(parents=True)
    file.write_text('{"mcp": {"servers": {"other": {"type": "local", "command": ["x"]}}}}')
    unset(podium).inside("install", "opencode")
    servers = cast("Data", cast("Data", data_of(file)["mcp"])["servers"])
    limits = {"catalog": 1_800_000, "execution": 1_800_000}
    assert servers["podium"] == {"type": "local", "command": LINE, "timeout": limits}
    assert "already there" in podium.inside("install", "opencode").err
    podium.inside("uninstall", "opencode")
    assert list(cast("Data", cast("Data", data_of(file)["mcp"])["servers"])) == ["other"]


def test_cursor_gets_a_link_that_holds_the_entry(podium: CommandLine):
    said = podium.inside("install", "cursor", "--print", "--env", "A_KEY").err
    link = next(word for word in said.split() if word.startswith("cursor://"))
    parts = urlsplit(link)
    query = parse_qs(parts.query)
    assert (parts.netloc, parts.path) == ("anysphere.cursor-deeplink", "/mcp/install")
    assert query["name"] == ["podium"]
    held: Data = json.loads(base64.b64decode(query["config"][0]))
    podium.inside("install", "cursor", "--env", "A_KEY")
    assert held == entry_of(podium, "cursor")


def test_claude_code_changes_its_users_file_itself(podium: CommandLine):
    programs = podium.folder / "programs"
    programs.mkdir()
    claude = programs / "claude"
    claude.write_text('#!/bin/sh\nprintf "%s|" "$@" >> "$HOME/said"\n')
    claude.chmod(0o755)
    home = CommandLine(podium.folder, {"PATH": f"{programs}:/usr/bin:/bin"})
    file = podium.folder / ".claude.json"

    assert home.inside("install", "claude-code", "--env", "A_KEY").code == 0
    said = (podium.folder / "said").read_text().split("|")
    assert said[:5] == ["mcp", "add-json", "--scope", "user", "podium"]
    entry: Data = json.loads(said[5])
    assert entry["env"] == {"A_KEY": "${A_KEY:-}"}

    file.write_text(json.dumps({"mcpServers": {"podium": entry}}))
    assert "already there" in home.inside("install", "claude-code", "--env", "A_KEY").err
    home.inside("install", "claude-code", "--env", "B_KEY")
    said = (podium.folder / "said").read_text().split("|")[6:]
    assert said[:5] == ["mcp", "remove", "--scope", "user", "podium"]
    assert json.loads(said[10])["env"] == {"A_KEY": "${A_KEY:-}", "B_KEY": "${B_KEY:-}"}

    home.inside("uninstall", "claude-code")
    assert (podium.folder / "said").read_text().endswith("mcp|remove|--scope|user|podium|")
    claude.write_text("#!/bin/sh\necho no such thing >&2\nexit 3\n")
    failed = home.inside("uninstall", "claude-code")
    assert (failed.code, "failed: no such thing" in failed.err) == (1, True)


def test_without_claude_code_it_is_said_what_to_do(podium: CommandLine):
    home = CommandLine(podium.folder, {"PATH": str(podium.folder)})
    done = home.inside("install", "claude-code")
    assert done.code == 1
    assert "`claude` is not on the PATH" in done.err
    assert "--project DIR" in done.err


ON_A_MAC = "home/Library/Application Support"


@pytest.mark.parametrize(
    ("platform", "client", "wanted"),
    [
        ("linux", "claude-desktop", "config/Claude/claude_desktop_config.json"),
        ("darwin", "claude-desktop", f"{ON_A_MAC}/Claude/claude_desktop_config.json"),
        ("win32", "claude-desktop", "roaming/Claude/claude_desktop_config.json"),
        ("linux", "vscode", "config/Code/User/mcp.json"),
        ("darwin", "vscode", f"{ON_A_MAC}/Code/User/mcp.json"),
        ("win32", "vscode", "roaming/Code/User/mcp.json"),
        ("win32", "cursor", "profile/.cursor/mcp.json"),
        ("darwin", "windsurf", "home/.codeium/windsurf/mcp_config.json"),
        ("linux", "zed", "config/zed/settings.json"),
        ("darwin", "zed", "home/.config/zed/settings.json"),
        ("win32", "zed", "roaming/Zed/settings.json"),
        ("linux", "codex", "codex/config.toml"),
        ("win32", "gemini", "profile/.gemini/settings.json"),
        ("win32", "opencode", "config/opencode/opencode.json"),
        ("linux", "claude-code", "home/.claude.json"),
    ],
)  # fmt: skip
def test_files_lie_where_each_system_has_them(
    platform: str, client: str, wanted: str, tmp_path: Path
):
    folders = {
        "HOME": "home", "USERPROFILE": "profile", "APPDATA": "roaming",
        "XDG_CONFIG_HOME": "config", "CODEX_HOME": "codex",
    }  # fmt: skip
    environment = {name: str(tmp_path / folder) for name, folder in folders.items()}
    file = user_file(client_named(client), Machine(platform, environment))
    assert file == tmp_path / wanted


def test_claude_desktop_of_the_store_has_its_file_elsewhere(tmp_path: Path):
    machine = Machine("win32", {"USERPROFILE": str(tmp_path), "APPDATA": str(tmp_path / "r")})
    local = tmp_path / "AppData" / "Local"
    file = local / "Packages" / "Claude_x" / "LocalCache" / "Roaming" / "Claude"
    file.mkdir(parents=True)
    assert user_file(client_named("claude-desktop"), machine).is_relative_to(tmp_path / "r")
    (file / "claude_desktop_config.json").write_text("{}")
    assert user_file(client_named("claude-desktop"), machine).parent == file


def test_without_a_home_the_snippet_can_still_be_shown(podium: CommandLine):
    homeless = CommandLine(podium.folder, {"HOME": ""})
    assert homeless.inside("install", "cursor", "--print").code == 0
    done = homeless.inside("install", "cursor")
    assert (done.code, "HOME is not set" in done.err) == (1, True)


def test_the_command_is_the_script_that_was_called_link_or_not(tmp_path: Path):
    script, link = tmp_path / "v1" / "podium", tmp_path / "bin" / "podium"
    for file in (script, link):
        file.parent.mkdir()
    script.write_text("")
    link.symlink_to(script)
    assert this_podium(str(link)).command == str(link)
    (tmp_path / "podium.exe").write_text("")
    assert this_podium(str(tmp_path / "podium")).command == str(tmp_path / "podium.exe")
    module = this_podium("/lib/python3.11/site-packages/podium/__main__.py")
    assert (module.command, module.args) == (sys.executable, ("-m", "podium"))
    cache = tmp_path / "uv" / "archive-v0" / "Abc" / "bin" / "podium"
    cache.parent.mkdir(parents=True)
    cache.write_text("")
    assert (this_podium(str(cache)).is_passing, module.is_passing) == (True, False)


@pytest.mark.parametrize(
    ("line", "end"),
    [
        ("/x/bin/podium serve", 1),
        (r"C:\x\Podium.EXE --pool a serve", 1),
        ("python -m podium serve", 3),
        ("uvx --from x podium serve", 4),
        ("uv run --project x podium serve", 5),
        ("node podium", None),
        ("npx -y other", None),
        ("", None),
    ],
)
def test_a_command_line_that_starts_podium_is_known(line: str, end: int | None):
    assert end_of_launcher(line.split()) == end


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["emacs"], "'emacs' is not one of"),
        (["cursor", "--name", "a b"], "--name: write up to 40 letters"),
        (["cursor", "--name", "-x"], "--name: write"),
        (["cursor", "--http", "http://127.0.0.1:8000"], "write a whole address"),
        (["cursor", "--http", "http://me:word@host/mcp"], "leave user and password out"),
        (["cursor", "--http", "http://h/mcp", "--env", "A"], "--env: with --http"),
        (["cursor", "--token-env", "A"], "--token-env needs --http"),
    ],
)
def test_wrong_arguments_are_told_in_a_sentence(
    arguments: list[str], said: str, podium: CommandLine
):
    done: Done = podium.inside("install", *arguments)
    assert done.code in (1, 2)
    assert said in done.err
    assert "word@" not in done.err
    assert not file_of(podium, "cursor").exists()
