"""What the records of a job that evolves a head show, for a terminal."""

from collections.abc import Iterator

from pydantic import ValidationError

from podium_lab.train.curves import curve
from podium_lab.train.records import Generation, Look, Records
from podium_lab.train.trinity.results import COMPARISON, Comparison


def shown(records: Records, width: int) -> Iterator[str]:
    """Curve and looks of an evolution, and the comparison with other ways if one was made.

    Raises:
        TrainingError: there is no job in the folder.
    """
    if generations := records.generations():
        right = [generation.right for generation in generations]
        drawn = curve(right, 0, 1, width)
        yield f"{'right':>18}  {right[0]:6.3f} {drawn} {right[-1]:.3f}   (0 to 1)"
        yield "of what it is evolved on, by all heads of a generation, on the mean"
    yield from map(_looked, records.looks())
    if found := _compared(records):
        yield from ("", *found.table.splitlines())


def how_far(records: Records) -> str:
    """How many generations there were of how many, or what has come before them."""
    job = records.begun().job
    wanted = job.trinity.generations if job.trinity else 0
    generations = records.generations()
    if not generations and _compared(records):
        return f"heads of {wanted} generations compared with other ways"
    return f"{generations[-1].number if generations else 0} of {wanted} generations"


def line(generation: Generation) -> str:
    """One generation in one line."""
    return f"generation {generation.number}: {generation.right:.3f} right"


def _looked(look: Look) -> str:
    low, high = look.right_between
    return (
        f"{look.part}, through the server, after {look.iterations} generations: "
        f"{look.step.right:.0%} right ({low:.0%} to {high:.0%}) of {look.items} items{look.without}"
    )


def _compared(records: Records) -> Comparison | None:
    try:
        return Comparison.model_validate_json((records.folder / COMPARISON).read_bytes())
    except (FileNotFoundError, ValidationError):
        return None
