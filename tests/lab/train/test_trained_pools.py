"""The pool that a job trains on: the policy writes its plans, not the pool's own conductor."""

from pathlib import Path

from podium.config import Settings
from podium.window import prompt_budget
from podium_lab.train.checking import with_stand_ins
from podium_lab.train.config import Job
from podium_lab.train.exporting import training_of
from podium_lab.train.opening import asked_rows, open_ground, policy_card, training_draws
from podium_workers.entries.named import LocalEntry

POOL = """
asked.team = ["two", "one"]
[[worker]]
name = "veteran"
kind = "scripted"
replies = ["a plan"]
steps = false
[[worker]]
name = "one"
kind = "scripted"
replies = ["1"]
[[worker]]
name = "two"
kind = "scripted"
replies = ["2"]
"""


def job_on(folder: Path, **asked: object) -> Job:
    (folder / "pool.toml").write_text(POOL)
    return Job.model_validate(
        {
            "folder": folder / "job",
            "model": {"base": "tiny"},
            "asked": asked,
            "workers": {"manifest": folder / "pool.toml"},
            "taskset": [{"source": "generated", "count": 30, "kinds": ["facts"]}],
            "grpo": {"iterations": 1, "questions": 1, "rollouts": 2, "batch": 2},
        }
    )


async def test_a_conductor_that_does_no_steps_has_no_part_in_a_training(tmp_path: Path) -> None:
    job = job_on(tmp_path, shows="cards")
    settings = Settings(models_dir=tmp_path / "models", state_dir=tmp_path / "engine")
    async with open_ground(job, {}, settings) as ground:
        assert (ground.pool.names, ground.pool.planner) == (("one", "two"), None)
        (row,) = asked_rows(ground, training_draws(ground))
    (message,) = row["prompt"]
    assert "Model id 0: one" in message["content"], "in the pool's order, not an earlier training's"
    assert "veteran" not in message["content"]


def test_nor_in_a_dry_run(tmp_path: Path) -> None:
    job, told = with_stand_ins(job_on(tmp_path))
    assert [skills.name for skills in job.workers.simulated] == ["one", "two"]
    assert told == ("one, two: simulated workers of these names instead.",)


def test_a_policy_reads_as_much_as_it_will_when_it_is_served(tmp_path: Path) -> None:
    job = job_on(tmp_path, context_window=1024)
    job = job.model_copy(
        update={
            "grpo": job.grpo.model_copy(update={"max_tokens": 64}),
            "workers": with_stand_ins(job)[0].workers,
        }
    )
    said = training_of(job, tmp_path)
    served = LocalEntry(
        kind="local", name="trained", gguf="model.gguf", steps=False,
        context_window=said.context_window, max_output_tokens=said.max_tokens,
    )  # fmt: skip
    assert prompt_budget(policy_card(job)) == prompt_budget(served.card) == 896
