"""What `podium doctor` says of MCP clients that have Podium in their settings. Changes nothing."""

import contextlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath

from pydantic import JsonValue

from podium import __version__
from podium.cli.check import Check
from podium.cli.install import NAME
from podium.cli.installing.clients import CLIENTS, Client, Machine, user_file
from podium.cli.installing.documents import open_document
from podium.cli.installing.editing import servers_in
from podium.cli.installing.entries import Entry, address, command_line, kind_of
from podium.cli.installing.launch import end_of_launcher, this_podium
from podium.cli.installing.wishes import passes_keys
from podium.cli.invocation import Invocation
from podium.errors import SettingsError

LEAST_S, LEAST_START_S = 60, 10
"""Less than this is too short: for a call, which answers or hands over after 45 s, and to start."""
_ANSWER_S = 20
"""Seconds that another Podium has to tell its version."""
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSWORD")
_KEPT = ("PATH", "HOME", "USERPROFILE", "SYSTEMROOT", "LANG")
"""All that another Podium sees of the environment when it is asked for its version."""

_READ = ("--pool", "--config", "--replay")
"""Options whose file has to be there."""
_BROKEN = "no Podium that works"

Fault = tuple[str, str]
"""What is wrong, and what to do."""


@dataclass(frozen=True)
class _Found:
    """An entry of Podium in a client's file."""

    client: Client
    file: Path
    name: str
    entry: Entry
    is_users: bool
    """Not of a project: what a project names is not started to look at it."""
    again: str
    """What to type for an entry as it should be."""


def client_checks(invocation: Invocation) -> Iterator[Check]:
    """A line for every entry of Podium that the user, or the project in this folder, has."""
    machine = Machine(sys.platform, invocation.environment)
    none = True
    for client in CLIENTS:
        for check in _checks(client, machine):
            none = False
            yield check
    if none:
        found = f"none of the {len(CLIENTS)} that Podium knows has it in its settings"
        remedy = f"podium install {'|'.join(client.name for client in CLIENTS)}"
        yield Check(area="clients", level="ok", found=found, remedy=remedy)


def _checks(client: Client, machine: Machine) -> Iterator[Check]:
    area = f"client {client.name}"
    entries: list[_Found] = []
    for file, project in _files(client, machine):
        try:
            entries += _entries(client, file, project)
        except SettingsError as error:
            yield Check(area=area, level="note", found=str(error))
    for found in entries:
        yield _entry_check(area, found, machine.environment)
    names = dict.fromkeys(found.name for found in entries)
    if len(names) > 1:
        found = f"Podium is there as {' and '.join(names)}, each a process of its own"
        remedy = f"keep one: podium uninstall {client.name} --name NAME"
        yield Check(area=area, level="note", found=found, remedy=remedy)


def _entry_check(area: str, found: _Found, environment: Mapping[str, str]) -> Check:
    faults = list(_faults(found, environment))
    told = f"{found.file}: {found.name}"
    if faults:
        what = "; ".join(fault for fault, _ in faults)
        return Check(area=area, level="note", found=f"{told}: {what}", remedy=faults[0][1])
    way = address(found.entry) or f"starts {command_line(found.entry)[0]}"
    return Check(area=area, level="ok", found=f"{told} {way}")


def _files(client: Client, machine: Machine) -> Iterator[tuple[Path, Path | None]]:
    """The files that there are, with their project's folder."""
    here, own = Path.cwd(), None
    with contextlib.suppress(SettingsError):  # without a home there is no such file
        own = user_file(client, machine)
    if own is not None and own.exists():
        yield own, None
    for file in (here / name for name in client.project_files):
        if file.exists() and (own is None or file.resolve() != own.resolve()):
            yield file, here


def _entries(client: Client, file: Path, project: Path | None) -> Iterator[_Found]:
    data = open_document(file, client.syntax).data
    again = f"podium install {client.name}" + (f" --project {project}" if project else "")
    for name, entry in servers_in(client, data).items():
        if _is_podium(name, entry):
            named = again if name == NAME else f"{again} --name {name}"
            yield _Found(client, file, name, entry, project is None, named)
    if client.name == "claude-code" and project is None:  # its user's servers of this folder alone
        of_here = _inner(_inner(data, "projects"), str(Path.cwd()))
        for name, entry in servers_in(client, of_here).items():
            if _is_podium(name, entry):
                anew = f"claude mcp remove --scope local {name} && {again}"
                yield _Found(client, file, name, entry, is_users=False, again=anew)


