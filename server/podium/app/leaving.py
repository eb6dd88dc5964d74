"""How a tool call is left as soon as its run is at work, when a task looks at the run from then on.

Whoever makes tasks sets `BECOMES_TASK` around the call; the tool begins its run as ever, and where
it would wait for it, it ends with `RunBegun` instead.
"""

from contextvars import ContextVar

from mcp import MCPError
from mcp.types import INTERNAL_ERROR

from podium.runs import Runs
from podium.trace import Run

BECOMES_TASK: ContextVar[bool] = ContextVar("BECOMES_TASK", default=False)
"""Whether the tool call at hand is to be left while its run is at work."""


class RunBegun(MCPError):
    """Ends such a call. An MCPError, since every other one the SDK turns into a result."""

    def __init__(self, run: Run) -> None:
        super().__init__(INTERNAL_ERROR, f"Run {run.run_id} goes on by itself.")
        self.run = run


async def leave_at_work(runs: Runs, run: Run) -> None:
    """End the call if it becomes a task and *run* is at work; a run at rest can be told at once.

    Raises:
        RunBegun: a task looks at the run from now on.
    """
    # In this order: a run of this process may end while it is asked who holds it.
    if BECOMES_TASK.get() and (runs.is_mine(run.run_id) or await runs.at_work(run.run_id)):
        raise RunBegun(run)
