"""`podium config`, and what it does to a settings' file that somebody wrote by hand."""

import os
from pathlib import Path
from typing import cast

import pytest
from pydantic import JsonValue
from tests.command_line import CommandLine

from podium.cli.settings_file import change, read, validated
from podium.errors import SettingsError

WRITTEN = """\
# mine
rounds = 2   # "twice" is enough
file_roots = [
  "/a",  # first
  "/b",
]  # end
"strategy" = 'chain'
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "podium.toml"


def test_settings_are_shown_set_and_unset(podium: CommandLine):
    before = cast(
        "dict[str, dict[str, JsonValue]]", podium.inside("config", "--json").data["settings"]
    )
    assert before["rounds"] == {"value": 1, "source": "default"}
    assert before["store"]["source"] == "environment"

    assert podium.inside("config", "set", "rounds", "3").code == 0
    shown = podium.inside("--store", "here.db", "config")
    assert "rounds           3" in shown.out
    assert ["store", "here.db", "command", "line"] in list(map(str.split, shown.out.splitlines()))
    shadowed = podium.inside("config", "set", "store", "x.db")
    assert "PODIUM_STORE is set in the environment, which counts more" in shadowed.err

    assert podium.inside("config", "unset", "rounds").code == 0
    assert read(podium.config) == {"store": str(podium.folder / "x.db")}
    again = podium.inside("config", "unset", "rounds")
    assert (again.code, again.out) == (1, "")
    assert "'rounds' is not set there" in again.err


def test_a_wrong_setting_stops_a_question_but_can_be_taken_out(podium: CommandLine):
    podium.config.write_text("roundz = 2\n")
    done = podium("ask", "q")
    assert (done.code, done.out) == (1, "")
    assert "'roundz': there is no such setting" in done.err
    assert podium.inside("config", "unset", "roundz").code == 0
    assert podium.inside("config").code == 0


def test_a_named_settings_file_has_to_be_there(podium: CommandLine):
    done = podium.inside("--config", "gone.toml", "runs")
    assert (done.code, done.out) == (1, "")
    assert "gone.toml does not exist" in done.err


def test_every_other_line_stays_as_it_was_written(file: Path):
    file.write_text(WRITTEN)
    change(file, "rounds", 3)
    assert file.read_text() == WRITTEN.replace("rounds = 2 ", "rounds = 3 ")


def test_a_value_of_several_lines_is_replaced_whole(file: Path):
    file.write_text(WRITTEN)
    change(file, "file_roots", ["/c"])
    assert read(file) == {"rounds": 2, "file_roots": ["/c"], "strategy": "chain"}
    change(file, "file_roots", None)
    assert file.read_text() == '# mine\nrounds = 2   # "twice" is enough\n"strategy" = \'chain\'\n'


def test_a_new_setting_is_added_and_the_file_made(file: Path):
    below = file.parent / "new" / "podium.toml"
    change(below, "strategy", 'a "quoted" word')
    change(below, "local_memory_gb", 2.5)
    assert read(below) == {"strategy": 'a "quoted" word', "local_memory_gb": 2.5}
    assert [path.name for path in below.parent.iterdir()] == ["podium.toml"]


def test_a_link_to_the_file_stays_a_link_and_its_mode_stays(file: Path):
    kept = file.parent / "dotfiles.toml"
    kept.write_text("rounds = 1\n")
    kept.chmod(0o640)
    file.symlink_to(kept)
    change(file, "rounds", 2)
    assert file.is_symlink()
    assert (kept.read_text(), kept.stat().st_mode & 0o777) == ("rounds = 2\n", 0o640)


def test_a_layout_that_would_not_survive_is_left_alone(file: Path):
    text = '[table]\nrounds = 1\n"x" = """\nrounds = 5\n"""\n'
    file.write_text(text)
    change(file, "strategy", "single")
    assert read(file)["strategy"] == "single"
    with pytest.raises(SettingsError):
        change(file, "rounds", 2)
    assert file.read_text() == 'strategy = "single"\n' + text


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("rounds", "2", 2),
        ("local_memory_gb", "1.5", 1.5),
        ("strategy", "chain", "chain"),
        ("store", "x.db", os.path.abspath("x.db")),
        ("file_roots", f"a{os.pathsep}b", [os.path.abspath("a"), os.path.abspath("b")]),
    ],
)
def test_a_value_is_written_as_the_setting_takes_it(name: str, text: str, value: JsonValue):
    assert validated(name, text) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("rounds", "99"),
        ("rounds", "two"),
        ("round", "2"),
        ("store", " "),
        ("strategy", "swarm"),
        ("local_memory_gb", "inf"),
    ],
)
def test_a_value_that_a_setting_does_not_take_is_refused(name: str, text: str):
    with pytest.raises(SettingsError):
        validated(name, text)
