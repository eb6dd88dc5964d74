"""The command that starts this very Podium, as it has to stand in a client's file."""

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path, PureWindowsPath

from podium_workers.worker import Frozen

PROGRAMS = ("podium", "podium.exe")
_PASSING = re.compile(r"[\\/]archive-v\d+[\\/]|[\\/]\.cache[\\/]uv[\\/]|[\\/]pipx[\\/]\.cache[\\/]")


class Launch(Frozen):
    """A program and its arguments."""

    command: str
    args: tuple[str, ...]

    @property
    def is_passing(self) -> bool:
        """Whether it lies in a cache that may be emptied at any time (uvx, pipx run)."""
        return _PASSING.search(self.command) is not None


def this_podium(called: str | None = None) -> Launch:
    """How this process was started: its script, by its own absolute path, or its interpreter.

    A link to the script stays one, since an upgrade changes what it leads to.
    """
    script = Path(os.path.abspath(sys.argv[0] if called is None else called))
    if script.name in PROGRAMS and script.is_file():
        return Launch(command=str(script), args=())
    beside = script.with_name(f"{script.name}.exe")
    if beside.name in PROGRAMS and beside.is_file():  # Windows leaves the ending out
        return Launch(command=str(beside), args=())
    return Launch(command=os.path.abspath(sys.executable), args=("-m", "podium"))


def end_of_launcher(line: Sequence[str]) -> int | None:
    """Where Podium's own arguments begin in a command line; None where it starts no Podium."""
    for at, part in enumerate(line):
        if PureWindowsPath(part).name.lower() not in PROGRAMS:
            continue
        if at == 0 or line[at - 1] == "-m" or _leads_to_podium(line[:at]):
            return at + 1
    return None


def _leads_to_podium(before: Sequence[str]) -> bool:
    """Whether these words start the program that follows them: `uvx`, `uv run`, `pipx run`."""
    return PureWindowsPath(before[0]).stem.lower() in ("uv", "uvx", "pipx")
