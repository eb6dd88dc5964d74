"""The one place that retries a worker: by kind of error, bounded, never past the deadline."""

from random import Random

import anyio

from podium_workers.errors import EmptyReplyError, WorkerError
from podium_workers.worker import Call, ModelSettings, Prompt, Reply, Worker, WorkerCard

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

    An empty reply is asked for once more only, since it costs as much as a good one; and not at
    all where the limit of output tokens was used up, since the same limit would be so again.

    Raises:
        WorkerError: the last attempt's error, or the first one that trying again cannot mend.
    """
    empty = 0
    for attempt in range(1, attempts + 1):
        try:
            return await worker.reply(prompt, settings, call)
        except WorkerError as error:
            empty += (1 + error.used_up) if isinstance(error, EmptyReplyError) else 0
            if attempt == attempts or not error.transient or empty > 1:
                raise
            wait = wait_before(attempt, error, jitter, first_wait_s)
            if wait > LONGEST_WAIT_S or anyio.current_time() + wait >= call.deadline:
                raise
        await anyio.sleep(wait)
    raise ValueError(f"attempts must be at least 1, not {attempts}")


def roomier(
    settings: ModelSettings, card: WorkerCard, error: EmptyReplyError
) -> ModelSettings | None:
    """*settings* with more room, after a reply whose limit was used up before its first word.

    None where that cannot help. Whoever asks again has to reserve the larger limit first, and does
    so once: a model that needs more than four times the room will need more than that.
    """
    limit = min(settings.max_output_tokens or card.max_output_tokens, card.max_output_tokens)
    if not error.used_up or limit == card.max_output_tokens:
        return None
    more = min(4 * limit, card.max_output_tokens)
    return settings.model_copy(update={"max_output_tokens": more})


def wait_before(attempt: int, error: WorkerError, jitter: Random, first_wait_s: float) -> float:
    """Seconds to wait after the given failed attempt (1 is the first).

    At least what the endpoint asked for; the random half keeps parallel steps from coming back
    all at once.
    """
    backoff = min(first_wait_s * 2 ** (attempt - 1), LONGEST_WAIT_S)
    return max(backoff * jitter.uniform(0.5, 1.0), error.retry_after_s or 0.0)
