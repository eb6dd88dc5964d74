"""What a user asks of `podium install`, looked at and made into what a client shall start."""

import base64
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote, urlsplit

from pydantic import JsonValue

from podium.cli.installing.clients import Client
from podium.cli.installing.entries import Entry, Server, kind_of, own_arguments
from podium.cli.installing.launch import Launch
from podium.errors import SettingsError
from podium_workers.entries.hosted import AnthropicEntry, OpenAIEntry, VllmEntry
from podium_workers.entries.named import Entry as Worker

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
"""What every client takes, and short enough for the full names of tools."""
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LINK = "cursor://anysphere.cursor-deeplink/mcp/install"


def checked_name(name: str) -> str:
    """The name of a server.

    Raises:
        SettingsError: some client would not take it.
    """
    if not _NAME.fullmatch(name):
        raise SettingsError(f"--name: write up to 40 letters, digits, - and _ (found {name!r}).")
    return name


def checked_variables(option: str, names: Sequence[str]) -> tuple[str, ...]:
    """Names of variables, each once.

    Raises:
        SettingsError: one is no name, or has a value with it, which is not shown.
    """
    for name in names:
        if not _VARIABLE.fullmatch(name):
            shown = name.partition("=")[0]
            raise SettingsError(
                f"{option}: write only the name of a variable, without its value, which does not "
                f"belong into files (found {shown!r}{' and more' if shown != name else ''})."
            )
    return tuple(dict.fromkeys(names))


def checked_url(url: str) -> str:
    """The address of a Podium that is served over HTTP.

    Raises:
        SettingsError: it is none, or has a password in it.
    """
    parts = urlsplit(url)
    if parts.username or parts.password:
        raise SettingsError("--http: leave user and password out; --token-env names a token.")
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path in ("", "/"):
        raise SettingsError(
            f"--http: write a whole address, such as http://127.0.0.1:8000/mcp (found {url!r})."
        )
    return url


def key_variables(workers: Sequence[Worker], environment: Mapping[str, str]) -> tuple[str, ...]:
    """Variables with keys of these workers that are set."""
    named = map(_key_variable, workers)
    return tuple(dict.fromkeys(name for name in named if name and environment.get(name)))


def _key_variable(worker: Worker) -> str | None:
    if isinstance(worker, OpenAIEntry | AnthropicEntry):
        return worker.key_variable
    return worker.api_key_env if isinstance(worker, VllmEntry) else None


def passes_keys(client: Client) -> bool:
    """Whether a client passes variables on by their names, without asking anybody."""
    return client.names is not None or (client.variable is not None and not client.asks)


def program(
    launch: Launch,
    options: Sequence[str],
    old: Mapping[str, JsonValue] | None,
    keys: tuple[str, ...],
) -> Server:
    """Podium as a program; arguments that its user gave it in the file stay, unless there are new
    *options*."""
    own = own_arguments(old) if old else None
    arguments = own if own and "serve" in own and not options else [*options, "serve"]
    return Server(line=(launch.command, *launch.args, *arguments), keys=keys)


def refuse_other(name: str, old: Entry, file: Path) -> None:
    """Look whether the entry of that name may be Podium's.

    Raises:
        SettingsError: it starts another program.
    """
    if kind_of(old) == "other":
        raise SettingsError(
            f"{file}: there is a server {name!r} that is not Podium; choose a name with --name."
        )


def cursor_link(name: str, entry: Entry) -> str:
    """A link that Cursor opens to add the entry."""
    config = base64.b64encode(json.dumps(entry).encode()).decode()
    return f"{_LINK}?name={quote(name)}&config={quote(config, safe='')}"
