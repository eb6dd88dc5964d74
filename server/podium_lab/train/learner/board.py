"""Writes a job's curves for TensorBoard, where that package is installed."""

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from podium_lab.train.board import FOLDER, scalars


@dataclass(frozen=True)
class Board:
    """Takes records in; without a writer it lets them go."""

    writer: Any = None

    def add(self, group: str, iteration: int, record: BaseModel) -> None:
        """Show the numbers of a record at an iteration; they are on disk when this returns."""
        if self.writer is None:
            return
        for name, value in scalars(record).items():
            self.writer.add_scalar(f"{group}/{name}", value, iteration)
        self.writer.flush()


@contextmanager
def opened_board(folder: Path, *, after: int, here: bool = True) -> Iterator[Board]:
    """The board of a job that goes on behind an iteration; what it showed later is taken back.

    It stays empty without the package `tensorboard`, and where it is not *here* that records are
    kept.
    """
    if not here or importlib.util.find_spec("tensorboard") is None:
        yield Board()
        return
    from torch.utils.tensorboard import SummaryWriter

    # The look before the first iteration is shown at 0.
    writer = SummaryWriter(str(folder / FOLDER), purge_step=after + 1 if after else 0)
    try:
        yield Board(writer)
    finally:
        writer.close()


def how_to_look(folder: Path) -> str:
    """What to type to see a job's curves."""
    if importlib.util.find_spec("tensorboard") is None:
        return "curves: `podium train status --follow`; TensorBoard is not installed here"
    command = Path(sys.executable).with_name("tensorboard")
    return f"curves: {command} --logdir {folder}, or podium train status {folder} --follow"
