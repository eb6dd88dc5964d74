"""A `Call` that keeps in memory what the server would write to its ledger."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from pydantic import JsonValue

from podium_workers.errors import WorkerError
from podium_workers.worker import Reply, Usage


@dataclass
class RecordedAttempt:
    """One attempt, as far as it came."""

    request: Mapping[str, JsonValue]
    request_id: str | None = None
    usages: list[Usage] = field(default_factory=list[Usage])
    reply: Reply | None = None
    error: WorkerError | None = None
    ended: bool = False

    async def sent(self, request_id: str) -> None:
        assert not self.ended
        self.request_id = request_id

    async def usage(self, usage: Usage) -> None:
        assert not self.ended
        self.usages.append(usage)

    async def settle(self, reply: Reply) -> None:
        assert not self.ended
        self.reply = reply


@dataclass
class RecordedCall:
    """The attempts of one call, oldest first."""

    deadline: float = float("inf")
    resume_id: str | None = None
    attempts: list[RecordedAttempt] = field(default_factory=list[RecordedAttempt])

    @asynccontextmanager
    async def attempt(self, request: Mapping[str, JsonValue]) -> AsyncGenerator[RecordedAttempt]:
        attempt = RecordedAttempt(dict(request))
        self.attempts.append(attempt)
        try:
            yield attempt
        except WorkerError as error:
            attempt.error = error
            raise
        finally:
            attempt.ended = True
