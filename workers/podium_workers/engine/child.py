"""A server process that the engine runs: started, watched, measured, stopped.

What it serves is not this module's matter. It ends with the supervisor: its input closes when the
supervisor dies, and `die_with` adds the stronger bond that Linux offers.
"""

import os
import signal
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from threading import Thread

import anyio
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

_STOP_WITHIN_S = 3.0
_LONGEST_LINE = 1 << 16
_LOG_BYTES = 1 << 20
_PR_SET_PDEATHSIG = 1


class Child:
    """A running server process."""

    def __init__(
        self,
        process: Process,
        *,
        stop_within_s: float = _STOP_WITHIN_S,
        leads_group: bool = False,
    ) -> None:
        assert process.stdout is not None
        self._process = process
        self._stop_within_s = stop_within_s
        self._leads_group = leads_group
        self._output = BufferedByteReceiveStream(process.stdout)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        return self._process.returncode is not None

    async def read_line(self) -> bytes:
        """The next line that it prints; empty when it ended instead."""
        try:
            return await self._output.receive_until(b"\n", _LONGEST_LINE)
        except (anyio.EndOfStream, anyio.IncompleteRead):
            return b""

    async def wait(self) -> int:
        """Its exit code, once it has ended; a negative one is the signal that ended it."""
        return await self._process.wait()

    async def stop(self) -> None:
        """End it: asked first, then without asking; with it all processes of the group it leads."""
        if not self.has_ended:
            self._process.terminate()
            with anyio.move_on_after(self._stop_within_s):
                await self.wait()
        if self._leads_group and sys.platform != "win32":
            with suppress(ProcessLookupError):  # nobody is left of it
                os.killpg(self.pid, signal.SIGKILL)
        if not self.has_ended:
            self._process.kill()
            await self.wait()


@asynccontextmanager
async def open_child(
    command: Sequence[str],
    *,
    log: Path,
    first_line: bytes,
    stop_within_s: float = _STOP_WITHIN_S,
    leads_group: bool = False,
) -> AsyncGenerator[Child]:
    """A process that reads *first_line*, complains into *log*, and ends with the block.

    It has *stop_within_s* seconds to end in good order. With *leads_group* it has a session of its
    own, and whatever it has started ends with it.

    Raises:
        OSError: it cannot be started.
    """
    with log.open("ab") as complaints:
        process = await anyio.open_process(
            command, stderr=complaints, cwd=log.parent, start_new_session=leads_group
        )
    async with process:
        child = Child(process, stop_within_s=stop_within_s, leads_group=leads_group)
        try:
            assert process.stdin is not None
            with suppress(anyio.BrokenResourceError):  # that it is dead shows at the next read
                await process.stdin.send(first_line + b"\n")
            yield child
        finally:
            with anyio.CancelScope(shield=True):
                await child.stop()


def resident_bytes(pid: int) -> int | None:
    """Memory that a process occupies now; None where the system does not say."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]
    except (OSError, IndexError):
        return None
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def bound_log(path: Path, limit: int = _LOG_BYTES) -> None:
    """Cut a log that has grown past *limit* bytes down to its newer half.

    Those who write to it have opened it for appending, so they go on at its new end.
    """
    if not path.exists() or path.stat().st_size <= limit:
        return
    with path.open("r+b") as file:
        file.seek(-limit // 2, os.SEEK_END)
        newer = file.read()
        file.seek(0)
        file.truncate()
        file.write(newer)


def die_with(parent: int) -> Thread:
    """Called in a child: end it when the process *parent* has ended, however that happened.

    The thread that is returned runs for as long as the child does.
    """
    watch = Thread(target=_end_at_end_of_input, daemon=True)
    watch.start()
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
    return watch


def _end_at_end_of_input() -> None:
    while os.read(0, 1024):
        pass
    os._exit(0)
