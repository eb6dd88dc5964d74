"""`podium uninstall`: takes Podium out of the configuration of an MCP client."""

import sys
from pathlib import Path

import click

from podium.cli.install import NAME
from podium.cli.installing.claude_program import find_claude, removing, run_claude
from podium.cli.installing.clients import CLIENTS, Machine, client_named, project_file, user_file
from podium.cli.installing.documents import open_document, save
from podium.cli.installing.editing import servers_in, without_entry
from podium.cli.installing.wishes import refuse_other
from podium.cli.invocation import Invocation, pass_invocation
from podium.cli.saying import say


@click.command(
    epilog="""\b
Examples:
  podium uninstall claude-desktop
  podium uninstall vscode --project ."""
)
@click.argument("client", type=click.Choice([client.name for client in CLIENTS]))
@click.option("--name", default=NAME, show_default=True, help="The server's name in the client.")
@click.option(
    "--project", metavar="DIR", type=click.Path(path_type=Path),
    help="From the project in this folder, instead of from your own settings.",
)  # fmt: skip
@pass_invocation
def uninstall(invocation: Invocation, *, client: str, name: str, project: Path | None) -> None:
    """Take Podium out of an MCP client's configuration; all else there stays.

    A copy of the old file is kept beside it. Podium itself, its ledger and its settings stay.
    """
    known, environment = client_named(client), invocation.environment
    file = (
        project_file(known, project.expanduser().absolute())
        if project
        else user_file(known, Machine(sys.platform, environment))
    )
    document = open_document(file, known.syntax)
    entry = servers_in(known, document.data).get(name)
    if entry is None:
        say(f"{file}: there is no server {name!r}; nothing was changed.")
        return
    refuse_other(name, entry, file)
    if client == "claude-code" and project is None:
        claude = find_claude(environment)
        run_claude(claude, removing(name), environment)
        say(f"{file}: {name} was removed by {claude}.")
        return
    after = without_entry(document, known, name)
    backup = save(document, after, for_others=project is not None)
    say(f"{file}: {name} was removed (the old file: {backup}).")
