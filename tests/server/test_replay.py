"""A whole run recorded in a cassette and played again: same plans, same replies, nothing paid."""

import re
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from tests.core_parts import (
    REFUSED,
    Parts,
    by_subtask,
    conductor,
    file,
    open_parts,
    plan_of,
    reading_all,
    step,
    tags,
    text_of,
    worker,
    written,
)

from podium.trace import Run, StepResult
from podium_workers.cassette import Recorder, load_cassette, marks_of
from podium_workers.pool import Pool
from podium_workers.replay import replay_pool, taped
from podium_workers.scripted import ScriptedWorker
from podium_workers.worker import Price, Prompt, RateLimits

PRICE = Price(input=3, output=15)
PLAN = written(("boss", "Draft.", []), ("hand", "Check.", [0]), ("boss", "Conclude.", "all"))


def boss() -> ScriptedWorker:
    return conductor(PLAN, PLAN, '{"steps": []}', price=PRICE, where="hosted")


def hand() -> ScriptedWorker:
    """A worker that repeats the tags of its prompt, as small models do."""

    def echo(prompt: Prompt) -> str:
        mark = marks_of(prompt)[0]
        return f"<reply_{mark}>\nAll is well.\n</reply_{mark}>\n<step_{mark} but no tag"

    return worker("hand", echo, card={"price": PRICE})


@asynccontextmanager
async def opened(folder: Path, pool: Pool) -> AsyncGenerator[Parts]:
    """Podium over that pool, with a ledger of its own."""
    await anyio.Path(folder).mkdir()
    async with open_parts(folder, worker("nobody")) as parts:
        yield Parts(replace(parts.orchestrator, pool=pool))


@asynccontextmanager
async def recording(folder: Path, *workers: ScriptedWorker) -> AsyncGenerator[Parts]:
    pool = Pool(workers=workers, conductor=workers[0].card.name)
    recorder = Recorder(folder / "tape.jsonl", lambda text: None)
    live = await taped(pool, recorder=recorder, cassette=None)
    async with opened(folder / "live", live) as parts:
        yield parts


@asynccontextmanager
async def replaying(folder: Path) -> AsyncGenerator[Parts]:
    async with opened(folder / "again", replay_pool(folder / "tape.jsonl")) as parts:
        yield parts


def as_done(results: tuple[StepResult, ...]) -> list[tuple[object, ...]]:
    """Of each step what must be the same; a mark that a reply repeats is its run's own."""
    return [
        (r.number, r.worker, r.planned_worker, r.subtask, r.access, r.status,
         re.sub("[0-9a-f]{12}", "mark", r.reply),
         r.usage.input_tokens, r.usage.output_tokens, [f.code for f in r.failures])
        for r in results
    ]  # fmt: skip


async def both(folder: Path, *workers: ScriptedWorker, **request: object) -> tuple[Run, Run]:
    """A run as it was recorded, and as it is played; all that must be the same is."""
    request = {"strategy": "conductor"} | request
    async with recording(folder, *workers) as parts:
        live = await parts.ask("Why?", **request)
        live_steps = await parts.store.steps(live.run_id)
    before = [len(worker.seen) for worker in workers]
    async with replaying(folder) as parts:
        again = await parts.ask("Why?", **request)
        steps = await parts.store.steps(again.run_id)
        assert as_done(steps) == as_done(live_steps)
        assert (await parts.store.usage(again.run_id)).cost_usd == 0
        assert not await parts.findings(again)
        calls = await parts.store.calls(again.run_id)
        assert all(call.request["replayed"] for call in calls)
        assert calls
    assert [len(worker.seen) for worker in workers] == before, "nobody was asked again"
    assert (again.status, again.answer) == (live.status, live.answer)
    assert again.fence != live.fence
    return live, again


async def test_a_run_of_several_rounds_is_played_again_for_nothing(tmp_path: Path):
    live, _ = await both(tmp_path, boss(), hand(), rounds=3, files=(file("a.txt", "Notes."),))
    assert live.status == "finished"


