import os
import stat
import sys
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from tests.engine_processes import is_running, until

from podium_workers.engine.child import bound_log, open_child, resident_bytes
from podium_workers.engine.client import passed_on
from podium_workers.engine.presence import Presence
from podium_workers.engine.state import (
    EngineAddress,
    address_file,
    read_address,
    remove_address,
    write_address,
)
from podium_workers.lockfile import LockFile

ADDRESS = EngineAddress(version="1", pid=7, port=4242, key="secret")
ECHO = (
    sys.executable,
    "-c",
    "import sys; print(sys.stdin.readline().upper(), end='', flush=True); sys.stdin.read()",
)
CHILD_OF_A_PARENT = """
import os, subprocess, sys
child = subprocess.Popen(
    [sys.executable, "-c", "import os, sys; sys.stdin.buffer.readline(); "
     "from podium_workers.engine.child import die_with; watch = die_with(os.getppid()); "
     "print(os.getpid(), flush=True); watch.join()"],
    stdin=subprocess.PIPE, stdout=subprocess.PIPE,
)
child.stdin.write(b"go\\n"); child.stdin.flush()
print(child.stdout.readline().decode(), end="", flush=True)
sys.stdin.read()
"""


def test_an_address_is_published_for_its_user_alone(tmp_path: Path) -> None:
    write_address(tmp_path, ADDRESS)

    assert read_address(tmp_path) == ADDRESS
    assert stat.S_IMODE(address_file(tmp_path).stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == [address_file(tmp_path).name]


def test_the_key_does_not_show_in_logs() -> None:
    assert "secret" not in repr(ADDRESS)


@pytest.mark.parametrize("content", ["", "{}", "rubbish", '{"port": "x"}'])
def test_a_damaged_address_counts_as_none(tmp_path: Path, content: str) -> None:
    address_file(tmp_path).write_text(content)

    assert read_address(tmp_path) is None


def test_an_engine_withdraws_only_its_own_address(tmp_path: Path) -> None:
    write_address(tmp_path, ADDRESS)

    remove_address(tmp_path, ADDRESS.pid + 1)
    assert read_address(tmp_path) == ADDRESS
    remove_address(tmp_path, ADDRESS.pid)
    assert read_address(tmp_path) is None


def test_a_lock_has_one_holder_until_it_is_closed(tmp_path: Path) -> None:
    with LockFile(tmp_path / "lock") as first, LockFile(tmp_path / "lock") as second:
        assert first.acquire()
        assert not second.acquire()
        first.close()
        assert second.acquire()


def test_of_the_environment_the_engine_sees_what_it_needs_and_no_keys() -> None:
    needed = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "SYSTEMROOT", "LD_LIBRARY_PATH")
    needed += ("PYTHONPATH", "VIRTUAL_ENV", "OMP_NUM_THREADS", "GGML_CPU", "LLAMA_LOG_COLORS")
    withheld = ("OPENAI_API_KEY", "LLAMA_API_KEY", "HF_TOKEN", "AWS_PROFILE", "XPATH", "PATH_X")

    assert passed_on(dict.fromkeys((*needed, *withheld), "x")) == dict.fromkeys(needed, "x")


async def test_the_smallest_limit_of_those_present_counts() -> None:
    presence = Presence()
    assert presence.memory_limit is None
    with presence.client(300):
        with presence.client(100):
            assert (presence.clients, presence.memory_limit) == (2, 100)
        assert presence.memory_limit == 300
    assert (presence.clients, presence.memory_limit) == (0, 300)


async def test_neither_client_nor_call_means_unused() -> None:
    presence = Presence()
    with presence.client(1), presence.call():
        assert presence.unused_s == 0
    with presence.call():
        assert presence.unused_s == 0
    started = anyio.current_time()
    await anyio.lowlevel.checkpoint()
    assert 0 <= presence.unused_s <= anyio.current_time() - started + 1


def test_a_log_that_has_grown_keeps_its_newer_half(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    with log.open("ab") as writer:
        writer.write(b"old" * 100 + b"new" * 10)
        writer.flush()
        bound_log(log, 60)
        writer.write(b"next")

    assert log.read_bytes() == b"new" * 10 + b"next"


def test_a_small_log_and_a_missing_one_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(b"short")
    bound_log(tmp_path / "a.log", 60)
    bound_log(tmp_path / "b.log", 60)

    assert (tmp_path / "a.log").read_bytes() == b"short"


async def test_a_child_reads_its_line_and_ends_with_the_block(tmp_path: Path) -> None:
    async with open_child(ECHO, log=tmp_path / "a.log", first_line=b"hello") as child:
        assert await child.read_line() == b"HELLO"
        assert (resident_bytes(child.pid) or 0) > 1_000_000

    assert not is_running(child.pid)
    assert resident_bytes(child.pid) is None


async def test_a_child_that_dies_at_once_gives_no_line(tmp_path: Path) -> None:
    command = (sys.executable, "-c", "import sys; sys.exit('no luck')")
    async with open_child(command, log=tmp_path / "a.log", first_line=b"hello") as child:
        assert await child.read_line() == b""
        await child.wait()

    assert "no luck" in (tmp_path / "a.log").read_text()


async def test_a_child_does_not_outlive_a_parent_that_was_killed(tmp_path: Path) -> None:
    parent = (sys.executable, "-c", CHILD_OF_A_PARENT)
    async with open_child(parent, log=tmp_path / "a.log", first_line=b"") as middle:
        inner = int(await middle.read_line())
        assert is_running(inner)
        os.kill(middle.pid, 9)
        await until(lambda: not is_running(inner))
