"""Disks that are full and pages that are damaged, as a run meets them: nothing half is believed."""

import json
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from tests.core_parts import BOUND_S, plan_of, pool_of, step, worker

from podium.calls import Caller
from podium.errors import StoreError
from podium.orchestrator import Orchestrator
from podium.plan import Step
from podium.policy.fixed import Single
from podium.runs import Runs, open_runs
from podium.store import open_store
from podium.trace import RunRequest
from podium_workers.scripted import ScriptedWorker

PROGRAM = "tests.limited_ledger"
PAGE = 4096
PLAN = plan_of(step("ann", "First."), step("ann", "Second.", 0))


@asynccontextmanager
async def runs_of(folder: Path, ann: ScriptedWorker) -> AsyncGenerator[Runs]:
    with anyio.fail_after(BOUND_S):
        async with open_store(folder / "podium.db") as store:
            parts = Orchestrator(store, pool_of(ann), Caller(store), {"single": Single()})
            async with open_runs(parts) as runs:
                yield runs


async def ask(runs: Runs, question: str, *steps: Step) -> str:
    """Ask and wait for the end; the run's id."""
    request = RunRequest(question=question, strategy="single")
    run = await runs.ask(request, principal="me", steps=steps)
    await runs.wait(run.run_id)
    return run.run_id


@pytest.mark.skipif(sys.platform == "win32", reason="the size of files cannot be limited")
async def test_on_a_full_disk_no_run_is_told_finished_that_is_not_so(tmp_path: Path) -> None:
    path = tmp_path / "podium.db"
    command = [sys.executable, "-m", PROGRAM, str(path), "1000000"]
    with anyio.fail_after(120):
        done = await anyio.run_process(command, check=False)
    assert done.returncode == 0, done.stderr.decode()
    told = [json.loads(line) for line in done.stdout.splitlines()]

    failed = [it for it in told if it["status"] != "finished"]
    assert failed, "the limit was never reached"
    assert all("disk" in it["error"] for it in failed)
    assert told[-1]["status"] == "finished"

    async with open_store(path) as store:
        for it in told:
            if it["run_id"]:
                run = await store.run(it["run_id"])
                assert (run.status == "finished") == (it["status"] == "finished")
        finished = [it["run_id"] for it in told if it["status"] == "finished"]
        for run_id in finished:
            run = await store.run(run_id)
            (kept,) = await store.steps(run_id)
            assert run.answer == kept.reply
            assert kept.reply.startswith("A long answer. ")
            assert len(kept.reply) > 50_000


def damage(path: Path, text: str) -> None:
    """Overwrite every page of a file that holds a text."""
    content = path.read_bytes()
    pages = [content[at : at + PAGE] for at in range(0, len(content), PAGE)]
    assert sum(text.encode() in page for page in pages) > 1
    path.write_bytes(b"".join(os.urandom(PAGE) if text.encode() in it else it for it in pages))


async def test_a_run_whose_page_is_damaged_fails_alone_and_is_never_called_finished(
    tmp_path: Path,
) -> None:
    marked = "".join(f"the damaged reply {n:05} " for n in range(2000))
    ann = worker("ann", lambda prompt: marked if "damaged" in str(prompt) else "Fine.")
    async with runs_of(tmp_path, ann) as runs:
        whole = await ask(runs, "Is it whole?", *PLAN.steps)
        damaged = await ask(runs, "Is it damaged?", *PLAN.steps)
        run = await runs.store.run(damaged)
        await runs.store.save_run(run.model_copy(update={"status": "interrupted", "answer": None}))
        await runs.store.mark_stale(damaged, [1])
    damage(tmp_path / "podium.db", "the damaged reply 00900")

    async with runs_of(tmp_path, ann) as runs:
        with pytest.raises(StoreError, match="damaged"):
            await runs.store.steps(damaged)
        await runs.start(await runs.of(damaged, "me"))
        run = await runs.wait(damaged)
        assert (run.status, run.answer) == ("failed", None)
        assert run.error is not None
        assert "damaged" in run.error.message

        assert (await runs.of(whole, "me")).answer == "Fine."
        assert [it.reply for it in await runs.store.steps(whole)] == ["Fine.", "Fine."]
        another = await ask(runs, "Can there be others?")
        assert (await runs.of(another, "me")).answer == "Fine."


async def test_a_step_that_cannot_be_stored_does_not_finish_its_run(tmp_path: Path) -> None:
    """As above, with the reply itself too large for what is left: others go on."""
    ann = worker("ann", lambda prompt: "x" * 3_000_000 if "large" in str(prompt) else "Fine.")
    async with runs_of(tmp_path, ann) as runs:
        await ask(runs, "Is there room?")
        await runs.store.writer.do(lambda it: it.execute("PRAGMA max_page_count = 300").close())

        request = RunRequest(question="Is there room for a large one?", strategy="single")
        large = await runs.ask(request, principal="me")
        run = await runs.wait(large.run_id)

        assert (run.status, run.answer) == ("failed", None)
        assert run.error is not None
        assert "room" in run.error.message
        assert not any(it.finished for it in await runs.store.steps(large.run_id))
        another = await ask(runs, "And for a small one?")
        assert (await runs.of(another, "me")).status == "finished"
