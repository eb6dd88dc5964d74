"""What the tools say of a run: as it stands, or with its plan and what that will take."""

from mcp.types import CallToolResult

from podium.app.clients import PATIENCE_S
from podium.app.showing import as_result, paged
from podium.estimate import estimate
from podium.results import PlanView
from podium.runs import Runs
from podium.trace import Run
from podium.views import RunView, told, view


async def tell_run(
    runs: Runs, run: Run, *, working: bool | None = None, wait_s: float = PATIENCE_S
) -> CallToolResult:
    """The run as `orchestrate` and `run_step` tell of it; *working* as in `tell_plan`.

    A run at work is told with a wait of *wait_s* seconds to ask again with; one whose plan is to be
    approved, with that plan.
    """
    if run.status == "planned" and run.request.waits_for_approval:
        return await tell_plan(runs, run, working=working, wait_s=wait_s)
    shown = await _seen(runs, run, working)
    return as_result(shown, paged(await tell(runs, run, shown, wait_s), 0, run), run)


async def tell(runs: Runs, run: Run, shown: RunView, wait_s: float) -> str:
    """The text about a run; while it is at work, with what its newest plan is expected to take."""
    takes = None
    if shown.working:
        rounds = await runs.store.rounds(run.run_id)
        plans = [found.plan for found in rounds if found.plan]
        takes = await estimate(runs.store, run, plans[-1]) if plans else None
    return told(shown, answer=run.answer or "", takes=takes, wait_s=wait_s)


async def tell_plan(
    runs: Runs, run: Run, *, working: bool | None = None, wait_s: float = PATIENCE_S
) -> CallToolResult:
    """The run as `plan_only` tells of it: its first plan, priced and timed.

    *working* says whether a process is at it; None has that found out.
    """
    rounds = await runs.store.rounds(run.run_id)
    plan = rounds[0].plan if rounds else None
    expected = await estimate(runs.store, run, plan) if plan else None
    shown = await _seen(runs, run, working)
    planned = PlanView(**dict(shown), estimate=expected)
    return as_result(planned, paged(told(shown, expected, wait_s=wait_s), 0, run), run)


async def _seen(runs: Runs, run: Run, working: bool | None) -> RunView:
    if working is None:
        working = await runs.at_work(run.run_id)
    return await view(runs.store, run, working=working)
