"""An environment of Python for tools whose requirements clash with Podium's own."""

import subprocess
import sys
import venv
from collections.abc import Callable, Sequence
from importlib.resources import as_file, files
from importlib.util import find_spec
from pathlib import Path


def beside(models_dir: Path, name: str) -> Path:
    """Where an environment lies: beside the folder of the models."""
    return models_dir.parent / "environments" / name


def new(folder: Path) -> Path:
    """An empty environment in *folder*, in the place of what was there; its interpreter."""
    # A pip of its own takes as long to put there as a small suite itself.
    venv.create(folder, with_pip=not _has_pip(), clear=True)
    return folder / "bin" / "python"


def made(folder: Path, *, works: str, fill: Callable[[Path], None]) -> Path:
    """The interpreter of an environment in which the code *works* runs.

    What is there and does is left alone; else a new one is made, whose interpreter *fill* is given.
    """
    python = folder / "bin" / "python"
    if not _runs(python, works):
        fill(new(folder))
    return python


def install(python: Path, *arguments: str) -> None:
    """Install what the arguments name to pip in an environment that `new` made.

    Raises:
        subprocess.CalledProcessError: pip could not install it.
    """
    own, other = [sys.executable, "-m", "pip", "--python", str(python)], [str(python), "-m", "pip"]
    pip = own if _has_pip() else other
    # Most modules of what is installed here are never imported: they are compiled when they are.
    command = [*pip, "install", "-qq", "--no-compile", *arguments]
    subprocess.run(command, check=True, stdout=sys.stderr)


def install_locked(python: Path, lock: str, pip: Sequence[str] = ()) -> None:
    """Install just what a file of this folder pins; *pip* are further arguments.

    Raises:
        subprocess.CalledProcessError: pip could not install it.
    """
    with as_file(files("podium_lab.environments") / lock) as file:
        install(python, *pip, "--no-deps", "-r", str(file))


def _runs(python: Path, code: str) -> bool:
    """Whether an environment is there and *code* runs in it."""
    if not python.is_file():
        return False
    ran = subprocess.run(
        [str(python), "-c", code], check=False, stderr=subprocess.DEVNULL, cwd=python.parent
    )
    return ran.returncode == 0


def _has_pip() -> bool:
    """Whether this Python, which makes the others, can install; one that uv made cannot."""
    return find_spec("pip") is not None
