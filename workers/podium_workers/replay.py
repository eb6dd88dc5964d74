"""Workers around a cassette: one that records what another replies, one that gives it again."""

import time
from pathlib import Path

import anyio
from pydantic import JsonValue

from podium_workers.cassette import (
    Cassette,
    Failed,
    Recorded,
    Recorder,
    key_of,
    load_cassette,
    marks_of,
    with_marks,
)
from podium_workers.errors import NotRecordedError, WorkerError
from podium_workers.pool import Checkable, Keyed, Pool
from podium_workers.worker import (
    REPLAYED,
    Call,
    ModelSettings,
    Price,
    Prompt,
    Reply,
    Shape,
    Worker,
    WorkerCard,
)

_FREE = Price(input=0, output=0)
_START, _END = 40, 80
"""Characters of a prompt that tell which one it was; its end holds what is asked."""


async def _look_at(worker: Worker) -> str:
    if isinstance(worker, Checkable):
        return await worker.check()
    return "not checked: it shows only when it is asked"


def _has_key(worker: Worker) -> bool:
    return worker.has_key if isinstance(worker, Keyed) else True


class RecordingWorker:
    """A worker whose replies and failures are written to a cassette."""

    def __init__(self, worker: Worker, recorder: Recorder, shape: Shape | None = None) -> None:
        self._worker = worker
        self._recorder = recorder
        self._shape = shape

    @property
    def card(self) -> WorkerCard:
        return self._worker.card

    @property
    def has_key(self) -> bool:
        return _has_key(self._worker)

    async def reply(self, prompt: Prompt, settings: ModelSettings, call: Call) -> Reply:
        """The worker's own reply.

        Raises:
            WorkerError: as the worker does.
        """
        started = anyio.current_time()
        try:
            reply = await self._worker.reply(prompt, settings, call)
        except WorkerError as error:
            await self._keep(prompt, settings, started, failure=Failed.of(error))
            raise
        await self._keep(prompt, settings, started, reply=reply)
        return reply

    async def check(self) -> str:
        """The worker's own cheap look at itself.

        Raises:
            WorkerError: as the worker does.
        """
        return await _look_at(self._worker)

    async def _keep(
        self,
        prompt: Prompt,
        settings: ModelSettings,
        started: float,
        *,
        reply: Reply | None = None,
        failure: Failed | None = None,
    ) -> None:
        recorded = Recorded(
            key=key_of(self.card, prompt, settings, self._shape),
            worker=self.card.name,
            model=self.card.model,
            prompt=prompt,
            settings=settings,
            reply=reply,
            failure=failure,
            seconds=anyio.current_time() - started,
            at=time.time(),
        )
        await self._recorder.keep(recorded)


