"""Asking a live Podium from a benchmark: real models answer, the ledger keeps every run."""

from podium.cli.compose import Podium
from podium.trace import RunRequest, ignore
from podium.views import RunView, view

WHOLE = 100_000
"""Characters of replies that are shown."""


async def ask(podium: Podium, request: RunRequest) -> RunView:
    """The run of *request*, as far as it came.

    Raises:
        PodiumError: the request cannot be done as it is.
    """
    run = await podium.orchestrator.create(request, principal="bench")
    run = await podium.orchestrator.answer(run, ignore)
    return await view(podium.store, run, reply_characters=WHOLE)
