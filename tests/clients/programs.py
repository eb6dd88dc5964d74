"""Other people's MCP clients, as they are installed here, each at home in a folder of its own."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.command_line import CommandLine

from podium.config import load_settings

MADE = load_settings(os.environ).settings.models_dir.parent / "environments" / "clients" / "bin"
"""Where `python -m podium_lab.environments.clients` puts them."""


def find(name: str) -> str:
    """The program of a client, from PATH or from the environment made for it; else a skip."""
    found = shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), str(MADE)]))
    if found is None:
        pytest.skip(
            f"the client {name!r} is not installed: python -m podium_lab.environments.clients "
            "installs it"
        )
    return found


@dataclass(frozen=True)
class Client:
    """A client's program, and a home in which it knows nothing yet."""

    program: str
    home: Path

    @classmethod
    def of(cls, name: str, podium: CommandLine) -> "Client":
        home = podium.folder / f"home of {name}"
        home.mkdir()
        return cls(find(name), home)

    @property
    def environ(self) -> dict[str, str]:
        """No more than a client needs: no account, no key, no settings of whoever runs the test."""
        beside = str(Path(self.program).parent)
        return {
            "HOME": str(self.home),
            "PATH": os.pathsep.join([beside, str(MADE), os.environ.get("PATH", "")]),
        }
