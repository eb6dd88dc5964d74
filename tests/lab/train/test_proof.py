"""A proof: what is missing is run once, the sealed part is opened once, and all is in the table."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import pytest

from podium.config import Settings
from podium.plan import Plan, Step
from podium.plan_text import render_json
from podium_lab.train.config import Job
from podium_lab.train.draws import Draw, Which, looks
from podium_lab.train.environment import Score, shuffled
from podium_lab.train.errors import TrainingError
from podium_lab.train.items import in_part
from podium_lab.train.opening import load_items, open_ground
from podium_lab.train.proof import gather, prove
from podium_lab.train.proof_table import table
from podium_lab.train.records import Ended, Look, Records
from podium_lab.train.reference import known
from podium_lab.train.stopwatch import Stopwatch
from podium_lab.train.watch import Step as Watched
from podium_lab.train.watch import summed

COMMAND = "podium train prove own.toml out --seeds 0,1"


@pytest.fixture
def job(tmp_path: Path) -> Job:
    kinds = ["facts", "arithmetic", "facts+arithmetic"]
    return Job.model_validate(
        {
            "folder": tmp_path / "own",
            "model": {"base": "tiny"},
            "asked": {"form": "json", "shows": "cards"},
            "taskset": [{"source": "generated", "count": 36, "kinds": kinds}],
            "workers": {
                "simulated": [
                    {"name": "knows", "by_kind": {"facts": 1.0}},
                    {"name": "calculates", "by_kind": {"arithmetic": 1.0}},
                    {"name": "neither", "by_kind": {}},
                ],
                "shown": {"fewest": 2, "kept_back": [["knows", "calculates"]]},
            },
            "grpo": {"iterations": 1},
        }
    )


@dataclass
class Learner:
    """Writes what a job leaves behind; what is trained plans well, what is untrained plans badly,
    and both are carried out by the server's own executor."""

    settings: Settings
    began: list[str] = field(default_factory=list[str])
    fails: bool = False
    carries_out: bool = False
    """Whether plans are carried out; nothing could be read otherwise."""

    def train(self, job: Job) -> None:
        self.began.append(job.folder.name)
        if self.fails:
            raise TrainingError("The power is gone.")
        records = Records(job.folder)
        records.begin(job, load_items(job), "simulated")
        records.took(Stopwatch().lap("iteration", 1))
        records.end(Ended(iterations=1))

    def evaluate(self, job: Job, name: str, pools: Which) -> None:
        self.began.append(f"{job.folder.name} {name} {pools}")
        scores = [Score(item=item.id, reward=0.0) for item in in_part(load_items(job), "test")]
        step = summed(0, [[score] for score in scores])
        if self.carries_out:
            scores, step = anyio.run(self._scored, job, name, pools)
        look = Look(
            name=name, part="test", pools=pools, temperature=0, items=len(scores), step=step
        )
        Records(job.folder).look(look, scores)

    async def _scored(self, job: Job, name: str, pools: Which) -> tuple[list[Score], Watched]:
        async with open_ground(job, {}, self.settings) as ground:
            drawn = looks(
                ground.part("test"), ground.pool.names, pools=job.workers.shown, which=pools
            )
            scores = [
                await ground.environment.score(
                    _text(draw, name), draw.item, shuffled(ground.pool, draw.workers)
                )
                for draw in drawn
            ]
            return scores, summed(0, [[score] for score in scores], known(ground))


def _text(draw: Draw, name: str) -> str:
    able = {"facts": "knows", "arithmetic": "calculates"}
    if name == "untrained":
        return render_json(Plan(steps=(Step(worker=draw.workers[-1], subtask="Try."),)))
    names = [able[goal.kind] for goal in draw.item.goals]
    steps = tuple(
        Step(worker=it if it in draw.workers else draw.workers[0], subtask="Do it.", access="all")
        for it in names
    )
    return render_json(Plan(steps=steps))


@pytest.fixture
def learner(tmp_path: Path) -> Learner:
    return Learner(Settings(models_dir=tmp_path, state_dir=tmp_path, store=tmp_path / "p.db"))


def _prove(job: Job, out: Path, learner: Learner, *seeds: int) -> None:
    said: list[str] = []
    prove(job, seeds, out, train=learner.train, evaluate=learner.evaluate, tell=said.append)


