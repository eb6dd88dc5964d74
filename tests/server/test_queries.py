"""What the ledger is asked for: runs by name, lists, sums, the history of a worker."""

from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from tests.ledger_samples import (
    WRITTEN,
    Clock,
    a_call,
    a_run,
    a_step,
    stored,
)

from podium.errors import QuestionError, RunError
from podium.plan import Accept, Plan, Proposal, Step
from podium.store import Store, WorkerHistory, open_store
from podium.trace import (
    CallRecord,
    RunSummary,
)
from podium_workers.worker import Usage


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture
async def store(path: Path, clock: Clock) -> AsyncIterator[Store]:
    async with open_store(path, clock=clock) as store:
        yield store


async def test_a_run_is_named_by_its_id_or_by_enough_of_its_beginning(store: Store) -> None:
    for run_id in ("abcdef-1", "abcdef-2", "abcxyz-9", "abc"):
        await store.create_run(a_run(run_id))

    assert (await store.run("abcxyz")).run_id == "abcxyz-9"
    assert (await store.run("abcdef-2")).run_id == "abcdef-2"
    assert (await store.run("abc")).run_id == "abc", "a whole id may be short"
    assert (await store.run(" ABCXYZ\n")).run_id == "abcxyz-9", "copied with what is around it"
    for name in ("abcxy", "abcdef", "zzzzzz", "", "abcxyz%", "%", "______"):
        with pytest.raises(RunError):
            await store.run(name)


async def test_of_an_unknown_id_the_error_repeats_only_the_beginning(store: Store) -> None:
    with pytest.raises(RunError) as caught:
        await store.run("x" * 100_000)
    assert f"There is no run '{'x' * 79}…';" in str(caught.value)


async def test_a_span_that_ends_before_it_begins_is_refused(store: Store) -> None:
    for words in ("", "why"):
        with pytest.raises(QuestionError, match="since: is later than until; give the earlier"):
            await store.search(words, since=2.0, until=1.0)
    with pytest.raises(QuestionError, match="since: is later than until"):
        await store.summaries(since=2.0, until=1.0)
    assert await store.summaries(since=1.0, until=1.0) == ()


async def test_a_run_of_another_principal_is_unknown(store: Store) -> None:
    await store.create_run(a_run("abcdef-1", principal="you"))
    await store.create_run(a_run("abcdef-2", principal="me"))

    assert (await store.run("abcdef", principal="me")).run_id == "abcdef-2"
    assert (await store.run("abcdef-1")).principal == "you"
    with pytest.raises(RunError):
        await store.run("abcdef-1", principal="me")


async def test_a_summary_says_who_planned_what_was_used_and_how_long_it_took(
    store: Store, clock: Clock
) -> None:
    later = Plan(steps=(Step(worker="solver", subtask="Again."),), first=2)
    run = await stored(
        store,
        a_run(status="running", worked_s=1.0, resumed_at=991.0, parent_id=None),
        WRITTEN,
        Proposal(next=later, source="caller"),
        Proposal(next=Accept(step=2), source="fixed"),
    )
    await store.save_step(run.run_id, a_step(0))
    for number in range(3):
        usage = Usage(
            input_tokens=10, cached_tokens=1, output_tokens=20, reasoning_tokens=2, cost_usd=0.25
        )
        await store.save_call(a_call(f"call{number}", usage=usage))

    expected = RunSummary(
        run_id=run.run_id,
        status="running",
        question=run.request.question,
        policy="conductor",
        plan_source="caller",
        fallback=False,
        steps=3,
        rounds=2,
        seconds=10.0,
        usage=Usage(
            input_tokens=30, cached_tokens=3, output_tokens=60, reasoning_tokens=6, cost_usd=0.75
        ),
        created_at=100.0,
    )
    assert await store.summaries() == (expected,)
    clock.now = 1005.0
    assert (await store.summaries())[0].seconds == 15.0
    await store.save_run(run.model_copy(update={"worked_s": 2.5, "resumed_at": None}))
    assert (await store.summaries())[0].seconds == 2.5


