"""Copies of the ledger: whole whatever goes on meanwhile, and never in the place of something."""

import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from tests.ledger_samples import FULL_REQUEST, WRITTEN, a_run, a_step, damage, put_text, stored

from podium.backup import Integrity, backup, look
from podium.database import connect
from podium.errors import StoreError
from podium.migrations import APPLICATION_ID, MIGRATIONS, migrate
from podium.store import open_store

PROGRAM = Path(__file__).parents[1] / "write_ledger.py"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture
def target(tmp_path: Path) -> Path:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    return folder / "copy.db"


async def make(path: Path) -> None:
    """A ledger with two runs."""
    async with open_store(path) as store:
        run = await stored(store, a_run(request=FULL_REQUEST), WRITTEN)
        await store.save_step(run.run_id, a_step(prompt=await put_text(store, "prompt")))
        await store.create_run(a_run("run-000002", parent_id=run.run_id))


@contextmanager
def opened(path: Path) -> Generator[sqlite3.Connection]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


@contextmanager
def busy_writer(path: Path) -> Generator[Iterator[str]]:
    """A process that writes runs without end; the ids of those that are durable."""
    with subprocess.Popen(
        [sys.executable, str(PROGRAM), str(path), "busy", "1000000"],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        yield (line.strip() for line in process.stdout)
        process.kill()


async def test_a_backup_is_the_ledger_in_one_private_file(path: Path, target: Path) -> None:
    await make(path)

    done = await backup(path, target)

    assert (done.path, done.runs, done.bytes) == (target, 2, len(content(target)))
    assert mode(target) == 0o600
    assert beside(target) == [target.name]
    async with open_store(path) as store, open_store(target) as copy:
        run = await store.run("run-000001")
        assert await copy.run("run-000001") == run
        assert run.request.files == FULL_REQUEST.files
        assert await copy.rounds(run.run_id) == await store.rounds(run.run_id)
        assert await copy.children(run.run_id) == await store.children(run.run_id)
        assert [hit.summary.run_id for hit in await copy.search("longer")] == [run.run_id]
    with opened(target) as copied:
        assert copied.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
        assert copied.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)


async def test_a_backup_taken_while_a_process_writes_is_whole(path: Path, target: Path) -> None:
    with busy_writer(path) as told:
        before = [next(told) for _ in range(50)]
        with anyio.fail_after(30):
            await backup(path, target)
        after = next(told)  # it was not held up for good

    with opened(target) as copied:
        assert copied.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert copied.execute("PRAGMA foreign_key_check").fetchall() == []
    async with open_store(target) as copy:
        for run_id in before:
            (result,) = await copy.steps(run_id)
            assert result.reply == f"It is {run_id}."
    assert after not in before


async def test_a_ledger_of_an_earlier_format_is_copied_as_it_is(path: Path, target: Path) -> None:
    with closing(connect(str(path), busy_timeout_s=5)) as connection:
        migrate(connection, str(path), MIGRATIONS[:1])

    await backup(path, target)

    for file in (path, target):
        with opened(file) as connection:
            assert connection.execute("PRAGMA user_version").fetchone() == (1,)


async def test_an_existing_file_is_replaced_only_when_that_is_asked(
    path: Path, target: Path
) -> None:
    await make(path)
    write(target, b"precious")

    with pytest.raises(StoreError, match="--force"):
        await backup(path, target)
    assert content(target) == b"precious"

    await backup(path, target, force=True)
    assert look(target, within_s=10) == Integrity()
    assert beside(target) == [target.name]


def _itself(path: Path) -> Path:
    return path.parent / "." / path.name


def _a_link_to_it(path: Path) -> Path:
    link = path.with_name("link.db")
    link.symlink_to(path)
    return link


def _another_name_of_it(path: Path) -> Path:
    name = path.with_name("name.db")
    name.hardlink_to(path)
    return name


def _its_log(path: Path) -> Path:
    return path.with_name("ledger.db-wal")


@pytest.mark.parametrize("place", [_itself, _a_link_to_it, _another_name_of_it, _its_log])
async def test_a_backup_onto_the_ledger_itself_is_refused(
    path: Path, place: Callable[[Path], Path]
) -> None:
    await make(path)
    target = place(path)
    before = content(path)

    with pytest.raises(StoreError, match="belongs to the ledger itself"):
        await backup(path, target, force=True)

    assert content(path) == before


async def test_a_backup_onto_an_open_database_is_refused(path: Path, target: Path) -> None:
    await make(path)
    async with open_store(target) as other:
        await stored(other, a_run("another-run"))

        with pytest.raises(StoreError, match="in use as a database"):
            await backup(path, target, force=True)

        assert (await other.run("another-run")).status == "planned"


async def test_what_a_crashed_database_left_is_not_mixed_with_a_backup(
    path: Path, target: Path
) -> None:
    await make(path)
    write(target.with_name("copy.db-wal"), b"frames of another database")

    with pytest.raises(StoreError, match=r"copy\.db-wal"):
        await backup(path, target)

    assert beside(target) == ["copy.db-wal"]


async def test_places_where_no_backup_can_be_are_named(path: Path, tmp_path: Path) -> None:
    await make(path)
    for wrong in (tmp_path, tmp_path / "missing" / "copy.db"):
        with pytest.raises(StoreError, match=str(wrong.parent)):
            await backup(path, wrong)


async def test_what_is_no_ledger_is_not_copied(path: Path, target: Path) -> None:
    with pytest.raises(StoreError, match="There is no ledger"):
        await backup(path, target)
    with opened(path) as other:
        other.execute("CREATE TABLE songs (title TEXT)")
    with pytest.raises(StoreError, match="not a ledger of Podium"):
        await backup(path, target)
    write(path, b"no database at all, but long enough to be one " * 20)
    with pytest.raises(StoreError, match="not a ledger of Podium"):
        await backup(path, target)
    assert beside(target) == []


async def test_a_damaged_ledger_is_told_and_its_copy_not_kept(path: Path, target: Path) -> None:
    await make(path)
    damage(path, "steps")

    with pytest.raises(StoreError, match="damaged"):
        await backup(path, target)

    assert beside(target) == []
    assert look(path, within_s=10).problems


async def test_a_backup_that_is_broken_off_leaves_nothing(path: Path, target: Path) -> None:
    await make(path)
    fill(path, 60_000)

    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            group.start_soon(backup, path, target)
            while not beside(target):
                await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()

    assert beside(target) == []


async def test_a_look_ends_in_time(path: Path) -> None:
    await make(path)
    fill(path, 60_000)

    # On a busy machine the look may be over before anybody could break it off.
    looks = (look(path, within_s=0) for _ in range(50))
    assert any(found == Integrity(complete=False) for found in looks)
    assert look(path, within_s=60) == Integrity()


def content(file: Path) -> bytes:
    return file.read_bytes()


def write(file: Path, what: bytes) -> None:
    file.write_bytes(what)


def mode(file: Path) -> int:
    return stat.S_IMODE(file.stat().st_mode)


def beside(file: Path) -> list[str]:
    """The names in the folder of a file."""
    return [other.name for other in file.parent.iterdir()]


def fill(path: Path, texts: int) -> None:
    """Some 60 MB of short texts that nothing names."""
    with opened(path) as connection:
        connection.execute("BEGIN")
        rows = ((f"{number:064}", "x" * 1000) for number in range(texts))
        connection.executemany("INSERT INTO blobs (sha, text) VALUES (?, ?)", rows)
        connection.execute("COMMIT")
