"""The learner, tested in the environment that has torch and TRL; skipped where that was not made.

The tests themselves are in the folder `learner`; what they come to is shown here.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.command_line import CommandLine

from podium.config import Settings
from podium_lab.train.handing_over import interpreter

ROOT = Path(__file__).parents[3]
TESTS = "tests/lab/train/learner"
MAKE = "python -m podium_lab.environments.train --cpu"


def _python() -> Path:
    named = os.environ.get("PODIUM_TRAIN_PYTHON")
    python = Path(named) if named else interpreter(Settings())
    if python is None or not python.is_file():
        pytest.skip(f"there is no environment with torch and TRL; {MAKE} makes it")
    return python


def test_the_learner_passes_its_tests_where_torch_is() -> None:
    command = [str(_python()), "-P", "-m", "pytest", TESTS, "-q", "-W", "ignore"]
    ran = subprocess.run(
        [*command, "-p", "no:cacheprovider"], check=False, capture_output=True, text=True,
        cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=1800,
    )  # fmt: skip
    print(ran.stdout)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert re.search(r"\d+ passed", ran.stdout)
    assert "skipped" not in ran.stdout


def test_the_types_of_the_learner_hold_where_torch_is(tmp_path: Path) -> None:
    """Not strictly: most of what torch and TRL give is untyped."""
    python = _python()
    settings = tmp_path / "pyrightconfig.json"
    places = (ROOT / "server" / "podium_lab" / "train" / "learner", ROOT / TESTS)
    wanted = {
        # Relative ones alone are taken.
        "include": [os.path.relpath(place, tmp_path) for place in places],
        "extraPaths": [str(ROOT / name) for name in ("server", "workers", ".")],
        "typeCheckingMode": "basic",
        "pythonVersion": "3.11",
    }
    settings.write_text(json.dumps(wanted))
    command = [sys.executable, "-m", "pyright", "-p", str(settings), "--outputjson"]
    ran = subprocess.run(
        [*command, "--pythonpath", str(python)],
        check=False, capture_output=True, text=True, timeout=1200,
    )  # fmt: skip
    found = json.loads(ran.stdout)
    assert found["generalDiagnostics"] == []
    files = [path for place in places for path in place.glob("*.py")]
    assert found["summary"]["filesAnalyzed"] == len(files)


def test_the_command_hands_itself_over_and_trains(tmp_path: Path) -> None:
    """From a folder where another one is named like a package that TRL looks for."""
    _python()
    models = {"PODIUM_MODELS_DIR": str(Settings().models_dir), "OMP_NUM_THREADS": "1"}
    podium = CommandLine(tmp_path, models)
    (tmp_path / "vllm").mkdir()
    text = (ROOT / "manifests" / "training" / "tiny.toml").read_text()
    for old, new in (
        ("iterations = 200\nbatch = 32", "iterations = 2\nbatch = 4"),
        ("iterations = 100\nquestions = 12\nrollouts = 16\nbatch = 192",
         "iterations = 2\nquestions = 2\nrollouts = 4\nbatch = 8"),
        ("validation_items = 60", "validation_items = 4"),
    ):  # fmt: skip
        assert old in text
        text = text.replace(old, new)
    podium.write("own.toml", text)
    done = podium("train", "grpo", "own.toml", within_s=900)
    assert done.code == 0, done.err
    begins = ("curves: ", "workers are simulated", "validation, ", "iteration 1: ", "iteration 2: ")
    assert all(line.startswith(begins) for line in done.err.splitlines()), done.err
    assert "2 of 2 iterations, done" in done.out
    exported = podium("train", "export", "runs/tiny", "out")
    assert exported.out.strip() == "out"
    assert (tmp_path / "out" / "model.safetensors").is_file()
