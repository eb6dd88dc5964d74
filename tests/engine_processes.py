"""Looking at the engine's processes from outside, in tests."""

import os
from collections.abc import Callable
from pathlib import Path

import anyio

LOOK_EVERY_S = 0.02


def is_running(pid: int) -> bool:
    """Whether the process exists and is not merely waiting to be buried."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return fields[0] != "Z"


def processes_of(state_dir: Path) -> list[int]:
    """The supervisors that serve *state_dir*."""
    found: list[int] = []
    for name in os.listdir("/proc"):
        if not name.isdecimal() or not is_running(int(name)):
            continue
        try:
            words = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if b"podium_workers.engine" in words and os.fsencode(state_dir) in words:
            found.append(int(name))
    return found


async def until(is_so: Callable[[], bool], *, within_s: float = 20) -> None:
    """Return as soon as *is_so*; for what another process does and cannot tell."""
    with anyio.fail_after(within_s):
        while True:
            if is_so():
                return
            await anyio.sleep(LOOK_EVERY_S)
