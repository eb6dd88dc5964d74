"""Tools of the conformance suite that may, or must, run as tasks, and where tasks are kept."""

from dataclasses import dataclass, field
from typing import Annotated

import anyio
from anyio.abc import TaskGroup
from mcp import MCPError
from mcp.server.context import HandlerResult
from mcp.server.mcpserver import Context, Elicit, Resolve
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import INTERNAL_ERROR, CallToolResult, ElicitRequest, InputRequiredResult
from pydantic import BaseModel, JsonValue
from tests.outside.input_fixtures import Name, answer, asking, form, said

from podium.app.task_source import Answers, Begun, TaskCall, result_data
from podium.task_book import TaskRow, TaskState


class Deletion(BaseModel):
    confirm: bool


async def greet(name: str) -> CallToolResult:
    """Greets at once."""
    return said(f"Hello, {name}!")


async def slow_compute(seconds: float, label: str) -> CallToolResult:
    """Works as long as it is told to."""
    await anyio.sleep(seconds)
    return said(f"{label}: done")


async def failing_job() -> CallToolResult:
    """Fails."""
    raise ToolError("It was meant to fail.")


async def protocol_error_job() -> CallToolResult:
    """Fails as no tool should."""
    raise MCPError(INTERNAL_ERROR, "It was meant to break.")


def ask_to_delete(filename: str) -> Elicit[Deletion]:
    return Elicit(f"Delete {filename}?", Deletion)


async def confirm_delete(
    filename: str, found: Annotated[Deletion, Resolve(ask_to_delete)]
) -> CallToolResult:
    """Asks before it deletes."""
    return said(f"{filename}: {'deleted' if found.confirm else 'kept'}")


def ask_one() -> Elicit[Name]:
    return Elicit("What is your name?", Name)


def ask_other() -> Elicit[Name]:
    return Elicit("And what is your other name?", Name)


async def multi_input(
    one: Annotated[Name, Resolve(ask_one)], other: Annotated[Name, Resolve(ask_other)]
) -> CallToolResult:
    """Asks two things at once."""
    return said(f"{one.name}, {other.name}")


async def test_tool_with_task(ctx: Context) -> CallToolResult | InputRequiredResult:
    """Asks first, then works."""
    found = answer(ctx, "user_name")
    if found is None or not found.content:
        return asking("user_name", "What is your name?", "name")
    return said(f"Worked for {found.content.get('name')}.")


TOOLS = (
    greet, slow_compute, failing_job, protocol_error_job, confirm_delete, multi_input,
    test_tool_with_task,
)  # fmt: skip
QUESTIONS = {"confirm_delete": ("really",), "multi_input": ("one", "other")}
"""What a task of these tools asks its client, by the keys of the questions."""


@dataclass
class Job:
    """The work of one task."""

    waits_for: dict[str, ElicitRequest]
    answers: dict[str, JsonValue] = field(default_factory=dict[str, JsonValue])
    answered: anyio.Event = field(default_factory=anyio.Event)
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    end: TaskState | None = None

    @property
    def state(self) -> TaskState:
        if self.end:
            return self.end
        if not self.waits_for:
            return TaskState(status="working")
        asked = {key: result_data(request) for key, request in self.waits_for.items()}
        return TaskState(status="input_required", requests=asked)


class FixtureTasks:
    """The tasks of these tools, in memory."""

    tools = frozenset(tool.__name__ for tool in TOOLS) - {"greet"}
    only_as_tasks = frozenset({"failing_job", "test_tool_with_task"})

    def __init__(self, group: TaskGroup) -> None:
        self._group = group
        self._jobs: dict[str, Job] = {}

    async def begin(self, call: TaskCall) -> Begun | HandlerResult:
        name = call.params.name
        if name == "test_tool_with_task" and not call.params.input_responses:
            return await call.as_usual()
        schema: dict[str, JsonValue] = {"type": "object", "properties": {}}
        job = Job({key: form(f"{key}?", schema) for key in QUESTIONS.get(name, ())})
        self._jobs[call.task_id] = job
        self._group.start_soon(self._work, call, job)
        return Begun()

    async def look(self, row: TaskRow) -> TaskState:
        return self._jobs[row.task_id].state

    async def answer(self, row: TaskRow, answers: Answers) -> None:
        job = self._jobs[row.task_id]
        for key in job.waits_for.keys() & answers.keys():
            del job.waits_for[key]
            job.answers[key] = dict(answers[key])
        if not job.waits_for:
            job.answered.set()

    async def cancel(self, row: TaskRow) -> None:
        job = self._jobs[row.task_id]
        job.scope.cancel()
        job.end = job.end or TaskState(status="cancelled")

    async def delivered(self, row: TaskRow, state: TaskState) -> None:
        pass

    async def _work(self, call: TaskCall, job: Job) -> None:
        with job.scope:
            if job.waits_for:
                await job.answered.wait()
                job.end = TaskState(status="completed", result=result_data(said(str(job.answers))))
                return
            try:
                result = await call.as_usual()
            except MCPError as error:
                wrong: dict[str, JsonValue] = {"code": error.code, "message": error.message}
                job.end = TaskState(status="failed", error=wrong)
                return
            assert isinstance(result, CallToolResult)
            job.end = TaskState(status="completed", result=result_data(result))
