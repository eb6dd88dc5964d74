"""Makes an environment of its own for vLLM, where `podium` finds it, and models for it.

    python -m podium_lab.environments.vllm                      vLLM as it is released, for a GPU
    python -m podium_lab.environments.vllm --cpu                a build for the processor: for tests
    python -m podium_lab.environments.vllm --cpu --model smollm2

Arguments behind `--` are passed to pip. A model is one of `podium models list`, turned into a
folder that vLLM serves; the last line on stdout is its path.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.resources import as_file, files
from pathlib import Path

from podium.config import load_settings
from podium_lab.environments import python
from podium_workers.entries.vllm_options import ENVIRONMENT
from podium_workers.weights.catalogue import lookup
from podium_workers.weights.pulling import pull

LOCK = "vllm_cpu.txt"
"""What the build for the processor was tried with, every package pinned."""
BUILD = "0.32.0+cpu"


def default_folder(models_dir: Path) -> Path:
    """Where `podium` looks for vLLM."""
    return python.beside(models_dir, ENVIRONMENT)


def make(folder: Path, *, cpu: bool, pip: Sequence[str] = ()) -> Path:
    """An environment with vLLM in *folder*; its interpreter. Nothing is done where one is already.

    Raises:
        subprocess.CalledProcessError: pip could not install it.
    """

    def fill(interpreter: Path) -> None:
        if cpu:
            python.install_locked(interpreter, LOCK, pip)
            _name_the_build(interpreter)
        else:
            python.install(interpreter, *pip, "vllm")

    works = "from importlib.metadata import version; version('vllm')"
    return python.made(folder, works=works, fill=fill)


def _name_the_build(interpreter: Path) -> None:
    """The build for the processor is packaged as another name than the one it looks itself up by,
    which is also how it tells what it runs on."""
    look = "import sysconfig; print(sysconfig.get_path('purelib'))"
    command = [str(interpreter), "-c", look]
    found = subprocess.run(command, check=True, capture_output=True, text=True)
    about = Path(found.stdout.strip()) / f"vllm-{BUILD}.dist-info"
    about.mkdir(exist_ok=True)
    text = f"Metadata-Version: 2.1\nName: vllm\nVersion: {BUILD}\n"
    (about / "METADATA").write_text(text, encoding="utf-8")


def model_folder(name: str, models_dir: Path, interpreter: Path) -> Path:
    """A model of the catalogue as a folder for vLLM; pulled and converted first if need be.

    Raises:
        ModelFileError: it cannot be pulled.
        subprocess.CalledProcessError: it cannot be converted.
    """
    weights = lookup(name)
    folder = models_dir / "unpacked" / weights.name
    if not folder.is_dir():
        file = pull(weights, models_dir)
        folder.parent.mkdir(exist_ok=True)
        with as_file(files("podium_lab.environments") / "from_gguf.py") as script:
            command = [str(interpreter), "-E", str(script), str(file), str(folder)]
            subprocess.run(command, check=True, stdout=sys.stderr)
    return folder


def main() -> None:
    """Make the environment and the models that the arguments name."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    models_dir = load_settings(os.environ).settings.models_dir
    parser.add_argument("--folder", type=Path, default=default_folder(models_dir))
    parser.add_argument("--cpu", action="store_true", help="the build for the processor")
    parser.add_argument("--model", action="append", default=[], help="smollm2, qwen-0.5b, ...")
    parser.add_argument("pip", nargs="*", help="arguments for pip, behind --")
    given = parser.parse_args()
    made = make(given.folder.absolute(), cpu=given.cpu, pip=given.pip)
    print(made)
    for name in given.model:
        print(model_folder(name, models_dir, made))


if __name__ == "__main__":
    main()
