"""JSON with comments and TOML, changed in one place: all else stays as its owner wrote it."""

import json
import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import JsonValue

from podium.cli.installing import jsonc, toml_text
from podium.cli.installing.documents import open_document, save
from podium.cli.installing.jsonc import NotChangeableError, NotJsonError
from podium.errors import SettingsError

SETTINGS = """\
// mine
{
\t"theme": "dark", // at night
\t/* servers */ "context_servers": {
\t\t"other": {"command": "/bin/other", "args": [1, 2,], "url": "http://x//y"},
\t\t// the last
\t}, // tail
}
"""
CODEX = """\
model = "gpt" # the best

[mcp_servers.other] # mine
command = "/bin/other"

[tui]
theme = "dark"
"""
ENTRY: dict[str, JsonValue] = {"command": "/bin/podium", "args": ["serve"]}
KEYS = st.text(st.sampled_from('ab"\\/*{,\n é'), max_size=4)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | KEYS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)


def test_a_member_is_added_after_the_last_one_and_its_comment():
    new = jsonc.put(SETTINGS, ("context_servers", "podium"), ENTRY)
    added = (
        '"url": "http://x//y"},\n\t\t"podium": {\n\t\t\t"command": "/bin/podium",\n'
        '\t\t\t"args": [\n\t\t\t\t"serve"\n\t\t\t]\n\t\t},\n\t\t// the last\n'
    )
    assert new == SETTINGS.replace('"url": "http://x//y"},\n\t\t// the last\n', added)
    assert jsonc.remove(new, ("context_servers", "podium")) == SETTINGS


def test_a_value_is_replaced_where_it_stands():
    new = jsonc.put(SETTINGS, ("theme",), "light")
    assert new == SETTINGS.replace('"dark"', '"light"')
    again = jsonc.put(new, ("context_servers", "other", "args", 1), 3)
    assert again == new.replace("[1, 2,]", "[1, 3,]")


def test_an_item_is_added_to_a_list_on_one_line_and_taken_out_again():
    path = ("context_servers", "other", "args", 2)
    new = jsonc.put(SETTINGS, path, {"id": "x"})
    assert new == SETTINGS.replace("[1, 2,]", '[1, 2, {"id": "x"},]')
    assert jsonc.remove(new, path) == SETTINGS
    assert jsonc.remove(new, (*path[:-1], 0)) == new.replace("[1, 2", "[2")


def test_the_last_member_takes_the_comma_before_it_along():
    text = '{\n  "a": 1, // one\n  "b": 2 // two\n}\n'
    assert jsonc.remove(text, ("b",)) == '{\n  "a": 1 // one\n}\n'
    assert jsonc.remove(text, ("a",)) == '{\n  "b": 2 // two\n}\n'
    assert jsonc.remove('{"a": 1, "b": 2}', ("b",)) == '{"a": 1}'
    assert jsonc.remove('{"a": 1, "b": 2}', ("a",)) == '{"b": 2}'


@pytest.mark.parametrize("text", ["", "\n", "// nothing yet\n", "{}", "{ // c\n}", "\ufeff{ }\r\n"])
def test_what_is_empty_gets_its_first_member(text: str):
    new = jsonc.put(text, ("a", "b"), 1)
    assert jsonc.read(new) == {"a": {"b": 1}}
    assert ("// " in new, "\ufeff" in new) == ("// " in text, "\ufeff" in text)


def test_line_ends_of_windows_stay():
    new = jsonc.put('{\r\n    "a": 1\r\n}\r\n', ("b", "c"), 2)
    assert new == '{\r\n    "a": 1,\r\n    "b": {\r\n        "c": 2\r\n    }\r\n}\r\n'


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ('{"a" 1}', "line 1, column 6: a colon"),
        ('{\n"a": 1\n"b": 2}', "line 3, column 1: a comma"),
        ('{"a": 01}', "'01' is no value"),
        ("{'a': 1}", "double quotes"),
        ("{} x", "more text"),
        ("{ /* }", "double quotes"),
        ("[" * 200, "more than 100 levels"),
        ('{"a": }', "a value is expected"),
    ],
)
def test_what_is_no_json_is_told_with_its_place(text: str, where: str):
    with pytest.raises(NotJsonError) as refused:
        jsonc.read(text)
    assert where in str(refused.value)


