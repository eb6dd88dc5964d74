"""Requests and tokens a minute: kept over parallel calls, processes and clocks that jump."""

import sqlite3
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core_parts import BOUND_S, asks_for, by_subtask, open_parts, plan_of, step, worker
from tests.ledger_samples import Clock, a_run

from podium import turns
from podium.calls import Caller, Purpose
from podium.migrations import migrate
from podium.store import Store, open_store
from podium_workers.errors import RateLimitedError, RefusedError
from podium_workers.worker import (
    Call,
    ModelSettings,
    Price,
    Prompt,
    RateLimits,
    Reply,
    Usage,
)

SIXTY = RateLimits(account="a", requests_per_minute=60)
PURPOSE = Purpose("run-000001", 0, 0, 0)


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as opened:
        migrate(opened, ":memory:")
        yield opened


def taken(connection: sqlite3.Connection, limits: RateLimits, now: float, tokens: int = 0) -> int:
    """How many turns may be taken at that moment."""
    count = 0
    while not turns.take(connection, limits, tokens, now):
        count += 1
    return count


def test_a_burst_is_granted_and_then_the_rate(connection: sqlite3.Connection) -> None:
    assert taken(connection, SIXTY, 1000.0) == 11
    assert turns.take(connection, SIXTY, 0, 1000.0) == pytest.approx(1.0)
    assert [taken(connection, SIXTY, 1000.0 + second) for second in (1, 2, 3)] == [1, 1, 1]
    assert taken(connection, SIXTY, 2000.0) == 11, "left alone, it has come to rest"


@settings(deadline=None)
@given(st.lists(st.floats(0, 5), min_size=1, max_size=60))
def test_in_no_minute_are_more_granted_than_the_rate_and_a_burst(waits: list[float]) -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as opened:
        migrate(opened, ":memory:")
        now, granted = 1000.0, list[float]()
        for wait in waits:
            now += wait
            granted += [now] * taken(opened, SIXTY, now)
    for first in granted:
        assert sum(first <= at < first + 60 for at in granted) <= 60 + 11


def test_tokens_are_counted_by_what_a_request_may_take_and_given_back(
    connection: sqlite3.Connection,
) -> None:
    limits = RateLimits(account="a", tokens_per_minute=6000)
    assert turns.take(connection, limits, 2000, 1000.0) == 0
    assert turns.take(connection, limits, 1, 1000.0) == pytest.approx(10.0)
    turns.give_back(connection, limits, 1900)
    assert turns.take(connection, limits, 1, 1000.0) == 0


def test_accounts_do_not_hinder_each_other(connection: sqlite3.Connection) -> None:
    assert taken(connection, SIXTY, 1000.0) == 11
    assert taken(connection, RateLimits(account="b", requests_per_minute=6), 1000.0) == 2
    assert turns.take(connection, RateLimits(account="c"), 10**6, 1000.0) == 0


def test_a_provider_that_asks_for_time_is_left_alone(connection: sqlite3.Connection) -> None:
    turns.stay_away(connection, "a", 1030.0)
    turns.stay_away(connection, "a", 1020.0)
    assert turns.take(connection, SIXTY, 0, 1000.0) == 30.0
    assert turns.take(connection, RateLimits(account="b"), 0, 1000.0) == 0
    assert turns.take(connection, SIXTY, 0, 1030.0) == 0


def test_a_clock_that_was_set_back_does_not_shut_an_account(
    connection: sqlite3.Connection,
) -> None:
    taken(connection, SIXTY, 5000.0)
    turns.stay_away(connection, "a", 5060.0)
    assert turns.take(connection, SIXTY, 0, 1000.0) == 0


# In calls.


@asynccontextmanager
async def ledger(folder: Path, clock: Clock) -> AsyncGenerator[Store]:
    with anyio.fail_after(BOUND_S):
        async with open_store(folder / "podium.db", clock=clock) as store:
            await store.create_run(a_run())
            yield store


FREE = Price(input=0, output=0)
SHORT = ModelSettings(max_output_tokens=90)


def limited(*lines: str | RateLimitedError, price: Price | None = FREE, **rates: int):
    card = {"rates": RateLimits(account="a", **rates), "price": price}
    return worker("ann", list(lines) or ["Done."], card=card)


async def test_a_call_that_would_wait_too_long_is_not_made(tmp_path: Path) -> None:
    ann = limited(requests_per_minute=1)
    async with ledger(tmp_path, Clock()) as store:
        caller = Caller(store)
        await caller.ask(ann, Prompt.of("?"), ModelSettings(), PURPOSE)
        deadline = anyio.current_time() + 5
        with pytest.raises(RateLimitedError, match=r"may be asked again in 50 s only") as refused:
            await caller.ask(ann, Prompt.of("?"), ModelSettings(), PURPOSE, deadline=deadline)
        assert refused.value.retry_after_s == 50
        assert len(await store.calls("run-000001")) == 1


