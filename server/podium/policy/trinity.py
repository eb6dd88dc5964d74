"""TRINITY: an evolved head plays turn by turn, one worker in one role each (papers.md 2.1-2.2).

The head reads the hidden state of a small model after the transcript. A Thinker suggests, a Worker
works, a Verifier accepts or rejects; what is accepted is the Worker's reply. The most likely choice
is taken.
"""

import json
from dataclasses import dataclass
from typing import Protocol

from podium.errors import PoolError
from podium.plan import Accept, Cut, Plan, Proposal, Step
from podium.policy import Ask, State
from podium.policy.head import Head, Role, softmax
from podium.policy.turns import TURNS, Said, Standing, role_of, subtask, texts_hash, view
from podium.window import shorten

QUESTION_TOKENS = 1200
"""Tokens of the question that the coordinator reads; the rest is cut out, and the run says so."""
EARLIER_TOKENS = 250
"""The same for an earlier exchange that the question follows."""
THOUGHT_TOKENS = 250
"""The same for each reply of a Worker."""


class HiddenStates(Protocol):
    """What a small model makes of a text."""

    @property
    def model(self) -> str:
        """Whose states they are, as it was named."""
        ...

    async def __call__(self, text: str) -> list[float]:
        """The state after *text*.

        Raises:
            WorkerError: the model is not here, or cannot be asked.
        """
        ...


@dataclass(frozen=True)
class Trinity:
    """Proposes one step a round, and accepts what a Verifier accepts."""

    head: Head
    states: HiddenStates
    rounds: int = TURNS
    """Turns at most; they are the rounds of a run, whatever it was asked with."""

    async def propose(self, state: State, ask: Ask) -> Proposal:
        """The next turn, or the Worker's reply that is the answer.

        An episode that comes to no answer is ended by one worker that answers alone: where a
        Verifier is chosen before there is anything to verify, and at the last turn.

        Raises:
            WorkerError: the small model cannot be asked.
            PoolError: no worker of the head may work, or none has given an answer.
        """
        standing = standing_of(state)
        if isinstance(standing, Accept):
            return Proposal(next=standing, source="fixed", prompt_hash=texts_hash())
        request = state.request
        text, cuts = transcript(request.question, standing, earlier=request.earlier)
        workers, roles = self.head.logits(await self.states(text))
        worker, role = self._worker(state, workers), standing.role(roles)
        ends = _ends(state, standing, role)
        step = Step(
            worker=worker,
            subtask=subtask("worker" if ends else role),
            access=tuple(said.number for said in standing.read),
        )
        plan = Plan(steps=(step,), first=state.next_step, inner=role != "worker" and not ends)
        return Proposal(
            next=plan,
            source="fallback" if ends else "model",
            raw_text=self._told(worker, role, workers, roles),
            prompt_hash=texts_hash(),
            cuts=cuts,
            refused=(ends,) if ends else (),
        )

    def _worker(self, state: State, logits: list[float]) -> str:
        """The likeliest of the workers that this run allows."""
        names = self.head.workers
        allowed = [place for place, name in enumerate(names) if name in state.pool.names]
        if not allowed:
            raise PoolError(
                f"The coordinator knows {', '.join(names)}, and this run's pool has "
                f"{', '.join(state.pool.names)}: allow one that it knows, or use another strategy."
            )
        return names[max(allowed, key=lambda place: logits[place])]

    def _told(self, worker: str, role: Role, workers: list[float], roles: list[float]) -> str:
        """What was chosen, and how likely everything was."""
        of_workers = zip(self.head.workers, softmax(workers), strict=True)
        of_roles = zip(self.head.roles, softmax(roles), strict=True)
        chosen = {
            "role": role,
            "worker": worker,
            "roles": {name: round(share, 3) for name, share in of_roles},
            "workers": {name: round(share, 3) for name, share in of_workers},
        }
        return json.dumps(chosen, ensure_ascii=False)


def standing_of(state: State) -> Standing | Accept:
    """How a run stands after its turns, or which step is its answer.

    Raises:
        PoolError: it is over without an answer.
    """
    standing = Standing()
    if not state.rounds:
        return standing
    for found in state.rounds:
        for result in found.results:
            if not result.finished:
                return _answer(state, standing)
            said = Said(number=result.number, role=role_of(result.subtask), text=result.reply)
            following = standing.after(said)
            if following == "accepted" and standing.thoughts:
                return _answer(state, standing)
            standing = standing if following == "accepted" else following
    is_over = state.rounds_left <= 0 or state.rounds[-1].proposal.source == "fallback"
    return _answer(state, standing) if is_over else standing


def transcript(
    question: str, standing: Standing, *, earlier: str = ""
) -> tuple[str, tuple[Cut, ...]]:
    """What the coordinator reads, and what had to be cut for it; in its training as well."""
    shown: list[str] = []
    cuts: list[Cut] = []
    parts = [("earlier", earlier, EARLIER_TOKENS)] if earlier else []
    parts.append(("question", question, QUESTION_TOKENS))
    parts += [(f"step:{said.number}", said.text, THOUGHT_TOKENS) for said in standing.thoughts]
    for part, text, most in parts:
        kept, size = shorten(text, most)
        shown.append(kept)
        if size < len(text):
            cuts.append(Cut(part=part, given=len(text), sent=size))
    before = len(parts) - len(standing.thoughts)
    return view("\n\n".join(shown[:before]), shown[before:]), tuple(cuts)


def _ends(state: State, standing: Standing, role: Role) -> str:
    """Why an episode ends without an answer of its own; empty where it goes on."""
    if standing.thoughts or role == "worker":
        return ""
    if role == "verifier":
        return "The coordinator chose a Verifier before there was an answer to verify."
    is_last = state.rounds_left <= 1 or state.steps_left == 1
    return "The coordinator's last turn brought no answer." if is_last else ""


def _answer(state: State, standing: Standing) -> Accept:
    if standing.thoughts:
        return Accept(step=standing.thoughts[-1].number)
    reasons = {
        f"{failed.worker}: {failed.message}"
        for result in state.results
        for failed in result.failures
    }
    raise PoolError(" ".join(["No worker gave an answer.", *sorted(reasons)]))
