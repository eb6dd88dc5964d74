"""Bearer tokens: what is kept of them, who is found by one, and how the file changes."""

import json
import stat
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.command_line import CommandLine

from podium.credentials import MARK, TokenFile
from podium.errors import SettingsError


class Clock:
    """Time as a test has it."""

    now = datetime(2026, 11, 30, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def file(tmp_path: Path) -> TokenFile:
    return TokenFile(tmp_path / "tokens.json", Clock())


def test_a_token_is_found_by_its_text_and_only_its_hash_is_kept(file: TokenFile):
    anna, bob = file.add("anna"), file.add("bob@example.com")
    assert anna != bob
    assert anna.startswith(MARK)
    assert len(anna) >= len(MARK) + 43  # 256 bits
    kept = file.path.read_text()
    assert anna not in kept
    assert anna.removeprefix(MARK) not in kept
    found = file.find(anna)
    assert found is not None
    assert found.name == "anna"
    for other in ("", MARK, anna[:-1], anna + "x", anna.upper(), found.sha256, "\ud800"):
        assert file.find(other) is None


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such modes")
def test_nobody_else_may_read_or_write_the_file(file: TokenFile):
    text = file.add("anna")
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    file.path.chmod(0o620)
    assert file.find(text) is None
    with pytest.raises(SettingsError, match="chmod 600"):
        file.read()


def test_a_token_ends_when_it_was_to_end(tmp_path: Path):
    clock = Clock()
    file = TokenFile(tmp_path / "tokens.json", clock)
    text = file.add("anna", timedelta(days=1))
    assert file.find(text)
    clock.now += timedelta(days=1)
    assert file.find(text) is None
    assert file.valid() == ()
    assert [token.name for token in file.read()] == ["anna"]


def test_a_server_heeds_what_another_process_changes(file: TokenFile):
    text = file.add("anna")
    other = TokenFile(file.path, Clock())
    assert other.find(text)
    file.remove("anna")
    assert other.find(text) is None
    again = file.add("anna")
    assert other.find(again)
    assert other.find(text) is None
    file.path.unlink()
    assert other.find(again) is None


def test_a_second_token_takes_the_place_of_the_first_without_a_gap(file: TokenFile):
    first, second = file.add("anna"), file.add("anna")
    found = file.find(first)
    assert found
    assert file.find(second)
    assert file.remove(found.id) == (found,)
    assert file.find(first) is None
    assert file.find(second)
    file.add("anna")
    assert len(file.remove("anna")) == 2
    assert file.exists()


def test_nothing_to_remove_says_who_has_tokens(file: TokenFile):
    with pytest.raises(SettingsError, match="tokens have: nobody"):
        file.remove("anna")
    file.add("bob")
    with pytest.raises(SettingsError, match="tokens have: bob"):
        file.remove("anna")


@pytest.mark.parametrize("name", ["", " ", "a b", "a#b", "../x", "-x", "https://x", "ä", "a" * 65])
def test_a_name_that_could_be_taken_for_something_else_is_refused(file: TokenFile, name: str):
    with pytest.raises(SettingsError, match="cannot be the name"):
        file.add(name)
    assert not file.exists()


@pytest.mark.parametrize("content", ["", "[]", "{", '{"tokens": [{"name": "x"}]}', '{"more": 1}'])
def test_a_damaged_file_lets_nobody_in(file: TokenFile, content: str):
    text = file.add("anna")
    kept = file.path.read_text()
    file.path.write_text(content)
    assert file.find(text) is None
    with pytest.raises(SettingsError, match="damaged"):
        file.add("bob")
    assert file.path.read_text() == content
    file.path.write_text(kept)
    assert file.find(text)


def test_a_folder_that_is_not_there_is_made(tmp_path: Path):
    file = TokenFile(tmp_path / "new" / "tokens.json", Clock())
    assert file.find(file.add("anna"))


def test_processes_that_add_at_once_lose_nothing(podium: CommandLine):
    started = [podium.start("token", "add", f"user{number}") for number in range(4)]
    for process in started:
        assert process.communicate(timeout=60)[0].startswith(b"podium_")
    names = [row["name"] for row in podium.inside("token", "list", "--json").rows]
    assert names == ["user0", "user1", "user2", "user3"]


def test_the_command_shows_a_token_once(podium: CommandLine):
    made = podium.inside("token", "add", "anna", "--days", "2")
    assert made.code == 0
    text = made.out.strip()
    assert "for 2 days" in made.err
    assert text not in made.err
    for again in (podium.inside("token", "list"), podium.inside("token", "list", "--json")):
        assert again.code == 0
        assert "anna" in again.out
        assert text not in again.out + again.err
    (row,) = podium.inside("token", "list", "--json").rows
    assert set(row) == {"id", "name", "created", "expires"}
    assert "tokens of anna" in podium.inside("doctor").out
    removed = podium.inside("token", "remove", "anna")
    assert "Removed 1 token of anna" in removed.err
    assert "nobody" in removed.err
    assert "no tokens" in podium.inside("token", "list").err


def test_the_list_says_which_tokens_have_expired(podium: CommandLine):
    podium.inside("token", "add", "anna", "--days", "1")
    file = podium.folder / "ledger-tokens.json"
    content = json.loads(file.read_text())
    content["tokens"][0]["expires"] = "2020-01-01T00:00:00Z"
    file.write_text(json.dumps(content))
    assert "(expired)" in podium.inside("token", "list").out
    assert "tokens of nobody" in podium.inside("doctor").out
    assert "1 token expired" in podium.inside("doctor").out


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["add", "a b"], 1, "cannot be the name of a token"),
        (["add", "anna", "--days", "0"], 2, "is not in the range"),
        (["remove", "anna"], 1, "There is no token 'anna'"),
    ],
)
def test_a_mistake_is_one_sentence(
    podium: CommandLine, arguments: list[str], code: int, sentence: str
):
    done = podium.inside("token", *arguments)
    assert (done.code, done.out) == (code, "")
    assert sentence in done.err


def test_the_lock_of_a_process_that_died_holds_nobody_up(podium: CommandLine):
    script = "import sys; from podium_workers.lockfile import LockFile as L; from pathlib import *;"
    script += "lock = L(Path(sys.argv[1])); assert lock.acquire(); import os; os._exit(0)"
    lock = podium.folder / "ledger-tokens.lock"
    subprocess.run([sys.executable, "-c", script, str(lock)], check=True)
    assert podium.inside("token", "add", "anna").code == 0