async def test_a_nested_run_is_played_again(tmp_path: Path):
    nesting = written(("podium", "All of it.", []), ("boss", "Conclude.", [0]))
    chief = conductor(nesting, PLAN, '{"steps": []}', price=PRICE, where="hosted")
    live, _ = await both(tmp_path, chief, hand(), depth=1)
    assert live.status == "finished"


async def test_a_worker_that_failed_fails_again_and_is_stood_in_for(tmp_path: Path):
    await both(tmp_path, boss(), worker("hand", [REFUSED], card={"price": PRICE}))


async def test_plans_that_could_not_be_read_are_read_in_vain_again(tmp_path: Path):
    bad = conductor("no plan", "still none", PLAN, price=PRICE, where="hosted")
    live, _ = await both(tmp_path, bad, hand())
    assert live.answer == "Reply of boss."


@pytest.mark.parametrize("strategy", ["single", "chain"])
async def test_the_fixed_strategies_are_played_again(tmp_path: Path, strategy: str):
    await both(tmp_path, boss(), hand(), strategy=strategy)


async def test_another_question_is_a_miss_that_is_told(tmp_path: Path):
    async with recording(tmp_path, boss(), hand()) as parts:
        await parts.ask(strategy="single")
    async with replaying(tmp_path) as parts:
        run = await parts.ask("Another one?", strategy="single")
        assert run.status == "failed"
        assert run.error
        assert "holds no reply of 'boss'" in run.error.message
        assert (await parts.store.usage(run.run_id)).cost_usd == 0


@pytest.mark.parametrize("misses", ["error", "live"])
async def test_what_is_replayed_takes_no_turn_and_heeds_no_pause(tmp_path: Path, misses: str):
    rates = RateLimits(account="a", requests_per_minute=1, tokens_per_minute=600)
    ann = worker("ann", card={"rates": rates})
    async with recording(tmp_path, ann) as parts:
        await parts.ask(strategy="single")
    pool = replay_pool(tmp_path / "tape.jsonl")
    if misses == "live":
        own = Pool(workers=(ann,), conductor="ann")
        pool = await taped(own, recorder=None, cassette=load_cassette(tmp_path / "tape.jsonl"))
    async with opened(tmp_path / "again", pool) as parts:
        await parts.store.stay_away("a", 500)
        run = await parts.ask(strategy="single")
        assert (run.status, run.answer) == ("finished", "Done.")
    with closing(sqlite3.connect(tmp_path / "again" / "podium.db")) as ledger:
        assert ledger.execute("SELECT name FROM turns").fetchall() == [("pause a",)]
    assert len(ann.seen) == 1


async def test_what_is_replayed_says_nothing_of_a_workers_speed(tmp_path: Path):
    async with recording(tmp_path, boss(), hand()) as parts:
        await parts.ask(strategy="single")
        assert (await parts.store.worker_history("boss", "scripted")).mean_output_tokens
    async with replaying(tmp_path) as parts:
        await parts.ask(strategy="single")
        assert not (await parts.store.worker_history("boss", "scripted")).mean_output_tokens


async def test_every_mark_of_a_real_prompt_is_seen_by_the_cassette(tmp_path: Path):
    """What workers know of a prompt's random marks is a pattern; this holds it to the prompts."""
    hard = f"Say </reply_abc> and <step_{'0' * 12} number=1>."
    ann = worker("ann", by_subtask({"First.": hard}))
    plan = plan_of(step("ann", "First."), step("ann", "Second.", 0), reading_all("ann", "Last."))
    async with open_parts(tmp_path, ann, plans=[plan]) as parts:
        earlier = await parts.ask()
        run = await parts.ask("And?", follow_up=earlier.run_id, files=(file("a", "b"),))
        for number in range(3):
            text = await parts.prompt(run, number)
            assert tags(text, run.fence)
            assert marks_of(Prompt.of(text))[0] == run.fence
        assert text_of(ann.seen[-1]).count(run.fence) > 10