def _is_podium(name: str, entry: Entry) -> bool:
    kind = kind_of(entry)
    return kind == "podium" or (kind == "address" and name == NAME)


def _inner(data: Mapping[str, JsonValue], key: str) -> dict[str, JsonValue]:
    found = data.get(key)
    return found if isinstance(found, dict) else {}


def _faults(found: _Found, environment: Mapping[str, str]) -> Iterator[Fault]:
    reached = address(found.entry)
    if reached is None:
        yield from _faults_of_program(found, environment)
    elif found.client.kinds and found.entry.get("type") is None:
        yield "an address without `type` is taken for a program", f"{found.again} --http {reached}"
    for fault in _faults_of_limits(found):
        yield fault, found.again
    for variable in _in_the_clear(found):
        can = passes_keys(found.client) or found.client.asks
        remedy = f"{found.again} --env {variable}" if can else "install the bundle podium.mcpb"
        yield f"{variable} stands there in the clear", remedy


def _faults_of_program(found: _Found, environment: Mapping[str, str]) -> Iterator[Fault]:
    line = command_line(found.entry)
    program = shutil.which(line[0], path=environment.get("PATH"))
    if program is None:
        is_there = Path(line[0]).exists()
        yield f"{line[0]} {'cannot be run' if is_there else 'does not exist'}", found.again
        return
    start = end_of_launcher(line)
    if "serve" not in line[start:]:
        yield "it does not start `serve`", found.again
    yield from _faults_of_options(found, line[start:])
    own = this_podium()
    if line[:start] == (own.command, *own.args) or not found.is_users:
        return
    version = _version([program, *line[1:start]], environment)
    if version is not None and version != __version__:
        yield f"{line[0]} is {version}, this is Podium {__version__}", found.again


def _faults_of_options(found: _Found, arguments: Sequence[str]) -> Iterator[Fault]:
    """Files that Podium is to read, and that are not there; without them it does not start."""
    for option, file in _files_named(arguments):
        path = Path(file).expanduser()
        if path.is_absolute() and not path.exists():  # the others depend on the client's folder
            again = found.again.replace("podium", f"podium {option} FILE", 1)
            yield f"{option} {file} does not exist", again


def _files_named(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    for part, after in zip(arguments, (*arguments[1:], ""), strict=False):
        option, is_joined, file = part.partition("=")
        if option in _READ:
            yield option, file if is_joined else after


def _version(launcher: Sequence[str], environment: Mapping[str, str]) -> str | None:
    """What a Podium calls itself; None where it was not asked, since asking might install it."""
    if PureWindowsPath(launcher[0]).stem.lower() in ("uv", "uvx", "pipx"):
        return None
    try:
        done = subprocess.run(
            [*launcher, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="replace",
            timeout=_ANSWER_S,
            check=False,
            cwd=Path(launcher[0]).parent,
            env={name: environment[name] for name in _KEPT if name in environment},
        )
    except (OSError, subprocess.TimeoutExpired):
        return _BROKEN
    said = re.fullmatch(r"podium, version (\S+)", done.stdout.strip())
    return said[1] if said and done.returncode == 0 else _BROKEN


def _faults_of_limits(found: _Found) -> Iterator[str]:
    """What is wrong with the time limits."""
    client = found.client
    for key in client.timeouts:
        least = (LEAST_START_S if key.startswith("startup") else LEAST_S) * client.second
        value = found.entry.get(key)
        value = value.get("execution") if isinstance(value, dict) else value
        if value is None:
            yield f"{key} is not set, so that long calls are cut"
        elif isinstance(value, int | float) and value < least:
            yield f"{key} = {value} is too short (at least {least})"
    own = found.entry.get("timeout")
    if client.name == "claude-code" and isinstance(own, int | float) and own < LEAST_S * 1000:
        yield f"timeout = {own} is too short (at least {LEAST_S * 1000}, or leave it out)"


def _in_the_clear(found: _Found) -> Iterator[str]:
    """Variables with names as secrets have them, whose value is neither a variable nor a path."""
    for variable, value in _inner(found.entry, found.client.environment).items():
        is_text = isinstance(value, str) and value and not value.startswith(("$", "{", "/", "~"))
        if is_text and _SECRET.search(variable) and not variable.endswith("_FILE"):
            yield variable
