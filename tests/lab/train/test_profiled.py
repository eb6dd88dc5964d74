"""Workers that answer an item as they did when they were profiled."""

import json
from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest

from podium.config import Settings
from podium_lab.train.config import Job
from podium_lab.train.opening import Ground, load_items, open_ground
from podium_lab.train.profiled import REPLIES, profiled_pool
from podium_lab.train.reference import FILE, known, profile
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


def live_job(tmp_path: Path, only: Sequence[str] = ()) -> Job:
    return job(tmp_path / "live", manifest=tmp_path / "pool.toml", only=only)


async def profiled(tmp_path: Path, count: int, only: Sequence[str] = ()) -> Job:
    """A job that lives on what was asked about so many items."""
    (tmp_path / "pool.toml").write_text(POOL)
    async with open_ground(live_job(tmp_path, only), {}, Settings()) as ground:
        await profile(ground, ground.items[:count])
    return job(tmp_path / "job", profiled=tmp_path / "live", only=only)


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


async def test_a_worker_tells_the_tokens_of_its_own_reply_and_costs_nothing(
    tmp_path: Path,
) -> None:
    asked = await profiled(tmp_path, 1)
    file = tmp_path / "live" / REPLIES
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    usage = {"input_tokens": 700, "output_tokens": 300, "cost_usd": 0.5}
    for line in lines:
        if "call" in line:
            line["call"]["reply"]["usage"] = usage
        if "pool" in line:
            for worker in line["pool"]["workers"]:
                worker["price"] = {"input": 1000, "output": 1000}
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    async with open_ground(asked, {}, Settings()) as ground:
        text = 'model_id = [0]\nsubtasks = ["Say."]\naccess_list = [[]]'
        score = await ground.environment.score(text, ground.items[0], ground.pool)
    used = score.usage
    assert (used.input_tokens, used.output_tokens, used.cost_usd) == (700, 300, 0.0)
    assert score.price_usd == pytest.approx(1.0)


async def test_only_what_was_asked_about_is_trained_on(tmp_path: Path) -> None:
    asked = await profiled(tmp_path, 3)
    assert len(load_items(asked)) == 3
    async with open_ground(asked, {}, Settings()) as ground:
        reference = known(ground)
        assert reference is not None
        assert set(reference.right) == {item.id for item in ground.items}


async def test_workers_that_may_not_be_planned_for_need_no_answers(tmp_path: Path) -> None:
    asked = await profiled(tmp_path, 3, only=["ann"])
    assert len(load_items(asked)) == 3
    async with open_ground(asked, {}, Settings()) as ground:
        assert ground.pool.names == ("ann",)
        assert await scored(ground, "0", "Say anything.") == "Answer: 1"


def test_a_worker_that_is_not_on_record_is_named(tmp_path: Path) -> None:
    anyio.run(profiled, tmp_path, 1)
    with pytest.raises(ManifestError, match="no worker 'eve'"):
        load_items(job(tmp_path / "job", profiled=tmp_path / "live", only=["eve"]))


@pytest.mark.parametrize("is_older", [False, True])
async def test_a_worker_that_came_later_is_asked_at_the_next_profile(
    tmp_path: Path, is_older: bool
) -> None:
    await profiled(tmp_path, 2, only=["ann"])
    if is_older:
        file = tmp_path / "live" / FILE
        kept = json.loads(file.read_text())
        del kept["asked"]
        file.write_text(json.dumps(kept))
    async with open_ground(live_job(tmp_path), {}, Settings()) as ground:
        first, second = ground.items[:2]
        (tmp_path / "pool.toml").write_text(POOL.replace("Answer: 2", f"Answer: {first.answer}"))
    async with open_ground(live_job(tmp_path), {}, Settings()) as ground:
        found = await profile(ground, ground.items[:1])
        assert found.right == {first.id: ("bob",), second.id: ()}
        assert found.is_known(first.id, ("ann", "bob"))
        assert not found.is_known(second.id, ("ann", "bob"))
        assert found.is_known(second.id, ("ann",))
        assert {name: spend.calls for name, spend in found.spent.items()} == {"ann": 2, "bob": 1}


def test_a_folder_that_was_not_profiled_is_told(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match=REPLIES):
        profiled_pool(tmp_path)
