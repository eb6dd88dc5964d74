"""The benchmark of a trained conductor, on a scripted pool: its ways, its judging, its table."""

from pathlib import Path

from podium.config import Settings
from podium_lab.bench.answered import read
from podium_lab.bench.trained import PROMPTED, TRAINED, Result, measure, open_ways, told
from podium_lab.train.config import Job
from podium_lab.train.items import in_part
from podium_lab.train.opening import load_items

PLAN = '{"steps": [{"subtask": "Answer it.", "worker": "bob", "access": []}]}'
POOL = f"""
conductor = "ann"

[[worker]]
name = "ann"
kind = "scripted"
replies = ["Answer: none"]

[[worker.rule]]
when = "You lead a team"
reply = '{PLAN}'

[[worker]]
name = "bob"
kind = "scripted"
replies = ["Answer: 17"]
"""


async def test_every_worker_and_both_conductors_answer_what_is_sealed(tmp_path: Path) -> None:
    manifest, out = tmp_path / "pool.toml", tmp_path / "results.jsonl"
    manifest.write_text(POOL)
    job = Job.model_validate(
        {
            "folder": tmp_path,
            "model": {"base": "tiny"},
            "workers": {"manifest": manifest},
            "taskset": [{"source": "generated", "count": 12, "kinds": ["facts"]}],
        }
    )
    items = in_part(load_items(job), "test")[:2]
    known = items[0].model_copy(update={"answer": "17", "judge": "number"})
    settings = Settings(store=tmp_path / "podium.db", state_dir=tmp_path / "state")
    for _ in range(2):  # the second time all is there already
        async with open_ways(job, "ann", settings, {}) as ways:
            assert [way.name for way in ways] == ["ann", "bob", PROMPTED, TRAINED]
            await measure(ways, (known, *items[1:]), out)
    results = read(out, Result)
    assert [(it.way, it.right) for it in results[:4]] == [
        ("ann", False), ("bob", True), (PROMPTED, True), (TRAINED, True),
    ]  # fmt: skip
    assert len(results) == 4 * len(items)
    assert all(it.planning_tokens > 0 for it in results if it.way in (PROMPTED, TRAINED))
    assert all(it.planning_tokens == 0 for it in results if it.way == "ann")
    text = told(results)
    assert "| trained conductor | 1 of 2 |" in text
    assert text.splitlines()[-6] == "| way | facts | planning tokens |"
