"""A plan as data: which worker does which subtask and may read which earlier steps.

Steps are numbered from 0 through the whole run, so a plan knows the number of its first step and
access lists reach into earlier rounds. Text forms live in `plan_text`.
"""

from typing import Literal, Self

from pydantic import Field, model_validator

from podium.errors import PlanError
from podium_workers.worker import Frozen, Text

Access = Literal["all"] | tuple[int, ...]
"""`()` reads nothing, `"all"` every earlier step of the run, else the named step numbers."""

PODIUM = "podium"
"""The worker name that means: the conductor itself, as a nested run."""
CALLER = "caller"
"""The worker name that means: whoever called Podium (the assistant in the IDE) does this step."""


class Step(Frozen):
    """One subtask for one worker."""

    worker: str = Field(min_length=1)
    """Name of a worker of the pool, or `podium` or `caller`."""
    subtask: Text = Field(min_length=1)
    """What to do, in natural language."""
    access: Access = ()
    """Which earlier steps it may read, by run-wide number."""


class Plan(Frozen):
    """Steps in order.

    Raises:
        PlanError: a step reads a step that is not earlier than itself, or there is no step.
    """

    steps: tuple[Step, ...]
    first: int = Field(default=0, ge=0)
    """Run-wide number of the first step."""
    inner: bool = False
    """Whether even its last step is done for later ones, so that no reply goes to the user."""

    @model_validator(mode="after")
    def _reads_only_earlier_steps(self) -> Self:
        if not self.steps:
            raise PlanError("empty", "A plan needs at least one step.")
        for number, step in self.numbered():
            if step.access == "all":
                continue
            for read in step.access:
                if not 0 <= read < number:
                    raise PlanError(
                        "access",
                        f"Step {number} reads step {read}, which is not an earlier step; "
                        f"name only steps from 0 to {number - 1}."
                        if number
                        else f"Step 0 reads step {read}, but nothing comes before step 0.",
                    )
        return self

    def numbered(self) -> tuple[tuple[int, Step], ...]:
        """(run-wide number, step) in order."""
        return tuple(enumerate(self.steps, start=self.first))

    def step(self, number: int) -> Step:
        """The step with that run-wide number."""
        return self.steps[number - self.first]

    def reads(self, number: int) -> tuple[int, ...]:
        """Run-wide numbers that a step may read, ascending and without repeats."""
        access = self.step(number).access
        return tuple(range(number)) if access == "all" else tuple(sorted(set(access)))

    @property
    def numbers(self) -> range:
        return range(self.first, self.first + len(self.steps))


class Cut(Frozen):
    """A part of a prompt that was shortened to fit a worker's window."""

    part: str
    """`question`, `file:NAME` or `step:N`."""
    given: int
    """Characters that the part has."""
    sent: int
    """Characters that the worker saw."""


class Accept(Frozen):
    """The policy is satisfied: the named step's reply is the answer."""

    step: int = Field(ge=0)


PlanSource = Literal["model", "fallback", "fixed", "caller"]
"""Who wrote a plan: a model, nobody (the pool's first worker alone), a fixed shape, the user."""


class Proposal(Frozen):
    """What a policy wants next; stored before anything is executed and replayed on resume."""

    next: Plan | Accept
    source: PlanSource
    raw_text: str = ""
    """The model's own text, when a model proposed."""
    worker: str = ""
    """The worker that wrote it, when a model proposed."""
    failed: tuple[str, ...] = ()
    """Conductors that gave no reply before, each with why."""
    prompt_hash: str = ""
    """Hash of the prompt text that shaped the proposal, to compare runs across edits."""
    cuts: tuple[Cut, ...] = ()
    """What the conductor could not read whole."""
    remark: str = ""
    """What the reader has to know of who wrote it."""
    refused: tuple[str, ...] = ()
    """Why earlier tries of this proposal could not be read, oldest first."""
