"""The ledger as its users see it: whole objects in and out, and who carries out a run."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import anyio
import pytest
from tests.ledger_samples import (
    CARD,
    FULL_REQUEST,
    WRITTEN,
    Clock,
    a_call,
    a_run,
    a_step,
    put_text,
    stored,
)

from podium.budget import Amount
from podium.errors import LeaseLostError, RunError, StoreError
from podium.leases import Lease
from podium.plan import Accept, Cut, Plan, Proposal, Step
from podium.store import Store, open_store
from podium.trace import (
    Failure,
    Round,
    RunRequest,
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


async def test_a_run_comes_back_as_it_was_stored(store: Store) -> None:
    await store.create_run(a_run("parent"))
    run = a_run(
        request=FULL_REQUEST,
        pool=(CARD, CARD.model_copy(update={"name": "local", "price": None})),
        seed=2**64,
        parent_id="parent",
        status="finished",
        started_at=101.0,
        finished_at=102.5,
        answer="Neither.",
        answer_step=1,
        error=Failure(worker="solver", code="timeout", message="slow", status=504),
        notes=("one", "two"),
    )

    await store.create_run(run)

    assert await store.run(run.run_id) == run
    assert await store.children("parent") == (run,)
    assert await store.children(run.run_id) == ()


async def test_what_changes_of_a_run_is_saved_and_the_rest_stays(store: Store) -> None:
    run = await stored(store, a_run(request=FULL_REQUEST))
    changed = run.model_copy(
        update={
            "pool": (),
            "status": "partial",
            "started_at": 1.0,
            "finished_at": 2.0,
            "answer": "An answer.",
            "answer_step": 3,
            "error": Failure(worker="", code="run", message="why"),
            "notes": ("note",),
        }
    )

    await store.save_run(changed)
    assert await store.run(run.run_id) == changed

    request = FULL_REQUEST.model_copy(update={"rounds": 5, "strategy": "single"})
    other = {"principal": "you", "created_at": 0.0, "request": request}
    await store.save_run(changed.model_copy(update=other))
    assert await store.run(run.run_id) == changed


async def test_saving_keeps_the_lease(store: Store) -> None:
    run = await stored(store, a_run())
    assert await store.claim(run.run_id, "process", 10)

    await store.save_run(run.model_copy(update={"status": "running"}))

    assert await store.is_held(run.run_id)


async def test_a_run_that_was_never_stored_cannot_be_saved(store: Store) -> None:
    with pytest.raises(RunError):
        await store.save_run(a_run())


async def test_rounds_come_back_with_the_newest_version_of_their_steps(store: Store) -> None:
    later = Plan(steps=(Step(worker="solver", subtask="Again.", access=(0, 1)),), first=2)
    refused = Proposal(
        next=later,
        source="fallback",
        refused=("not a plan",),
        cuts=(Cut(part="question", given=9, sent=5),),
    )
    accepted = Proposal(next=Accept(step=2), source="model")
    run = await stored(store, a_run(), WRITTEN, refused, accepted)
    old = a_step(0, reply="41")
    new = a_step(0, version=1, reply="42", access="all")
    other = a_step(1, status="failed", reply="")
    last = a_step(
        2,
        round=1,
        worker="other",
        access=(0, 1),
        finish_reason="length",
        failures=(Failure(worker="solver", code="overloaded", message="busy", status=529),),
        cuts=(Cut(part="step:0", given=10, sent=4),),
        prompt="hash",
        window=(4000, 1.25),
        usage=Usage(input_tokens=5, output_tokens=6, cost_usd=None),
        seconds=1.5,
        started_at=99.5,
        nested_run="nested",
    )
    for result in (last, new, old, other):
        await store.save_step(run.run_id, result)

    assert await store.rounds(run.run_id) == (
        Round(number=0, proposal=WRITTEN, results=(new, other)),
        Round(number=1, proposal=refused, results=(last,)),
        Round(number=2, proposal=accepted),
    )
    assert await store.steps(run.run_id) == (new, other, last)
    assert await store.steps(run.run_id, every_version=True) == (old, new, other, last)
    assert await store.rounds("unknown") == ()


async def test_a_step_and_a_round_are_replaced_by_their_later_state(store: Store) -> None:
    run = await stored(store, a_run(), WRITTEN)
    edited = WRITTEN.model_copy(update={"source": "caller"})

    await store.save_step(run.run_id, a_step(0, status="running", reply=""))
    await store.save_step(run.run_id, a_step(0))
    await store.save_round(run.run_id, 0, edited)

    assert await store.rounds(run.run_id) == (
        Round(number=0, proposal=edited, results=(a_step(0),)),
    )


async def test_stale_is_only_the_newest_version_and_keeps_its_reply(store: Store) -> None:
    run = await stored(store, a_run(), WRITTEN)
    first, second, other = a_step(0), a_step(0, version=1), a_step(1)
    for result in (first, second, other):
        await store.save_step(run.run_id, result)

    await store.mark_stale(run.run_id, [0, 5])
    await store.mark_stale("another run", [1])

    stale = second.model_copy(update={"status": "stale"})
    assert await store.steps(run.run_id, every_version=True) == (first, stale, other)


async def test_calls_come_back_in_order_with_what_became_of_them(store: Store) -> None:
    run = await stored(store, a_run())
    running = a_call("b", started_at=2.0, status="running", request={"temperature": 0.5, "n": [1]})
    later = a_call("a", started_at=3.0, step=None)
    finished = running.model_copy(
        update={
            "status": "finished",
            "version": 2,
            "request_id": "req_1",
            "reply": "reply hash",
            "usage": Usage(
                input_tokens=9, cached_tokens=4, output_tokens=8, reasoning_tokens=2, cost_usd=0.25
            ),
            "finish_reason": "stop",
            "error": Failure(worker="solver", code="rate_limited", message="slow down", status=429),
            "seconds": 1.25,
        }
    )
    for record in (later, running, finished):
        await store.save_call(record)

    assert await store.calls(run.run_id) == (finished, later)


async def test_a_text_is_named_by_its_content_and_stored_once(store: Store, path: Path) -> None:
    text = "Prompt\x00 東京 🎉\n" * 1000

    names = {await put_text(store, text), await put_text(store, text)}

    assert len(names) == 1
    assert await store.text(names.pop()) == text
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("SELECT count(*) FROM blobs").fetchone() == (1,)
    with pytest.raises(StoreError):
        await store.text("unknown")


async def test_half_characters_are_mended_on_the_way_in(store: Store) -> None:
    bad, mended = "bad \ud800", "bad \ufffd"
    request = RunRequest(question="q").model_copy(update={"question": bad, "earlier": bad})
    run = await stored(store, a_run(request=request, principal=bad, notes=(bad,), answer=bad))
    await store.save_round(run.run_id, 0, WRITTEN.model_copy(update={"raw_text": bad}))
    await store.save_step(run.run_id, a_step(reply=bad))
    await store.save_call(a_call("a", request={"user": bad}))

    kept = await store.run(run.run_id, principal=bad)
    assert (kept.request.question, kept.request.earlier) == (mended, mended)
    assert (kept.principal, kept.notes, kept.answer) == (mended, (mended,), mended)
    assert (await store.rounds(run.run_id))[0].proposal.raw_text == mended
    assert (await store.steps(run.run_id))[0].reply == mended
    assert (await store.calls(run.run_id))[0].request == {"user": mended}
    assert await store.text(await put_text(store, bad)) == mended
    with pytest.raises(RunError):
        await store.run(bad)
    assert not await store.claim(bad, bad, 1)


# Who carries out a run.


async def test_one_owner_at_a_time_holds_a_run(store: Store, clock: Clock) -> None:
    run = await stored(store, a_run())
    assert not await store.is_held(run.run_id)
    assert await store.holder(run.run_id) is None

    first = await store.claim(run.run_id, "first", 10)
    assert first == Lease(run_id=run.run_id, epoch=1)
    assert await store.claim(run.run_id, "first", 10) is None
    assert await store.claim(run.run_id, "second", 10) is None
    assert await store.is_held(run.run_id)

    clock.now += 10
    assert not await store.is_held(run.run_id)
    assert await store.claim(run.run_id, "second", 10) is None, "who takes it has to say from whom"
    held = await store.holder(run.run_id)
    assert held is not None
    assert held.owner == "first"
    assert await store.claim(run.run_id, "second", 10, held) == Lease(run_id=run.run_id, epoch=2)
    assert await store.claim(run.run_id, "third", 10, held) is None, "it has changed since"
    assert not await store.claim("unknown", "second", 10)


async def test_who_has_renewed_meanwhile_keeps_his_run(store: Store, clock: Clock) -> None:
    run = await stored(store, a_run())
    await store.claim(run.run_id, "first", 10)
    held = await store.holder(run.run_id)
    clock.now += 10
    await store.renew("first", 10, [run.run_id])

    assert await store.claim(run.run_id, "second", 10, held) is None


@pytest.mark.parametrize(("later", "worked"), [(4, 4.0), (60, 10.0)])
async def test_the_clock_of_a_run_stands_still_once_its_owner_is_dead(
    store: Store, clock: Clock, later: int, worked: float
) -> None:
    run = await stored(store, a_run(status="running", resumed_at=clock.now))
    await store.claim(run.run_id, "dead", 10)
    clock.now += later
    await store.claim(run.run_id, "next", 10, await store.holder(run.run_id))
    taken = await store.run(run.run_id)
    assert (taken.worked_s, taken.resumed_at) == (worked, None)


async def test_who_has_lost_a_run_writes_no_more_than_what_was_paid(store: Store) -> None:
    run = await stored(store, a_run())
    lease = await store.claim(run.run_id, "first", 10)
    assert lease is not None
    before = store.held(lease)
    await before.save_round(run.run_id, 0, WRITTEN)
    begun = a_step(status="running")
    await before.save_step(run.run_id, begun)
    paid = a_call("paid", run.run_id, status="running")
    await before.open_call(paid, Amount(), None)
    after = await store.claim(run.run_id, "second", 10, await store.holder(run.run_id))
    assert after is not None

    with pytest.raises(LeaseLostError, match="taken over by another process"):
        await before.save_run(run)
    with pytest.raises(LeaseLostError):
        await before.save_round(run.run_id, 1, WRITTEN)
    with pytest.raises(LeaseLostError):
        await before.drop_round(run.run_id, 0)
    with pytest.raises(LeaseLostError):
        await before.mark_stale(run.run_id, [0])
    with pytest.raises(LeaseLostError):
        await before.save_step(run.run_id, a_step(1))
    with pytest.raises(LeaseLostError):
        await before.open_call(a_call("another", run.run_id), Amount(), None)
    with pytest.raises(LeaseLostError):
        await before.create_run(a_run("child", parent_id=run.run_id))

    late = begun.model_copy(update={"status": "finished", "reply": "Late."})
    await before.close_call(paid.model_copy(update={"status": "finished"}))
    await before.save_step(run.run_id, late)
    assert await store.steps(run.run_id) == (late,)
    assert [call.status for call in await store.calls(run.run_id)] == ["finished"]
    await before.release(lease)
    assert await store.is_held(run.run_id), "it is the other's to give up"
    await store.held(after).save_run(run)


async def test_of_racing_owners_one_wins(store: Store) -> None:
    run = await stored(store, a_run())
    winners: list[str] = []

    async def claim(owner: str) -> None:
        if await store.claim(run.run_id, owner, 10):
            winners.append(owner)

    async with anyio.create_task_group() as group:
        for number in range(50):
            group.start_soon(claim, str(number))

    assert len(winners) == 1


async def test_renewing_tells_which_runs_are_still_ones_own(store: Store, clock: Clock) -> None:
    ids = ["kept", "late", "lost", "unasked"]
    for run_id in ids:
        await store.create_run(a_run(run_id))
        assert await store.claim(run_id, "first", 10)
    clock.now += 11
    assert await store.claim("lost", "second", 10, await store.holder("lost"))

    assert await store.renew("first", 10, ["kept", "late", "lost", "unknown"]) == {"kept", "late"}

    assert [await store.is_held(run_id) for run_id in ids] == [True, True, True, False]
    assert await store.renew("first", 10, []) == set()


async def test_only_its_owner_releases_a_run(store: Store) -> None:
    run = await stored(store, a_run())
    lease = await store.claim(run.run_id, "first", 10)
    assert lease is not None

    await store.release(lease.model_copy(update={"epoch": 7}))
    assert await store.is_held(run.run_id)

    await store.release(lease)
    assert not await store.is_held(run.run_id)
    assert await store.claim(run.run_id, "second", 10)
