"""Podium's settings where `podium install` runs: what of them an entry carries, and what it lacks.

A client starts Podium without the variables that are set in a terminal.
"""

import os
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from podium.cli.installing.clients import Client
from podium.cli.installing.entries import Entry
from podium.config import PREFIX, Settings

_OPTIONS = ("pool", "store", "config")
"""Settings from variables that are written into a command line as well."""


def options_here(environment: Mapping[str, str]) -> dict[str, str]:
    """Options of Podium that say what variables say here, with paths that hold from any folder."""
    found = {name: environment.get(_variable(name), "") for name in _OPTIONS}
    return {name: os.path.abspath(value) for name, value in found.items() if _can_be(name, value)}


def _can_be(name: str, value: str) -> bool:
    """Whether it can be an option; a settings' file that is named by one has to be there."""
    return bool(value) and (name != "config" or Path(value).exists())


def not_handed_on(
    environment: Mapping[str, str], line: Sequence[str], passed: Collection[str]
) -> dict[str, str]:
    """Settings, with their variables, that no command line says and no client passes on."""
    names = (*Settings.model_fields, "config")
    variables = {name: _variable(name) for name in names if environment.get(_variable(name))}
    return {
        name: variable
        for name, variable in variables.items()
        if variable not in passed and not _says(line, name, environment[variable])
    }


def variables_in(entry: Entry, client: Client) -> set[str]:
    """Variables that an entry sets or passes on."""
    found: set[str] = set()
    for key in (client.environment, client.names):
        held = entry.get(key) if key else None
        if isinstance(held, dict | list):
            found |= {name for name in held if isinstance(name, str)}
    return found


def _says(line: Sequence[str], name: str, value: str) -> bool:
    """Whether the option is there, with that file."""
    wanted = os.path.abspath(value)
    return any(
        part == f"--{name}" and os.path.abspath(after) == wanted for part, after in pairwise(line)
    )


def _variable(name: str) -> str:
    return PREFIX + name.upper()
