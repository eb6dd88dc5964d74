"""Programs in a real sandbox: what must work inside, and every way out that must not."""

import os
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from podium_workers.errors import NotInstalledError
from podium_workers.programs.sandbox import OUTPUT_BYTES, Ran, Sandbox

PATH = os.environ.get("PATH", "")
BOUND_S = 60


@pytest.fixture
async def sandbox() -> Sandbox:
    """A sandbox that works here."""
    found = Sandbox(PATH)
    try:
        await found.check()
    except NotInstalledError as error:
        pytest.skip(str(error))
    return found


async def run(sandbox: Sandbox, program: str, *, seconds: int = 5) -> Ran:
    with anyio.fail_after(BOUND_S):
        return await sandbox.run(program, seconds=seconds)


async def test_a_program_prints_its_result(sandbox: Sandbox):
    program = "import fractions\nprint(fractions.Fraction(1, 3) + fractions.Fraction(1, 6))"
    assert await run(sandbox, program) == Ran(status="finished", output="1/2\n", errors="")


async def test_an_error_comes_back_with_the_line_where_it_happened(sandbox: Sandbox):
    ran = await run(sandbox, "print('so far')\nprices = [1, 2]\nprint(prices[2])\n")
    assert (ran.status, ran.output) == ("failed", "so far\n")
    assert "line 3" in ran.errors
    assert "IndexError: list index out of range" in ran.errors


async def test_a_program_that_is_not_python_fails_as_one_that_is(sandbox: Sandbox):
    assert "SyntaxError" in (await run(sandbox, "The answer is 42.")).errors


async def test_a_program_may_use_threads_and_files_of_its_own(sandbox: Sandbox):
    program = (
        "import threading, pathlib\n"
        "pathlib.Path('note.txt').write_text('kept')\n"
        "def say(): print(pathlib.Path('note.txt').read_text())\n"
        "thread = threading.Thread(target=say)\nthread.start()\nthread.join()\n"
    )
    assert (await run(sandbox, program)).output == "kept\n"
    again = await run(sandbox, "import pathlib; print(pathlib.Path('note.txt').exists())")
    assert again.output == "False\n"


async def test_input_is_empty(sandbox: Sandbox):
    assert "EOFError" in (await run(sandbox, "input()")).errors


async def test_no_file_of_the_system_or_the_user_is_there(sandbox: Sandbox, tmp_path: Path):
    mine = tmp_path / "mine.txt"
    mine.write_text("secret")
    paths = ["/etc/shadow", "/etc/passwd", "/root", "/home", str(Path.home()), str(mine), "/sys"]
    program = f"import os\nfor path in {paths!r}: print(path, os.path.exists(path))"
    ran = await run(sandbox, program)
    assert ran.output.split() == [word for path in paths for word in (path, "False")]


@pytest.mark.parametrize("path", ["/x", "/usr/x", "/dev/x", "/etc/x", "/proc/sys/kernel/hostname"])
async def test_nothing_outside_its_own_folder_can_be_written(sandbox: Sandbox, path: str):
    ran = await run(sandbox, f"open({path!r}, 'w').write('x')")
    assert ran.status == "failed"
    assert "Read-only file system" in ran.errors or "Permission denied" in ran.errors


async def test_a_listener_on_this_machine_is_out_of_reach(sandbox: Sandbox):
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        port = listener.extra_attributes[anyio.abc.SocketAttribute.local_port]()
        async with await anyio.connect_tcp("127.0.0.1", port):
            program = f"import socket; socket.create_connection(('127.0.0.1', {port}), 2)"
            ran = await run(sandbox, program)
    assert ran.status == "failed"
    assert "Connection refused" in ran.errors or "unreachable" in ran.errors


async def test_there_is_no_way_to_the_network(sandbox: Sandbox):
    ran = await run(sandbox, "import socket; socket.create_connection(('192.0.2.1', 80), 2)")
    assert "Network is unreachable" in ran.errors


