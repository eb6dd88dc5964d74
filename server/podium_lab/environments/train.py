"""Makes an environment of its own for training, where `podium train` finds it.

    python -m podium_lab.environments.train          as released, for GPUs
    python -m podium_lab.environments.train --cpu    for the processor: for tests and small proofs

Arguments behind `--` are passed to pip. Podium itself is installed as it is here.
"""

import argparse
import os
from collections.abc import Sequence
from importlib.metadata import distribution
from pathlib import Path

from podium.config import load_settings
from podium_lab.environments import python

ENVIRONMENT = "train"
LOCK = "train_cpu.txt"
"""What the kit was tried with on a processor, every package pinned."""
PACKAGES = (
    "trl==1.16.*", "torch>=2.13", "transformers>=5.24,<6", "peft>=0.21", "accelerate>=1.15",
    "datasets>=5.2", "gguf>=0.19", "cma>=4.5", "xgrammar>=0.2", "tensorboard>=2.21",
    "math-verify>=0.9",
)  # fmt: skip


def default_folder(models_dir: Path) -> Path:
    """Where `podium train` looks."""
    return python.beside(models_dir, ENVIRONMENT)


def make(folder: Path, *, cpu: bool, pip: Sequence[str] = ()) -> Path:
    """An environment in *folder*; its interpreter. What is there already is left alone.

    Raises:
        subprocess.CalledProcessError: pip could not install it.
    """

    def fill(interpreter: Path) -> None:
        if cpu:
            python.install_locked(interpreter, LOCK, pip)
        else:
            python.install(interpreter, *pip, *PACKAGES)
        python.install(interpreter, *pip, *_podium())

    works = "import podium; from importlib.metadata import version; version('trl')"
    return python.made(folder, works=works, fill=fill)


def _podium() -> list[str]:
    """Podium as it is installed here: the folder that it is developed in, or its version."""
    root = Path(__file__).parents[3]
    if (root / "pyproject.toml").is_file():
        return ["-e", str(root)]
    return [f"podium=={distribution('podium').version}"]


def main() -> None:
    """Make the environment."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    models_dir = load_settings(os.environ).settings.models_dir
    parser.add_argument("--folder", type=Path, default=default_folder(models_dir))
    parser.add_argument("--cpu", action="store_true", help="what runs on the processor")
    parser.add_argument("pip", nargs="*", help="arguments for pip, behind --")
    given = parser.parse_args()
    print(make(given.folder.absolute(), cpu=given.cpu, pip=given.pip))


if __name__ == "__main__":
    main()
