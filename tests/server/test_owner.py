"""Which process an owner of runs is, and when it is certainly gone."""

import os
import subprocess
import sys

import pytest

from podium.owner import is_gone, new_owner

NEW_OWNER = "from podium.owner import new_owner; print(new_owner())"


def owner_of_a_process(code: str = NEW_OWNER) -> tuple[subprocess.Popen[str], str]:
    """A process that is still there, and the owner that it is."""
    hold = f"{code}; import sys; sys.stdout.flush(); sys.stdin.read()"
    process = subprocess.Popen(
        [sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def test_no_two_owners_are_alike_and_this_one_lives() -> None:
    first, second = new_owner(), new_owner()
    assert first != second
    assert not is_gone(first)


@pytest.mark.skipif(sys.platform == "win32", reason="nothing is known of other processes there")
def test_a_process_is_gone_once_it_has_ended() -> None:
    process, owner = owner_of_a_process()
    assert not is_gone(owner)
    process.kill()
    process.communicate()
    assert is_gone(owner)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells when a process began")
def test_a_process_that_was_given_the_same_number_is_another_one() -> None:
    machine, pid, started, token = new_owner().split("/")
    earlier = "/".join((machine, pid, str(int(started) - 1), token))
    assert is_gone(earlier)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows a process not yet collected")
def test_a_process_that_nobody_has_collected_is_gone() -> None:
    process, owner = owner_of_a_process()
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert is_gone(owner)
    process.communicate()


@pytest.mark.parametrize("owner", ["", "somebody", "a/b/c/d", "elsewhere/1/2/x", "a/b/c/d/e"])
def test_of_owners_on_other_machines_nothing_is_known(owner: str) -> None:
    assert not is_gone(owner)


def test_a_number_that_no_process_can_have_is_not_asked_about() -> None:
    machine = new_owner().split("/")[0]
    assert not is_gone(f"{machine}/{10**30}/-/x")