@pytest.mark.parametrize(
    ("text", "path"),
    [('{"a": {}, "a": {}}', ("a", "b")), ('{"a": 1}', ("a", "b")), ("[]", ("a",))],
)
def test_what_is_laid_out_otherwise_is_left_alone(text: str, path: tuple[str, ...]):
    with pytest.raises(NotChangeableError):
        jsonc.put(text, path, 1)


@settings(max_examples=150, deadline=None)
@given(
    data=st.dictionaries(KEYS, VALUES, max_size=4),
    key=KEYS,
    value=VALUES,
    indent=st.sampled_from([None, 2, "\t"]),
)
def test_only_what_is_wanted_changes(
    data: dict[str, JsonValue], key: str, value: JsonValue, indent: int | str | None
):
    text = json.dumps(data, indent=indent, ensure_ascii=False)
    new = jsonc.put(text, (key,), value)
    assert json.loads(new) == {**data, key: value}
    rest = {name: kept for name, kept in data.items() if name != key}
    assert json.loads(jsonc.remove(new, (key,))) == rest


def test_a_table_is_added_and_its_comments_stay():
    new = toml_text.put(CODEX, ("mcp_servers", "podium"), ENTRY)
    wanted = '[mcp_servers.podium]\ncommand = "/bin/podium"\nargs = ["serve"]\n\n[tui]'
    assert new == CODEX.replace("[tui]", wanted)
    assert toml_text.remove(new, ("mcp_servers", "podium")) == CODEX


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[tui]\na = 1\n",
        'mcp_servers = { other = { command = "a" } }\n',
        "[mcp_servers]\n",
        'mcp_servers.other.command = "a"\n',
        "[mcp_servers.a]\nb = 1\n\n[x]\ny = 1\n\n[mcp_servers.c]\nd = 1\n",
    ],
)
def test_toml_of_any_layout_takes_an_entry(text: str):
    new = toml_text.put(text, ("mcp_servers", "podium"), ENTRY)
    old = tomllib.loads(text)
    assert tomllib.loads(new) == old | {
        "mcp_servers": {**old.get("mcp_servers", {}), "podium": ENTRY}
    }
    without = tomllib.loads(toml_text.remove(new, ("mcp_servers", "podium")))
    assert without.get("mcp_servers", {}) == old.get("mcp_servers", {})


def test_a_file_is_replaced_as_a_whole_with_its_mode_and_its_link_kept(tmp_path: Path):
    real, link = tmp_path / "dotfiles" / "settings.json", tmp_path / "settings.json"
    real.parent.mkdir()
    real.write_text(SETTINGS)
    real.chmod(0o640)
    link.symlink_to(real)
    before = open_document(link, "jsonc")

    backup = save(before, before.put(("a",), 1), for_others=False)

    assert backup is not None
    assert (backup.read_text(), backup.parent) == (SETTINGS, tmp_path)
    assert link.is_symlink()
    assert (real.stat().st_mode & 0o777, backup.stat().st_mode & 0o777) == (0o640, 0o640)
    assert jsonc.read(real.read_text()) == {**before.data, "a": 1}
    again = save(open_document(link, "jsonc"), before, for_others=False)
    assert again != backup
    assert sorted(tmp_path.rglob(".podium-*")) == []


def test_a_change_by_another_program_meanwhile_is_not_overwritten(tmp_path: Path):
    file = tmp_path / "mcp.json"
    file.write_text("{}")
    before = open_document(file, "jsonc")
    file.write_text('{"theirs": 1}')
    with pytest.raises(SettingsError, match="changed it just now"):
        save(before, before.put(("a",), 1), for_others=False)
    assert file.read_text() == '{"theirs": 1}'
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize(
    ("syntax", "content"),
    [("json", b"{} // no"), ("jsonc", b"[]"), ("toml", b"= 1"), ("jsonc", b"\xff\xfe{\x00")],
)
def test_a_file_that_its_client_cannot_read_is_left_alone(
    syntax: str, content: bytes, tmp_path: Path
):
    file = tmp_path / "settings"
    file.write_bytes(content)
    assert syntax in ("json", "jsonc", "toml")
    with pytest.raises(SettingsError) as refused:
        open_document(file, syntax)
    assert str(refused.value).startswith(str(file))
    assert file.read_bytes() == content
