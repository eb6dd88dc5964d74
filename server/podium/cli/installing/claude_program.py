"""Claude Code's own program, which alone changes the file of its user, even while it is in use."""

import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from podium.cli.installing.entries import Entry
from podium.errors import SettingsError

ENOUGH_S = 60


def find_claude(environment: Mapping[str, str]) -> Path:
    """The program.

    Raises:
        SettingsError: it is not on the PATH.
    """
    found = shutil.which("claude", path=environment.get("PATH"))
    if found is None:
        raise SettingsError(
            "Claude Code's program `claude` is not on the PATH, and it alone may change the file "
            "of its user; install it, or write a project's file with --project DIR."
        )
    return Path(found)


def adding(name: str, entry: Entry) -> list[str]:
    """The arguments that add a server for the user."""
    return ["mcp", "add-json", "--scope", "user", name, json.dumps(entry, ensure_ascii=False)]


def removing(name: str) -> list[str]:
    """The arguments that take a server of the user out."""
    return ["mcp", "remove", "--scope", "user", name]


def run_claude(program: Path, arguments: list[str], environment: Mapping[str, str]) -> None:
    """Run the program to its end.

    Raises:
        SettingsError: it failed, or did not end; the text says what it said.
    """
    what = f"{program} {' '.join(arguments[:2])}"
    try:
        done = subprocess.run(
            [str(program), *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="replace",
            env=dict(environment),
            timeout=ENOUGH_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise SettingsError(f"{what} did not end within {ENOUGH_S} s; try it by hand.") from None
    if done.returncode:
        said = " ".join((done.stderr.strip() or done.stdout.strip()).split())[:400]
        raise SettingsError(f"{what} failed: {said or f'exit code {done.returncode}'}")
