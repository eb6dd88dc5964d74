"""Makes environments for the outside suites that test Podium, one each, beside that of vLLM.

    python -m podium_lab.environments.suites                       all of them
    python -m podium_lab.environments.suites inspector mcpcheck    only these

About 540 MB lie on the disk then. What is there already is left alone, what broke off is made
again, and one that cannot be made does not keep the others from it: a line says which, and what
failed. Exit code 1 when one is missing.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from podium.config import load_settings
from podium_lab.environments import node, python


@dataclass(frozen=True)
class Suite:
    """A tool that nobody here wrote, with its versions."""

    program: str
    """The command that it is called by."""
    packages: tuple[str, ...]
    on_node: bool = False
    """Whether it comes through npm; else through pip."""


SUITES: Mapping[str, Suite] = {
    "conformance": Suite(
        "conformance", ("@modelcontextprotocol/conformance@0.2.0-alpha.12",), on_node=True
    ),
    "inspector": Suite("mcp-inspector", ("@modelcontextprotocol/inspector@2.12.0",), on_node=True),
    "mcpb": Suite("mcpb", ("@anthropic-ai/mcpb@2.1.2",), on_node=True),
    "mcpcheck": Suite("mcpcheck", ("jbt_mcpcheck==0.1.1",)),
    # Newer versions of hypothesis break it.
    "toolproof": Suite("toolproof", ("mcp_toolproof==0.3.1", "hypothesis==6.139.3")),
    "skillsaw": Suite("skillsaw", ("skillsaw==0.22.0",)),
}


@dataclass(frozen=True)
class Environments:
    """The folder of all environments."""

    folder: Path

    @classmethod
    def usual(cls) -> "Environments":
        """Beside the folder of the models, as the settings name it."""
        return cls(load_settings(os.environ).settings.environments_dir)

    def command(self, name: str) -> list[str] | None:
        """What a suite is called by, when it is there in the versions named above."""
        suite, where = SUITES[name], self.folder / name
        if suite.on_node:
            program = where / "node_modules" / ".bin" / suite.program
            of_node = self.folder / "node" / "bin" / "node"
            found = all(node.installed(where, package) for package in suite.packages)
            return [str(of_node), str(program)] if found and of_node.exists() else None
        program = where / "bin" / suite.program
        return [str(program)] if program.exists() and _has(where, suite) else None

    def make(self, name: str) -> None:
        """Make the environment of a suite, if it is not there.

        Raises:
            subprocess.CalledProcessError: pip or npm could not install it.
        """
        suite, where = SUITES[name], self.folder / name
        if suite.on_node:
            node.npm_install(where, suite.packages, node.make(self.folder / "node"))
        else:
            python.install(python.new(where), *suite.packages)


def _has(where: Path, suite: Suite) -> bool:
    """Whether an environment of Python has every package of a suite."""
    return all(
        any(where.glob(f"lib/*/site-packages/{package.replace('==', '-')}.dist-info"))
        for package in suite.packages
    )


def main() -> int:
    """Make the environments that the arguments name; the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("name", nargs="*", help=", ".join(SUITES))
    parser.add_argument("--folder", type=Path, help="the folder for environments")
    given = parser.parse_args()
    if unknown := sorted(set(given.name).difference(SUITES)):
        parser.error(f"there is no suite {unknown[0]!r}; there are {', '.join(SUITES)}.")
    folder: Path | None = given.folder
    environments = Environments(folder.absolute()) if folder else Environments.usual()
    made = [_made(environments, name) for name in given.name or SUITES]
    return 0 if all(made) else 1


def _made(environments: Environments, name: str) -> bool:
    if environments.command(name):
        print(f"{name}: is there", flush=True)
        return True
    began = time.monotonic()
    try:
        environments.make(name)
    except (subprocess.CalledProcessError, OSError) as error:
        print(f"{name}: missing: {error}", flush=True)
        return False
    print(f"{name}: made in {time.monotonic() - began:.0f} s", flush=True)
    return True


if __name__ == "__main__":
    sys.exit(main())
