"""Measures what each piece of a job's work takes of the machine."""

import time
from dataclasses import dataclass, field

from podium_workers.worker import Frozen


class Time(Frozen):
    """What a piece of a job's work took."""

    of: str
    """What was done: opening, warm start, iteration, look, saving."""
    iteration: int = 0
    cpu_s: float
    """Seconds of processor time, all threads of the first process together."""
    wall_s: float


@dataclass
class Stopwatch:
    """Each piece of work counts from the end of the one before."""

    cpu_s: float = field(default_factory=time.process_time)
    wall_s: float = field(default_factory=time.monotonic)

    def lap(self, of: str, iteration: int = 0) -> Time:
        """What was done since the last lap; the next one begins."""
        cpu_s, wall_s = time.process_time(), time.monotonic()
        taken = Time(
            of=of, iteration=iteration, cpu_s=cpu_s - self.cpu_s, wall_s=wall_s - self.wall_s
        )
        self.cpu_s, self.wall_s = cpu_s, wall_s
        return taken
