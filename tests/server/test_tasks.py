"""Tasks over the runs of one process: how they stand, what they ask, how they end for good."""

from pathlib import Path
from typing import cast

import anyio
import pytest
from mcp import Client, MCPError
from mcp.types import INVALID_PARAMS, MISSING_REQUIRED_CLIENT_CAPABILITY
from pydantic import JsonValue
from tests.core_parts import hanging
from tests.task_client import (
    DECLARED,
    Wire,
    call,
    cancel,
    data,
    ended,
    look,
    raw,
    result,
    task_of,
    text,
    until,
    update,
)
from tests.task_server import STEPS, served

from podium.app import build_server
from podium.app.run_tasks import RunTasks
from podium.app.server import PoliteServer
from podium.app.tasks import TaskExtension
from podium.app.tools import Tools
from podium.task_book import TaskBook


async def test_a_task_is_flat_and_becomes_what_the_tool_gives(tmp_path: Path) -> None:
    async with served(tmp_path) as podium, podium.client() as client:
        made = await call(client, "orchestrate", question="Why?", plan=STEPS)
        assert made["resultType"] == "task"
        assert made["status"] == "working"
        assert set(made) - {"_meta"} == {
            "resultType", "taskId", "status", "statusMessage", "createdAt", "lastUpdatedAt",
            "ttlMs", "pollIntervalMs",
        }  # fmt: skip
        assert made["ttlMs"] == 24 * 3600 * 1000
        assert made["pollIntervalMs"] == 500
        assert str(made["createdAt"]).endswith("Z")

        podium.gate.set()
        seen = await ended(client, str(made["taskId"]))
        assert seen["resultType"] == "complete"
        assert seen["createdAt"] == made["createdAt"]
        assert str(seen["lastUpdatedAt"]) >= str(made["lastUpdatedAt"])
        assert data(seen)["status"] == "finished"
        assert text(seen).startswith("Said.")

        without = await client.call_tool("get_run", {"run_id": str(data(seen)["run_id"])})
        told = cast("Wire", without.structured_content)
        told.pop("receipt")
        assert data(seen) == told


async def test_a_task_says_which_step_is_at_work(tmp_path: Path) -> None:
    async with served(tmp_path) as podium, podium.client() as client:
        task = await task_of(client, "orchestrate", question="Why?", plan=STEPS)
        await _until_it_says(client, task, "step 2 of 3: solo, Hold on., ")
        seen = await look(client, task)
        assert seen["status"] == "working"
        assert str(seen["statusMessage"]).endswith(" s")
        podium.gate.set()
        assert (await ended(client, task))["status"] == "completed"


async def _until_it_says(client: Client, task: str, words: str) -> None:
    with anyio.fail_after(10):
        while not str((await look(client, task))["statusMessage"]).startswith(words):  # noqa: ASYNC110
            await anyio.sleep(0.01)


async def test_a_task_that_has_ended_stays_as_it_is(tmp_path: Path) -> None:
    """Also when its run is worked on again."""
    async with served(tmp_path) as podium, podium.client() as client:
        podium.gate.set()
        task = await task_of(client, "orchestrate", question="Why?", plan=STEPS)
        first = await ended(client, task)
        run_id = data(first)["run_id"]
        edit = await task_of(client, "run_step", run_id=run_id, step=0, subtask="Look again.")
        assert data(await ended(client, edit))["answer"] == ""

        again = await look(client, task)
        for seen in (first, again):
            seen.pop("pollIntervalMs")
        assert again == first
        await cancel(client, task)
        assert (await look(client, task))["status"] == "completed"


async def test_the_end_of_a_task_that_nobody_looked_at_is_kept_too(tmp_path: Path) -> None:
    async with served(tmp_path) as podium, podium.client() as client:
        task = await task_of(client, "orchestrate", question="Why?", plan=STEPS)
        (run,) = await podium.runs.store.summaries()
        podium.gate.set()
        await podium.runs.wait(run.run_id)

        async def more(*_: object) -> None:
            await anyio.sleep_forever()

        await podium.runs.launch(await podium.runs.store.run(run.run_id), more)
        seen = await look(client, task)
        assert seen["status"] == "completed"
        assert data(seen)["working"] is False


async def test_a_plan_is_told_with_its_price_and_a_step_with_its_reply(tmp_path: Path) -> None:
    async with served(tmp_path) as podium, podium.client() as client:
        planned = await ended(client, await task_of(client, "plan_only", question="Why?"))
        assert data(planned)["status"] == "planned"
        assert data(planned)["estimate"]
        run_id = data(planned)["run_id"]
        walked = await ended(client, await task_of(client, "run_step", run_id=run_id))
        (step,) = cast("list[Wire]", data(walked)["steps"])
        assert step["reply"] == "Said."
        assert not podium.runs.is_mine(str(run_id))