class ReplayWorker:
    """Gives again what a cassette holds; what it lacks is an error, or asked of *live*.

    It costs nothing and says so: the record of the call has `replayed`, the tokens are those of
    the recording, and the price is zero. Nor is it limited in its rate, since nothing is sent.
    """

    def __init__(
        self,
        card: WorkerCard,
        cassette: Cassette,
        *,
        shape: Shape | None = None,
        name: str = "",
        live: Worker | None = None,
    ) -> None:
        self._recorded_as = card
        self._cassette = cassette
        self._shape = shape
        self._live = live
        free = {"name": name or card.name, "price": _FREE, "rates": None}
        self._card = live.card if live else card.model_copy(update=free)

    @classmethod
    def of(cls, file: str, worker: str, *, name: str) -> "ReplayWorker":
        """What the cassette in *file* holds of *worker*, as a worker with that name.

        Raises:
            ManifestError: the file is no cassette, or none of that worker.
        """
        cassette = load_cassette(Path(file))
        shape = cassette.pool.shapes.get(worker)
        return cls(cassette.card(worker), cassette, shape=shape, name=name)

    @property
    def card(self) -> WorkerCard:
        return self._card

    @property
    def has_key(self) -> bool:
        """False without a live worker: what others began live is not to be ended from here."""
        return self._live is not None and _has_key(self._live)

    async def reply(self, prompt: Prompt, settings: ModelSettings, call: Call) -> Reply:
        """The next recorded reply to that prompt; the last one repeats.

        Raises:
            NotRecordedError: there is none, and nobody to ask instead.
            WorkerError: the recorded failure.
        """
        key = self._cassette.key(self._recorded_as, prompt, settings, self._shape)
        recorded = self._cassette.take(key)
        if recorded is None:
            if self._live is None:
                raise self._missing(prompt)
            return await self._live.reply(prompt, settings, call)
        if recorded.failure:
            raise recorded.failure.error
        return await self._again(recorded, prompt, settings, call)

    async def check(self) -> str:
        """Where its replies come from.

        Raises:
            WorkerError: the worker that is asked for what is missing would not answer.
        """
        told = f"answers from {self._cassette.path}"
        return f"{told}, then {await _look_at(self._live)}" if self._live else told

    async def _again(
        self, recorded: Recorded, prompt: Prompt, settings: ModelSettings, call: Call
    ) -> Reply:
        reply = _for_this(prompt, recorded)
        asked: dict[str, JsonValue] = settings.model_dump(mode="json", exclude_none=True)
        request = {"model": recorded.model, **asked, REPLAYED: True, "recorded_at": recorded.at}
        async with call.attempt(request) as attempt:
            await attempt.usage(reply.usage)
            await attempt.settle(reply)
            return reply

    def _missing(self, prompt: Prompt) -> NotRecordedError:
        words = " ".join(prompt.messages[-1].text.split())
        if len(words) > _START + _END:
            words = f"{words[:_START]} … {words[-_END:]}"
        return NotRecordedError(
            f"{self._cassette.path} holds no reply of {self._recorded_as.name!r} to the prompt "
            f"“{words}”; record it again, or let `replay_misses` be `live`."
        )


def _for_this(prompt: Prompt, recorded: Recorded) -> Reply:
    """The recorded reply, free of charge, with this prompt's marks where it repeats its own's."""
    assert recorded.reply is not None, "what is no failure is a reply"
    marks = dict(zip(marks_of(recorded.prompt), marks_of(prompt), strict=True))
    return recorded.reply.model_copy(
        update={
            "text": with_marks(recorded.reply.text, marks),
            "reasoning": with_marks(recorded.reply.reasoning, marks),
            "usage": recorded.reply.usage.model_copy(update={"cost_usd": 0.0}),
        }
    )


def replay_pool(path: Path) -> Pool:
    """The pool that a cassette was recorded of, given again from it alone.

    Raises:
        ManifestError: there is no cassette in that file.
    """
    cassette = load_cassette(path)
    recorded = cassette.pool

    def again(card: WorkerCard) -> ReplayWorker:
        return ReplayWorker(card, cassette, shape=recorded.shapes.get(card.name))

    return Pool(
        workers=tuple(map(again, recorded.workers)),
        conductor=recorded.conductor,
        asked=recorded.asked,
        asks=recorded.asks,
        planner=again(recorded.planner) if recorded.planner else None,
        shapes=recorded.shapes,
    )


async def taped(pool: Pool, *, recorder: Recorder | None, cassette: Cassette | None) -> Pool:
    """*pool* as it is recorded, behind what a cassette already holds of it.

    Raises:
        ManifestError: the file of the recording cannot be used.
    """
    if recorder:
        await recorder.begin(pool)

    def wrap(worker: Worker) -> Worker:
        shape = pool.shapes.get(worker.card.name)
        inner = RecordingWorker(worker, recorder, shape) if recorder else worker
        if cassette is None:
            return inner
        return ReplayWorker(worker.card, cassette, shape=shape, live=inner)

    return pool.wrapped(wrap)
