"""One thing that `podium doctor` has looked at."""

from typing import Literal

from podium_workers.worker import Frozen

Level = Literal["ok", "note", "problem"]
"""`problem`: no question can be asked until it is mended."""


class Check(Frozen):
    """One thing that was looked at."""

    area: str
    level: Level
    found: str
    remedy: str = ""
    """What to type next; empty when there is nothing to do."""
