"""What `evaluate` looks at: the model that it says, or nothing, so that no seal is used up."""

import shutil
from pathlib import Path

import pytest
from tests.lab.train.learner.conftest import make_job

from podium.config import Settings
from podium_lab.train.config import Job
from podium_lab.train.errors import TrainingError
from podium_lab.train.learner.run import opened
from podium_lab.train.learner.testing import evaluate
from podium_lab.train.records import Ended, Look, Records


def begun(folder: Path, settings: Settings, **sections: object) -> Job:
    """A job that has made its base, and no more."""
    job = make_job(folder / "job", **sections)
    with opened(job, {}, settings) as found:
        Records(job.folder).begin(job, found.ground.items, found.ground.label)
    return job


def looked(job: Job, settings: Settings, which: str) -> Look:
    return evaluate(job, {}, settings, part="test", which=which, items=1, temperature=0.0)


@pytest.mark.parametrize(
    ("which", "said"),
    [
        ("trained", "0 of 4 iterations.*podium train grpo.*--untrained"),
        ("untrained", "warm start.*podium train grpo"),
    ],
)
def test_a_model_that_is_not_there_is_not_looked_at(
    settings: Settings, tmp_path: Path, which: str, said: str
) -> None:
    job = begun(tmp_path, settings)
    with pytest.raises(TrainingError, match=said):
        looked(job, settings, which)
    assert Records(job.folder).looks() == ()


def test_what_an_earlier_end_has_left_is_not_looked_at_while_the_job_goes_on(
    settings: Settings, tmp_path: Path
) -> None:
    job = begun(tmp_path, settings)
    shutil.copytree(job.folder / "base", job.folder / "model")
    with pytest.raises(TrainingError, match="0 of 4 iterations"):
        looked(job, settings, "trained")
    assert Records(job.folder).looks() == ()


def test_a_look_says_how_long_its_model_was_trained(settings: Settings, tmp_path: Path) -> None:
    job = begun(tmp_path, settings, warm_start=None)
    shutil.copytree(job.folder / "base", job.folder / "model")
    Records(job.folder).end(Ended(iterations=3, stopped="Enough."))
    looks = [looked(job, settings, which) for which in ("untrained", "trained")]
    assert [look.iterations for look in looks] == [0, 3]
    assert Records(job.folder).looks() == tuple(looks)
