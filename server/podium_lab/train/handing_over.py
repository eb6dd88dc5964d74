"""Hands a command over to the environment that has torch and TRL, where these are missing here."""

import importlib.util
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from podium.config import Settings
from podium_lab.environments.train import default_folder
from podium_lab.train.errors import TrainingError

HANDED = "PODIUM_HANDED_OVER"
"""Set in the environment of a command that was handed over: it is not handed on again."""
_OTHERS = ("vllm", "deepspeed")
"""Packages that TRL takes for installed when a mere folder of that name lies in the way."""


def is_here() -> bool:
    """Whether this interpreter has what learning needs."""
    return importlib.util.find_spec("trl") is not None


def interpreter(settings: Settings) -> Path | None:
    """That of the environment for training; None where it was not made."""
    python = default_folder(settings.models_dir) / "bin" / "python"
    return python if python.is_file() else None


def see_learner(environment: Mapping[str, str], settings: Settings) -> None:
    """Go on here if learning can be done here, or become the same command where it can.

    Raises:
        TrainingError: it can be done nowhere; the text says what to type.
    """
    if is_here():
        _leave_the_working_folder()
        return
    python = interpreter(settings)
    if python is None or HANDED in environment:
        raise TrainingError(
            "Training needs torch and TRL, which are not installed here; make their environment "
            "with `python -m podium_lab.environments.train` (with --cpu where there is no GPU)."
        )
    hand_over(python, environment)


def hand_over(python: Path, environment: Mapping[str, str]) -> NoReturn:
    """Become this very command, run by another interpreter."""
    sys.stdout.flush()
    # -P: a folder named like a package, in the working folder, must not be taken for it.
    command = [str(python), "-P", "-m", "podium", *sys.argv[1:]]
    os.execve(python, command, {**environment, HANDED: "1"})


def _leave_the_working_folder() -> None:
    """Take the working folder out of where modules are looked for, and see that it helped."""
    here = Path.cwd()
    sys.path[:] = [entry for entry in sys.path if entry and Path(entry).absolute() != here]
    for name in _OTHERS:
        found = importlib.util.find_spec(name)
        if found is not None and found.origin is None:
            where = next(iter(found.submodule_search_locations or ()), name)
            raise TrainingError(
                f"The folder {where} is taken for the package {name!r}; begin the job from another "
                "folder."
            )
