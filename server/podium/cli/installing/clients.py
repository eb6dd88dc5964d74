"""The MCP clients that Podium knows: where each keeps its servers, and how it writes one down."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from podium.errors import SettingsError
from podium_workers.worker import Frozen

Syntax = Literal["json", "jsonc", "toml"]
"""`json`: a client that takes neither comments nor trailing commas."""

RUN_S = 1800
"""Seconds that a call may take, where a client asks for them: half an hour."""
LONGEST_ZED_S = 600
"""More than ten minutes Zed does not take."""
START_S = 60
"""Seconds that Podium may take to start, on a machine that is busy or new to it."""


class Client(Frozen):
    """How one client is configured."""

    name: str
    title: str
    syntax: Syntax = "json"
    place: tuple[str, ...] = ("mcpServers",)
    """Where its servers stand in its file."""
    project_files: tuple[str, ...] = ()
    """Files of a project, the usual one first; none where it has no such scope."""
    kinds: tuple[str, str] | None = None
    """What `type` says of a program and of an address; None where there is no `type`."""
    url: str | None = "url"
    """The key of an address; None where it takes programs only."""
    is_one_list: bool = False
    """Whether `command` holds the arguments too."""
    environment: str = "env"
    """The key of the environment."""
    variable: str | None = None
    """How a value names a variable, which the client puts in its place; None where it cannot."""
    names: str | None = None
    """The key of a list of variables that are passed on by their names."""
    token_name: str | None = None
    """The key that names the variable with the token of an address."""
    asks: bool = False
    """Whether it asks its user for keys and keeps them (`inputs`)."""
    inherits: bool = True
    """Whether a server sees all variables that the client was started with."""
    timeouts: Mapping[str, int] = {}
    """Keys of time limits, with what Podium wants of them."""
    second: int = 1
    """What one second is in those."""


CLIENTS = (
    Client(name="claude-desktop", title="Claude Desktop", url=None, inherits=False),
    Client(
        name="claude-code", title="Claude Code", project_files=(".mcp.json",),
        kinds=("stdio", "http"), variable="${{{}:-}}",
    ),
    Client(
        name="vscode", title="VS Code", syntax="jsonc", place=("servers",),
        project_files=(".vscode/mcp.json",), kinds=("stdio", "http"), variable="${{input:{}}}",
        asks=True,
    ),
    Client(
        name="cursor", title="Cursor", syntax="jsonc", project_files=(".cursor/mcp.json",),
        variable="${{env:{}}}",
    ),
    Client(
        name="windsurf", title="Windsurf", syntax="jsonc", url="serverUrl", variable="${{env:{}}}",
    ),
    Client(
        name="zed", title="Zed", syntax="jsonc", place=("context_servers",),
        project_files=(".zed/settings.json",), timeouts={"timeout": LONGEST_ZED_S},
    ),
    Client(
        name="codex", title="Codex", syntax="toml", place=("mcp_servers",),
        project_files=(".codex/config.toml",), names="env_vars", token_name="bearer_token_env_var",
        inherits=False, timeouts={"startup_timeout_sec": START_S, "tool_timeout_sec": RUN_S},
    ),
    Client(
        name="gemini", title="Gemini CLI", syntax="jsonc", url="httpUrl",
        project_files=(".gemini/settings.json",), variable="${{{}:-}}", inherits=False,
        timeouts={"timeout": RUN_S * 1000}, second=1000,
    ),
    Client(
        name="opencode", title="opencode", syntax="jsonc", place=("mcp",),
        project_files=("opencode.json", "opencode.jsonc", ".opencode/opencode.json",
                       ".opencode/opencode.jsonc"),
        kinds=("local", "remote"), is_one_list=True, environment="environment",
        variable="{{env:{}}}", timeouts={"timeout": RUN_S * 1000}, second=1000,
    ),
)  # fmt: skip


def client_named(name: str) -> Client:
    """The client of that name, which has to be one of `CLIENTS`."""
    return next(client for client in CLIENTS if client.name == name)


@dataclass(frozen=True)
class Machine:
    """Where programs keep their files here."""

    platform: str
    """As `sys.platform` has it."""
    environment: Mapping[str, str]

    @property
    def home(self) -> Path:
        """The user's home folder.

        Raises:
            SettingsError: the environment does not name it.
        """
        return self._folder("USERPROFILE" if self.platform == "win32" else "HOME")

    @property
    def config(self) -> Path:
        """Where programs that follow XDG keep their settings, on any system."""
        named = self.environment.get("XDG_CONFIG_HOME")
        return Path(named) if named else self.home / ".config"

    @property
    def applications(self) -> Path:
        """Where applications with windows keep their settings."""
        if self.platform == "win32":
            return self._folder("APPDATA")
        if self.platform == "darwin":
            return self.home / "Library" / "Application Support"
        return self.config

    def named(self, variable: str, otherwise: Path) -> Path:
        """The folder that *variable* names, or the other one."""
        value = self.environment.get(variable)
        return Path(value) if value else otherwise

    def _folder(self, variable: str) -> Path:
        value = self.environment.get(variable)
        if not value:
            raise SettingsError(
                f"{variable} is not set in the environment, so that the client's file cannot be "
                "found; set it to your folder, or use --print."
            )
        return Path(value)


def user_file(client: Client, machine: Machine) -> Path:
    """The file in which a client keeps the servers of its user.

    Where there may be several, the one that exists, or else the usual one.
    """
    candidates = _USER_FILES[client.name](machine)
    return next(filter(Path.exists, candidates), candidates[-1])


def project_file(client: Client, folder: Path) -> Path:
    """The file in which a client keeps the servers of a project.

    Raises:
        SettingsError: it has none.
    """
    if not client.project_files:
        raise SettingsError(
            f"--project: {client.title} has no settings of a project; leave the option out."
        )
    candidates = [folder / name for name in client.project_files]
    return next(filter(Path.exists, candidates), candidates[0])


def _claude_desktop(machine: Machine) -> list[Path]:
    name = "claude_desktop_config.json"
    found: list[Path] = []
    if machine.platform == "win32":  # where versions from the store are kept apart
        local = machine.named("LOCALAPPDATA", machine.home / "AppData" / "Local")
        found += sorted(local.glob(f"Claude-Data/[Cc]laude*/{name}"))
        found += sorted(local.glob(f"Packages/Claude_*/LocalCache/Roaming/Claude/{name}"))
    return [*found, machine.applications / "Claude" / name]


def _claude_code(machine: Machine) -> list[Path]:
    return [machine.named("CLAUDE_CONFIG_DIR", machine.home) / ".claude.json"]


def _vscode(machine: Machine) -> list[Path]:
    return [machine.applications / "Code" / "User" / "mcp.json"]


def _cursor(machine: Machine) -> list[Path]:
    return [machine.home / ".cursor" / "mcp.json"]


def _windsurf(machine: Machine) -> list[Path]:
    folder, name = machine.home / ".codeium", "mcp_config.json"
    usual, plugin = folder / "windsurf" / name, folder / name
    return [plugin, usual] if not usual.parent.exists() else [usual]


def _zed(machine: Machine) -> list[Path]:
    if machine.platform == "win32":
        return [machine.applications / "Zed" / "settings.json"]
    folder = machine.home / ".config" if machine.platform == "darwin" else machine.config
    return [folder / "zed" / "settings.json"]


def _codex(machine: Machine) -> list[Path]:
    return [machine.named("CODEX_HOME", machine.home / ".codex") / "config.toml"]


def _gemini(machine: Machine) -> list[Path]:
    return [machine.named("GEMINI_CLI_HOME", machine.home) / ".gemini" / "settings.json"]


def _opencode(machine: Machine) -> list[Path]:
    folder = machine.config / "opencode"
    usual = machine.named("OPENCODE_CONFIG", folder / "opencode.json")
    return [usual, folder / "opencode.jsonc", folder / "config.json", usual]


_USER_FILES: Mapping[str, Callable[[Machine], list[Path]]] = {
    "claude-desktop": _claude_desktop,
    "claude-code": _claude_code,
    "vscode": _vscode,
    "cursor": _cursor,
    "windsurf": _windsurf,
    "zed": _zed,
    "codex": _codex,
    "gemini": _gemini,
    "opencode": _opencode,
}