async def test_what_a_tool_refuses_is_an_ordinary_result(tmp_path: Path) -> None:
    async with served(tmp_path) as podium, podium.client() as client:
        for tool, wrong in (
            ("orchestrate", {"question": " "}),
            ("orchestrate", {"question": "x", "fresk": True}),
            ("run_step", {"run_id": "ffffffff"}),
        ):
            refused = await call(client, tool, **cast("Wire", wrong))
            assert refused["resultType"] == "complete"
            assert refused["isError"] is True
        looked = await call(client, "list_workers")
        assert looked["resultType"] == "complete"
        assert podium.runs.store.writer.commits == 0


async def test_a_run_that_is_done_already_is_told_at_once(tmp_path: Path) -> None:
    async with served(tmp_path) as podium, podium.client() as client:
        podium.gate.set()
        done = data(await ended(client, await task_of(client, "orchestrate", question="Why?")))
        again = await call(client, "orchestrate", run_id=done["run_id"])
        assert again["resultType"] == "complete"
        assert cast("Wire", again["structuredContent"])["answer"] == "Said."


async def test_a_failure_of_the_work_is_a_result_with_an_error(tmp_path: Path) -> None:
    async with served(tmp_path) as podium, podium.client() as client:
        podium.gate.set()
        planned = data(await ended(client, await task_of(client, "plan_only", question="Why?")))
        wrong = await ended(
            client, await task_of(client, "run_step", run_id=planned["run_id"], step=7)
        )
        assert wrong["status"] == "completed"
        assert result(wrong)["isError"] is True
        assert "There is no step 7" in text(wrong)
        assert "error" not in wrong


async def test_a_cancelled_task_stops_its_run_and_stays_cancelled(tmp_path: Path) -> None:
    async with served(tmp_path) as podium, podium.client() as client:
        task = await task_of(client, "orchestrate", question="Why?", plan=STEPS)
        await until(client, task, "working")
        assert set(await cancel(client, task)) - {"_meta"} == {"resultType"}
        seen = await look(client, task)
        assert seen["status"] == "cancelled"
        assert "result" not in seen
        (run,) = await podium.runs.store.summaries()
        assert run.status == "stopped"
        assert run.run_id in str(seen["statusMessage"])

        podium.gate.set()
        resumed = await ended(client, await task_of(client, "orchestrate", run_id=run.run_id))
        assert data(resumed)["status"] == "finished"
        assert (await look(client, task))["status"] == "cancelled"
        await cancel(client, task)


async def test_a_run_that_is_stopped_by_a_tool_ends_its_task_with_what_there_is(
    tmp_path: Path,
) -> None:
    async with served(tmp_path) as podium, podium.client() as client:
        task = await task_of(client, "orchestrate", question="Why?", plan=STEPS)
        (run,) = await podium.runs.store.summaries()
        await client.call_tool("cancel_run", {"run_id": run.run_id})
        assert data(await look(client, task))["status"] == "stopped"


async def test_two_tasks_of_the_same_question_look_at_one_run(tmp_path: Path) -> None:
    async with served(tmp_path) as podium, podium.client() as client:
        one, other = [
            await task_of(client, "orchestrate", question="Why?", plan=STEPS) for _ in range(2)
        ]
        assert one != other
        podium.gate.set()
        runs = [data(await ended(client, task))["run_id"] for task in (one, other)]
        assert runs[0] == runs[1]

        # Only now that somebody was told does the same question begin anew.
        anew = await ended(
            client, await task_of(client, "orchestrate", question="Why?", plan=STEPS)
        )
        assert data(anew)["run_id"] != runs[0]


async def test_an_answer_that_nobody_was_told_waits_for_the_same_question(tmp_path: Path) -> None:
    async with served(tmp_path) as podium, podium.client() as client:
        await task_of(client, "orchestrate", question="Why?", plan=STEPS)
        (run,) = await podium.runs.store.summaries()
        podium.gate.set()
        await podium.runs.wait(run.run_id)
        again = await call(client, "orchestrate", question="Why?", plan=STEPS)
        assert cast("Wire", again["structuredContent"])["run_id"] == run.run_id


async def test_the_run_of_another_pool_waits_for_who_has_it(tmp_path: Path) -> None:
    async with served(tmp_path) as podium, podium.client() as client:
        task = await task_of(client, "orchestrate", question="Why?", plan=STEPS)
        await _until_it_says(client, task, "step 2 of 3")
    async with served(tmp_path, name="other") as podium, podium.client() as client:
        seen = await look(client, task)
        assert seen["status"] == "working"
        assert "same pool" in str(seen["statusMessage"])
    async with served(tmp_path) as podium, podium.client() as client:
        podium.gate.set()
        assert data(await ended(client, task))["status"] == "finished"


async def test_a_plan_that_was_broken_off_is_made_when_somebody_asks_for_it(tmp_path: Path) -> None:
    async with served(tmp_path, boss=hanging()) as podium, podium.client() as client:
        task = await task_of(client, "plan_only", question="Why?", strategy="conductor")
        await _until_it_says(client, task, "planning")
    async with served(tmp_path) as podium, podium.client() as client:
        planned = await ended(client, task)
        assert data(planned)["plan_source"] == "model"
        assert [step["subtask"] for step in cast("list[Wire]", data(planned)["steps"])] == ["Say."]
        assert podium.runs.store.writer.commits


