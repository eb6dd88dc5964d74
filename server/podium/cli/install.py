"""`podium install`: writes Podium into the configuration of an MCP client, or shows how."""

import contextlib
import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

import click
from pydantic import Field

from podium.cli.installing.claude_program import adding, find_claude, removing, run_claude
from podium.cli.installing.clients import (
    CLIENTS,
    Client,
    Machine,
    client_named,
    project_file,
    user_file,
)
from podium.cli.installing.documents import open_document, save
from podium.cli.installing.editing import entry_in, whole, with_entry
from podium.cli.installing.entries import Entry, Server, build, command_line, merge, own_arguments
from podium.cli.installing.launch import this_podium
from podium.cli.installing.settings_here import not_handed_on, options_here, variables_in
from podium.cli.installing.showing import as_text
from podium.cli.installing.wishes import (
    checked_name,
    checked_url,
    checked_variables,
    cursor_link,
    key_variables,
    passes_keys,
    program,
    refuse_other,
)
from podium.cli.invocation import Invocation, pass_invocation
from podium.cli.saying import say
from podium.cli.wording import put
from podium.errors import SettingsError
from podium_workers.worker import Frozen

NAME = "podium"


class Wish(Frozen):
    """What the arguments ask for."""

    client: Client
    name: str
    project: Path | None
    url: str | None
    keys: tuple[str, ...]
    token: str | None
    options: tuple[str, ...]
    """Podium's own, for the command line in the file."""
    given: tuple[str, ...]
    """Names of those that this command line gave: they go before what the file says."""
    environment: Mapping[str, str] = Field(repr=False)
    """Variables that are set here."""

    @property
    def asked(self) -> tuple[str, ...]:
        """Variables that a client which asks for keys asks its user for."""
        return (*self.keys, *([self.token] if self.token else []))

    def server(self, old: Entry | None) -> Server:
        """What the client shall start or reach, given the entry that it has."""
        if self.url:
            return Server(url=self.url, token=self.token)
        own = own_arguments(old) if old and not self.given else None
        options = () if own and "serve" in own else self.options
        return program(this_podium(), options, old, self.keys)

    def entry(self, old: Entry | None) -> Entry:
        return build(self.client, self.server(old))


@click.command(
    epilog="""\b
Examples:
  podium install claude-code
  podium install codex --print
  podium install vscode --project . --env OPENAI_API_KEY
  podium --pool team.toml install cursor
  podium install gemini --http http://127.0.0.1:8000/mcp"""
)
@click.argument("client", type=click.Choice([client.name for client in CLIENTS]))
@click.option("--print", "print_", is_flag=True, help="Only show what would be written.")
@click.option("--name", default=NAME, show_default=True, help="The server's name in the client.")
@click.option(
    "--project", metavar="DIR", type=click.Path(path_type=Path),
    help="Only for the project in this folder, instead of for you in all of them.",
)  # fmt: skip
@click.option("--http", "url", metavar="URL", help="Reach a Podium that serves this address.")
@click.option(
    "--env", "keys", metavar="NAME", multiple=True,
    help="A variable that the client passes on, such as OPENAI_API_KEY; can be given several times "
    "[default: the keys of the pool's workers that are set now].",
)  # fmt: skip
@click.option(
    "--token-env", "token", metavar="NAME", help="With --http: the variable that holds the token."
)
@pass_invocation
def install(
    invocation: Invocation,
    *,
    client: str,
    print_: bool,
    name: str,
    project: Path | None,
    url: str | None,
    keys: tuple[str, ...],
    token: str | None,
) -> None:
    """Let an MCP client use Podium: write it into the client's configuration.

    All else in the client's file stays as it is, and a copy of the old file is kept beside it. Keys
    are never written down: only names of variables are. Options before `install`, such as --pool,
    are written into the command that the client runs, and so are PODIUM_POOL, PODIUM_STORE and
    PODIUM_CONFIG where the entry is new. A second time nothing is changed.
    """
    if url and keys:
        raise click.UsageError("--env: with --http the server has keys of its own; leave it out.")
    if token and not url:
        raise click.UsageError("--token-env needs --http; a program that is started has no token.")
    wish = Wish(
        client=client_named(client),
        name=checked_name(name),
        project=_folder(project),
        url=checked_url(url) if url else None,
        keys=_keys(invocation, client_named(client), keys, is_program=not url),
        token=checked_variables("--token-env", [token])[0] if token else None,
        options=_options(invocation),
        given=(*invocation.given, *(["config"] if invocation.config_given else [])),
        environment=invocation.environment,
    )
    if print_:
        _show(wish, Machine(sys.platform, invocation.environment))
    elif client == "claude-code" and project is None:
        _install_by_program(wish, invocation)
    else:
        _install_in_file(wish, invocation)


def _folder(project: Path | None) -> Path | None:
    if project is None:
        return None
    folder = Path(os.path.abspath(project.expanduser()))
    if not folder.is_dir():
        raise SettingsError(f"--project: {folder} is not a folder; name the project's own.")
    return folder


def _keys(
    invocation: Invocation, client: Client, named: tuple[str, ...], *, is_program: bool
) -> tuple[str, ...]:
    """The variables to pass on: those that are named, or keys of the pool where they are set."""
    if named or not is_program or not passes_keys(client):
        return checked_variables("--env", named)
    from podium.cli.compose import find_manifest

    manifest, _ = find_manifest(invocation.settings, invocation.environment)
    return key_variables(manifest.workers, invocation.environment)


