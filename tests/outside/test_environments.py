"""Making the environments of the outside suites, without a network."""

import os
import subprocess
import sys
from pathlib import Path

from podium_lab.environments.suites import SUITES, Environments

OFFLINE = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "", "PIP_CONFIG_FILE": os.devnull}


def make(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "podium_lab.environments.suites", *arguments],
        env={**os.environ, **OFFLINE}, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def test_one_that_cannot_be_made_does_not_keep_the_others_from_it(tmp_path: Path) -> None:
    done = make("--folder", str(tmp_path), "mcpcheck", "skillsaw")
    told = [line.partition(":")[0] for line in done.stdout.splitlines() if ": missing: " in line]
    assert (done.returncode, told) == (1, ["mcpcheck", "skillsaw"]), done
    assert "No matching distribution" in done.stderr


def test_what_does_not_exist_is_not_made(tmp_path: Path) -> None:
    done = make("--folder", str(tmp_path), "inspektor")
    assert (done.returncode, list(tmp_path.iterdir())) == (2, [])
    assert "there is no suite 'inspektor'; there are conformance, inspector" in done.stderr


def test_an_environment_that_broke_off_is_not_taken_for_one(tmp_path: Path) -> None:
    environments = Environments(tmp_path)
    (tmp_path / "skillsaw" / "bin").mkdir(parents=True)
    (tmp_path / "skillsaw" / "bin" / "skillsaw").touch()
    modules = tmp_path / "inspector" / "node_modules" / ".bin"
    modules.mkdir(parents=True)
    (modules / "mcp-inspector").touch()
    assert [name for name in SUITES if environments.command(name)] == []


def test_every_suite_is_pinned() -> None:
    for suite in SUITES.values():
        for package in suite.packages:
            name, _, version = package.rpartition("@" if suite.on_node else "==")
            assert name, package
            assert version[0].isdigit(), package
