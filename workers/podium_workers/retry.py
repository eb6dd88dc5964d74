"""The one place that retries a worker: by kind of error, bounded, never past the deadline."""

from random import Random

import anyio

from podium_workers.errors import EmptyReplyError, WorkerError
from podium_workers.worker import Call, ModelSettings, Prompt, Reply, Worker

FIRST_WAIT_S = 0.5
"""Seconds before the second attempt, before jitter; each further wait is twice as long."""
LONGEST_WAIT_S = 60.0
"""Seconds that are ever waited; an endpoint that asks for more is left to the caller."""
_JITTER = Random()


ATTEMPTS = 3
"""Tries of one call at most."""


async def reply_with_retry(
    worker: Worker,
    prompt: Prompt,
    settings: ModelSettings,
    call: Call,
    *,
    attempts: int = ATTEMPTS,
    jitter: Random = _JITTER,
    first_wait_s: float = FIRST_WAIT_S,
) -> Reply:
    """The worker's reply, asked for up to *attempts* times while its errors are transient.

    An empty reply is asked for once more only, since it costs as much as a good one.

    Raises:
        WorkerError: the last attempt's error, or the first one that trying again cannot mend.
    """
    empty = 0
    for attempt in range(1, attempts + 1):
        try:
            return await worker.reply(prompt, settings, call)
        except WorkerError as error:
            empty += isinstance(error, EmptyReplyError)
            if attempt == attempts or not error.transient or empty > 1:
                raise
            wait = wait_before(attempt, error, jitter, first_wait_s)
            if wait > LONGEST_WAIT_S or anyio.current_time() + wait >= call.deadline:
                raise
        await anyio.sleep(wait)
    raise ValueError(f"attempts must be at least 1, not {attempts}")


def wait_before(attempt: int, error: WorkerError, jitter: Random, first_wait_s: float) -> float:
    """Seconds to wait after the given failed attempt (1 is the first).

    At least what the endpoint asked for; the random half keeps parallel steps from coming back
    all at once.
    """
    backoff = min(first_wait_s * 2 ** (attempt - 1), LONGEST_WAIT_S)
    return max(backoff * jitter.uniform(0.5, 1.0), error.retry_after_s or 0.0)
