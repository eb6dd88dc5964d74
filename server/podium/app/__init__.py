"""The MCP surface: tools and resources over `Runs`. The only module that imports mcp.

A tool call is a view of a run: it waits a while, tells of progress, and hands back the run's id
when the run needs longer. Expected failures become `ToolError`s that say what to do.
"""

from mcp.server import MCPServer
from mcp.types import ToolAnnotations

from podium import __version__
from podium.app.guards import BriefServer, refusing_unknown
from podium.app.resources import Resources
from podium.app.tools import PARAMETERS, Tools
from podium.config import Settings
from podium.runs import Runs

INSTRUCTIONS = (
    "Podium hands a hard question to a team of models: a conductor writes a small plan, workers "
    "carry it out, and one answer comes back with its record. Use `orchestrate` for questions that "
    "are worth more than one model's first reply; `plan_only` first when price or time matter. A "
    "result with status `running` is not an error: call `get_run` with its run_id, which is free."
)


def build_server(runs: Runs, settings: Settings, *, reads_paths: bool) -> MCPServer:
    """The MCP server over the runs of this process, both protocol eras, any transport."""

    def principal() -> str:
        return settings.principal

    tools = Tools(runs, settings, reads_paths, principal)
    resources = Resources(runs, principal)
    server = BriefServer(
        "podium", title="Podium", version=__version__, instructions=INSTRUCTIONS,
        log_level="WARNING", middleware=[refusing_unknown(PARAMETERS)],
    )  # fmt: skip
    works = ToolAnnotations(
        read_only_hint=False, destructive_hint=False, idempotent_hint=False, open_world_hint=True
    )
    looks = ToolAnnotations(read_only_hint=True, open_world_hint=False)
    server.add_tool(tools.orchestrate, title="Ask the team", annotations=works)
    server.add_tool(tools.plan_only, title="Plan, do not run", annotations=works)
    server.add_tool(tools.run_step, title="Run one step", annotations=works)
    server.add_tool(tools.get_run, title="Look at a run", annotations=looks)
    server.add_tool(tools.cancel_run, title="Stop a run", annotations=works)
    server.add_tool(tools.search_runs, title="Search earlier runs", annotations=looks)
    server.add_tool(tools.list_workers, title="List the pool", annotations=looks)
    as_json = "application/json"
    server.resource("podium://runs", title="Newest runs", mime_type=as_json)(
        resources.runs_resource
    )
    server.resource("podium://runs/{run_id}", title="A run", mime_type=as_json)(
        resources.run_resource
    )
    server.resource("podium://runs/{run_id}/best", title="Best answer", mime_type="text/plain")(
        resources.best_resource
    )
    server.resource("podium://runs/{run_id}/steps/{step}", title="A step", mime_type="text/plain")(
        resources.step_resource
    )
    server.resource("podium://pool", title="The pool", mime_type=as_json)(resources.pool_resource)
    return server
