"""The MCP surface: tools and resources over `Runs`. The only module that imports mcp.

A tool call is a view of a run: it waits a while, tells of progress, and hands back the run's id
when the run needs longer. Expected failures become `ToolError`s that say what to do.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mcp.server import MCPServer
from mcp.types import ToolAnnotations

from podium import __version__
from podium.app.asking import state_security
from podium.app.completions import Completions
from podium.app.guards import send_clean
from podium.app.offering import CACHE_HINTS, INSTRUCTIONS, LONG_RESULT, icons
from podium.app.prompts import Prompts
from podium.app.resources import Resources
from podium.app.run_tasks import RunTasks
from podium.app.server import PoliteServer
from podium.app.task_source import TaskSource
from podium.app.tasks import TaskExtension, refuse_undeclared_listeners
from podium.app.tools import Tools
from podium.config import Settings
from podium.runs import Runs
from podium.task_book import TaskBook

if TYPE_CHECKING:  # on stdio nobody has to be let in, and what HTTP needs takes time to load
    from podium.app.access import Access


def build_server(
    runs: Runs,
    settings: Settings,
    *,
    reads_paths: bool,
    access: "Access | None" = None,
    task_sources: Sequence[TaskSource] = (),
) -> MCPServer:
    """The MCP server over the runs of this process, both protocol eras, any transport.

    With *access* each call over HTTP comes from whom that has let in; else all come from the user
    that the settings name. *task_sources* make tasks of the calls of further tools.
    """

    def the_user() -> str:
        return settings.principal

    principal = access.principal if access else the_user

    tools = Tools(runs, settings, reads_paths, principal)
    resources = Resources(runs, principal)
    book = TaskBook(runs.store)
    tasks = TaskExtension(book, [RunTasks(runs, book), *task_sources], principal)
    server = PoliteServer(
        "podium", title="Podium", version=__version__, instructions=INSTRUCTIONS,
        icons=icons(), cache_hints=CACHE_HINTS,
        log_level="WARNING", middleware=[send_clean, refuse_undeclared_listeners],
        extensions=[tasks],
        auth=access.settings if access else None, token_verifier=access,
        request_state_security=state_security(settings.store),
    )  # fmt: skip
    server.strategies = tuple(runs.orchestrator.policies)
    works = ToolAnnotations(
        read_only_hint=False, destructive_hint=False, idempotent_hint=False, open_world_hint=True
    )
    looks = ToolAnnotations(read_only_hint=True, open_world_hint=False)
    for tool, title, does in (
        (tools.orchestrate, "Ask the team", works),
        (tools.plan_only, "Plan, do not run", works),
        (tools.run_step, "Run one step", works),
        (tools.get_run, "Look at a run", looks),
        (tools.cancel_run, "Stop a run", works),
        (tools.search_runs, "Search earlier runs", looks),
        (tools.list_workers, "List the pool", looks),
    ):
        server.add_tool(tool, title=title, annotations=does, meta=LONG_RESULT)
    resources.add_to(server)
    Prompts(runs).add_to(server)
    server.completion()(Completions(runs, principal).complete)
    return server
