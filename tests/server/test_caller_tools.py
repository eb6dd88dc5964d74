"""Steps of the calling model through the tools: what it is told, and what its result does."""

from pathlib import Path
from typing import Literal

import anyio
import pytest
from pydantic import JsonValue
from tests.core_parts import BOUND_S, asks_for, worker
from tests.elicited import boss, served
from tests.flow.client import data, steps, text

from podium.plan import CALLER
from podium_workers.scripted import Line
from podium_workers.worker import Prompt

TEAM = (
    boss((CALLER, "Run the tests.", []), ("ann", "Explain them.", [0])),
    worker("ann", ["Two tests fail."]),
)


@pytest.mark.parametrize("era", ["legacy", "2026-07-28"])
async def test_a_model_is_told_what_to_do_and_its_result_carries_the_run_on(
    tmp_path: Path, era: Literal["legacy", "2026-07-28"]
):
    async with served(tmp_path, None, era, *TEAM) as (client, _):
        question: dict[str, JsonValue] = {
            "question": "Why?",
            "strategy": "conductor",
            "caller": True,
        }
        waits = await client.call_tool("orchestrate", question)
        run_id = data(waits)["run_id"]
        assert data(waits)["status"] == "needs_caller"
        assert data(waits)["needs"] == "Step 0: Run the tests."
        assert text(waits).startswith("Your turn: do this yourself")
        assert f"run_step(run_id={run_id!r}, step=0, result='…')" in text(waits)

        again = await client.call_tool("orchestrate", question)
        assert data(again)["run_id"] == run_id, "the same question waits for the same result"

        given: dict[str, JsonValue] = {"run_id": run_id, "step": 0, "result": "2 failed"}
        done = await client.call_tool("run_step", given)
        assert data(done)["status"] == "finished"
        assert text(done).startswith("Two tests fail.")
        assert [line["worker"] for line in steps(done)] == [CALLER, "ann"]


async def test_a_result_that_comes_again_undoes_nothing(tmp_path: Path):
    async with served(tmp_path, None, "2026-07-28", *TEAM) as (client, _):
        question: dict[str, JsonValue] = {
            "question": "Why?",
            "strategy": "conductor",
            "caller": True,
        }
        run_id = data(await client.call_tool("orchestrate", question))["run_id"]
        given: dict[str, JsonValue] = {"run_id": run_id, "step": 0, "result": "2 failed"}
        blank = await client.call_tool("run_step", given | {"result": "  "})
        assert text(blank).startswith("result: is empty")
        first = await client.call_tool("run_step", given)
        again = await client.call_tool("run_step", given)
        assert (data(again)["status"], text(again)) == ("finished", text(first))
        other = await client.call_tool("run_step", given | {"result": "3 failed"})
        assert other.is_error
        assert text(other).startswith("Step 0 was answered already, with another result")
        assert data(await client.call_tool("get_run", {"run_id": run_id}))["status"] == "finished"


async def test_a_run_that_was_stopped_asks_nobody_for_anything(tmp_path: Path):
    async with served(tmp_path, None, "2026-07-28", *TEAM) as (client, _):
        question: dict[str, JsonValue] = {
            "question": "Why?",
            "strategy": "conductor",
            "caller": True,
        }
        run_id = data(await client.call_tool("orchestrate", question))["run_id"]
        stopped = await client.call_tool("cancel_run", {"run_id": run_id})
        assert text(stopped).startswith("Stopped: nothing more is done.")


async def test_a_result_may_come_while_other_steps_are_at_work(tmp_path: Path):
    began, let_go = anyio.Event(), anyio.Event()

    async def slow(prompt: Prompt) -> Line:
        if asks_for("Think.")(prompt):
            began.set()
            await let_go.wait()
        return "Thought."

    team = (
        boss((CALLER, "Look.", []), ("ann", "Think.", []), ("ann", "Sum up.", [0, 1])),
        worker("ann", slow),
    )
    async with served(tmp_path, None, "2026-07-28", *team) as (client, _):
        question: dict[str, JsonValue] = {
            "question": "Why?",
            "strategy": "conductor",
            "caller": True,
        }
        early = await client.call_tool("orchestrate", question | {"max_wait_s": 0.01})
        run_id = str(data(early)["run_id"])
        with anyio.fail_after(BOUND_S):
            await began.wait()
            working = await client.call_tool("get_run", {"run_id": run_id})
            assert "Step 0: Look." in text(working)

            async def waits(progress: float, total: float | None, message: str | None) -> None:
                let_go.set()

            given: dict[str, JsonValue] = {"run_id": run_id, "step": 0, "result": "A tower."}
            done = await client.call_tool("run_step", given, progress_callback=waits)
        assert data(done)["status"] == "finished"


async def test_a_walked_run_takes_a_result_and_stands_still(tmp_path: Path):
    async with served(tmp_path, None, "2026-07-28", *TEAM) as (client, _):
        question: dict[str, JsonValue] = {
            "question": "Why?",
            "strategy": "conductor",
            "caller": True,
        }
        planned = await client.call_tool("plan_only", question)
        run_id = data(planned)["run_id"]
        waits = await client.call_tool("run_step", {"run_id": run_id})
        assert data(waits)["status"] == "planned"
        assert "Your turn" in text(waits)
        given = await client.call_tool("run_step", {"run_id": run_id, "result": "2 failed"})
        assert data(given)["status"] == "planned"
        assert [line["status"] for line in steps(given)] == ["finished", "planned"]