async def test_one_process_hears_what_a_provider_told_another(tmp_path: Path) -> None:
    clock = Clock()
    busy = RateLimitedError("Slow down.", status=429, retry_after_s=90)
    async with (
        ledger(tmp_path, clock) as store,
        open_store(tmp_path / "podium.db", clock=clock) as other,
    ):
        with pytest.raises(RateLimitedError, match="Slow down"):
            await Caller(store).ask(limited(busy), Prompt.of("?"), ModelSettings(), PURPOSE)
        ann = limited()
        with pytest.raises(RateLimitedError, match="in 90 s only"):
            await Caller(other).ask(ann, Prompt.of("?"), ModelSettings(), PURPOSE)
        clock.now += 90
        await Caller(other).ask(ann, Prompt.of("?"), ModelSettings(), PURPOSE)
        statuses = [call.status for call in await store.calls("run-000001")]
        assert statuses == ["failed", "finished"], "the second was never sent"


@pytest.mark.parametrize("price", [FREE, None])
async def test_unused_tokens_of_a_reply_are_there_for_the_next_call(
    tmp_path: Path, price: Price | None
) -> None:
    ann = limited(price=price, tokens_per_minute=600)
    async with ledger(tmp_path, Clock()) as store:
        for _ in range(10):
            soon = anyio.current_time() + 5
            await Caller(store).ask(ann, Prompt.of("?"), SHORT, PURPOSE, deadline=soon)
        assert len(await store.calls("run-000001")) == 10


@pytest.mark.parametrize("told", [Usage(), Usage(input_tokens=2, cost_usd=None)])
async def test_tokens_of_a_reply_that_broke_off_are_not_given_back(
    tmp_path: Path, told: Usage
) -> None:
    """What was counted until then is the least that it took."""
    limits = RateLimits(account="a", tokens_per_minute=600)

    class BreakingOff:
        card = limited(price=None, tokens_per_minute=600).card

        async def reply(self, prompt: Prompt, settings: ModelSettings, call: Call) -> Reply:
            async with call.attempt({}) as attempt:
                await attempt.usage(told)
                raise RefusedError("It has thought better of it.")

    async with ledger(tmp_path, Clock()) as store:
        with pytest.raises(RefusedError):
            await Caller(store).ask(BreakingOff(), Prompt.of("?"), SHORT, PURPOSE)
        assert await store.take_turn(limits, 1) > 0


async def test_a_call_waits_for_tokens_that_a_running_one_may_give_back(tmp_path: Path) -> None:
    began, told = anyio.Event(), anyio.Event()

    async def hold(prompt: Prompt) -> str:
        began.set()
        await told.wait()
        return "Done."

    ann = limited(tokens_per_minute=60)
    slow = worker("bob", hold, card={"rates": ann.card.rates})
    async with ledger(tmp_path, Clock()) as store:
        caller = Caller(store)
        async with anyio.create_task_group() as group:
            group.start_soon(caller.ask, slow, Prompt.of("?"), SHORT, PURPOSE)
            await began.wait()
            group.start_soon(caller.ask, ann, Prompt.of("?"), SHORT, PURPOSE)
            await anyio.wait_all_tasks_blocked()
            told.set()
        statuses = [call.status for call in await store.calls("run-000001")]
        assert statuses == ["finished", "finished"]
        assert not await store.take_turn(RateLimits(account="a", tokens_per_minute=60), 500)
        with pytest.raises(RateLimitedError):  # nobody is left who could give anything back
            await caller.ask(ann, Prompt.of("?"), SHORT, PURPOSE)


async def test_a_pause_that_a_provider_asked_for_is_not_waited_for(tmp_path: Path) -> None:
    """What running calls give back does not make it shorter."""
    began = anyio.Event()

    async def hold(prompt: Prompt) -> str:
        began.set()
        await anyio.sleep_forever()
        return ""

    ann = limited(tokens_per_minute=60)
    slow = worker("bob", hold, card={"rates": ann.card.rates})
    async with ledger(tmp_path, Clock()) as store, anyio.create_task_group() as group:
        caller = Caller(store)
        group.start_soon(caller.ask, slow, Prompt.of("?"), SHORT, PURPOSE)
        await began.wait()
        await store.stay_away("a", 500)
        with pytest.raises(RateLimitedError, match="in 500 s only"):
            await caller.ask(ann, Prompt.of("?"), SHORT, PURPOSE)
        group.cancel_scope.cancel()


async def test_a_worker_that_fails_again_and_again_is_not_asked_any_more(tmp_path: Path) -> None:
    subtasks = [f"Step {number}." for number in range(5)]
    plan = plan_of(
        *(
            step("bad", text, *([number - 1] if number else []))
            for number, text in enumerate(subtasks)
        )
    )
    bad = worker("bad", [RefusedError("It will not.")])
    good = worker("good", by_subtask(dict.fromkeys(subtasks, "Fine.")))
    async with open_parts(tmp_path, good, bad, plans=[plan]) as parts:
        run = await parts.ask()
        assert (run.status, run.answer) == ("finished", "Fine.")
        assert len(bad.seen) == 3
        last = await parts.step(run, 4)
        assert [(found.worker, found.code) for found in last.failures] == [("bad", "worn_out")]
        assert "It has failed 3 times in this run, the last time: It will not." in (
            last.failures[0].message
        )
        assert all(asks_for(text)(good.seen[number]) for number, text in enumerate(subtasks))