def _options(invocation: Invocation) -> tuple[str, ...]:
    """Podium's options of this command line and the environment, with paths that hold anywhere."""
    given = {name: os.path.abspath(str(value)) for name, value in invocation.given.items()}
    if invocation.config_given:
        given["config"] = os.path.abspath(invocation.file.expanduser())
    more = options_here(invocation.environment)
    options = given | {name: path for name, path in more.items() if name not in given}
    return tuple(part for name, value in options.items() for part in (f"--{name}", value))


def _show(wish: Wish, machine: Machine) -> None:
    client, entry = wish.client, wish.entry(None)
    put(as_text(whole(client, wish.name, entry, wish.asked), client.syntax))
    if client.name == "claude-code" and wish.project is None:
        say("This belongs into .mcp.json in a project's folder; nothing was written.")
        say(f"For all projects: {shlex.join(['claude', *adding(wish.name, entry)])}")
    else:
        with contextlib.suppress(SettingsError):  # the snippet is of use without a home, too
            say(f"This belongs into {_file(wish, machine)}; nothing was written.")
    _tell(wish, entry)


def _file(wish: Wish, machine: Machine) -> Path:
    return (
        project_file(wish.client, wish.project) if wish.project else user_file(wish.client, machine)
    )


def _install_in_file(wish: Wish, invocation: Invocation) -> None:
    client = wish.client
    file = _file(wish, Machine(sys.platform, invocation.environment))
    document = open_document(file, client.syntax)
    old = entry_in(document, client, wish.name)
    if old is not None:
        refuse_other(wish.name, old, file)
    entry = wish.entry(old)
    after, outcome = with_entry(document, client, wish.name, entry, wish.asked)
    if outcome == "same":
        say(f"{file}: {wish.name} is already there; nothing was changed.")
        _tell_of_settings(wish, entry, old)
        return
    backup = save(document, after, for_others=wish.project is not None)
    kept = f" (the old file: {backup})" if backup else ""
    say(f"{file}: {wish.name} was {outcome}{kept}.")
    say(f"{client.title} sees it when it is started again.")
    _tell(wish, entry, old)


def _install_by_program(wish: Wish, invocation: Invocation) -> None:
    """Claude Code changes its user's file itself."""
    client, environment = wish.client, invocation.environment
    file = user_file(client, Machine(sys.platform, environment))
    document = open_document(file, client.syntax)
    old = entry_in(document, client, wish.name)
    if old is not None:
        refuse_other(wish.name, old, file)
    entry = merge(old or {}, wish.entry(old), client)
    if entry == old:
        say(f"{file}: {wish.name} is already there; nothing was changed.")
        _tell_of_settings(wish, entry, old)
        return
    claude = find_claude(environment)
    if old is not None:
        run_claude(claude, removing(wish.name), environment)
    run_claude(claude, adding(wish.name, entry), environment)
    say(f"{file}: {wish.name} was {'changed' if old else 'added'} by {claude}.")
    say("Claude Code sees it when it is started again.")
    _tell(wish, entry, old)


def _tell(wish: Wish, entry: Entry, old: Entry | None = None) -> None:
    """What else there is to know."""
    client = wish.client
    if wish.project and not wish.url:
        say("The path in it is this machine's: others of the project run this command themselves.")
    if wish.project and client.name in ("codex", "gemini"):
        say(f"{client.title} reads it only in a folder that you have told it to trust.")
    if not wish.url and this_podium().is_passing:
        say(
            "This Podium lies in a cache that may be emptied; to be safe install it to stay (uv "
            "tool install, pipx install), and run this again."
        )
    if client.name == "cursor":
        say(f"As a link: {cursor_link(wish.name, entry)}")
    if wish.asked or not (wish.url or client.inherits):
        say(_of_keys(wish, ", ".join(wish.asked)))
    _tell_of_settings(wish, entry, old)


def _tell_of_settings(wish: Wish, entry: Entry, old: Entry | None) -> None:
    """Which settings of this terminal Podium will not have there."""
    if wish.url:
        return
    passed = {*wish.keys, *variables_in(old or {}, wish.client)}
    found = not_handed_on(wish.environment, command_line(entry), passed)
    lost = [variable for name, variable in found.items() if name not in wish.given]
    if lost:
        there = f"only there if {wish.client.title} is started with it"
        say(
            f"Set here, and {there if wish.client.inherits else 'not there'}: {', '.join(lost)}; "
            "to have the same in any case, use `podium config set NAME VALUE`."
        )


def _of_keys(wish: Wish, names: str) -> str:
    """How keys get to Podium."""
    client = wish.client
    if client.asks:
        return f"{client.title} will ask for {names} and keep the answer safe."
    if wish.url or (names and passes_keys(client)):
        return f"{client.title} passes on {names or 'nothing'}, if set where it is started."
    if passes_keys(client):
        return f"{client.title} passes on only variables that are named with --env; none is."
    if client.inherits:
        return f"{client.title} passes on all variables: start it where {names} is set."
    return (
        f"{client.title} passes no variables on, and keys do not belong into its file: for hosted "
        "models install Podium's bundle (podium.mcpb), which has them kept in the system's store."
    )
