"""Workers that answer an item as they did when they were asked about it alone.

Rollouts word their subtasks anew each time, so that replies that were kept word for word would
seldom be given again, and live models would be asked tens of thousands of times. What `podium train
profile` has kept stands in for them: whatever a step asks, its worker gives its own answer to the
question. So a policy learns whom to ask, not how, and what a later step makes of an earlier one is
left out; for that the workers have to answer live.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from podium_lab.train.simulated import QUESTION
from podium_workers.cassette import Cassette, load_cassette
from podium_workers.errors import NotRecordedError
from podium_workers.pool import Pool
from podium_workers.scripted import Line, ScriptedWorker
from podium_workers.worker import Prompt, WorkerCard

REPLIES = "replies.jsonl"
"""What a job keeps of workers that answer live, in its folder: a cassette."""


def profiled_pool(folder: Path) -> Pool:
    """The workers of the job in *folder*, for which `podium train profile` was run.

    Raises:
        ManifestError: there is no cassette in that file.
    """
    cassette = load_cassette(folder / REPLIES)
    workers = tuple(_worker(card, _answers(cassette, card)) for card in cassette.pool.workers)
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


def _answers(cassette: Cassette, card: WorkerCard) -> Mapping[str, str]:
    """What a worker has said to each question, the first time."""
    found: dict[str, str] = {}
    for call in cassette.calls:
        asked = QUESTION.search(call.prompt.messages[-1].text)
        if asked and call.reply and call.worker == card.name:
            found.setdefault(asked[2], call.reply.text)
    return found


def _worker(card: WorkerCard, answers: Mapping[str, str]) -> ScriptedWorker:
    def reply(prompt: Prompt) -> Line:
        asked = QUESTION.search(prompt.messages[-1].text)
        answer = answers.get(asked[2]) if asked else None
        return answer or NotRecordedError(
            f"{card.name} was not asked about this question; `podium train profile` asks it."
        )

    return ScriptedWorker(card, reply)
