"""Makes the environment of the other engines, apart from Podium's own.

python -m podium_lab.bench.peers.install [FOLDER]
"""

import argparse
import subprocess
import sys
import venv
from importlib.metadata import version
from pathlib import Path

import platformdirs

PINNED = (
    "langgraph==1.2.22",
    "langgraph-checkpoint-sqlite==3.1.2",
    "agent-framework-core==1.23.0",
)
"""The engines that Podium is compared with."""
SHARED = ("anyio", "httpx2", "openai", "pydantic")
"""Of the same version as here, so that only the engines differ."""


def default_folder() -> Path:
    """Where the environment is unless a folder is named."""
    return Path(platformdirs.user_cache_dir("podium", appauthor=False)) / "bench-peers"


def python_in(folder: Path) -> Path:
    """The interpreter of the environment in *folder*."""
    return folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")


def main() -> None:
    """Make or complete the environment."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", nargs="?", type=Path, default=default_folder())
    folder: Path = parser.parse_args().folder
    venv.create(folder, with_pip=True)
    shared = [f"{name}=={version(name)}" for name in SHARED]
    command = [str(python_in(folder)), "-m", "pip", "install", "--quiet", *PINNED, *shared]
    subprocess.run(command, check=True)
    print(f"The other engines are in {folder}.")


if __name__ == "__main__":
    main()
