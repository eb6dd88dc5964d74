"""Jobs with the tiny model, for tests that run where torch and TRL are: see ../test_learner.py."""

import importlib.util
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from podium.config import Settings
from podium_lab.train.config import Job

if importlib.util.find_spec("trl") is None:
    collect_ignore_glob = ["test_*.py"]

SKILLS = [
    {"name": "calculator", "by_kind": {"arithmetic": 1.0}},
    {"name": "encyclopedia", "by_kind": {"facts": 1.0}},
]
WARM = {"iterations": 90, "batch": 16, "learning_rate": 3e-3, "two_steps": 0.2, "prompts_too": True}


def make_job(folder: Path, **sections: object) -> Job:
    """A small job; *sections* replace keys of its sections, or whole ones."""
    values: dict[str, object] = {
        "folder": folder,
        "seed": 1,
        "model": {"base": "tiny", "dtype": "float32"},
        "asked": {"prompt": "brief", "max_steps": 2, "context_window": 1024},
        "taskset": [{"source": "generated", "count": 300, "kinds": ["arithmetic", "facts"]}],
        "workers": {"simulated": SKILLS, "parallel": 8},
        "warm_start": WARM,
        "checkpoint_every": 2,
        "validation_items": 8,
    }
    grpo: dict[str, object] = {
        "iterations": 4, "questions": 2, "rollouts": 8, "batch": 16, "max_tokens": 40,
        "learning_rate": 2e-4, "schedule": "constant", "warm_up": 0.0,
    }  # fmt: skip
    for name, section in sections.items():
        if name == "grpo" and isinstance(section, dict):
            grpo |= section
        else:
            values[name] = section
    return Job.model_validate({**values, "grpo": grpo})


@dataclass
class Ran:
    """A job that is run in the test's own process."""

    job: Job
    settings: Settings
    said: list[str] = field(default_factory=list[str])
    tell: Callable[[str], None] | None = None

    def run(self) -> object:
        from podium_lab.train.learner.run import run

        return run(self.job, dict(os.environ), self.settings, self.tell or self.said.append)

    def weights(self) -> bytes:
        return (self.job.folder / "model" / "model.safetensors").read_bytes()


@pytest.fixture(scope="session")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    home = tmp_path_factory.mktemp("home")
    return Settings(models_dir=home / "models", state_dir=home / "engine", store=home / "p.db")


@pytest.fixture(scope="session")
def finished(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """A job of four iterations that nothing has interrupted."""
    ran = Ran(make_job(tmp_path_factory.mktemp("jobs") / "finished"), settings)
    ran.run()
    return ran


@pytest.fixture
def again(finished: Ran, tmp_path: Path) -> Callable[..., Ran]:
    """Makes a job that begins from the same warm start, which takes most of the time."""

    def make(**sections: object) -> Ran:
        job = make_job(tmp_path / "job", **sections)
        for name in ("base", "warm"):
            shutil.copytree(finished.job.folder / name, job.folder / name)
        return Ran(job, finished.settings)

    return make