async def test_a_task_of_somebody_else_is_unknown(tmp_path: Path) -> None:
    async with (
        served(tmp_path) as podium,
        podium.client(user="me") as mine,
        podium.client(user="you") as yours,
    ):
        task = await task_of(mine, "orchestrate", question="Why?", plan=STEPS)
        for ask in (look, cancel, _answer):
            with pytest.raises(MCPError, match="There is no task") as caught:
                await ask(yours, task)
            assert caught.value.code == INVALID_PARAMS
        assert (await look(mine, task))["status"] == "working"


async def _answer(client: Client, task: str) -> Wire:
    return await update(client, task, {"step-0": {"action": "decline"}})


@pytest.mark.parametrize("wrong", ["", "unknown", "../tasks", "\ud83d", "x" * 5000, 7, None])
async def test_an_id_that_is_none_gets_invalid_params(tmp_path: Path, wrong: JsonValue) -> None:
    async with served(tmp_path) as podium, podium.client() as client:
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            with pytest.raises(MCPError) as caught:
                await raw(client, method, {"taskId": wrong, "inputResponses": {}})
            assert caught.value.code == INVALID_PARAMS
        assert await podium.runs.store.summaries() == ()


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_without_the_extension_calls_wait_and_tasks_are_closed(
    tmp_path: Path, mode: str
) -> None:
    async with served(tmp_path) as podium, podium.client() as other:
        podium.gate.set()
        task = await task_of(other, "orchestrate", question="Why?")
        server = build_server(podium.runs, podium.settings, reads_paths=False)
        async with Client(server, mode=mode) as client:
            answered = await call(client, "orchestrate", question="And?", plan=STEPS)
            assert cast("Wire", answered["structuredContent"])["answer"] == "Said."
            for ask in (look, cancel, _answer):
                with pytest.raises(MCPError) as caught:
                    await ask(client, task)
                if mode != "legacy":
                    assert caught.value.code == MISSING_REQUIRED_CLIENT_CAPABILITY


async def test_an_initialize_client_gets_no_task_whatever_it_declares(tmp_path: Path) -> None:
    async with served(tmp_path) as podium:
        podium.gate.set()
        server = build_server(podium.runs, podium.settings, reads_paths=False)
        async with Client(server, mode="legacy", extensions=[DECLARED]) as client:
            answered = await call(client, "orchestrate", question="Why?", plan=STEPS)
            assert "taskId" not in answered
            assert answered["structuredContent"]


async def test_a_task_is_known_for_its_time_and_its_run_for_ever(tmp_path: Path) -> None:
    now = [1000.0]
    async with served(tmp_path) as podium:
        podium.gate.set()
        book = TaskBook(podium.runs.store, lambda: now[0])
        extension = TaskExtension(book, [RunTasks(podium.runs, book)], lambda: "me", ttl_s=60)
        server = PoliteServer("podium", extensions=[extension])
        tools = Tools(podium.runs, podium.settings, False, lambda: "me")
        server.add_tool(tools.orchestrate)
        async with Client(server, extensions=[DECLARED]) as client:
            made = await call(client, "orchestrate", question="Why?")
            assert made["ttlMs"] == 60_000
            task = str(made["taskId"])
            done = await ended(client, task)
            now[0] += 59.9
            assert (await look(client, task))["pollIntervalMs"] == 5000
            now[0] += 0.2
            with pytest.raises(MCPError, match=r"Unless it was pruned, its run is found with"):
                await look(client, task)

            await task_of(client, "orchestrate", question="And?")
            now[0] -= 10  # as if it still were the time for it: but its row is gone
            assert await book.find(task) is None
        run = await podium.runs.store.run(str(data(done)["run_id"]))
        assert run.answer == "Said."


async def test_two_hundred_tasks_at_once(tmp_path: Path) -> None:
    async with served(tmp_path) as podium, podium.client() as client:
        podium.gate.set()
        seen: list[Wire] = []

        async def ask(number: int) -> None:
            made = await call(client, "orchestrate", question=f"Number {number}?")
            assert made["resultType"] == "task"
            seen.append(await ended(client, str(made["taskId"]), every_s=1))

        with anyio.fail_after(120):
            async with anyio.create_task_group() as group:
                for number in range(200):
                    group.start_soon(ask, number)
        assert {str(found["status"]) for found in seen} == {"completed"}
        assert len({str(data(found)["run_id"]) for found in seen}) == 200
        assert len({str(found["taskId"]) for found in seen}) == 200


async def test_only_who_declares_the_extension_may_ask_to_be_told_of_tasks(tmp_path: Path) -> None:
    async with served(tmp_path) as podium:
        server = build_server(podium.runs, podium.settings, reads_paths=False)
        async with Client(server) as client:
            listening: Wire = {"notifications": {"taskIds": ["some-task"]}}
            with pytest.raises(MCPError) as caught:
                await raw(client, "subscriptions/listen", listening)
            assert caught.value.code == MISSING_REQUIRED_CLIENT_CAPABILITY