def test_a_proof_runs_what_is_missing_and_opens_the_sealed_part_once(
    job: Job, learner: Learner, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    _prove(job, out, learner, 0)
    assert learner.began[:3] == ["seed-0", "seed-0 untrained whole", "seed-0 trained whole"]
    assert len(learner.began) == 7
    _prove(job, out, learner, 0, 1)
    assert set(Counter(learner.began).values()) == {1}
    assert len(learner.began) == 14


def test_a_proof_that_was_stopped_goes_on(job: Job, learner: Learner, tmp_path: Path) -> None:
    out = tmp_path / "out"
    learner.fails = True
    with pytest.raises(TrainingError, match="The power is gone"):
        _prove(job, out, learner, 0)
    with pytest.raises(TrainingError, match="no seed is done yet"):
        gather(job, out)
    learner.fails = False
    _prove(job, out, learner, 0)
    assert [it.seed for it in gather(job, out).ran] == [0]


def test_a_seed_that_was_trained_on_after_it_was_measured_is_no_proof(
    job: Job, learner: Learner, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    _prove(job, out, learner, 0)
    records = Records(out / "seed-0")
    (look, *_) = (it for it in records.looks() if it.name == "trained")
    records.look(look.model_copy(update={"iterations": 1}), ())
    assert gather(job, out).looked
    records.end(Ended(iterations=2))
    with pytest.raises(TrainingError, match="trained on after it was measured"):
        gather(job, out)


def test_the_table_says_what_was_run_and_what_came_of_it(
    job: Job, learner: Learner, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    learner.carries_out = True
    _prove(job, out, learner, 0, 1)
    proof = gather(job, out)
    count = len(proof.items)
    written = table(proof, COMMAND)
    assert "**Workers: simulated.** Its workers were simulated" in written
    assert COMMAND in written
    assert "knows (facts 1)" in written
    assert str(tmp_path) not in written, "a machine's paths say nothing to others"
    assert proof.begun.data["test"] in written
    rows = {tuple(cells[:2]): cells for cells in map(_cells, written.splitlines()) if cells}
    trained = rows["all", "trained"]
    assert trained[2] == str(2 * count)
    assert trained[3] == "1.000"
    assert trained[4].startswith("1.000 (")
    assert trained[6] == "1.000", "all is routed right"
    assert trained[8:10] == ["1.000", "0.000"], "two steps where two skills are needed, else one"
    assert rows["0", "untrained"][4].startswith("0.000")
    assert rows["facts+arithmetic", str(sum(it.kind == "facts+arithmetic" for it in proof.items))]
    assert rows["", "any plan (oracle)"][4].startswith("1.000")
    assert f"Trained against untrained: better on {count}, worse on 0 of {count} items" in written
    assert rows["unseen", "trained"][2] == "1", "one set of workers"
    assert "best single worker: " in written
    assert "all, wall minutes" in written


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("|")[1:-1]]


def test_seeds_may_differ_in_what_may_change_as_a_job_goes_on(
    job: Job, learner: Learner, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    _prove(job, out, learner, 0)
    stop = job.stop.model_copy(update={"most_flat": None})
    changes = {"max_usd": 7.0, "stop": stop, "checkpoint_every": 3, "rollout_seconds": 60.0}
    _prove(job.model_copy(update=changes), out, learner, 1)
    assert [it.seed for it in gather(job, out).ran] == [0, 1]


def test_seeds_of_different_jobs_make_no_proof(job: Job, learner: Learner, tmp_path: Path) -> None:
    out = tmp_path / "out"
    _prove(job, out, learner, 0)
    grpo = job.grpo.model_copy(update={"temperature": 0.5})
    _prove(job.model_copy(update={"grpo": grpo}), out, learner, 1)
    with pytest.raises(TrainingError, match="begun with different settings"):
        gather(job, out)


def test_what_was_profiled_for_the_job_is_taken_over(
    job: Job, learner: Learner, tmp_path: Path
) -> None:
    job.folder.mkdir()
    (job.folder / "reference.json").write_text("{}")
    _prove(job, tmp_path / "out", learner, 3)
    assert (tmp_path / "out" / "seed-3" / "reference.json").read_text() == "{}"
