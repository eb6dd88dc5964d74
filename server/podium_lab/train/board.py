"""What TensorBoard is shown of a job's records: numbers by name. Knows no training library."""

from collections.abc import Iterator

from pydantic import BaseModel, JsonValue

FOLDER = "board"
"""Of TensorBoard's files, in the job's folder."""


def scalars(record: BaseModel) -> dict[str, float]:
    """All numbers of a record, those of its parts as `part/name`; what is unknown is left out."""
    return dict(_numbers("", record.model_dump(mode="json")))


def _numbers(name: str, value: JsonValue) -> Iterator[tuple[str, float]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _numbers(f"{name}/{key}" if name else str(key), inner)
    elif isinstance(value, int | float) and not isinstance(value, bool) and name != "iteration":
        yield name, float(value)
