"""The coordinator's head: a few thousand evolved numbers that choose a worker and a role.

A linear map without bias from a hidden state, set to mean 0 and deviation 1 on the states that it
was made from, to one logit for each worker and one for each role: two choices, not one over all
pairs. It is a JSON file, evaluated in plain Python. It knows nothing of where states come from.
"""

from collections.abc import Mapping, Sequence
from math import exp, sqrt
from pathlib import Path
from typing import Literal, Self, get_args

from pydantic import Field, JsonValue, ValidationError, model_validator

from podium.errors import PoolError, SettingsError
from podium_workers.worker import Frozen

Role = Literal["thinker", "worker", "verifier"]
ROLES: tuple[Role, ...] = get_args(Role)


class Head(Frozen):
    """A head, and what it was made with."""

    version: Literal[1] = 1
    model: str = Field(min_length=1)
    """Whose hidden states it reads: a name of `podium models list`, or the path of a GGUF file."""
    sha256: str = ""
    """Digest of that model's file, where the catalogue names one."""
    token: Literal["penultimate"] = "penultimate"
    """Whose state it is."""
    prompts: str
    """Hash of the texts that its workers were asked with, and of how a transcript is shown."""
    workers: tuple[str, ...] = Field(min_length=1)
    roles: tuple[Role, ...] = ROLES
    mean: tuple[float, ...] = Field(min_length=1)
    deviation: tuple[float, ...]
    weights: tuple[tuple[float, ...], ...]
    """A row for each worker, then one for each role."""
    made: Mapping[str, JsonValue] = Field(default_factory=dict)
    """How it was made: for its reader alone."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.roles != ROLES:
            raise ValueError(f"roles: has to be {', '.join(ROLES)}, in this order")
        if len(set(self.workers)) != len(self.workers):
            raise ValueError("workers: a name comes twice")
        if len(self.weights) != len(self.workers) + len(self.roles):
            raise ValueError("weights: has to have a row for each worker and one for each role")
        size = len(self.mean)
        if len(self.deviation) != size or any(len(row) != size for row in self.weights):
            raise ValueError("weights: every row has to be as long as mean and deviation")
        if not all(value > 0 for value in self.deviation):
            raise ValueError("deviation: has to be above 0 everywhere")
        return self

    def logits(self, state: Sequence[float]) -> tuple[list[float], list[float]]:
        """Those of the workers and those of the roles.

        Raises:
            PoolError: the state is that of another model.
        """
        size = len(self.mean)
        if len(state) != size:
            raise PoolError(
                f"The coordinator's head reads states of {size} numbers, and {self.model} gives "
                f"{len(state)}: it was made with another model."
            )
        scale = sqrt(size)
        features = [
            (value - mean) / (deviation * scale)
            for value, mean, deviation in zip(state, self.mean, self.deviation, strict=True)
        ]
        found = [
            sum(weight * value for weight, value in zip(row, features, strict=True))
            for row in self.weights
        ]
        return found[: len(self.workers)], found[len(self.workers) :]


def softmax(logits: Sequence[float]) -> list[float]:
    """Logits as probabilities."""
    top = max(logits)
    powers = [exp(value - top) for value in logits]
    return [power / sum(powers) for power in powers]


def load_head(path: Path) -> Head:
    """The head in a file.

    Raises:
        SettingsError: there is none, or it is no head.
    """
    try:
        return Head.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        raise SettingsError(f"coordinator: there is no file {path}.") from None
    except OSError as error:
        raise SettingsError(f"coordinator: {path} cannot be read: {error}.") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        why = first["msg"].removeprefix("Value error, ")
        what = f"{where}: {why}" if where else why
        raise SettingsError(f"coordinator: {path} is no coordinator's head: {what}.") from None
