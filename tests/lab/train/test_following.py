"""A job that is watched while it runs: a line for each iteration, or redrawn, until it ends."""

import io
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from podium_lab.train.board import scalars
from podium_lab.train.config import Job
from podium_lab.train.environment import Score
from podium_lab.train.errors import TrainingError
from podium_lab.train.following import follow
from podium_lab.train.opening import load_items
from podium_lab.train.records import Ended, Generation, Learned, Look, Records
from podium_lab.train.watch import summed

SCORE = Score(item="1", reward=1.0, valid=True, right=True, workers=("a",), subtasks=("Do.",))


def _job(folder: Path, **more: object) -> Job:
    values: dict[str, object] = {
        "folder": folder,
        "model": {"base": "tiny"},
        "taskset": [{"source": "generated", "count": 8, "kinds": ["facts"]}],
        "workers": {"simulated": [{"name": "a", "by_kind": {}}]},
        "grpo": {"iterations": 3},
    }
    return Job.model_validate(values | more)


@pytest.fixture
def records(tmp_path: Path) -> Records:
    job = _job(tmp_path)
    records = Records(tmp_path)
    records.begin(job, load_items(job), "simulated")
    return records


def _writes(records: Records, *, then: Callable[[], None]) -> Callable[[], None]:
    """Two more iterations, one while a watcher waits for each; at last what comes *then*."""
    numbers = iter((1, 2))

    def pause() -> None:
        number = next(numbers, None)
        if number is None:
            then()
        else:
            records.keep(summed(number, [[SCORE]]), [SCORE])

    return pause


def test_each_iteration_is_printed_once_where_there_is_no_terminal(records: Records) -> None:
    out = io.StringIO()
    pause = _writes(records, then=lambda: records.end(Ended(iterations=2, stopped="Collapsed.")))
    follow(records, Console(file=out, force_terminal=False, width=300), pause=pause)
    lines = out.getvalue().splitlines()
    assert [line.split(":")[0] for line in lines[:2]] == ["iteration 1", "iteration 2"]
    assert len(lines) == 3
    assert lines[-1].endswith("2 of 3 iterations, stopped: Collapsed.")


def test_a_terminal_is_redrawn_with_the_curves(records: Records) -> None:
    out = io.StringIO()
    pause = _writes(records, then=lambda: records.end(Ended(iterations=2)))
    follow(records, Console(file=out, force_terminal=True, width=300, height=40), pause=pause)
    shown = out.getvalue()
    assert "1 of 3 iterations, not done" in shown
    assert "2 of 3 iterations, done" in shown
    assert "reward" in shown
    assert "█" in shown


def test_ctrl_c_leaves_quietly(records: Records) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    out = io.StringIO()
    follow(
        records, Console(file=out, force_terminal=True, width=300),
        pause=_writes(records, then=interrupted),
    )  # fmt: skip
    assert "2 of 3 iterations, not done" in out.getvalue()


def test_a_job_that_is_not_there_cannot_be_watched(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="no job was begun here"):
        follow(Records(tmp_path / "none"), Console(file=io.StringIO()))


def test_all_numbers_of_the_records_are_curves() -> None:
    step = summed(7, [[SCORE, SCORE.model_copy(update={"right": False, "reward": 0.5})]])
    shown = scalars(step)
    assert shown["right"] == 0.5
    assert shown["lengths/1"] == 2
    assert shown["routing/a"] == 1.0
    assert "iteration" not in shown
    assert "regret" not in shown, "what is not known is no curve"
    assert scalars(Learned(iteration=7, loss=0.5)) == {"loss": 0.5}


def test_a_job_that_goes_on_forgets_the_looks_that_it_makes_again(records: Records) -> None:
    step = summed(0, [[SCORE]])
    for name, part in (("before", "validation"), ("20", "validation"), ("40", "validation"),
                       ("after", "validation"), ("untrained", "test")):  # fmt: skip
        look = Look(name=name, part=part, temperature=0, items=1, step=step)
        records.look(look, [SCORE])
    records.cut_behind(20)
    assert [look.name for look in records.looks()] == ["before", "20", "untrained"]
    assert [len(records.seen(look)) for look in records.looks()] == [1, 1, 1]
    records.cut_behind(0)
    assert [look.name for look in records.looks()] == ["untrained"]


def test_generations_of_a_head_are_printed_as_they_are_noted(tmp_path: Path) -> None:
    records, out = Records(tmp_path), io.StringIO()
    job = _job(tmp_path, trinity={"generations": 4})
    records.begin(job, load_items(job), "simulated", kind="trinity")
    made = [Generation(number=number, right=number / 4) for number in range(1, 5)]
    parts = iter((made[:2], made))

    def pause() -> None:
        if part := next(parts, None):
            records.evolved(part)
        else:
            records.end(Ended(iterations=4))

    follow(records, Console(file=out, force_terminal=False, width=300), pause=pause)
    *lines, last = out.getvalue().splitlines()
    assert lines == [
        "generation 1: 0.250 right", "generation 2: 0.500 right",
        "generation 3: 0.750 right", "generation 4: 1.000 right",
    ]  # fmt: skip
    assert last.endswith("4 of 4 generations, done")
