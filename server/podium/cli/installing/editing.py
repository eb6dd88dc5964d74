"""Puts Podium's entry into a client's document, and takes it out; what else is there stays."""

from collections.abc import Mapping
from typing import Literal

from pydantic import JsonValue

from podium.cli.installing.clients import Client
from podium.cli.installing.documents import Document
from podium.cli.installing.entries import Entry, input_id, merge, question
from podium.errors import SettingsError

Outcome = Literal["added", "changed", "same"]


def place_of(client: Client, data: Mapping[str, JsonValue]) -> tuple[str, ...]:
    """Where the servers stand in this very file.

    opencode reads them one level deeper too, since its second version.
    """
    inner = data.get(client.place[0])
    if client.name == "opencode" and isinstance(inner, dict) and _is_table(inner.get("servers")):
        return (*client.place, "servers")
    return client.place


def _is_table(servers: JsonValue) -> bool:
    """Whether it holds servers, and is not a server of that name itself."""
    return isinstance(servers, dict) and not {"type", "enabled"} & {
        key for key, value in servers.items() if not isinstance(value, dict)
    }


def servers_in(client: Client, data: Mapping[str, JsonValue]) -> dict[str, Entry]:
    """The servers of a document, by name."""
    inner: JsonValue = dict(data)
    for key in place_of(client, data):
        inner = inner.get(key) if isinstance(inner, dict) else None
    if not isinstance(inner, dict):
        return {}
    return {name: entry for name, entry in inner.items() if isinstance(entry, dict)}


def entry_in(document: Document, client: Client, name: str) -> Entry | None:
    """The server of that name; None where there is none.

    Raises:
        SettingsError: what stands there is no entry of a server.
    """
    inner: JsonValue = document.data
    for key in place_of(client, document.data):
        inner = inner.get(key) if isinstance(inner, dict) else None
    if not isinstance(inner, dict) or name not in inner:
        return None
    entry = inner[name]
    if not isinstance(entry, dict):
        raise SettingsError(
            f"{document.file}: {name!r} is no entry of a server there; take it out by hand, or "
            "choose a name with --name."
        )
    return entry


def whole(client: Client, name: str, entry: Entry, asked: tuple[str, ...] = ()) -> Entry:
    """A document that holds nothing but the entry, as --print shows it."""
    held: JsonValue = {name: entry}
    for key in reversed(client.place):
        held = {key: held}
    assert isinstance(held, dict), "a place has a key at least"
    if not client.asks or not asked:
        return held
    return {"inputs": [question(variable) for variable in asked], **held}


def with_entry(
    document: Document, client: Client, name: str, entry: Entry, asked: tuple[str, ...] = ()
) -> tuple[Document, Outcome]:
    """The document with the entry, merged with the one that is there.

    *asked* are variables that the client has to ask its user for.

    Raises:
        SettingsError: the document is laid out in a way that would not survive it.
    """
    place = place_of(client, document.data)
    if place != client.place:
        entry = _in_second_form(entry)
    old = servers_in(client, document.data).get(name)
    after = document
    if old is None:
        after = after.put((*place, name), entry)
    else:
        after = _with_differences(after, (*place, name), old, merge(old, entry, client))
    if client.asks:
        after = _with_questions(after, asked)
    if after.text == document.text:
        return document, "same"
    return after, "added" if old is None else "changed"


def _in_second_form(entry: Entry) -> Entry:
    limit = entry["timeout"]
    limits: Entry = {"catalog": limit, "execution": limit}
    return {**entry, "timeout": limits}


def _with_differences(
    document: Document, path: tuple[str, ...], old: Entry, new: Entry
) -> Document:
    """Only what differs is touched, so that comments within the entry stay."""
    for key in old.keys() - new.keys():
        document = document.remove((*path, key))
    for key, value in new.items():
        if key not in old or old[key] != value:
            document = document.put((*path, key), value)
    return document


def _inputs(document: Document) -> list[JsonValue]:
    inputs = document.data.get("inputs")
    return inputs if isinstance(inputs, list) else []


def _with_questions(document: Document, variables: tuple[str, ...]) -> Document:
    for variable in variables:
        inputs = _inputs(document)
        ids = [one.get("id") for one in inputs if isinstance(one, dict)]
        if input_id(variable) not in ids:
            document = document.put(("inputs", len(inputs)), question(variable))
    return document


def without_entry(document: Document, client: Client, name: str) -> Document:
    """The document without the entry, and without questions that only it needed.

    Raises:
        SettingsError: the document is laid out in a way that would not survive it.
    """
    place = place_of(client, document.data)
    entry = servers_in(client, document.data)[name]
    after = document.remove((*place, name))
    if not client.asks:
        return after
    for number, one in reversed(list(enumerate(_inputs(after)))):
        held = one.get("id") if isinstance(one, dict) else None
        mark = f"${{input:{held}}}"
        if mark in str(entry) and mark not in after.text:
            after = after.remove(("inputs", number))
    return after
