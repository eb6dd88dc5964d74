"""A lock between processes, held on an open file: the system frees it when its holder dies."""

import sys
from pathlib import Path
from typing import Self

if sys.platform == "win32":
    import msvcrt

    def _try_lock(descriptor: int) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _try_lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


class LockFile:
    """An exclusive lock on *path*. The file stays behind: removing it would split the lock."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab")

    def acquire(self) -> bool:
        """Take the lock if nobody has it; False when another holder has it now."""
        try:
            _try_lock(self._file.fileno())
        except (BlockingIOError, PermissionError):
            return False
        return True

    def close(self) -> None:
        """Free the lock, if it was taken."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
