"""The process `podium`: the streams it was given, and Ctrl-C from its first moment on.

Imports what takes time only inside `main`, where Ctrl-C is waited for.
"""

import os
import sys

LAST_STANDARD = 2
"""Number of stderr, the last of the three streams that a process begins with."""


def main() -> None:
    """Run the command that argv names; ends the process with that command's exit code."""
    try:
        _fill_closed_streams()
        from podium.cli.commands import podium

        podium(prog_name="podium")
    except KeyboardInterrupt:
        print("Stopped.", file=sys.stderr)
        sys.exit(130)


def _fill_closed_streams() -> None:
    """Let a closed stdin be empty, and all that is written to a closed stdout or stderr vanish.

    Left closed, its number would go to the next file that is opened, which may be the ledger.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= LAST_STANDARD:
        pass
    os.close(number)
    if sys.stdin is None:
        sys.stdin = os.fdopen(0, encoding="utf-8")
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", encoding="utf-8")
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", encoding="utf-8")
