"""How a head is evolved (papers.md 2.2); the defaults are what works on cached states."""

from pydantic import Field

from podium.policy.turns import TURNS
from podium_workers.worker import Frozen


class Evolution(Frozen):
    """Separable CMA-ES over the numbers of a head."""

    generations: int = Field(default=200, ge=1)
    population: int = Field(default=32, ge=4)
    """Heads of a generation; the paper has 32."""
    replications: int = Field(default=64, ge=1)
    """Episodes that each of them plays; the paper has 16, and pays for each."""
    sigma: float = Field(default=0.5, gt=0)
    """Size of the first steps. With sampled choices it also says how sure heads are at first."""
    svf: bool = False
    """Whether scales on the singular values of the model's second-to-last layer are evolved too
    (papers.md 2.1). Each candidate then has states of its own, which takes hundreds of times as
    long as looking up kept ones."""
    svf_sigma: float = Field(default=0.05, gt=0)
    """Size of the first steps of such scales; 0 is the matrix as it is."""
    sampled: bool = True
    """Whether choices are drawn by their likelihood in training; they never are in serving."""
    checkpoint_every: int = Field(default=20, ge=1)
    """Generations."""
    turns: int = Field(default=TURNS, ge=1, le=TURNS)
    """Turns that are tried out beforehand in every way. Each more asks several times as much of the
    workers, which matters where they are live; episodes of the training end there."""
    train_items: int = Field(default=96, ge=1)
    """Items of the part that is trained on, at most."""
    test_items: int = Field(default=96, ge=1)
    """Items that heads are compared on, at most."""

    @property
    def episodes(self) -> int:
        """Episodes of a whole evolution: what other ways of training are given as well."""
        return self.generations * self.population * self.replications
