"""The files in `manifests/clients`: what `podium install CLIENT --print` shows, to be copied."""

from pathlib import Path

from podium.cli.installing.clients import CLIENTS, Client, Machine, project_file, user_file
from podium.cli.installing.editing import whole
from podium.cli.installing.entries import Server, build
from podium.cli.installing.showing import as_text
from podium.cli.installing.wishes import cursor_link

NAME = "podium"
KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY")
"""What the snippets pass on, for those to change who have other keys."""
COMMAND = "/path/to/podium"


def file_name(client: Client) -> str:
    return f"{client.name}.{'toml' if client.syntax == 'toml' else 'json'}"


def snippet(client: Client) -> str:
    """The client's document with Podium alone in it."""
    entry = build(client, Server(line=(COMMAND, "serve"), keys=KEYS))
    return as_text(whole(client, NAME, entry, KEYS), client.syntax) + "\n"


def overview() -> str:
    """The page that says where each snippet belongs."""
    rows = "\n".join(map(_row, CLIENTS))
    return f"""\
# Podium in MCP clients

`podium install CLIENT` writes these entries for you, with the right path, and keeps the rest of the
client's file; `podium doctor` looks at them. To do it by hand, copy the snippet into the client's
file and put the path of your `podium` in the place of `{COMMAND}` (`command -v podium` shows it).

Keys are named, never written down: leave out or replace `{"` and `".join(KEYS)}`.
Claude Desktop passes no variables on; its bundle (`../mcpb`) asks for keys and keeps them safe.

| client | snippet | your own file (Linux) | a project's file |
|---|---|---|---|
{rows}

This folder is made by `python -m podium_lab.packaging`.
"""


def _row(client: Client) -> str:
    machine = Machine("linux", {"HOME": "~"})
    own = f"`{user_file(client, machine)}`"
    if client.name == "claude-code":
        own = "`claude mcp add-json --scope user podium '{…}'`"
    shared = f"`{project_file(client, Path())}`" if client.project_files else "none"
    return f"| {client.title} | [{file_name(client)}]({file_name(client)}) | {own} | {shared} |"


def link() -> str:
    """The link for Cursor, with `podium` found on the PATH."""
    cursor = next(client for client in CLIENTS if client.name == "cursor")
    return cursor_link(NAME, build(cursor, Server(line=(NAME, "serve"))))
