"""Which process an owner of runs is, and whether it is known to be gone.

An owner is a text in the ledger that any process can read. Only a process on the same machine, in
the same process namespace, can tell that it has ended; of others nothing is known.
"""

import os
import socket
import sys
from pathlib import Path
from uuid import uuid4


def new_owner() -> str:
    """A name for this process that no other one ever has."""
    pid = os.getpid()
    return "/".join((_machine(), str(pid), _started(pid) or "-", uuid4().hex))


def is_gone(owner: str) -> bool:
    """Whether that process has certainly ended; False when it lives or nothing can be known."""
    parts = owner.split("/")
    if len(parts) != 4 or parts[0] != _machine() or not parts[1].isdigit():
        return False
    pid, started = int(parts[1]), parts[2]
    if sys.platform == "win32":  # there, asking about a process by its number may end it
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OverflowError:
        return False
    except PermissionError:
        pass
    # The number may have been given to another process since.
    return started != "-" and _started(pid) != started


def _machine() -> str:
    """This boot of this machine, and the namespace in which its processes are numbered."""
    known = [socket.gethostname().replace("/", "-")]
    try:
        known.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip())
        known.append(str(Path("/proc/self/ns/pid").stat().st_ino))
    except OSError:  # not Linux
        pass
    return "+".join(known)


def _started(pid: int) -> str | None:
    """When a process began, in ticks since the boot; None where that cannot be known."""
    try:
        line = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The name, in brackets, may hold anything; the 22nd field of all is the 20th behind it.
    fields = line.rpartition(")")[2].split()
    state, started = fields[0], fields[19]
    return "ended" if state in "ZX" else started
