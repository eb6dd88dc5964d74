"""Configurations of jobs: the shipped ones, and what is said of wrong ones."""

from pathlib import Path

import pytest

from podium.errors import SettingsError
from podium_lab.train.config import read_job

ROOT = Path(__file__).parents[3]
SHIPPED = sorted((ROOT / "server" / "podium_lab" / "train" / "configs").glob("*.toml"))
PLAIN = """
folder = "out"
[model]
base = "tiny"
[[taskset]]
source = "generated"
[[workers.simulated]]
name = "one"
by_kind = { facts = 1.0 }
"""


def _job(folder: Path, text: str) -> Path:
    path = folder / "job.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_job_is_read_and_has_its_copy(path: Path) -> None:
    job = read_job(path)
    assert job.grpo.questions * job.grpo.rollouts % job.grpo.batch == 0
    assert (ROOT / "manifests" / "training" / path.name).read_text() == path.read_text()


def test_every_copy_is_of_a_shipped_job() -> None:
    copies = {path.name for path in (ROOT / "manifests" / "training").glob("*.toml")}
    assert copies == {path.name for path in SHIPPED}


def test_paths_count_from_the_files_folder(tmp_path: Path) -> None:
    assert read_job(_job(tmp_path, PLAIN)).folder == tmp_path / "out"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (PLAIN.replace("base =", "bass ="), r"model\.ba"),
        (PLAIN + "[grpo]\nrollout = 8\n", r"grpo\.rollout: there is no such key; take it out"),
        (PLAIN + "[grpo]\nbatch = 7\n", "batch: 7 does not divide the 256 rollouts"),
        (PLAIN + '[asked]\nteam = ["a"]\n', "asked: team: a training shows the workers"),
        (PLAIN + "[asked]\nprose = 0\n", r"asked: prose: a training has it from grpo\.prose"),
        (PLAIN + '[grpo]\nheld = true\nvllm = "server"\n[workers.shown]\nfewest = 1\n',
         r"take out workers\.shown\.fewest"),
        (PLAIN + "[workers]\nmanifest = 'nothing'\n", "give one of manifest"),
        ("folder = 1 2", "cannot be read as TOML"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(tmp_path: Path, wrong: str, said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        read_job(_job(tmp_path, wrong))


def test_a_pool_that_is_not_shipped_is_named_with_those_that_are(tmp_path: Path) -> None:
    live = PLAIN[: PLAIN.index("[[workers")] + '[workers]\nmanifest = "nothing"\n'
    with pytest.raises(SettingsError, match=r"no pool 'nothing' is shipped; there are .*local"):
        read_job(_job(tmp_path, live))
    good = read_job(_job(tmp_path, live.replace("nothing", "local")))
    assert good.workers.manifest is not None
    assert good.workers.manifest.is_file()
