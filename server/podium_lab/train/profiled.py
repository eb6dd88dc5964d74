"""Workers that answer an item as they did when they were asked about it alone.

Rollouts word their subtasks anew each time, so that replies that were kept word for word would
seldom be given again, and live models would be asked tens of thousands of times. What `podium train
profile` has kept stands in for them: whatever a step asks, its worker gives its own answer to the
question. So a policy learns whom to ask, not how, and what a later step makes of an earlier one is
left out; for that the workers have to answer live.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import JsonValue

from podium_lab.train.simulated import QUESTION
from podium_workers.cassette import Cassette, load_cassette
from podium_workers.errors import NotRecordedError
from podium_workers.pool import Pool
from podium_workers.worker import Call, ModelSettings, Prompt, Reply, WorkerCard

REPLIES = "replies.jsonl"
"""What a job keeps of workers that answer live, in its folder: a cassette."""


def profiled_pool(folder: Path) -> Pool:
    """The workers of the job in *folder*, for which `podium train profile` was run.

    Raises:
        ManifestError: there is no cassette in that file.
    """
    cassette = load_cassette(folder / REPLIES)
    workers = tuple(
        ProfiledWorker(card, _answers(cassette, card)) for card in cassette.pool.workers
    )
    return Pool(workers=workers, conductor=workers[0].card.name)


def profiled_questions(folder: Path, only: Sequence[str] = ()) -> frozenset[str]:
    """The questions that every worker has answered there, or each of those in *only*.

    Raises:
        ManifestError: there is no cassette in that file, or it lacks a worker.
    """
    cassette = load_cassette(folder / REPLIES)
    cards = [cassette.card(name) for name in only] or cassette.pool.workers
    first, *others = (frozenset(_answers(cassette, card)) for card in cards)
    return first.intersection(*others)


def _answers(cassette: Cassette, card: WorkerCard) -> Mapping[str, Reply]:
    """What a worker has said to each question, the first time."""
    found: dict[str, Reply] = {}
    for call in cassette.calls:
        asked = QUESTION.search(call.prompt.messages[-1].text)
        if asked and call.reply and call.worker == card.name:
            found.setdefault(asked[2], call.reply)
    return found


@dataclass(frozen=True)
class ProfiledWorker:
    """Gives its own answer to the question again, with the tokens that it took, for nothing."""

    card: WorkerCard
    answers: Mapping[str, Reply]
    """By question."""

    async def reply(self, prompt: Prompt, settings: ModelSettings, call: Call) -> Reply:
        """The answer to the question that stands in the prompt.

        Raises:
            NotRecordedError: it was not asked about that one.
        """
        asked = QUESTION.search(prompt.messages[-1].text)
        answer = self.answers.get(asked[2]) if asked else None
        if answer is None:
            raise NotRecordedError(
                f"{self.card.name} was not asked about this question; `podium train profile` asks "
                "it."
            )
        free = answer.usage.model_copy(update={"cost_usd": 0.0})
        reply = answer.model_copy(update={"usage": free})
        given: dict[str, JsonValue] = settings.model_dump(mode="json", exclude_none=True)
        async with call.attempt({"model": answer.model, **given, "replayed": True}) as attempt:
            await attempt.usage(free)
            await attempt.settle(reply)
            return reply
