"""The one way to a model: every attempt is on record, limits hold, estimates are corrected."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from tests.core_parts import BOUND_S, NO_KEY, worker
from tests.ledger_samples import a_run

from podium.calls import Caller, Purpose
from podium.store import Store, open_store
from podium.tokens import estimate_tokens
from podium.trace import Failure
from podium_workers.errors import EmptyReplyError, RateLimitedError, SlowReplyError, WorkerError
from podium_workers.scripted import Line
from podium_workers.worker import ModelSettings, Price, Prompt

RUN = a_run()
STEP = Purpose(RUN.run_id, 0, 3, 1)
PLANNING = Purpose(RUN.run_id, 0)
PROMPT = Prompt.of("How many?", system="Count.")
SETTINGS = ModelSettings(max_output_tokens=64, seed=7)


@asynccontextmanager
async def opened(folder: Path) -> AsyncGenerator[tuple[Caller, Store]]:
    with anyio.fail_after(BOUND_S):
        async with open_store(folder / "podium.db") as store:
            await store.create_run(RUN)
            yield Caller(store), store


async def test_a_finished_call_is_on_record_with_what_was_sent_and_what_came_back(tmp_path: Path):
    ann = worker("ann", ["Three."], card={"price": Price(input=1.0, output=10.0)})
    async with opened(tmp_path) as (caller, store):
        reply = await caller.ask(ann, PROMPT, SETTINGS, STEP)

        (call,) = await store.calls(RUN.run_id)
        assert (call.round, call.step, call.version) == (0, 3, 1)
        assert (call.worker, call.model, call.status) == ("ann", "scripted", "finished")
        assert call.request == {"model": "scripted", "max_output_tokens": 64, "seed": 7}
        assert (call.request_id, call.finish_reason, call.error) == ("ann-0", "stop", None)
        assert Prompt.model_validate_json(await store.text(call.prompt)) == PROMPT
        assert await store.text(call.reply or "") == reply.text == "Three."
        assert call.usage == reply.usage
        assert call.usage.cost_usd == pytest.approx(
            (call.usage.input_tokens + 10 * call.usage.output_tokens) / 1_000_000
        )
        assert call.seconds > 0
        assert call.started_at > 0


async def test_a_call_that_writes_a_plan_has_no_step(tmp_path: Path):
    async with opened(tmp_path) as (caller, store):
        await caller.ask(worker("ann"), PROMPT, SETTINGS, PLANNING)
        (call,) = await store.calls(RUN.run_id)
        assert (call.step, call.version) == (None, None)


async def test_a_call_is_on_record_before_its_reply_is_there(tmp_path: Path):
    async with opened(tmp_path) as (caller, store):

        async def look(prompt: Prompt) -> Line:
            (call,) = await store.calls(RUN.run_id)
            assert (call.status, call.reply) == ("running", None)
            return "Three."

        await caller.ask(worker("ann", look), PROMPT, SETTINGS, STEP)
        (call,) = await store.calls(RUN.run_id)
        assert call.status == "finished"


async def test_every_attempt_has_a_record_of_its_own(tmp_path: Path):
    busy = RateLimitedError("Too many requests.", status=429, retry_after_s=0.01)
    async with opened(tmp_path) as (caller, store):
        reply = await caller.ask(worker("ann", [busy, "Three."]), PROMPT, SETTINGS, STEP)
        assert reply.text == "Three."
        first, second = await store.calls(RUN.run_id)
        assert (first.status, second.status) == ("failed", "finished")
        assert first.error == Failure(
            worker="ann", code="rate_limited", message="Too many requests.", status=429
        )
        assert first.prompt == second.prompt
        assert first.call_id != second.call_id


async def test_what_an_empty_reply_cost_is_kept(tmp_path: Path):
    async with opened(tmp_path) as (caller, store):
        with pytest.raises(EmptyReplyError):
            await caller.ask(worker("ann", [" "]), PROMPT, SETTINGS, STEP)
        calls = await store.calls(RUN.run_id)
        assert [(call.status, call.reply) for call in calls] == [("failed", None)] * 2
        assert all(call.usage.input_tokens > 0 for call in calls)


async def test_a_failure_is_raised_as_it_was_recorded(tmp_path: Path):
    async with opened(tmp_path) as (caller, store):
        with pytest.raises(WorkerError) as caught:
            await caller.ask(worker("ann", [NO_KEY]), PROMPT, SETTINGS, STEP)
        assert caught.value is NO_KEY
        (call,) = await store.calls(RUN.run_id)
        assert call.error is not None
        assert (call.status, call.error.code, call.error.status) == (
            "failed",
            "authentication",
            401,
        )


async def test_a_cancelled_call_is_recorded_as_stopped(tmp_path: Path):
    began = anyio.Event()

    async def hang(prompt: Prompt) -> Line:
        began.set()
        await anyio.sleep_forever()
        return ""

    async with opened(tmp_path) as (caller, store):
        async with anyio.create_task_group() as group:
            group.start_soon(caller.ask, worker("ann", hang), PROMPT, SETTINGS, STEP)
            await began.wait()
            group.cancel_scope.cancel()
        (call,) = await store.calls(RUN.run_id)
        assert (call.status, call.error, call.request_id) == ("stopped", None, "ann-0")
        assert call.seconds > 0


async def test_a_call_ends_with_the_deadline(tmp_path: Path):
    async def hang(prompt: Prompt) -> Line:
        await anyio.sleep_forever()
        return ""

    async with opened(tmp_path) as (caller, store):
        deadline = anyio.current_time() + 0.1
        with pytest.raises(SlowReplyError) as caught:
            await caller.ask(worker("ann", hang), PROMPT, SETTINGS, STEP, deadline=deadline)
        assert caught.value.limit == "total"
        (call,) = await store.calls(RUN.run_id)
        assert call.status == "stopped"


async def test_no_more_calls_of_a_worker_run_at_once_than_its_card_allows(tmp_path: Path):
    """Two do, which each waits for; a third never does."""
    at_work: set[int] = set()
    most = 0
    together = [anyio.Event() for _ in range(3)]
    numbers = iter(range(6))

    async def reply(prompt: Prompt) -> Line:
        nonlocal most
        number = next(numbers)
        at_work.add(number)
        most = max(most, len(at_work))
        if len(at_work) == 2:
            together[number // 2].set()
        await together[number // 2].wait()
        await anyio.wait_all_tasks_blocked()
        at_work.remove(number)
        return "Done."

    ann, free = worker("ann", reply, card={"parallel": 2}), worker("free")
    async with opened(tmp_path) as (caller, store):
        async with anyio.create_task_group() as group:
            for _ in range(6):
                group.start_soon(caller.ask, ann, PROMPT, SETTINGS, STEP)
            await together[0].wait()
            await caller.ask(free, PROMPT, SETTINGS, STEP)  # another worker's limit is its own
        assert most == 2
        assert len(await store.calls(RUN.run_id)) == 7


async def test_a_call_that_waits_for_its_turn_is_not_an_attempt_yet(tmp_path: Path):
    held, began = anyio.Event(), anyio.Event()

    async def hold(prompt: Prompt) -> Line:
        began.set()
        await held.wait()
        return "Done."

    ann = worker("ann", hold, card={"parallel": 1})
    async with opened(tmp_path) as (caller, store), anyio.create_task_group() as group:
        group.start_soon(caller.ask, ann, PROMPT, SETTINGS, STEP)
        await began.wait()
        soon = anyio.current_time() + 0.1
        with pytest.raises(SlowReplyError):
            await caller.ask(ann, PROMPT, SETTINGS, STEP, deadline=soon)
        assert len(await store.calls(RUN.run_id)) == 1
        held.set()


async def test_the_estimate_is_corrected_by_what_a_worker_reports(tmp_path: Path):
    ann, bob = worker("ann"), worker("bob")
    words, digits = Prompt.of("word " * 400), Prompt.of("12345678 " * 200)
    async with opened(tmp_path) as (caller, _):
        assert caller.tokens_per_estimate(ann.card) == 1.0

        reply = await caller.ask(ann, words, SETTINGS, STEP)
        ratio = reply.usage.input_tokens / estimate_tokens("word " * 400)
        assert abs(ratio - 1) > 0.1
        first = caller.tokens_per_estimate(ann.card)
        assert first == pytest.approx((1 + ratio) / 2, abs=0.001)

        await caller.ask(ann, words, SETTINGS, STEP)  # it comes nearer with each report
        second = caller.tokens_per_estimate(ann.card)
        assert second == pytest.approx((first + ratio) / 2, abs=0.001)
        assert caller.tokens_per_estimate(bob.card) == 1.0

        await caller.ask(bob, digits, SETTINGS, STEP)  # a report beyond belief counts as one half
        assert caller.tokens_per_estimate(bob.card) == 0.75


async def test_short_prompts_and_failures_teach_nothing(tmp_path: Path):
    ann = worker("ann", ["Three.", NO_KEY])
    async with opened(tmp_path) as (caller, _):
        await caller.ask(ann, PROMPT, SETTINGS, STEP)
        with pytest.raises(WorkerError):
            await caller.ask(ann, Prompt.of("word " * 400), SETTINGS, STEP)
        assert caller.tokens_per_estimate(ann.card) == 1.0