async def test_a_run_whose_process_died_is_listed_as_interrupted(
    store: Store, clock: Clock
) -> None:
    run = await stored(store, a_run(status="running", resumed_at=clock.now))
    assert await store.claim(run.run_id, "somebody", 30.0)
    assert (await store.summaries())[0].status == "running"
    clock.now += 31.0
    (summary,) = await store.summaries()
    assert (summary.status, summary.seconds) == ("interrupted", 30.0)


async def test_a_run_that_never_began_has_used_nothing(store: Store) -> None:
    await stored(store, a_run())

    (summary,) = await store.summaries()

    assert (summary.seconds, summary.usage, summary.plan_source) == (0.0, Usage(), None)
    assert (summary.steps, summary.rounds, summary.fallback) == (0, 0, False)


async def test_a_cost_is_unknown_when_that_of_any_call_is(store: Store) -> None:
    run = await stored(store, a_run())
    await store.save_call(a_call("known", usage=Usage(output_tokens=1, cost_usd=1.0)))
    await store.save_call(a_call("unknown", usage=Usage(output_tokens=1, cost_usd=None)))

    expected = Usage(output_tokens=2, cost_usd=None)
    assert (await store.summaries())[0].usage == expected
    assert await store.usage(run.run_id) == expected


async def test_a_fallback_of_a_plan_or_of_a_step_is_told(store: Store) -> None:
    await stored(store, a_run("plain"), WRITTEN)
    await store.save_step("plain", a_step(0))
    await stored(store, a_run("by-plan"), WRITTEN.model_copy(update={"source": "fallback"}))
    await stored(store, a_run("by-step"), WRITTEN)
    await store.save_step("by-step", a_step(0, worker="other"))

    told = {summary.run_id: summary.fallback for summary in await store.summaries()}

    assert told == {"plain": False, "by-plan": True, "by-step": True}


async def test_lists_are_newest_first_by_page_principal_time_and_status(store: Store) -> None:
    for number in range(6):
        principal = "me" if number % 2 else "you"
        status = "finished" if number < 3 else "failed"
        run = a_run(f"run{number}", principal=principal, status=status, created_at=float(number))
        await store.create_run(run)

    def ids(summaries: tuple[RunSummary, ...]) -> str:
        return "".join(summary.run_id[-1] for summary in summaries)

    assert ids(await store.summaries()) == "543210"
    assert ids(await store.summaries(limit=2)) == "54"
    assert ids(await store.summaries(principal="me")) == "531"
    assert ids(await store.summaries(since=2.0, until=4.0)) == "432"
    assert ids(await store.summaries(status="failed", principal="you")) == "4"
    assert ids(await store.summaries(principal="nobody")) == ""


async def test_usage_counts_nested_runs_of_any_depth_and_no_others(store: Store) -> None:
    parents = {"top": None, "child": "top", "grandchild": "child", "stranger": None}
    for run_id, parent in parents.items():
        await store.create_run(a_run(run_id, parent_id=parent))
        usage = Usage(input_tokens=1, output_tokens=10, cost_usd=0.5)
        await store.save_call(a_call(f"call of {run_id}", run_id, usage=usage))

    assert await store.usage("top") == Usage(input_tokens=3, output_tokens=30, cost_usd=1.5)
    assert await store.usage("grandchild") == Usage(input_tokens=1, output_tokens=10, cost_usd=0.5)
    assert await store.usage("unknown") == Usage()


async def test_a_workers_history_is_that_of_its_newest_finished_calls(store: Store) -> None:
    await stored(store, a_run())

    def call(number: int, output: int, **changes: object) -> CallRecord:
        usage = Usage(input_tokens=100, output_tokens=output)
        record = a_call(f"call{number}", started_at=float(number), seconds=2.0, usage=usage)
        return record.model_copy(update=changes)

    records = [call(n, 5000) for n in range(10)] + [call(n, 50) for n in range(10, 210)]
    records += [
        call(900, 1, status="failed"),
        call(901, 1, status="running"),
        call(902, 1, model="solver-2"),
        call(903, 1, worker="other"),
    ]
    async with anyio.create_task_group() as group:
        for record in records:
            group.start_soon(store.save_call, record)

    assert await store.worker_history("solver", "solver-1") == WorkerHistory(
        mean_output_tokens=50.0, output_tokens_per_s=25.0
    )
    assert await store.worker_history("nobody", "solver-1") == WorkerHistory()
