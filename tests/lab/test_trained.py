"""The benchmark of a trained conductor, on a scripted pool: its ways, its judging, its table."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from podium.config import Settings
from podium_lab.bench.answered import read
from podium_lab.bench.sealed import Seal
from podium_lab.bench.trained import measure, open_ways, scores
from podium_lab.bench.trained_table import (
    PROMPTED,
    TRAINED,
    Point,
    Result,
    answers,
    best_by_lot,
    told,
)
from podium_lab.train.config import Job
from podium_lab.train.errors import TrainingError
from podium_lab.train.items import Item, in_part
from podium_lab.train.judging import JudgeError, Judges
from podium_lab.train.opening import load_items
from podium_lab.train.records import Records

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
SILENT = """
[[worker]]
name = "cat"
kind = "scripted"
replies = ["Answer: none"]

[[worker.rule]]
when = "You lead a team"
reply = ""
"""
"""A worker that answers, and fails when it is to plan."""


def job_on(folder: Path, pool: str = POOL) -> Job:
    (folder / "pool.toml").write_text(pool)
    return Job.model_validate(
        {
            "folder": folder / "job",
            "model": {"base": "tiny"},
            "workers": {"manifest": folder / "pool.toml"},
            "taskset": [{"source": "generated", "count": 12, "kinds": ["facts"]}],
        }
    )


def sealed_items(job: Job, count: int = 2) -> tuple[Item, ...]:
    """Some of the sealed part; the first one is answered rightly by bob."""
    first, *others = in_part(load_items(job), "test")[:count]
    return (first.model_copy(update={"answer": "17", "judge": "number"}), *others)


def settings_in(folder: Path, **changes: object) -> Settings:
    known = {"store": folder / "podium.db", "state_dir": folder / "state", **changes}
    return Settings.model_validate(known)


async def measured(
    job: Job, items: Sequence[Item], out: Path, settings: Settings, conductor: str = "ann"
) -> tuple[Result, ...]:
    async with open_ways(job, conductor, settings, {}) as ways:
        await measure(ways, items, out, Judges())
    return read(out, Result)


async def test_every_worker_and_both_conductors_answer_what_is_sealed(tmp_path: Path) -> None:
    job, out, settings = job_on(tmp_path), tmp_path / "results.jsonl", settings_in(tmp_path)
    items = sealed_items(job)
    async with open_ways(job, "ann", settings, {}) as ways:
        assert [way.name for way in ways] == ["ann", "bob", PROMPTED, TRAINED]
    await measured(job, items, out, settings)
    results = await measured(job, items, out, settings)  # all is there already
    assert [(it.way, it.right) for it in results[:4]] == [
        ("ann", False), ("bob", True), (PROMPTED, True), (TRAINED, True),
    ]  # fmt: skip
    assert len(results) == 4 * len(items)
    assert all(it.planning_tokens > 0 for it in results if it.way in (PROMPTED, TRAINED))
    assert all(it.planning_tokens == 0 for it in results if it.way == "ann")
    assert {it.planner for it in results if it.way == TRAINED} == {"ann"}
    text = told(results)
    assert "| trained conductor | 1 of 2 |" in text
    assert "| way | facts | planning tokens | tokens a question | right per 1,000 tokens |" in text
    assert "Missing" not in text


async def test_several_runs_at_a_time_answer_the_same(tmp_path: Path) -> None:
    job, out, settings = job_on(tmp_path), tmp_path / "out.jsonl", settings_in(tmp_path)
    items = sealed_items(job)
    async with open_ways(job, "ann", settings, {}) as ways:
        await measure(ways, items, out, Judges(), parallel=3)
    together = {it.about: it.right for it in read(out, Result)}
    results = await measured(job, items, tmp_path / "one_by_one.jsonl", settings)
    assert together == {it.about: it.right for it in results}
    assert len(together) == 4 * len(items)


async def test_the_users_own_conductor_leads_none_of_the_plain_ways(tmp_path: Path) -> None:
    job, settings = job_on(tmp_path), settings_in(tmp_path, conductor="bob")
    async with open_ways(job, "bob", settings, {}) as ways:
        led = {way.name: way.podium.pool.conductor for way in ways}
    assert led == {"ann": "ann", "bob": "ann", PROMPTED: "ann", TRAINED: "bob"}


async def test_a_plan_by_another_worker_is_marked(tmp_path: Path) -> None:
    job = job_on(tmp_path, POOL + SILENT)
    results = await measured(
        job, sealed_items(job, 1), tmp_path / "out.jsonl", settings_in(tmp_path), "cat"
    )
    found = {it.way: it for it in results}
    assert (found[TRAINED].planner, found[TRAINED].stood_in) == ("ann", True)
    assert (found[PROMPTED].planner, found[PROMPTED].stood_in) == ("ann", False)
    assert "1 bob (1 plan by ann in its place)" in told(results)


async def test_what_failed_is_no_answer_and_is_asked_again(tmp_path: Path) -> None:
    silent = POOL.replace('replies = ["Answer: 17"]', 'replies = [""]')
    job, out, settings = job_on(tmp_path, silent), tmp_path / "out.jsonl", settings_in(tmp_path)
    items = sealed_items(job)
    results = await measured(job, items, out, settings)
    assert {it.way for it in answers(results)}.isdisjoint({"bob"})
    said = told(results)
    assert "- Missing: bob, 2 of 2 (2 failed)." in said
    assert said.startswith("No question was answered in every way yet.")
    job_on(tmp_path)
    results = await measured(job, items, out, settings)
    assert len(answers(results)) == 4 * len(items)
    assert [it.right for it in answers(results) if it.way == "bob"] == [True, False]
    assert "Missing" not in told(results)


class Hesitant(Judges):
    """Cannot judge."""

    async def is_right(self, item: Item, reply: str) -> bool:
        raise JudgeError("No sandbox.")


async def test_what_no_judge_decides_is_undecided_and_ends_nothing(tmp_path: Path) -> None:
    job, out, settings = job_on(tmp_path), tmp_path / "out.jsonl", settings_in(tmp_path)
    items = sealed_items(job)
    async with open_ways(job, "ann", settings, {}) as ways:
        await measure(ways, items[:1], out, Hesitant())
        await measure(ways, items[1:], out)
    said = told(read(out, Result))
    assert "- Missing: trained conductor, 1 of 2 (1 undecided)." in said
    assert "| trained conductor | 0 of 1 |" in said
    assert len(answers(await measured(job, items, out, settings))) == 8


def test_the_sealed_part_is_opened_for_one_conductor_and_one_file(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    seal = Seal(folder, "ann", tmp_path / "one.jsonl")
    seal.check(again=False)
    seal.open()
    (look,) = Records(folder).looks()
    assert (look.part, look.items) == ("test", 0)
    seal.check(again=False)  # it goes on
    seal.open()
    assert len(Records(folder).looks()) == 1
    for other in (Seal(folder, "bob", tmp_path / "two.jsonl"), Seal(folder, "ann", Path("two"))):
        with pytest.raises(TrainingError, match="was opened already"):
            other.check(again=False)
        other.check(again=True)
    with pytest.raises(TrainingError, match="name another --out"):
        Seal(folder, "bob", seal.out).check(again=True)
    seal.out.unlink()
    with pytest.raises(TrainingError, match="was opened already"):
        seal.check(again=False)


async def test_a_look_says_what_it_came_to(tmp_path: Path) -> None:
    job, out = job_on(tmp_path), tmp_path / "out.jsonl"
    seal = Seal(job.folder, "ann", out)
    seal.open()
    found = scores(await measured(job, sealed_items(job), out, settings_in(tmp_path)))
    for _ in range(2):  # known the second time
        seal.note(found)
    opened, look = Records(job.folder).looks()
    assert (opened.items, look.items, look.step.right) == (0, 2, 0.5)
    assert look.step.routing == {"bob": 1.0}


def test_equal_tokens_are_met_by_a_lot_between_two_workers() -> None:
    cheap, dear = Point(tokens=100, right=0.4), Point(tokens=300, right=0.8)
    assert best_by_lot([cheap, dear], 200) == pytest.approx(0.6)
    assert best_by_lot([cheap, dear], 400) == 0.8
    assert best_by_lot([cheap, dear, Point(tokens=150, right=0.9)], 200) == 0.9
    assert best_by_lot([cheap, dear], 99) is None
