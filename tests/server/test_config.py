"""Settings: where each one comes from, and what is said when one is wrong."""

import os
from pathlib import Path
from typing import get_args

import pytest

from podium.cli.compose import policies
from podium.config import Settings, Strategy, config_file, load_settings
from podium.errors import SettingsError


def environment(folder: Path, text: str = "", **variables: str) -> dict[str, str]:
    """An environment whose configuration file holds *text*."""
    file = folder / "config.toml"
    if text:
        file.write_text(text, encoding="utf-8")
    return {"PODIUM_CONFIG": str(file), **variables}


def test_everything_has_a_default(tmp_path: Path):
    loaded = load_settings(environment(tmp_path))
    assert loaded.settings == Settings()
    assert set(loaded.sources) == set(Settings.model_fields)
    assert set(loaded.sources.values()) == {"default"}
    assert loaded.file == tmp_path / "config.toml"
    assert (loaded.settings.strategy, loaded.settings.rounds) == ("conductor", 1)


def test_the_file_goes_before_defaults_the_environment_before_the_file_and_arguments_first(
    tmp_path: Path,
):
    text = 'strategy = "chain"\nrounds = 2\ndepth = 2\n'
    variables = environment(tmp_path, text, PODIUM_ROUNDS="3", PODIUM_DEPTH="3")
    loaded = load_settings(variables, depth=1, strategy=None)
    found = loaded.settings
    assert (found.strategy, found.rounds, found.depth, found.plan_steps) == ("chain", 3, 1, 5)
    assert loaded.sources["strategy"] == "file"
    assert loaded.sources["rounds"] == "environment"
    assert loaded.sources["plan_steps"] == "default"


def test_values_are_read_as_what_they_are(tmp_path: Path):
    roots = os.pathsep.join(["/one", "/two"])
    loaded = load_settings(
        environment(
            tmp_path,
            f'store = "{(tmp_path / "x.db").as_posix()}"\nmax_wait_s = 2.5\n',
            PODIUM_FILE_ROOTS=roots,
            PODIUM_LOCAL_MEMORY_GB="1.5",
        )
    )
    assert loaded.settings.store == tmp_path / "x.db"
    assert loaded.settings.max_wait_s == 2.5
    assert loaded.settings.file_roots == (Path("/one"), Path("/two"))
    assert loaded.settings.local_memory_gb == 1.5


def test_an_empty_variable_is_one_that_is_not_set(tmp_path: Path):
    """Clients hand over what their user left empty as an empty text."""
    loaded = load_settings(
        environment(tmp_path, "rounds = 4\n", PODIUM_POOL="", PODIUM_ROUNDS="", PODIUM_STORE="")
    )
    assert loaded.settings.pool is None
    assert loaded.settings.rounds == 4
    assert loaded.settings.store == Settings().store
    assert loaded.sources["rounds"] == "file"


def test_an_unknown_setting_is_refused_with_those_that_there_are(tmp_path: Path):
    with pytest.raises(SettingsError) as caught:
        load_settings(environment(tmp_path, "round = 2\n"))
    text = str(caught.value)
    assert str(tmp_path / "config.toml") in text
    assert "'round'" in text
    assert "rounds" in text


@pytest.mark.parametrize(
    ("text", "variables", "given", "place"),
    [
        ("rounds = 99\n", {}, {}, "config.toml, 'rounds'"),
        ('rounds = "many"\n', {}, {}, "config.toml, 'rounds'"),
        ("", {"PODIUM_ROUNDS": "99"}, {}, "PODIUM_ROUNDS: "),
        ("rounds = 2\n", {"PODIUM_ROUNDS": "many"}, {}, "PODIUM_ROUNDS: "),
        ("rounds = 2\n", {"PODIUM_ROUNDS": "2"}, {"rounds": 99}, "argument 'rounds': "),
        ("max_wait_s = 0\n", {}, {}, "config.toml, 'max_wait_s'"),
        ('strategy = "many"\n', {}, {}, "config.toml, 'strategy'"),
    ],
)
def test_a_wrong_value_is_refused_with_its_name_its_place_and_what_was_found(
    tmp_path: Path, text: str, variables: dict[str, str], given: dict[str, object], place: str
):
    with pytest.raises(SettingsError) as caught:
        load_settings(environment(tmp_path, text, **variables), **given)
    said = str(caught.value)
    assert place in said
    assert any(value in said for value in ("99", "many", "found 0"))
    assert "\n" not in said


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("rounds", "x", "a whole number from 1 to 10"),
        ("local_threads", "0", "a whole number of 1 or more"),
        ("max_wait_s", "inf", "a number above 0"),
        ("max_wait_s", "soon", "a number above 0"),
        ("local_memory_gb", "nan", "a number above 0, at most 1000000"),
        ("local_memory_gb", "1e300", "a number above 0, at most 1000000"),
        ("strategy", "swarm", "one of conductor, single, chain, trinity"),
    ],
)
def test_a_wrong_value_is_refused_with_what_to_write(
    tmp_path: Path, name: str, value: str, expected: str
):
    variable = f"PODIUM_{name.upper()}"
    with pytest.raises(SettingsError) as caught:
        load_settings(environment(tmp_path, **{variable: value}))
    assert str(caught.value) == f"{variable}: write {expected} (found {value!r})."


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("store = 5", "a path"),
        ("pool = 5", "a path"),
        ("file_roots = 5", "a list of folders"),
        ("principal = 5", "a text"),
    ],
)
def test_a_value_of_the_wrong_kind_is_refused_with_what_to_write(
    tmp_path: Path, text: str, expected: str
):
    with pytest.raises(SettingsError, match=rf"write {expected} \(found 5\)"):
        load_settings(environment(tmp_path, text))


def test_every_strategy_that_can_be_set_has_a_policy():
    assert (*policies(Settings()), "trinity") == get_args(Strategy)


def test_trinity_is_no_strategy_without_a_coordinator(tmp_path: Path):
    with pytest.raises(SettingsError, match="needs `coordinator`, the file of an evolved head"):
        load_settings(environment(tmp_path, 'strategy = "trinity"\n'))
    text = 'strategy = "trinity"\ncoordinator = "head.json"\n'
    assert load_settings(environment(tmp_path, text)).settings.strategy == "trinity"


@pytest.mark.parametrize("data", [b"rounds = ", b"\xff\xfe\x00", b"[rounds\n"])
def test_a_file_that_is_not_toml_is_refused_by_name(tmp_path: Path, data: bytes):
    (tmp_path / "config.toml").write_bytes(data)
    with pytest.raises(SettingsError, match=r"config\.toml: cannot be read as TOML"):
        load_settings(environment(tmp_path))


def test_a_folder_is_no_configuration_file(tmp_path: Path):
    (tmp_path / "config.toml").mkdir()
    with pytest.raises(SettingsError):
        load_settings(environment(tmp_path))


def test_the_users_own_file_is_used_when_none_is_named():
    assert config_file({}).name == "config.toml"
    assert config_file({"PODIUM_CONFIG": ""}) == config_file({})


def test_every_setting_says_what_it_is_for():
    for name, field in Settings.model_fields.items():
        assert field.description, name
