"""TOML as clients keep it, changed in one place only; comments and order stay."""

import tomllib
from collections.abc import MutableMapping, Sequence
from typing import cast

from pydantic import JsonValue

from podium.cli.installing.jsonc import NotChangeableError

_Table = MutableMapping[str, object]


def read(text: str) -> dict[str, JsonValue]:
    """The tables.

    Raises:
        tomllib.TOMLDecodeError: it is no TOML.
    """
    return tomllib.loads(text)


def put(text: str, path: Sequence[str], value: JsonValue) -> str:
    """The text with *value* at *path*; tables that are missing on the way there are made.

    Raises:
        NotChangeableError: something on the way is no table.
    """
    import tomlkit
    from tomlkit.items import InlineTable

    document = tomlkit.parse(text)
    table = cast("_Table", document)
    for depth, key in enumerate(path[:-1]):
        if key not in table:
            is_outer = depth < len(path) - 2 or isinstance(value, dict)
            table[key] = tomlkit.table(is_super_table=is_outer)
        table = _inner(table, key)
    table[path[-1]] = _item(value, is_inline=isinstance(table, InlineTable))
    new = tomlkit.dumps(document)
    return new[:-1] if new.endswith("\n\n") and not text.endswith("\n\n") else new


def remove(text: str, path: Sequence[str]) -> str:
    """The text without what stands at *path*.

    Raises:
        NotChangeableError: it is not there.
    """
    import tomlkit

    document = tomlkit.parse(text)
    table = cast("_Table", document)
    for key in path[:-1]:
        table = _inner(table, key)
    if path[-1] not in table:
        raise NotChangeableError(f"{'.'.join(path)} is not there")
    del table[path[-1]]
    return tomlkit.dumps(document)


def _inner(table: _Table, key: str) -> _Table:
    found = table.get(key)
    if not isinstance(found, MutableMapping):
        raise NotChangeableError(f"{key} is not a table")
    return cast("_Table", found)


def _item(value: JsonValue, *, is_inline: bool) -> object:
    """An object as a table, with its head or in braces; anything else as it is."""
    import tomlkit

    if not isinstance(value, dict):
        return value
    table = tomlkit.inline_table() if is_inline else tomlkit.table()
    for key, part in value.items():
        table.add(key, part)
    if not is_inline:
        table.add(tomlkit.nl())
    return table
