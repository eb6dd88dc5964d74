"""What `podium doctor` says of the ledger: its SQLite, its place, and whether it is whole."""

import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import pytest
from tests.command_line import CommandLine, Done
from tests.ledger_samples import damage

from podium.cli.ledger_checks import (
    FIRST_SOUND,
    nearest_folder,
    network_file_system,
    place_check,
    sqlite_check,
)

MOUNTS = r"""
/dev/sda1 / ext4 rw,relatime 0 0
proc /proc proc rw 0 0
server:/home /home nfs4 rw,vers=4.2 0 0
//nas/my\040share /mnt/my\040share cifs rw 0 0
me@far: /home/me/far fuse.sshfs rw 0 0
/dev/sdb1 /home/me/far/disk ext4 rw 0 0
/dev/fuse /run/user/portal fuse.portal rw 0 0
/dev/sdc1 /over nfs rw 0 0
/dev/sdc1 /over xfs rw 0 0
""".strip()


def checks(done: Done) -> dict[str, Mapping[str, str]]:
    found = cast("list[Mapping[str, str]]", done.data["checks"])
    return {check["area"]: check for check in found}


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/", None),
        ("/var/lib", None),
        ("/homestead", None),
        ("/home/me", "nfs4"),
        ("/mnt/my share/deep", "cifs"),
        ("/mnt", None),
        ("/home/me/far", "fuse.sshfs"),
        ("/home/me/far/disk/x", None),
        ("/run/user/portal", None),
        ("/over", None),
    ],
)
def test_a_network_file_system_is_known_by_the_mount_that_is_nearest(
    folder: str, kind: str | None
) -> None:
    assert network_file_system(Path(folder), MOUNTS) == kind


def test_without_a_table_of_mounts_nothing_is_said(tmp_path: Path) -> None:
    assert place_check(tmp_path / "ledger.db", "") is None


def test_a_ledger_on_a_network_file_system_is_a_problem_wherever_its_link_stands(
    tmp_path: Path,
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    mounts = f"/dev/sda1 / ext4 rw 0 0\nserver:/x {shared.resolve()} nfs rw 0 0"
    link = tmp_path / "ledger.db"
    link.symlink_to(shared / "ledger.db")

    assert place_check(tmp_path / "own.db", mounts) is None
    for path in (shared / "ledger.db", shared / "not" / "yet" / "there.db", link):
        found = place_check(path, mounts)
        assert found is not None
        assert (found.area, found.level) == ("ledger", "problem")
        assert str(path) in found.found
        assert "nfs" in found.found
        assert "--store" in found.remedy


@pytest.mark.parametrize(
    ("version", "level"),
    [
        ((3, 37, 2), "problem"), ((3, 38, 0), "note"), ((3, 40, 1), "note"), ((3, 51, 2), "note"),
        ((3, 51, 3), "ok"), ((3, 53, 0), "ok"),
    ],
)  # fmt: skip
def test_an_sqlite_with_the_fault_is_noted_with_what_to_do(
    version: tuple[int, int, int], level: str
) -> None:
    found = sqlite_check(version)
    assert (found.area, found.level) == ("sqlite", level)
    assert ".".join(map(str, version)) in found.found
    assert ("podium backup" in found.remedy) is (level == "note")


def test_a_doctor_tells_the_fault_of_the_sqlite_that_is_here_without_failing(podium: CommandLine):
    done = podium.inside("doctor", "--json")
    level = "note" if sqlite3.sqlite_version_info < FIRST_SOUND else "ok"
    assert (done.code, checks(done)["sqlite"]["level"]) == (0, level)


def test_a_doctor_looks_through_the_ledger(podium: CommandLine):
    assert "integrity" not in checks(podium.inside("doctor", "--json"))
    podium.inside("ask", "q", "--quiet", "--strategy", "single")
    whole = checks(podium.inside("doctor", "--json"))["integrity"]
    assert (whole["level"], whole["found"]) == ("ok", "no damage found")

    damage(podium.ledger, "steps")

    sick = podium.inside("doctor", "--json")
    found = checks(sick)["integrity"]
    assert (sick.code, found["level"]) == (1, "problem")
    assert "damaged" in found["found"]
    assert "backup" in found["remedy"]


def test_the_nearest_folder_is_one_that_exists(tmp_path: Path) -> None:
    assert nearest_folder(tmp_path / "a" / "b") == tmp_path
    assert nearest_folder(tmp_path) == tmp_path