async def test_no_variable_of_podiums_own_environment_is_seen(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-0123456789")
    program = (
        "import os, glob\nprint(sorted(os.environ))\n"
        "for path in glob.glob('/proc/*/environ'):\n"
        "    try: print(open(path).read())\n"
        "    except OSError: pass\n"
    )
    ran = await run(sandbox, program)
    assert ran.status == "finished"
    assert "PATH" in ran.output
    assert "0123456789" not in ran.output


async def test_other_processes_are_neither_seen_nor_reached(sandbox: Sandbox):
    program = f"import os\nprint(os.path.exists('/proc/{os.getpid()}'))\nos.kill({os.getpid()}, 0)"
    ran = await run(sandbox, program)
    assert ran.output in {"False\n", "True\n"}  # a number may be in use inside as well
    count = "import os; print(sum(name.isdecimal() for name in os.listdir('/proc')))"
    assert int((await run(sandbox, count)).output) <= 3


async def test_it_runs_without_rights_and_cannot_get_any(sandbox: Sandbox):
    program = (
        "import os, ctypes\nprint(os.getuid() == 0)\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "CLONE_NEWUSER = 0x10000000\n"
        "print(libc.unshare(CLONE_NEWUSER))\n"
        "print(libc.mount(b'none', b'/tmp', b'tmpfs', 0, None))\n"
    )
    assert (await run(sandbox, program)).output == "False\n-1\n-1\n"


async def test_a_bomb_of_processes_stops_at_the_limit(sandbox: Sandbox):
    program = (
        "import os, time\ncount = 0\n"
        "try:\n    while True:\n        if os.fork() == 0: time.sleep(60)\n        count += 1\n"
        "except BlockingIOError: print(count)\n"
    )
    ran = await run(sandbox, program)
    assert ran.status == "finished"
    assert int(ran.output) < 20


async def test_a_hog_of_memory_gets_an_error(sandbox: Sandbox):
    assert "MemoryError" in (await run(sandbox, "x = bytearray(3 << 30)")).errors


@pytest.mark.parametrize("folder", ["/tmp", "/dev/shm"])
async def test_files_cannot_fill_this_machines_memory(sandbox: Sandbox, folder: str):
    program = (
        "for number in range(9):\n"
        f"    with open(f'{folder}/{{number}}', 'wb') as file: file.write(bytes(30 << 20))\n"
    )
    ran = await run(sandbox, program)
    assert "No space left on device" in ran.errors


async def test_an_endless_loop_is_ended(sandbox: Sandbox):
    assert (await run(sandbox, "while True: pass", seconds=1)).status == "too_slow"


async def test_a_program_that_only_waits_is_ended(sandbox: Sandbox):
    ran = await run(sandbox, "print('on', flush=True)\nimport time; time.sleep(60)", seconds=1)
    assert ran == Ran(status="too_slow", output="on\n", errors="")


@pytest.mark.parametrize("stream", [1, 2])
async def test_a_gigabyte_of_output_is_cut_short(sandbox: Sandbox, stream: int):
    program = f"import os\nfor _ in range(1 << 14): os.write({stream}, b'x' * (1 << 16))"
    ran = await run(sandbox, program)
    assert ran.status == "too_much"
    assert len(ran.output) <= OUTPUT_BYTES


async def test_a_program_that_is_stopped_leaves_nothing_behind(sandbox: Sandbox):
    program = "import os, time\nfor _ in range(3): os.fork()\ntime.sleep(60)"
    with anyio.fail_after(BOUND_S):
        async with anyio.create_task_group() as group:
            group.start_soon(run, sandbox, program)
            while not await to_thread.run_sync(programs_running):
                await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()
        while await to_thread.run_sync(programs_running):
            await anyio.lowlevel.checkpoint()


def programs_running() -> int:
    """Processes on this machine that run a program of a sandbox."""
    found = 0
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += path.read_bytes().endswith(b"/tmp/program.py\0")
        except OSError:
            continue
    return found


async def test_without_bubblewrap_nothing_is_run(tmp_path: Path):
    with pytest.raises(NotInstalledError) as caught:
        await Sandbox(str(tmp_path)).run("print(1)", seconds=1)
    assert "bubblewrap" in caught.value.message
    assert not caught.value.transient


@pytest.fixture
def bubblewrap_that_fails(tmp_path: Path) -> str:
    """A folder whose `bwrap` does as it does on systems that forbid user namespaces."""
    stand_in = tmp_path / "bwrap"
    stand_in.write_text("#!/bin/sh\necho 'bwrap: setting up uid map: denied' >&2\nexit 1\n")
    stand_in.chmod(0o755)
    return str(tmp_path)


async def test_a_bubblewrap_that_cannot_isolate_is_as_good_as_none(bubblewrap_that_fails: str):
    with pytest.raises(NotInstalledError) as caught:
        await Sandbox(bubblewrap_that_fails).run("print(1)", seconds=1)
    assert "bwrap" in caught.value.message
