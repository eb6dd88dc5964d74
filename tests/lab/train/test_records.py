"""Records of jobs: whole or not there, and the same job when it goes on."""

from pathlib import Path

import pytest

from podium.config import Settings
from podium_lab.train.alone import Reference
from podium_lab.train.card import card
from podium_lab.train.config import Job
from podium_lab.train.environment import Score
from podium_lab.train.errors import TrainingError
from podium_lab.train.items import Item
from podium_lab.train.opening import load_items, open_ground
from podium_lab.train.records import Ended, Learned, Look, Records
from podium_lab.train.reference import FILE, known, profile
from podium_lab.train.status import status
from podium_lab.train.watch import summed

SCORE = Score(item="1", reward=1.0, valid=True, right=True, workers=("a",), subtasks=("Do.",))


def _job(folder: Path, **changes: object) -> Job:
    values: dict[str, object] = {
        "folder": folder,
        "model": {"base": "tiny"},
        "taskset": [{"source": "generated", "count": 24, "kinds": ["facts", "arithmetic"]}],
        "workers": {
            "simulated": [
                {"name": "knows", "by_kind": {"facts": 0.7}},
                {"name": "calculates", "by_kind": {"arithmetic": 0.6, "facts": 0.3}},
            ]
        },
    }
    return Job.model_validate({**values, **changes})


def _begun(folder: Path) -> Records:
    folder.mkdir(exist_ok=True)
    job, records = _job(folder), Records(folder)
    records.begin(job, load_items(job), "simulated")
    return records


def _keep(records: Records, *iterations: int) -> None:
    for iteration in iterations:
        records.keep(summed(iteration, [[SCORE, SCORE]]), [SCORE, SCORE])
        records.learned(Learned(iteration=iteration, loss=0.1))


def test_a_job_goes_on_with_what_may_change(tmp_path: Path) -> None:
    records = _begun(tmp_path)
    job = _job(tmp_path, max_usd=5, stop={"after": 3}, checkpoint_every=1)
    records.begin(job, load_items(job), "simulated")
    assert records.begun().job == _job(tmp_path)


def test_a_job_does_not_go_on_with_other_settings_or_items(tmp_path: Path) -> None:
    records = _begun(tmp_path)
    other = _job(tmp_path, seed=4)
    with pytest.raises(TrainingError, match="begun with another 'seed'"):
        records.begin(other, load_items(other), "simulated")
    job = _job(tmp_path)
    with pytest.raises(TrainingError, match="begun with other items"):
        records.begin(job, load_items(job)[:-1], "simulated")


def test_what_came_after_a_checkpoint_is_forgotten(tmp_path: Path) -> None:
    records = _begun(tmp_path)
    _keep(records, 1, 2, 3)
    records.end(Ended(iterations=3))
    records.cut_behind(2)
    assert [step.iteration for step in records.steps()] == [1, 2]
    assert [it.iteration for it in records.rollouts()] == [1, 1, 2, 2]
    assert [it.iteration for it in records.lessons()] == [1, 2]
    assert records.ended() is None


def _look(name: str, iterations: int | None, *scores: Score) -> Look:
    step = summed(0, [[score] for score in scores])
    return Look(
        name=name, part="test", temperature=0, items=len(scores), iterations=iterations, step=step
    )  # fmt: skip


def test_a_look_at_an_earlier_model_is_never_shown_as_one_at_the_present(tmp_path: Path) -> None:
    records = _begun(tmp_path)
    for name, iterations in (("untrained", 0), ("trained", 3)):
        records.look(_look(name, iterations, SCORE), [SCORE])
    records.end(Ended(iterations=3, stopped="Routing has collapsed."))
    assert _when(records) == ["untrained", "trained"]
    records.cut_behind(2)
    earlier = "trained, an earlier model of 3 iterations"
    assert _when(records) == ["untrained", earlier], "while it goes on"
    records.end(Ended(iterations=5))
    assert _when(records) == ["untrained", earlier]
    assert "no look at the sealed test part" in card(records, form="whole", workers=())
    records.look(_look("trained", 5, SCORE), [SCORE])
    assert _when(records) == ["untrained", earlier, "trained"]
    assert "no look at the sealed test part" not in card(records, form="whole", workers=())


DROPPED = Score(item="2", reward=None, valid=True, problem="step 0, reader: Too busy.")
WRONG = Score(item="3", reward=0.5, valid=True, right=False, workers=("a",), subtasks=("Do.",))
SECOND = Score(item="1", reward=None, round=1, before=True, problem="step 1, reader: Too busy.")


