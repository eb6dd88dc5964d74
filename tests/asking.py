"""Asking a worker in a test: bounded in time, and with its connections closed behind it."""

from typing import Protocol

import anyio
import pytest
from tests.recorded_call import RecordedCall

from podium_workers.errors import WorkerError
from podium_workers.worker import Call, ModelSettings, Prompt, Reply


class Closable(Protocol):
    async def reply(self, prompt: Prompt, settings: ModelSettings, call: Call) -> Reply: ...

    async def aclose(self) -> None: ...


async def ask(worker: Closable, call: RecordedCall | None = None, **settings: object) -> Reply:
    """One reply to a simple question."""
    try:
        with anyio.fail_after(10):
            return await worker.reply(
                Prompt.of("What is 6 times 7?"),
                ModelSettings.model_validate(settings),
                call or RecordedCall(),
            )
    finally:
        await worker.aclose()


async def failure(worker: Closable, kind: type[WorkerError]) -> WorkerError:
    """The error of exactly that class with which the worker answers."""
    with pytest.raises(WorkerError) as caught:
        await ask(worker)
    assert type(caught.value) is kind
    return caught.value


def with_subclasses(base: type[Exception]) -> list[type[Exception]]:
    """A class of exceptions and everything below it, in a fixed order."""
    found = {base}
    for inner in base.__subclasses__():
        found.update(with_subclasses(inner))
    return sorted(found, key=repr)
