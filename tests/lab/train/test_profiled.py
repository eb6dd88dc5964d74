"""Workers that answer an item as they did when they were profiled."""

from pathlib import Path

import pytest

from podium.config import Settings
from podium_lab.train.config import Job
from podium_lab.train.opening import Ground, load_items, open_ground
from podium_lab.train.profiled import REPLIES, profiled_pool
from podium_lab.train.reference import known, profile
from podium_workers.errors import ManifestError

POOL = """
conductor = "ann"

[[worker]]
name = "ann"
kind = "scripted"
context_window = 8192
replies = ["Answer: 1"]

[[worker]]
name = "bob"
kind = "scripted"
context_window = 8192
replies = ["Answer: 2"]
"""
TASKSET = {"source": "generated", "count": 40, "kinds": ["facts"]}


def job(folder: Path, **workers: object) -> Job:
    return Job.model_validate(
        {
            "folder": folder,
            "model": {"base": "tiny"},
            "asked": {"prompt": "brief", "max_steps": 2},
            "workers": workers,
            "taskset": [TASKSET],
        }
    )


async def profiled(tmp_path: Path, count: int) -> Job:
    """A job that lives on what was asked about so many items."""
    (tmp_path / "pool.toml").write_text(POOL)
    live = job(tmp_path / "live", manifest=tmp_path / "pool.toml")
    async with open_ground(live, {}, Settings()) as ground:
        await profile(ground, ground.items[:count])
    return job(tmp_path / "job", profiled=tmp_path / "live")


async def scored(ground: Ground, workers: str, subtask: str) -> str:
    item = ground.items[0]
    count = workers.count(",") + 1
    subtasks = ", ".join([f'"{subtask}"'] * count)
    access = ", ".join(["[]"] * count)
    text = f"model_id = [{workers}]\nsubtasks = [{subtasks}]\naccess_list = [{access}]"
    return (await ground.environment.score(text, item, ground.pool)).answer


async def test_a_worker_gives_its_answer_whatever_it_is_asked(tmp_path: Path) -> None:
    async with open_ground(await profiled(tmp_path, 3), {}, Settings()) as ground:
        assert ground.label == "profiled"
        assert await scored(ground, "0", "Say anything.") == "Answer: 1"
        assert await scored(ground, "1", "Say something else.") == "Answer: 2"
        assert await scored(ground, "0, 1", "Look again.") == "Answer: 2"


async def test_only_what_was_asked_about_is_trained_on(tmp_path: Path) -> None:
    asked = await profiled(tmp_path, 3)
    assert len(load_items(asked)) == 3
    async with open_ground(asked, {}, Settings()) as ground:
        reference = known(ground)
        assert reference is not None
        assert set(reference.right) == {item.id for item in ground.items}


def test_a_folder_that_was_not_profiled_is_told(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match=REPLIES):
        profiled_pool(tmp_path)
