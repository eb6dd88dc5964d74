"""What machine the figures are from: without it they compare with nothing."""

import os
import platform
import sqlite3
import statistics
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

Facts = dict[str, str | int | float]


def facts(place: Path) -> Facts:
    """Cores, versions, load, and what it costs to flush 4 KiB to the disk at *place*."""
    return {
        "cores": os.cpu_count() or 0,
        "system": platform.system(),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "podium": version("podium"),
        "flush_ms": flush_ms(place),
        "load": load(),
    }


def load() -> float:
    """Processes that want to run, on the average of the last minute; 0 where it is not known."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else 0.0


def flush_ms(place: Path, times: int = 50) -> float:
    """Milliseconds of one write of 4 KiB that is flushed to the disk: the median."""
    found: list[float] = []
    with tempfile.TemporaryFile(dir=place) as file:
        for _ in range(times):
            begun = time.perf_counter()
            file.write(b"x" * 4096)
            file.flush()
            os.fsync(file.fileno())
            found.append((time.perf_counter() - begun) * 1000)
    return round(statistics.median(found), 3)
