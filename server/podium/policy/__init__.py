"""What decides the next plan. A `Policy` is asked with the rounds so far and proposes.

Policies know nothing of MCP, storage or execution: they see a `State` and may ask a worker.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from podium.errors import PoolError
from podium.plan import Accept, Plan, Proposal
from podium.trace import Round, RunRequest, StepResult
from podium_workers.pool import Pool
from podium_workers.worker import ModelSettings, Prompt, Reply

Ask = Callable[[str, Prompt, ModelSettings], Awaitable[Reply]]
"""Asks the named worker; every call is recorded with the round that is being proposed."""


@dataclass(frozen=True)
class State:
    """A run as a policy sees it."""

    request: RunRequest
    pool: Pool
    """Only the workers that this run allows."""
    fence: str
    seed: int
    rounds: tuple[Round, ...] = ()

    @property
    def next_step(self) -> int:
        """Run-wide number that the next plan's first step will have."""
        plans = [found.plan for found in self.rounds if found.plan]
        return plans[-1].numbers.stop if plans else 0

    @property
    def rounds_left(self) -> int:
        """Plans that may still be made; none where no step is left for one."""
        if self.steps_left == 0:
            return 0
        return self.request.rounds - len([found for found in self.rounds if found.plan])

    @property
    def steps_left(self) -> int | None:
        """Steps that the run may still be given; None means any number."""
        most = self.request.max_steps
        return None if most is None else max(0, most - self.next_step)

    @property
    def results(self) -> tuple[StepResult, ...]:
        """Newest results of all steps, by number."""
        return tuple(result for found in self.rounds for result in found.results)


class Policy(Protocol):
    """Proposes a plan, or accepts a step's reply as the answer."""

    async def propose(self, state: State, ask: Ask) -> Proposal:
        """The next plan, or which step to accept.

        Raises:
            WorkerError: no worker that could write a plan gave a reply.
            PoolError: nothing can be accepted, since no step has finished.
        """
        ...


@runtime_checkable
class Paced(Protocol):
    """A policy whose number of rounds is its own, whatever a request asks for."""

    @property
    def rounds(self) -> int:
        """Plans at most."""
        ...


def accept_last(state: State) -> Accept:
    """Accept the last step of the newest plan, or the newest finished reply if that one failed.

    Raises:
        PoolError: no step of the run has finished.
    """
    newest: Plan | None = state.rounds[-1].plan if state.rounds else None
    finished = [result.number for result in state.results if result.finished]
    if not finished:
        reasons = {
            f"{failed.worker}: {failed.message}"
            for result in state.results
            for failed in result.failures
        }
        raise PoolError("No worker gave a reply. " + " ".join(sorted(reasons)))
    last = newest.numbers[-1] if newest else finished[-1]
    return Accept(step=last if last in finished else finished[-1])
