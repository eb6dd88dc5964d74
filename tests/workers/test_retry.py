from random import Random

import anyio
import pytest
from tests.recorded_call import RecordedCall

from podium_workers.errors import (
    AuthenticationError,
    EmptyReplyError,
    MalformedReplyError,
    OverloadedError,
    RateLimitedError,
    SlowReplyError,
    WorkerError,
)
from podium_workers.retry import LONGEST_WAIT_S, reply_with_retry, wait_before
from podium_workers.scripted import ScriptedWorker
from podium_workers.worker import ModelSettings, Prompt, Reply


async def ask(
    worker: ScriptedWorker, *, call: RecordedCall | None = None, attempts: int = 3
) -> Reply:
    with anyio.fail_after(5):
        return await reply_with_retry(
            worker,
            Prompt.of("?"),
            ModelSettings(),
            call or RecordedCall(),
            attempts=attempts,
            first_wait_s=0,
        )


def all_errors(base: type[WorkerError] = WorkerError) -> list[type[WorkerError]]:
    return [kind for inner in base.__subclasses__() for kind in (inner, *all_errors(inner))]


@pytest.mark.parametrize("kind", all_errors(), ids=lambda kind: kind.__name__)
async def test_only_transient_errors_are_tried_again(kind: type[WorkerError]):
    error = SlowReplyError("no", limit="idle") if kind is SlowReplyError else kind("no")
    worker = ScriptedWorker.named("a", [error, "good"])
    if kind.transient:
        assert (await ask(worker)).text == "good"
        assert len(worker.seen) == 2
    else:
        with pytest.raises(kind):
            await ask(worker)
        assert len(worker.seen) == 1


async def test_the_last_error_is_raised_when_no_attempt_is_left():
    first, second, third = OverloadedError("1"), MalformedReplyError("2"), OverloadedError("3")
    worker = ScriptedWorker.named("a", [first, second, third, "too late"])
    with pytest.raises(OverloadedError) as caught:
        await ask(worker)
    assert caught.value is third


async def test_every_attempt_is_recorded_with_its_error():
    call = RecordedCall()
    await ask(ScriptedWorker.named("a", [OverloadedError("1"), "good"]), call=call)
    assert [type(attempt.error) for attempt in call.attempts] == [OverloadedError, type(None)]


async def test_an_empty_reply_is_asked_for_once_more_only():
    worker = ScriptedWorker.named("a", ["", "", "good"])
    with pytest.raises(EmptyReplyError):
        await ask(worker)
    assert len(worker.seen) == 2


async def test_an_empty_reply_that_then_is_not_is_good():
    assert (await ask(ScriptedWorker.named("a", ["", "good"]))).text == "good"


async def test_no_wait_passes_the_deadline():
    call = RecordedCall(deadline=anyio.current_time() + 3)
    worker = ScriptedWorker.named("a", [RateLimitedError("wait", retry_after_s=4), "good"])
    with pytest.raises(RateLimitedError):
        await ask(worker, call=call)
    assert len(worker.seen) == 1


async def test_a_wait_that_is_longer_than_anyone_would_is_left_to_the_caller():
    error = RateLimitedError("wait", retry_after_s=LONGEST_WAIT_S + 1)
    with pytest.raises(RateLimitedError):
        await ask(ScriptedWorker.named("a", [error, "good"]))


async def test_what_the_endpoint_asks_for_is_waited():
    began = anyio.current_time()
    worker = ScriptedWorker.named("a", [RateLimitedError("wait", retry_after_s=0.05), "good"])
    await ask(worker)
    assert anyio.current_time() - began >= 0.05


async def test_one_attempt_means_no_second_one():
    worker = ScriptedWorker.named("a", [OverloadedError("1"), "good"])
    with pytest.raises(OverloadedError):
        await ask(worker, attempts=1)


async def test_no_attempt_at_all_is_a_mistake_of_the_caller():
    with pytest.raises(ValueError, match="at least 1"):
        await ask(ScriptedWorker.named("a", ["good"]), attempts=0)


def test_waits_double_with_a_random_half_and_the_same_seed_gives_the_same_waits():
    error = OverloadedError("busy")
    for attempt, longest in ((1, 0.5), (2, 1.0), (3, 2.0), (4, 4.0)):
        waits = [wait_before(attempt, error, Random(seed), 0.5) for seed in range(50)]
        assert all(longest / 2 <= wait <= longest for wait in waits)
        assert len(set(waits)) > 10
        assert waits[7] == wait_before(attempt, error, Random(7), 0.5)


def test_the_wait_is_at_least_what_the_endpoint_asked_for():
    assert wait_before(1, RateLimitedError("x", retry_after_s=30), Random(1), 0.5) == 30
    assert wait_before(9, AuthenticationError("x"), Random(1), 0.5) <= LONGEST_WAIT_S
