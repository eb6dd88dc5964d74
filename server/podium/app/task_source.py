"""What the tasks extension wants of those whose tools it makes tasks of. Knows no method of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, cast

import anyio
from mcp.server import ServerRequestContext
from mcp.server.context import CallNext, HandlerResult
from mcp.types import CallToolRequestParams
from pydantic import BaseModel, JsonValue

from podium.task_book import TaskRow, TaskState

Asked = ServerRequestContext[object, object]
Answers = Mapping[str, Mapping[str, JsonValue]]
"""What a client says to the requests of a task, by their keys."""


@dataclass(frozen=True)
class Begun:
    """Work that a tool call has begun and that goes on by itself."""

    run_id: str | None = None
    """The run that it is; None when it is no run."""
    message: str = ""
    """How it stands, in one line for a person."""


@dataclass(frozen=True)
class TaskCall:
    """A tool call that may become a task."""

    task_id: str
    """The id that the task will have."""
    params: CallToolRequestParams
    ctx: Asked
    call_next: CallNext
    """Does the call as if there were no tasks."""
    asks: bool
    """Whether the client can ask its user something."""
    stored: anyio.Event = field(default_factory=anyio.Event)
    """Set once the task is in the ledger, or will never be."""

    async def as_usual(self) -> HandlerResult:
        """What the tool gives without tasks: for a call that is done at once, or goes wrong."""
        return await self.call_next(self.ctx)


class TaskSource(Protocol):
    """Something that tool calls begin and tasks look at.

    For Podium's tools that is `RunTasks`. Another one, for tools of another kind, is given to
    `build_server` or `TaskExtension`; it may keep its work in memory, by the task's id. It is only
    asked about tasks of its own tools, which are in the ledger and have not ended. How one has
    ended is stored as soon as `look` gives a state that has `ended`; then it stays so.
    """

    @property
    def tools(self) -> frozenset[str]:
        """Names of the tools whose calls may become tasks."""
        ...

    @property
    def only_as_tasks(self) -> frozenset[str]:
        """Those of them that clients without the extension may not call."""
        ...

    async def begin(self, call: TaskCall) -> Begun | HandlerResult:
        """Begin what is asked for, without waiting for it.

        Whatever else is given than `Begun` is the reply to the call, and there is no task: the
        result of a tool that is done already, or a question that comes first
        (`InputRequiredResult`; the client's answers are in `call.params`).
        """
        ...

    async def look(self, row: TaskRow) -> TaskState:
        """How a task stands. Everything that the client is asked for now is in `requests`.

        Raises:
            PodiumError: that cannot be known now.
        """
        ...

    async def answer(self, row: TaskRow, answers: Answers) -> None:
        """Take what the client says to requests; keys that nothing is asked under are ignored.

        Raises:
            PodiumError: the text says what is wrong with an answer; the request stays.
        """
        ...

    async def cancel(self, row: TaskRow) -> None:
        """Stop the work; `look` says what came of that.

        Raises:
            PodiumError: it cannot be stopped now.
        """
        ...

    async def delivered(self, row: TaskRow, state: TaskState) -> None:
        """A client is about to be told how a task has ended."""
        ...


def result_data(result: BaseModel) -> dict[str, JsonValue]:
    """A tool's result as it goes over the wire."""
    return cast(
        "dict[str, JsonValue]", result.model_dump(by_alias=True, mode="json", exclude_none=True)
    )
