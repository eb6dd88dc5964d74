"""The first program in a sandbox: sets limits on itself, then becomes the one that it was given.

Its text is handed to an interpreter inside; nothing of Podium is there, so it imports only the
standard library. `sandbox` owns everything outside.
"""

import os
import resource
import sys
from pathlib import Path

PROGRAM = Path("/tmp/program.py")
NOTICE = Path("/proc/self/oom_score_adj")


def become_the_program(seconds: int, memory: int, file: int, processes: int) -> None:
    """Read a program from standard input and run it in this process, with these limits."""
    PROGRAM.write_bytes(sys.stdin.buffer.read())
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    # Where memory runs out after all, this is what the system should end first.
    NOTICE.write_text("1000", encoding="ascii")
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    for kind, most in (
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_FSIZE, file),
        (resource.RLIMIT_NPROC, processes),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (most, most))
    os.execv(sys.executable, [sys.executable, "-I", "-B", "-X", "utf8", str(PROGRAM)])


if __name__ == "__main__":
    become_the_program(*map(int, sys.argv[1:]))
