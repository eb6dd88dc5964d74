"""Makes an environment with real MCP clients, for the tests that connect them to Podium.

    python -m podium_lab.environments.clients

About 270 MB are downloaded. The last line on stdout is where the programs lie: put it on PATH.
"""

import argparse
import os
from pathlib import Path

from podium.config import load_settings
from podium_lab.environments import node

PACKAGES = (
    "@openai/codex@0.171.0",
    "@anthropic-ai/claude-code@2.1.197",
    "@google/gemini-cli@0.61.0",
)
"""The versions that the tests were written with."""
PROGRAMS = ("node", "codex", "claude", "gemini")


def make(environments: Path) -> Path:
    """The clients, and a Node for them, in a folder for environments; where their programs lie.

    Raises:
        subprocess.CalledProcessError: pip or npm could not install them.
    """
    of_node = node.make(environments / "node")
    clients = environments / "clients"
    installed = node.npm_install(clients, PACKAGES, of_node)
    programs = clients / "bin"
    programs.mkdir(exist_ok=True)
    for name in PROGRAMS:
        program = (of_node if name == "node" else installed) / name
        (programs / name).unlink(missing_ok=True)
        (programs / name).symlink_to(program.resolve())
    return programs


def main() -> None:
    """Make the environment."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    beside = load_settings(os.environ).settings.environments_dir
    parser.add_argument("--folder", type=Path, default=beside, help="the folder for environments")
    print(make(parser.parse_args().folder.absolute()))


if __name__ == "__main__":
    main()
