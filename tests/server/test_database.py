"""Opening a ledger file, and what is wrong with one, for real."""

import os
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from podium.database import connect, connect_read_only, explain, select
from podium.errors import StoreError
from podium_workers.worker import mend


def test_a_new_ledger_is_for_its_owners_eyes_only(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "ledger.db"

    with closing(connect(str(path), busy_timeout_s=1)) as connection:
        connection.execute("CREATE TABLE t (x TEXT)")
        modes = {it.name: stat.S_IMODE(it.stat().st_mode) for it in path.parent.iterdir()}

    assert set(modes) == {"ledger.db", "ledger.db-wal", "ledger.db-shm"}
    if os.name == "posix":
        assert set(modes.values()) == {0o600}


def test_a_ledger_is_set_up_to_lose_nothing(tmp_path: Path) -> None:
    with closing(connect(str(tmp_path / "ledger.db"), busy_timeout_s=30)) as connection:
        names = ("journal_mode", "synchronous", "foreign_keys", "busy_timeout", "mmap_size")
        found = {name: connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names}

    assert found == {
        "journal_mode": "wal",
        "synchronous": 2,  # FULL
        "foreign_keys": 1,
        "busy_timeout": 30_000,
        "mmap_size": 0,
    }


def below_a_file(folder: Path) -> Path:
    (folder / "file").write_text("not a folder")
    return folder / "file" / "ledger.db"


def far_below_a_file(folder: Path) -> Path:
    (folder / "file").write_text("not a folder")
    return folder / "file" / "a" / "b" / "ledger.db"


def a_folder(folder: Path) -> Path:
    (folder / "ledger.db").mkdir()
    return folder / "ledger.db"


def random_bytes(folder: Path) -> Path:
    (folder / "ledger.db").write_bytes(os.urandom(10_000))
    return folder / "ledger.db"


def too_long_a_name(folder: Path) -> Path:
    return folder / ("x" * 300) / "ledger.db"


def where_nothing_can_be_made(_: Path) -> Path:
    if not Path("/proc/self").is_dir():
        pytest.skip("needs /proc, where not even root can make files")
    return Path("/proc/podium/ledger.db")


def a_read_only_file(folder: Path) -> Path:
    path = folder / "ledger.db"
    path.touch(mode=0o400)
    skip_where_all_can_be_written(path)
    return path


def a_read_only_folder(folder: Path) -> Path:
    (folder / "ledger.db").touch()
    folder.chmod(0o500)
    skip_where_all_can_be_written(folder)
    return folder / "ledger.db"


def skip_where_all_can_be_written(path: Path) -> None:
    if os.access(path, os.W_OK):
        pytest.skip("this user may write everywhere")


@pytest.mark.parametrize(
    "place",
    [
        below_a_file, far_below_a_file, a_folder, random_bytes, too_long_a_name,
        where_nothing_can_be_made, a_read_only_file, a_read_only_folder,
    ],
)  # fmt: skip
def test_a_place_that_cannot_hold_a_ledger_is_named(
    tmp_path: Path, place: Callable[[Path], Path]
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    path = place(folder)

    with pytest.raises(StoreError) as caught:
        connect(str(path), busy_timeout_s=1)

    text = str(caught.value)
    assert str(folder if folder in path.parents else path) in text
    assert "--store" in text
    assert text.endswith(".")
    assert text.count("\n") == 0


def test_a_file_that_another_program_keeps_for_itself_is_given_up_in_time(tmp_path: Path) -> None:
    path = str(tmp_path / "ledger.db")
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")

        with pytest.raises(StoreError) as caught:
            connect(path, busy_timeout_s=0.05)

    assert isinstance(caught.value.__cause__, sqlite3.OperationalError)
    assert caught.value.__cause__.sqlite_errorcode == sqlite3.SQLITE_BUSY


def test_reading_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError):
        connect_read_only(str(tmp_path / "none.db"), busy_timeout_s=1)


def test_a_path_may_hold_any_character(tmp_path: Path) -> None:
    path = str(tmp_path / "100% mine? #1 é.db")

    with closing(connect(path, busy_timeout_s=1)) as connection:
        connection.execute("CREATE TABLE t (x TEXT)")
        connection.execute("INSERT INTO t VALUES ('here')")
        with closing(connect_read_only(path, busy_timeout_s=1)) as reading:
            assert list(select(reading, "SELECT x FROM t")) == [{"x": "here"}]


def test_an_error_of_the_driver_itself_is_explained_too(tmp_path: Path) -> None:
    connection = connect(str(tmp_path / "ledger.db"), busy_timeout_s=1)
    connection.close()

    with pytest.raises(sqlite3.ProgrammingError) as caught:
        connection.execute("SELECT 1")

    assert "closed" in str(explain(caught.value, "ledger.db"))


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ("plain", "plain"),
        ("日本 🎉 é", "日本 🎉 é"),
        ("half \ud83c here", "half \ufffd here"),
        ("\udf89 and \ud83c", "\ufffd and \ufffd"),
        ("two halves \ud83c\udf89 meet", "two halves 🎉 meet"),
        ("", ""),
    ],
)
def test_text_that_cannot_be_stored_is_mended(given: str, stored: str) -> None:
    assert mend(given) == stored
