"""What a client's file says of Podium: built from a client's ways, merged with what is there."""

from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import JsonValue

from podium.cli.installing.clients import Client
from podium.cli.installing.launch import end_of_launcher
from podium.errors import SettingsError
from podium_workers.worker import Frozen

Entry = dict[str, JsonValue]

_OF_ANY = frozenset({"type", "source"})
_OF_PROGRAM = frozenset({"command", "args", "cwd", "env", "environment", "env_vars"})
_OF_ADDRESS = frozenset(
    {"url", "serverUrl", "httpUrl", "headers", "http_headers", "env_http_headers", "oauth"}
    | {"bearer_token_env_var"}
)
_OF_ONE_WAY = _OF_ANY | {"command", "args", "url", "serverUrl", "httpUrl", "bearer_token_env_var"}
"""Keys that say how Podium is reached: what the new entry does not say of it, goes."""


class Server(Frozen):
    """What a client shall start, or reach."""

    line: tuple[str, ...] = ()
    """The command line; empty for an address."""
    url: str | None = None
    keys: tuple[str, ...] = ()
    """Variables that the client passes on."""
    token: str | None = None
    """The variable that holds the bearer token of the address."""


def build(client: Client, server: Server) -> Entry:
    """The entry of a client that has none.

    Raises:
        SettingsError: the client cannot do what is asked.
    """
    entry: Entry = {}
    if client.kinds:
        entry["type"] = client.kinds[1 if server.url else 0]
    entry.update(_address(client, server) if server.url else _program(client, server))
    entry.update(client.timeouts)
    return entry


def _program(client: Client, server: Server) -> Entry:
    command, *args = server.line
    entry: Entry = {"command": command, "args": list[JsonValue](args)}
    if client.is_one_list:
        entry = {"command": list[JsonValue](server.line)}
    if server.keys and client.names:
        entry[client.names] = list[JsonValue](server.keys)
    elif server.keys and client.variable:
        variables: Entry = {key: _named(client, key) for key in server.keys}
        entry[client.environment] = variables
    return entry


def _address(client: Client, server: Server) -> Entry:
    if client.url is None:
        raise SettingsError(
            f"--http: {client.title} takes only programs in its file; leave the option out, or add "
            "the address in its own settings, under connectors."
        )
    entry: Entry = {client.url: server.url}
    if server.token is None:
        return entry
    if client.token_name:
        entry[client.token_name] = server.token
        return entry
    if client.variable is None:
        raise SettingsError(
            f"--token-env: {client.title} puts no variables into headers; add the header "
            "Authorization yourself, or let it start Podium without --http."
        )
    headers: Entry = {"Authorization": f"Bearer {_named(client, server.token)}"}
    entry["headers"] = headers
    return entry


def _named(client: Client, variable: str) -> str:
    assert client.variable is not None, "asked only of clients that know variables"
    return client.variable.format(input_id(variable) if client.asks else variable)


def input_id(variable: str) -> str:
    """The id under which a client that asks for keys keeps the one of that variable."""
    return variable.lower().replace("_", "-")


def question(variable: str) -> Entry:
    """What such a client asks its user."""
    return {
        "type": "promptString",
        "id": input_id(variable),
        "description": f"{variable} (leave it empty where there is none)",
        "password": True,
    }


def merge(old: Entry, new: Entry, client: Client) -> Entry:
    """The new entry with all that the old one says beside it, and the larger of two time limits."""
    gone = _OF_ONE_WAY | (_OF_PROGRAM if address(new) else _OF_ADDRESS)
    kept = {key: value for key, value in old.items() if key not in gone or key in new}
    merged = kept | new
    for key in client.timeouts:
        before, after = kept.get(key), new[key]
        if isinstance(before, int | float) and isinstance(after, int):
            merged[key] = max(before, after)
    for key in {*client.timeouts, client.environment, "headers"}:
        before, after = kept.get(key), new.get(key, {})
        if isinstance(before, dict) and isinstance(after, dict):
            merged[key] = before | after
    if client.names:
        before, after = kept.get(client.names), new.get(client.names, [])
        if isinstance(before, list) and isinstance(after, list):
            merged[client.names] = [*before, *(name for name in after if name not in before)]
    return merged


def command_line(entry: Mapping[str, JsonValue]) -> tuple[str, ...]:
    """What an entry starts; nothing for an address."""
    command, args = entry.get("command"), entry.get("args")
    if isinstance(command, dict):  # Zed, long ago
        command, args = command.get("path"), command.get("args")
    parts = command if isinstance(command, list) else [command]
    parts = [*parts, *args] if isinstance(args, list) else parts
    return tuple(part for part in parts if isinstance(part, str))


def address(entry: Mapping[str, JsonValue]) -> str | None:
    """The address that an entry names, under any client's key."""
    named = (entry.get(key) for key in ("url", "serverUrl", "httpUrl"))
    return next((value for value in named if isinstance(value, str)), None)


def own_arguments(entry: Mapping[str, JsonValue]) -> Sequence[str] | None:
    """The arguments that an entry gives Podium; None where it starts no Podium."""
    line = command_line(entry)
    start = end_of_launcher(line)
    return None if start is None else line[start:]


Kind = Literal["podium", "address", "other"]


def kind_of(entry: Mapping[str, JsonValue]) -> Kind:
    """Whether an entry starts Podium, names an address (of anything), or is another server's."""
    if own_arguments(entry) is not None:
        return "podium"
    return "address" if address(entry) else "other"