@pytest.mark.parametrize("seconds", [(), (SECOND, SECOND)])
def test_dropped_answers_make_an_interval_wider_and_are_told(
    tmp_path: Path, seconds: tuple[Score, ...]
) -> None:
    records = _begun(tmp_path)
    scores = [*[SCORE] * 8, WRONG, WRONG, *[DROPPED] * 30]
    look = _look("untrained", 0, *scores, *seconds).model_copy(update={"items": 40})
    records.look(look, scores)
    assert "80% right (49% to 94%) of 40 items (30 dropped)" in "\n".join(status(records))
    assert "| 40 (30 dropped) | 0.800 (0.490 to 0.943) |" in card(records, form="x", workers=())


def test_a_look_in_which_nothing_could_be_read_counts_what_was_not_dropped(tmp_path: Path) -> None:
    records = _begun(tmp_path)
    unreadable = Score(item="1", reward=0.0)
    records.look(_look("untrained", 0, unreadable, DROPPED), ())
    assert "0% right (0% to 79%) of 2 items (1 dropped)" in "\n".join(status(records))


def test_a_look_that_does_not_say_of_which_model_it_was_is_shown_so(tmp_path: Path) -> None:
    records = _begun(tmp_path)
    line = _look("trained", None, SCORE).model_dump_json(exclude={"iterations"})
    (tmp_path / "looks.jsonl").write_text(line + "\n")
    records.end(Ended(iterations=3))
    assert _when(records) == ["trained, of a model not recorded"]


def _when(records: Records) -> list[str]:
    """Of what each look is said to have been, in the status and in the card alike."""
    lines = [line.split(": ")[0] for line in status(records) if line.startswith("test, ")]
    rows = card(records, form="whole", workers=()).split("## Evaluation")[1].splitlines()
    told = [row.split(" | ")[1] for row in rows if row.startswith("| test |")]
    assert [line.removeprefix("test, ") for line in lines] == told
    return told


def test_a_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    records = _begun(tmp_path)
    _keep(records, 1)
    with (tmp_path / "steps.jsonl").open("a") as file:
        file.write('{"iteration": 2, "roll')
    assert [step.iteration for step in records.steps()] == [1]


async def test_asking_each_worker_alone_finds_what_its_skills_say(tmp_path: Path) -> None:
    settings = Settings(models_dir=tmp_path, state_dir=tmp_path)
    async with open_ground(_job(tmp_path / "job"), {}, settings) as ground:
        told = known(ground)
        assert told is not None
        (ground.job.folder / FILE).unlink(missing_ok=True)
        found = await profile(ground, ground.items, anew=True)
    assert {item: set(names) for item, names in found.right.items()} == {
        item: set(names) for item, names in told.right.items()
    }
    assert (tmp_path / "job" / FILE).is_file()
    assert any(found.right.values())
    assert not all(found.right.values())


LIVE = """
[[worker]]
name = "unsure"
kind = "scripted"
replies = ["It is 7.", "It is 42.", "It is 42."]

[[worker]]
name = "wrong"
kind = "scripted"
replies = ["It is 8."]
"""


async def test_a_live_worker_is_asked_several_times_and_each_reply_is_paid_for_once(
    tmp_path: Path,
) -> None:
    (tmp_path / "pool.toml").write_text(LIVE)
    job = _job(tmp_path / "job", workers={"manifest": tmp_path / "pool.toml"})
    settings = Settings(models_dir=tmp_path, state_dir=tmp_path)
    item = Item(id="1", taskset="own", question="How much?", judge="number", answer="42")

    async def profiled(repeats: int) -> Reference:
        async with open_ground(job, {}, settings, repeats=repeats) as ground:
            return await profile(ground, [item])

    found = await profiled(3)
    assert found.right == {"1": ()}
    assert found.voted == {"1": {"unsure": (False, False, True), "wrong": (False,) * 3}}
    assert found.spent["unsure"].calls == 3
    assert found.spent["unsure"].tokens > 0
    files = sorted(path.name for path in job.folder.glob("replies*.jsonl"))
    assert files == ["replies.jsonl", "replies_2.jsonl", "replies_3.jsonl"]
    kept = {name: _calls(job.folder / name) for name in files}
    assert await profiled(1) == await profiled(3) == found
    more = await profiled(4)
    assert more.voted["1"]["unsure"] == (False, False, True, False), "one more reply, of 7 again"
    assert more.spent["unsure"].calls == 4
    assert {name: _calls(job.folder / name) for name in files} == kept


def _calls(cassette: Path) -> int:
    return cassette.read_text().count('"reply"')
