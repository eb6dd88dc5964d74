"""`podium train` without torch: looking a job through, its records, and what is missing."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.command_line import CommandLine

from podium.config import Settings
from podium_lab.train.config import read_job
from podium_lab.train.environment import Score
from podium_lab.train.handing_over import is_here
from podium_lab.train.opening import load_items, open_ground
from podium_lab.train.records import Ended, Look, Records
from podium_lab.train.watch import summed

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.skipif(is_here(), reason="torch and TRL are installed here")


POOL = """
conductor = "ann"
[[worker]]
name = "ann"
kind = "scripted"
context_window = 8192
replies = ["Answer: 1"]
"""
JOB = """
folder = "out"
[model]
base = "tiny"
[[taskset]]
source = "math"
path = "math.jsonl"
[workers]
manifest = "pool.toml"
"""


@pytest.fixture
def job(podium: CommandLine) -> Path:
    path = podium.folder / "own.toml"
    text = (ROOT / "manifests" / "training" / "tiny.toml").read_text()
    path.write_text(text.replace("count = 900", "count = 60"))
    return path


def test_shipped_jobs_are_listed(podium: CommandLine) -> None:
    listed = podium.inside("train", "configs").out
    assert "tiny.toml: A model of under a million parameters" in listed
    assert "paper_7b_colocate.toml: The Conductor paper's run on 2 GPUs of 80 GB" in listed


def test_a_job_is_looked_through_without_torch(podium: CommandLine, job: Path) -> None:
    done = podium.inside("train", "check", job.name)
    assert done.code == 0, done.err
    assert "arithmetic: " in done.out
    assert "Pool (simulated): calculator, encyclopedia, reader" in done.out
    assert "estimated: there is no tokenizer here" in done.out
    assert "podium train grpo own.toml" in done.out
    assert "First rollout, its plan drawn by lot" in done.out
    assert not (podium.folder / "runs").exists()


@pytest.mark.parametrize("command", ["check", "profile"])
def test_what_a_judge_lacks_is_told_before_anybody_is_asked(
    podium: CommandLine, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    (podium.folder / "pool.toml").write_text(POOL)
    (podium.folder / "math.jsonl").write_text('{"problem": "1 + 1?", "answer": "2"}\n')
    (podium.folder / "own.toml").write_text(JOB)
    monkeypatch.setitem(sys.modules, "math_verify", None)
    done = podium.inside("train", command, "own.toml", *(["--ask"] if command == "check" else []))
    assert done.code == 1
    assert "math-verify" in done.err
    assert not (podium.folder / "out").exists()


def test_the_7b_passes_a_dry_run_without_gpu_data_or_keys(podium: CommandLine) -> None:
    done = podium.inside("train", "check", "paper_7b_colocate.toml", "--offline")
    assert done.code == 0, done.err
    assert "7,615 million parameters (28 layers of width 3584), all of them trained" in done.out
    assert "= 51,200" in done.out
    assert "of 80 GB" in done.out
    assert "accelerate launch --config_file" in done.out
    assert "simulated workers of these names instead" in done.out
    assert "reward" in done.out.split("First rollout")[1]


def test_training_without_torch_says_what_to_type(podium: CommandLine, job: Path) -> None:
    done = podium.inside("train", "grpo", job.name)
    assert done.code == 1
    assert "python -m podium_lab.environments.train" in done.err
    assert not (podium.folder / "runs").exists()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("questions = 12", "question = 12", "grpo.question: there is no such key; take it out."),
        ('source = "generated"', 'source = "math"\npath = "no.jsonl"', "there is no such file"),
        ("batch = 192", "batch = 7", "does not divide the 192 rollouts"),
        ("context_window = 1024", "context_window = 256", ""),
    ],
)
def test_what_is_wrong_with_a_job_is_said_in_a_sentence(
    podium: CommandLine, job: Path, old: str, new: str, said: str
) -> None:
    job.write_text(job.read_text().replace(old, new))
    done = podium.inside("train", "check", job.name)
    assert said in done.err
    assert done.code == (1 if said else 0)


def test_prompts_that_do_not_fit_are_a_problem(podium: CommandLine, job: Path) -> None:
    job.write_text(job.read_text().replace("max_tokens = 40", "max_tokens = 1020"))
    done = podium.inside("train", "check", job.name)
    assert done.code == 1
    assert "raise it, or lower grpo.max_tokens" in done.err


def test_a_pool_without_the_named_workers_is_refused(podium: CommandLine, job: Path) -> None:
    text = job.read_text()
    begin, end = text.index("[workers]"), text.index("[warm_start]")
    pool = f'[workers]\nmanifest = "{podium.pool.name}"\nonly = ["boss", "nobody"]\n\n'
    job.write_text(text[:begin] + pool + text[end:])
    done = podium.inside("train", "check", job.name)
    assert done.code == 1
    assert "nobody" in done.err
    job.write_text(job.read_text().replace(', "nobody"', ""))
    done = podium.inside("train", "check", job.name)
    assert "Pool (live): boss" in done.out


def test_the_records_of_a_job_are_shown(podium: CommandLine, job: Path) -> None:
    read = read_job(job)
    read.folder.mkdir(parents=True)
    records = Records(read.folder)
    records.begin(read, load_items(read), "simulated")
    right = Score(
        item="1", reward=1.0, valid=True, right=True, workers=("reader",), subtasks=("Look.",)
    )
    dropped = Score(item="2", reward=None, valid=True, problem="step 0, reader: Too busy.")
    for iteration in (1, 2, 3):
        scores = [right, right, dropped]
        records.keep(summed(iteration, [scores]), scores)
    step = summed(0, [[right]])
    look = Look(name="before", part="validation", temperature=0, items=1, step=step)
    records.look(look, [right])
    records.end(Ended(iterations=3, stopped="Routing has collapsed to 'reader'."))
    shown = podium.inside("train", "status", str(read.folder)).out
    assert "3 of 100 iterations, stopped: Routing has collapsed to 'reader'." in shown
    assert "workers simulated" in shown
    assert "███" in shown
    assert "1 of 3 rollouts: step 0, reader: Too busy." in shown
    assert "validation, before: 100% right (21% to 100%) of 1 items" in shown
    followed = podium.inside("train", "status", str(read.folder), "--follow").out.splitlines()
    assert [line.split(":")[0] for line in followed[:3]] == [f"iteration {n}" for n in (1, 2, 3)]
    assert "stopped: Routing has collapsed" in followed[3]


def test_a_folder_without_a_job_is_named(podium: CommandLine) -> None:
    done = podium.inside("train", "status", "nothing")
    assert done.code == 1
    assert "no job was begun here" in done.err


def test_the_sealed_part_is_opened_once(podium: CommandLine, job: Path) -> None:
    read = read_job(job)
    read.folder.mkdir(parents=True)
    records = Records(read.folder)
    records.begin(read, load_items(read), "simulated")
    score = Score(item="1", reward=0.0)
    step = summed(0, [[score]])
    records.look(Look(name="trained", part="test", temperature=0, items=1, step=step), [score])
    done = podium.inside("train", "evaluate", job.name)
    assert done.code == 1
    assert "the sealed test part was opened already" in done.err
    other = podium.inside("train", "evaluate", job.name, "--pools", "unseen")
    assert "opened already" not in other.err, "with other pools it is another look"


def test_heads_are_compared_on_the_sealed_part_once(podium: CommandLine, job: Path) -> None:
    folder = read_job(job).folder
    folder.mkdir(parents=True)
    score = Score(item="1", reward=0.0)
    look = Look(
        name="trinity", part="test", temperature=0, items=1, iterations=9,
        step=summed(0, [[score]]),
    )  # fmt: skip
    Records(folder).look(look, [score])
    done = podium.inside("train", "trinity", job.name, "--compare", "2")
    assert done.code == 1
    assert "the sealed test part was opened already, after 9 generations" in done.err
    again = podium.inside("train", "trinity", job.name, "--compare", "2", "--again")
    assert "has no [trinity]" in again.err


def test_workers_that_repeat_themselves_are_not_asked_again(podium: CommandLine, job: Path) -> None:
    done = podium.inside("train", "profile", job.name, "--repeats", "3")
    assert done.code == 1
    assert "give the same reply every time" in done.err


def test_a_proof_without_seeds_says_what_is_missing(podium: CommandLine, job: Path) -> None:
    done = podium.inside("train", "prove", job.name, "out", "--table")
    assert done.code == 1
    assert "out: no seed is done yet" in done.err
    done = podium.inside("train", "prove", job.name, "out", "--seeds", "one")
    assert done.code == 2
    assert "no list of whole numbers" in done.err


async def test_a_judge_that_times_out_drops_the_rollout(job: Path, tmp_path: Path) -> None:
    read = read_job(job)
    code = read.tasksets[0].model_copy(update={"kinds": ("code",), "count": 20})
    skills = tuple(
        it.model_copy(update={"by_kind": {"code": 1.0}}) for it in read.workers.simulated
    )
    changes = {
        "tasksets": (code,), "judge_seconds": 1e-6,
        "workers": read.workers.model_copy(update={"simulated": skills}),
    }  # fmt: skip
    settings = Settings(models_dir=tmp_path, state_dir=tmp_path)
    async with open_ground(read.model_copy(update=changes), {}, settings) as ground:
        text = 'model_id = [0]\nsubtasks = ["Write the function."]\naccess_list = [[]]'
        score = await ground.environment.score(text, ground.items[0], ground.pool)
    assert (score.reward, score.right) == (None, None)
    assert score.problem


def test_the_server_does_without_the_training_kit(tmp_path: Path) -> None:
    """All of Podium but `podium_lab.train`, whose entry point is still there."""
    for package in ("server/podium", "server/podium_lab", "workers/podium_workers"):
        name = Path(package).name
        shutil.copytree(
            ROOT / package, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "train")
        )

    def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-P", "-m", "podium", *arguments],
            check=False, capture_output=True, text=True, timeout=60,
            env={**os.environ, "PYTHONPATH": str(tmp_path), "PODIUM_STORE": str(tmp_path / "p.db")},
        )  # fmt: skip

    listed = run("--help")
    assert listed.returncode == 0, listed.stderr
    assert "serve" in listed.stdout
    assert "\n  train " not in listed.stdout
    unknown = run("train", "grpo", "x.toml")
    assert unknown.returncode == 2
    assert "No such command 'train'" in unknown.stderr


@pytest.mark.parametrize("name", ["recursion_cpu.toml", "recursion_paper.toml"])
def test_jobs_with_second_rounds_pass_a_dry_run(podium: CommandLine, name: str) -> None:
    done = podium.inside("train", "check", name, "--offline")
    assert done.code == 0, done.err
    assert ", half of them second rounds; " in done.out
    first, second = done.out.split("First rollout")[1].splitlines()[-2:]
    assert first.strip().startswith("reward ")
    assert second.strip().removeprefix("second round, which accepts: ") == first.strip()
