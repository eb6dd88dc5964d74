"""What `podium doctor` says of the ledger: SQLite, the place of the file, and whether it is whole.

Changes nothing.
"""

import contextlib
import os
import re
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from podium.backup import look
from podium.cli.check import Check
from podium.cli.wording import count, size
from podium.database import OLDEST_SQLITE, connect_read_only, explain
from podium.errors import StoreError
from podium.migrations import APPLICATION_ID, MIGRATIONS, check_shape

FIRST_SOUND = (3, 51, 3)
"""SQLite before it has a fault: when one process writes to the file at the very moment at which
another moves its log into it for a second time, the file may be damaged. Very rare."""
MOUNTS = Path("/proc/self/mounts")
LOOK_S = 5.0
"""Seconds that looking for damage may take."""

_NETWORK = frozenset(
    {
        "9p", "afs", "beegfs", "ceph", "cifs", "davfs", "glusterfs", "gpfs", "lustre", "ncpfs",
        "nfs", "nfs4", "smb3", "smbfs",
        "fuse.ceph-fuse", "fuse.davfs", "fuse.gcsfuse", "fuse.glusterfs", "fuse.juicefs",
        "fuse.rclone", "fuse.s3fs", "fuse.smbnetfs", "fuse.sshfs",
    }
)  # fmt: skip
"""Kinds of file systems whose files several machines may have open."""


def ledger_checks(path: Path) -> Iterator[Check]:
    """The ledger at *path*, in the order in which a person would ask."""
    yield sqlite_check(sqlite3.sqlite_version_info)
    file = _file(path)
    yield place_check(path, _mounts()) or file
    if file.level == "ok" and path.exists():
        yield _integrity(path)


def sqlite_check(version: tuple[int, int, int]) -> Check:
    """Whether SQLite is new enough, and without the fault."""
    found = _dotted(version)
    if version < OLDEST_SQLITE:
        remedy = f"use a Python that comes with SQLite {_dotted(OLDEST_SQLITE)} or newer"
        return Check(area="sqlite", level="problem", found=found, remedy=remedy)
    if version < FIRST_SOUND:
        found = (
            f"{found}; before {_dotted(FIRST_SOUND)}, two processes that write at the same instant "
            "can, very rarely, damage the ledger"
        )
        remedy = "podium backup FILE now and then; a Python with a newer SQLite ends this"
        return Check(area="sqlite", level="note", found=found, remedy=remedy)
    return Check(area="sqlite", level="ok", found=found)


def place_check(path: Path, mounts: str) -> Check | None:
    """A problem, if several machines may have the ledger open: they do not see each other's locks.

    *mounts* is a table of file systems as Linux has it.
    """
    kind = network_file_system(nearest_folder(path.resolve().parent), mounts)
    if kind is None:
        return None
    found = (
        f"{path} is on a network file system ({kind}), where processes on several machines can "
        "damage it; it needs a disk of this machine"
    )
    remedy = "podium --store FILE …, or for good: podium config set store FILE"
    return Check(area="ledger", level="problem", found=found, remedy=remedy)


def network_file_system(folder: Path, mounts: str) -> str | None:
    """The kind of file system that *folder* is on, if its files lie on another machine."""
    kinds: dict[Path, str] = {}
    for line in mounts.splitlines():
        _, place, kind, *_ = line.split()
        kinds[Path(_unescaped(place))] = kind  # what is mounted later hides what was there
    nearest = next((place for place in (folder, *folder.parents) if place in kinds), None)
    kind = kinds[nearest] if nearest else ""
    return kind if kind in _NETWORK else None


def nearest_folder(path: Path) -> Path:
    """*path* or the nearest folder above it that exists."""
    return next((folder for folder in (path, *path.parents) if folder.exists()), Path.cwd())


def _mounts() -> str:
    """The table of file systems; empty where there is none."""
    return MOUNTS.read_text("utf-8", "replace") if MOUNTS.exists() else ""


def _unescaped(place: str) -> str:
    """A place in the table, where spaces and the like are octal numbers."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), place)


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _file(path: Path) -> Check:
    if path.is_dir():
        found = f"{path} is a folder; name a file in it with --store FILE."
        remedy = "or for good: podium config set store FILE"
        return Check(area="ledger", level="problem", found=found, remedy=remedy)
    place = path if path.exists() else nearest_folder(path.parent)
    if not os.access(place, os.W_OK) or not os.access(nearest_folder(path.parent), os.W_OK):
        remedy = f"make it writable, or: podium config set store {Path.home() / 'podium.db'}"
        return Check(area="ledger", level="problem", found=f"{place} is read-only", remedy=remedy)
    free = f"{size(shutil.disk_usage(nearest_folder(path.parent)).free)} free"
    if not path.exists():
        found = f"{path} (made when the first question is asked), {free}"
        return Check(area="ledger", level="ok", found=found)
    try:
        told = _content(path)
    except StoreError as error:
        remedy = "name another file: podium config set store FILE"
        return Check(area="ledger", level="problem", found=str(error), remedy=remedy)
    files = (path, path.with_name(f"{path.name}-wal"))  # what is not yet moved into the first
    taken = sum(file.stat().st_size for file in files if file.exists())
    found = f"{path}, {size(taken)}, {told}, {free}"
    return Check(area="ledger", level="ok", found=found)


def _content(path: Path) -> str:
    """Format and number of runs.

    Raises:
        StoreError: the file is damaged, of another program, or of a newer Podium.
    """
    with contextlib.closing(connect_read_only(str(path), busy_timeout_s=2)) as connection:
        try:
            (owner,) = connection.execute("PRAGMA application_id").fetchone()
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            check_shape(connection, str(path))
            if not version:
                if owner not in (0, APPLICATION_ID):
                    raise StoreError(f"The file {path} is a database of another program.")
                return "empty"
            (runs,) = connection.execute("SELECT count(*) FROM runs").fetchone()
        except sqlite3.Error as error:
            raise explain(error, str(path)) from error
    newer = "" if version == len(MIGRATIONS) else " (brought up to date when it is next used)"
    return f"format {version}{newer}, {count(runs, 'run')}"


def _integrity(path: Path) -> Check:
    try:
        seen = look(path, within_s=LOOK_S)
    except StoreError as error:
        return Check(area="integrity", level="problem", found=str(error))
    if seen.problems:
        found = f"the ledger is damaged: {'; '.join(seen.problems)}"
        remedy = f"end every Podium, then put a backup in the place of {path} and {path.name}-wal"
        return Check(area="integrity", level="problem", found=found, remedy=remedy)
    if not seen.complete:
        found = f"no damage found in {LOOK_S:g} s, which were too short to look at all of it"
        remedy = "podium backup FILE looks at all of it"
        return Check(area="integrity", level="ok", found=found, remedy=remedy)
    return Check(area="integrity", level="ok", found="no damage found")
