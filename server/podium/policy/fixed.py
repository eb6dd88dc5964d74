"""Policies of a fixed shape: the baselines, open to users as strategies."""

from dataclasses import dataclass

from podium.plan import Accept, Plan, Proposal, Step
from podium.policy import Ask, State, accept_last
from podium.prompting import PROMPTS, fill, prompt_hash


@dataclass(frozen=True)
class Single:
    """One worker answers alone: the first allowed one of those asked for, else the pool's first."""

    async def propose(self, state: State, ask: Ask) -> Proposal:
        if state.rounds:
            return _accepted(state, "single")
        step = Step(worker=_named(state)[0], subtask=fill("single"))
        plan = Plan(steps=(step,))
        return Proposal(next=plan, source="fixed", prompt_hash=prompt_hash("single"))


@dataclass(frozen=True)
class Chain:
    """A planner, a solver and a checker, each reading the steps before it.

    With `workers` of the request given, they take the parts in that order and the last one takes
    what is left; otherwise the pool's first worker, its strongest, does all three.
    """

    async def propose(self, state: State, ask: Ask) -> Proposal:
        if state.rounds:
            return _accepted(state, "chain")
        subtasks = [part.strip() for part in PROMPTS["chain"].split("\n---\n")]
        names = _named(state)
        steps = tuple(
            Step(
                worker=names[min(place, len(names) - 1)],
                subtask=subtask,
                access=tuple(range(place)),
            )
            for place, subtask in enumerate(subtasks)
        )
        plan = Plan(steps=steps)
        return Proposal(next=plan, source="fixed", prompt_hash=prompt_hash("chain"))


def _named(state: State) -> tuple[str, ...]:
    asked_for = (name for name in state.request.workers if name in state.pool.names)
    return tuple(asked_for) or state.pool.names[:1]


def _accepted(state: State, prompt: str) -> Proposal:
    accepted: Accept = accept_last(state)
    return Proposal(next=accepted, source="fixed", prompt_hash=prompt_hash(prompt))
