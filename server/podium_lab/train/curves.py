"""Figures over time as a row of blocks, for a terminal."""

from collections.abc import Sequence

BLOCKS = " ▁▂▃▄▅▆▇█"
WIDTH = 60


def curve(values: Sequence[float | None], low: float, high: float, width: int = WIDTH) -> str:
    """Values as a row of blocks between two bounds; means where there are more than fit."""
    count = min(width, len(values))
    cells: list[str] = []
    for place in range(count):
        part = values[place * len(values) // count : (place + 1) * len(values) // count]
        known = [value for value in part if value is not None]
        if not known:
            cells.append("·")
            continue
        share = (sum(known) / len(known) - low) / (high - low) if high > low else 0.0
        cells.append(BLOCKS[1 + round(min(1.0, max(0.0, share)) * (len(BLOCKS) - 2))])
    return "".join(cells)
