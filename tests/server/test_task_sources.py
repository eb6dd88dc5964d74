"""Tasks of tools that are no runs: what the extension does for any `TaskSource`."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from mcp import Client, MCPError
from mcp.types import INTERNAL_ERROR, MISSING_REQUIRED_CLIENT_CAPABILITY
from pydantic import JsonValue
from tests.core_parts import open_parts, worker
from tests.outside import task_fixtures
from tests.task_client import (
    DECLARED,
    call,
    cancel,
    ended,
    look,
    raw,
    requests,
    result,
    task_of,
    text,
    until,
    update,
)

from podium.app import build_server
from podium.config import Settings
from podium.runs import open_runs

YES: JsonValue = {"action": "accept", "content": {}}


@asynccontextmanager
async def served(folder: Path, *, declares: bool = True) -> AsyncGenerator[Client]:
    settings = Settings(store=folder / "podium.db")
    async with (
        open_parts(folder, worker("solo")) as parts,
        open_runs(parts.orchestrator) as runs,
        anyio.create_task_group() as group,
    ):
        jobs = task_fixtures.FixtureTasks(group)
        server = build_server(runs, settings, reads_paths=False, task_sources=[jobs])
        for tool in task_fixtures.TOOLS:
            server.add_tool(tool)
        async with Client(server, extensions=[DECLARED] if declares else None) as client:
            yield client
        group.cancel_scope.cancel()


async def test_a_jsonrpc_error_fails_the_task_and_a_tools_error_completes_it(
    tmp_path: Path,
) -> None:
    async with served(tmp_path) as client:
        failed = await ended(client, await task_of(client, "protocol_error_job"))
        assert failed["status"] == "failed"
        assert failed["error"] == {"code": INTERNAL_ERROR, "message": "It was meant to break."}
        assert "result" not in failed
        wrong = await ended(client, await task_of(client, "failing_job"))
        assert result(wrong)["isError"] is True
        assert "It was meant to fail." in text(wrong)
        assert "error" not in wrong


async def test_questions_that_come_together_are_answered_one_by_one(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        task = await task_of(client, "multi_input")
        assert set(requests(await until(client, task, "input_required"))) == {"one", "other"}
        await update(client, task, {"one": YES, "third": YES})
        assert set(requests(await look(client, task))) == {"other"}
        await update(client, task, {"other": YES})
        assert (await ended(client, task))["status"] == "completed"


async def test_a_question_that_comes_first_is_no_task_yet(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        first = await call(client, "test_tool_with_task")
        assert first["resultType"] == "input_required"
        assert "taskId" not in first
        answers: JsonValue = {"user_name": {"action": "accept", "content": {"name": "Ada"}}}
        again: dict[str, JsonValue] = {
            "name": "test_tool_with_task", "arguments": {}, "inputResponses": answers,
        }  # fmt: skip
        made = await raw(client, "tools/call", again)
        assert "Ada" in text(await ended(client, str(made["taskId"])))


async def test_a_cancel_leaves_what_has_ended_alone(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        task = await task_of(client, "slow_compute", seconds=60, label="x")
        await cancel(client, task)
        assert (await look(client, task))["status"] == "cancelled"
        quick = await task_of(client, "slow_compute", seconds=0, label="y")
        await ended(client, quick)
        await cancel(client, quick)
        assert text(await look(client, quick)) == "y: done"


async def test_a_tool_that_needs_tasks_says_so_to_clients_without_them(tmp_path: Path) -> None:
    async with served(tmp_path, declares=False) as client:
        with pytest.raises(MCPError) as caught:
            await call(client, "failing_job")
        assert caught.value.code == MISSING_REQUIRED_CLIENT_CAPABILITY
        done = await call(client, "slow_compute", seconds=0, label="z")
        assert done["resultType"] == "complete"
