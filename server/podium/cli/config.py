"""`podium config`: shows the settings and where each came from, and changes the file."""

import click
from pydantic import JsonValue

from podium.cli.invocation import Invocation, pass_invocation
from podium.cli.saying import say
from podium.cli.settings_file import change, read, validated
from podium.cli.wording import put, put_json, table
from podium.config import PREFIX
from podium.errors import SettingsError


@click.group(
    invoke_without_command=True,
    epilog="""\b
Examples:
  podium config
  podium config --json
  podium config set strategy chain
  podium config set local_memory_gb 4
  podium config unset strategy""",
)
@click.option("--json", "json_", is_flag=True, help="One JSON object on stdout.")
@pass_invocation
@click.pass_context
def config(ctx: click.Context, invocation: Invocation, *, json_: bool) -> None:
    """Show the settings and where they came from."""
    if ctx.invoked_subcommand is not None:
        return
    values = invocation.settings.model_dump(mode="json")
    sources = {name: _source(name, invocation) for name in values}
    if json_:
        shown = {name: {"value": values[name], "source": sources[name]} for name in values}
        put_json({"file": str(invocation.file), "settings": shown})
        return
    rows = [(name, _shown(values[name]), sources[name]) for name in values]
    put(table(("setting", "value", "from"), rows))
    state = "" if invocation.file.exists() else " (does not exist yet)"
    say(f"Settings' file: {invocation.file}{state}")


@config.command(
    "set",
    epilog="""\b
Examples:
  podium config set rounds 2
  podium config set pool ~/pools/team.toml
  podium config set file_roots ~/notes:~/src""",
)
@click.argument("name", metavar="NAME")
@click.argument("value", metavar="VALUE")
@pass_invocation
def set_(invocation: Invocation, *, name: str, value: str) -> None:
    """Write VALUE for the setting NAME into the settings' file; the rest of it stays as it is."""
    parsed = validated(name, value)
    change(invocation.file, name, parsed)
    say(f"{invocation.file}: {name} = {_shown(parsed)}")
    _warn_of_environment(name, invocation)


@config.command("unset", epilog="\b\nExample:\n  podium config unset rounds")
@click.argument("name", metavar="NAME")
@pass_invocation
def unset(invocation: Invocation, *, name: str) -> None:
    """Take the setting NAME out of the settings' file, so that its default counts again."""
    if name not in read(invocation.file):
        known = ", ".join(read(invocation.file)) or "nothing"
        raise SettingsError(f"{invocation.file}: {name!r} is not set there; it sets {known}.")
    change(invocation.file, name, None)
    say(f"{invocation.file}: {name} is no longer set")
    _warn_of_environment(name, invocation)


def _source(name: str, invocation: Invocation) -> str:
    """Where a value came from; arguments of this very command beat the rest."""
    return "command line" if name in invocation.given else invocation.loaded.sources[name]


def _shown(value: JsonValue) -> str:
    if value is None or value == []:
        return "(none)"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _warn_of_environment(name: str, invocation: Invocation) -> None:
    variable = PREFIX + name.upper()
    if variable in invocation.environment:
        say(f"Note: {variable} is set in the environment, which counts more than the file.")
