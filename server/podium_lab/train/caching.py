"""Workers that are asked the same only once: a repeated plan costs nothing.

Rollouts of one group mostly ask the same of the same workers. What a worker was asked is known by
its content, whatever the run; the replies are kept in a cassette, so a job that was stopped goes on
with what it has paid for.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import anyio

from podium.cli.saying import say
from podium_workers.cassette import Cassette, Recorded, Recorder, load_cassette
from podium_workers.pool import Pool
from podium_workers.replay import RecordingWorker, ReplayWorker
from podium_workers.worker import Call, ModelSettings, Prompt, Reply, Shape, Worker, WorkerCard


class Keeping(Recorder):
    """Writes a cassette, and lets what it writes be given again at once."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, say)
        self._cassette: Cassette | None = None

    @property
    def cassette(self) -> Cassette:
        assert self._cassette is not None, "it has begun"
        return self._cassette

    async def begin(self, pool: Pool) -> None:
        """Make the file, or read what it holds already.

        Raises:
            ManifestError: it is no cassette, or cannot be written.
        """
        await super().begin(pool)
        self._cassette = await anyio.to_thread.run_sync(load_cassette, self._path)

    async def keep(self, call: Recorded) -> None:
        """Write one line; only replies are given again, since a failure may not repeat."""
        if call.failure is None:
            self.cassette.add(call)
            await super().keep(call)


@dataclass(eq=False)
class CachedWorker:
    """Asks its worker once for each content; those that ask the same meanwhile wait for it."""

    inner: Worker
    keeping: Keeping
    shape: Shape | None = None
    """Settings of its own that shape its replies."""
    hits: int = 0
    """Replies that cost nothing."""
    misses: int = 0
    _locks: dict[str, anyio.Lock] = field(default_factory=dict[str, anyio.Lock])

    @property
    def card(self) -> WorkerCard:
        return self.inner.card

    async def reply(self, prompt: Prompt, settings: ModelSettings, call: Call) -> Reply:
        """The reply that the worker gave, or now gives, to this content.

        Raises:
            WorkerError: as the worker does.
        """
        cassette = self.keeping.cassette
        key = cassette.key(self.card, prompt, settings, self.shape)
        async with self._locks.setdefault(key, anyio.Lock()):
            if cassette.has(key):
                self.hits += 1
                again = ReplayWorker(self.card, cassette, shape=self.shape)
                return await again.reply(prompt, settings, call)
            self.misses += 1
            recording = RecordingWorker(self.inner, self.keeping, self.shape)
            return await recording.reply(prompt, settings, call)


@asynccontextmanager
async def cached(pool: Pool, path: Path) -> AsyncGenerator[Pool]:
    """*pool* with replies kept in the cassette at *path*, which is made if it is not there.

    Raises:
        ManifestError: that file is something else.
    """
    keeping = Keeping(path)
    await keeping.begin(pool)
    workers = (
        CachedWorker(worker, keeping, pool.shapes.get(worker.card.name)) for worker in pool.workers
    )
    yield replace(pool, workers=tuple(workers))
