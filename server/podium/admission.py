"""Which requests can be done, and by which workers: checked before anything is stored or paid."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from podium.errors import PoolError, QuestionError, UnpricedError
from podium.plan import Step
from podium.tokens import estimate_tokens
from podium.trace import Run, RunRequest
from podium.window import prompt_budget
from podium_workers.errors import PoolSelectionError
from podium_workers.pool import Pool
from podium_workers.worker import WorkerCard

_AROUND = 200
"""Tokens that instructions and a subtask take around a question."""
_LONGEST_TOKEN = 16
"""Characters that a token has at most, on the average of any text."""


@dataclass(frozen=True)
class Admission:
    """The pool of this process, and what it may be used for."""

    pool: Pool
    money_is_limited: bool
    """Whether there is a limit in money for every run: then prices have to be known."""

    def allowed(self, request: RunRequest) -> Pool:
        """The workers that a request allows.

        Raises:
            PoolError: an unknown name, or nothing left.
            UnpricedError: none that is meant has a known price, and money is limited.
        """
        pool = self._chosen(request)
        unpriced = [card.name for card in self._unpriced(request)]
        if unpriced and not request.allow_unpriced:
            named = {*request.workers, request.conductor}
            if set(unpriced).issuperset(pool.names) or named.intersection(unpriced):
                raise UnpricedError(unpriced)
            pool = pool.allowed(exclude=unpriced)
        everyone = [worker.card.name for worker in pool.everyone]
        if request.conductor and request.conductor not in everyone:
            raise PoolError(
                f"conductor: {request.conductor!r} is not in this run's pool; it has "
                f"{', '.join(everyone)}."
            )
        return pool

    def _chosen(self, request: RunRequest) -> Pool:
        try:
            return self.pool.allowed(
                workers=request.workers, exclude=request.exclude, local_only=request.local_only
            )
        except PoolSelectionError as error:
            raise PoolError(str(error)) from None

    def _unpriced(self, request: RunRequest) -> list[WorkerCard]:
        """Workers of a request whose price is unknown although money is limited."""
        if request.max_usd is None and not self.money_is_limited:
            return []
        chosen = self._chosen(request).everyone
        return [worker.card for worker in chosen if worker.card.price is None]

    def has_pool_of(self, run: Run) -> bool:
        """Whether this process has the workers that a run was made for, and their keys."""
        cards = run.pool if run.planner is None else (*run.pool, run.planner)
        mine = {(it.card.name, it.card.kind, it.card.model) for it in self.pool.everyone}
        theirs = {(card.name, card.kind, card.model) for card in cards}
        return theirs <= mine and self.pool.has_keys({card.name for card in cards})

    def left_out(self, request: RunRequest) -> tuple[str, ...]:
        """What to say of workers that could not take part since their price is unknown."""
        names = [card.name for card in self._unpriced(request)]
        if not names or request.allow_unpriced:
            return ()
        return (f"Left out, since money is limited and their price unknown: {', '.join(names)}.",)

    def check_size(self, request: RunRequest) -> None:
        """Refuse a question that no worker could read whole.

        Raises:
            QuestionError: it is empty or too long.
        """
        if not request.question.strip():
            raise QuestionError("question", "is empty; type what you want to know.")
        roomiest = max(self.allowed(request).cards, key=prompt_budget)
        most = prompt_budget(roomiest) - min(_AROUND, prompt_budget(roomiest) // 2)
        # Counting millions of characters would hold up the other runs; no token is that long.
        certainly = len(request.question) // _LONGEST_TOKEN
        tokens = certainly if certainly > most else estimate_tokens(request.question)
        if tokens > most:
            raise QuestionError(
                "question",
                f"has about {tokens} tokens, but the roomiest worker ({roomiest.name}) takes "
                f"{most}; shorten it, give the long part as a file, or use a worker with a larger "
                "window.",
            )


def request_key(run: Run, kind: str, steps: Sequence[Step]) -> str:
    """Equal for requests that ask the same of the same team for the same principal."""
    parts = [kind, run.principal, run.request.model_dump_json(), *(card.name for card in run.pool)]
    parts += [step.model_dump_json() for step in steps]
    # Conductors that are given by a path may have the same name.
    parts += [f"{run.planner.name} {run.planner.model}"] if run.planner else []
    hashed = hashlib.sha256()
    for part in parts:
        hashed.update(hashlib.sha256(part.encode()).digest())
    return hashed.hexdigest()
