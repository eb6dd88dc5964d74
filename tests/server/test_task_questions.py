"""What tasks ask the user of their client, and what becomes of the answers."""

from pathlib import Path
from typing import cast

import pytest
from mcp import MCPError
from mcp.types import INVALID_PARAMS
from pydantic import JsonValue
from tests.task_client import (
    Wire,
    cancel,
    data,
    ended,
    look,
    requests,
    task_of,
    text,
    until,
    update,
)
from tests.task_server import FOR_CALLER, served

from podium.task_book import TaskBook
from podium_workers.worker import Price


async def test_a_step_of_the_callers_is_asked_for_and_given(tmp_path: Path) -> None:
    async with served(tmp_path) as podium, podium.client() as client:
        podium.gate.set()
        task = await task_of(client, "orchestrate", question="Good?", plan=FOR_CALLER)
        seen = await until(client, task, "input_required")
        ((key, request),) = requests(seen).items()
        assert request["method"] == "elicitation/create"
        asked = cast("Wire", request["params"])
        assert asked["mode"] == "form"
        assert "Run the tests." in str(asked["message"])
        assert cast("Wire", asked["requestedSchema"])["required"] == ["result"]
        assert requests(await look(client, task)) == {key: request}

        given: JsonValue = {"action": "accept", "content": {"result": "All pass."}}
        await update(client, task, {key: given})
        done = await ended(client, task)
        assert data(done)["status"] == "finished"
        assert [step["reply"] for step in cast("list[Wire]", data(done)["steps"])] == [
            "All pass.",
            "Said.",
        ]
        await update(client, task, {key: given})
        assert data(await look(client, task)) == data(done)


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_step_that_the_user_will_not_do_ends_the_task_as_the_tool_would(
    tmp_path: Path, action: str
) -> None:
    async with served(tmp_path) as podium, podium.client() as client:
        task = await task_of(client, "orchestrate", question="Good?", plan=FOR_CALLER)
        (key,) = requests(await until(client, task, "input_required"))
        await update(client, task, {key: {"action": action}})
        seen = await look(client, task)
        assert data(seen)["status"] == "needs_caller"
        assert "run_step(" in text(seen)
        assert not podium.runs.is_mine(str(data(seen)["run_id"]))


async def test_a_client_that_cannot_ask_its_user_is_told_what_is_needed(tmp_path: Path) -> None:
    async with served(tmp_path) as podium, podium.client(asks=False) as client:
        seen = await ended(
            client, await task_of(client, "orchestrate", question="Good?", plan=FOR_CALLER)
        )
        assert data(seen)["status"] == "needs_caller"
        assert await podium.runs.store.running() == ()


async def test_answers_that_do_not_fit_are_refused_and_others_ignored(tmp_path: Path) -> None:
    async with served(tmp_path) as podium, podium.client() as client:
        task = await task_of(client, "orchestrate", question="Good?", plan=FOR_CALLER)
        seen = await until(client, task, "input_required")
        (key,) = requests(seen)
        for wrong, word in (
            ({"action": "accept", "content": {"result": " "}}, "result: is empty"),
            ({"action": "accept"}, "result: is empty"),
            ({"action": "perhaps"}, "action: write accept, decline or cancel"),
            ({}, "action: write accept, decline or cancel"),
            ({"action": "accept", "content": [1]}, "content: write an object with the form's"),
        ):
            with pytest.raises(MCPError, match=word) as caught:
                await update(client, task, {key: cast("Wire", wrong)})
            assert caught.value.code == INVALID_PARAMS
        await update(client, task, {"another": {"ignored": True}})
        assert requests(await look(client, task)) == requests(seen)
        assert podium.runs.store.writer.commits


async def test_a_plan_waits_for_the_users_yes(tmp_path: Path) -> None:
    async with served(tmp_path) as podium, podium.client() as client:
        podium.gate.set()
        task = await task_of(client, "orchestrate", question="Why?", approve="plan")
        ((key, request),) = requests(await until(client, task, "input_required")).items()
        assert "Carry out this plan?" in str(cast("Wire", request["params"])["message"])
        await update(client, task, {key: {"action": "accept", "content": {"approve": True}}})
        assert data(await ended(client, task))["answer"] == "Said."

        refused = await task_of(client, "orchestrate", question="Why not?", approve="plan")
        (key,) = requests(await until(client, refused, "input_required"))
        await update(client, refused, {key: {"action": "decline"}})
        assert data(await ended(client, refused))["status"] == "stopped"


@pytest.mark.parametrize("does", ["raises", "declines", "cancels the task"])
async def test_a_run_at_its_limit_asks_for_more_money(tmp_path: Path, does: str) -> None:
    dear = {"price": Price(input=1000, output=1000), "max_output_tokens": 100}
    async with served(tmp_path, card=dear) as podium, podium.client() as client:
        podium.gate.set()
        task = await task_of(client, "orchestrate", question="Why?", max_usd=0.01)
        (key,) = requests(await until(client, task, "input_required"))
        if does == "raises":
            await update(client, task, {key: {"action": "accept", "content": {"max_usd": 100}}})
            assert data(await ended(client, task))["answer"] == "Said."
            return
        if does == "declines":
            await update(client, task, {key: {"action": "decline"}})
        else:
            await cancel(client, task)
        assert data(await look(client, task))["limit"] == "usd"


async def test_the_same_question_asked_again_in_a_task_has_another_key(tmp_path: Path) -> None:
    """The specification lets no key of a task be used twice."""
    async with served(tmp_path) as podium, podium.client() as client:
        task = await task_of(client, "orchestrate", question="Good?", plan=FOR_CALLER)
        (key,) = requests(await until(client, task, "input_required"))
        book = TaskBook(podium.runs.store)
        await book.mark_answered(task, key)
        (other,) = requests(await look(client, task))
        assert other != key
        await update(client, task, {key: {"action": "accept", "content": {"result": "Old."}}})
        assert set(requests(await look(client, task))) == {other}
        await update(client, task, {other: {"action": "accept", "content": {"result": "New."}}})
        assert data(await ended(client, task))["status"] == "finished"
