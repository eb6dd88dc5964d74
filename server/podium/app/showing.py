"""Runs as tools and resources show them: short text, the same as data, and a link."""

import json

from mcp.types import (
    CallToolResult,
    ContentBlock,
    ResourceLink,
    TextContent,
)
from pydantic import BaseModel

from podium.app.bounding import bounded
from podium.errors import QuestionError
from podium.plan import Plan
from podium.runs import Runs
from podium.trace import Run, StepResult
from podium.views import RunView, prompt_text, view
from podium_workers.worker import mend

PAGE = 20_000
"""Characters of text in one result; clients cut at about 25,000 tokens and warn at 10,000."""
JSON = "application/json"
POOL_LINK = ResourceLink(
    type="resource_link", name="pool", uri="podium://pool", description="The whole pool.",
    mime_type=JSON,
)  # fmt: skip
RUNS_LINK = ResourceLink(
    type="resource_link", name="runs", uri="podium://runs", description="The newest runs.",
    mime_type=JSON,
)  # fmt: skip


async def seen(runs: Runs, run: Run, *, reply_characters: int = 2000) -> RunView:
    working = await runs.at_work(run.run_id)
    store = runs.orchestrator.store
    return await view(store, run, working=working, reply_characters=reply_characters)


async def step_text(runs: Runs, run: Run, number: int) -> str:
    """All of one step: its prompt and reply, or what it is to do.

    Raises:
        QuestionError: the run has no such step.
    """
    store = runs.orchestrator.store
    for result in await store.steps(run.run_id):
        if result.number == number:
            prompt = prompt_text(await store.text(result.prompt)) if result.prompt else "none"
            return f"{_step_head(result)}\n\nPROMPT\n{prompt}\n\nREPLY\n{result.reply}"
    plans = [found.plan for found in await store.rounds(run.run_id) if found.plan]
    for plan in plans:
        if number in plan.numbers:
            return _planned_step(plan, number)
    numbers = [number for plan in plans for number in plan.numbers]
    there = f"it has steps {numbers[0]} to {numbers[-1]}" if numbers else "it has no plan yet"
    raise QuestionError("step", f"run {run.run_id} has no step {number}; {there}.")


def _step_head(result: StepResult) -> str:
    return f"Step {result.number}, {result.worker}, {result.status}"


def _planned_step(plan: Plan, number: int) -> str:
    step = plan.step(number)
    reads = list(plan.reads(number)) or "nothing"
    return f"Step {number}, {step.worker}, planned, reads {reads}\n\nSUBTASK\n{step.subtask}"


def as_result(
    structured: BaseModel, text: str, about: Run | ResourceLink | None = None
) -> CallToolResult:
    """Short text, the same as data in a bounded size, and a link to the whole record."""
    content: list[ContentBlock] = [TextContent(type="text", text=_short(mend(text)))]
    link = _link(about) if isinstance(about, Run) else about
    if link:
        content.append(link)
    data = json.loads(structured.model_dump_json())
    return CallToolResult(content=content, structured_content=bounded(data, _whole(about)))


def _link(run: Run) -> ResourceLink:
    return ResourceLink(
        type="resource_link",
        name=f"run {run.run_id}",
        uri=f"podium://runs/{run.run_id}",
        description="The whole record of this run.",
        mime_type=JSON,
    )


def _whole(about: Run | ResourceLink | None) -> str:
    """Where all of a result can be read."""
    if isinstance(about, Run):
        return f"get_run(run_id={about.run_id!r}, step=…) has each step whole"
    return f"{about.uri} has more" if about else "ask for less at once"


def _short(text: str) -> str:
    """A text that is not paged, at most about a page of it."""
    longest = PAGE + 500
    return text if len(text) <= longest else f"{text[:PAGE]}\n[cut here, of {len(text)} characters]"


def paged(text: str, page: int, run: Run, step: int = -1) -> str:
    """One page of a long text, with a line that says how to get the next.

    Raises:
        QuestionError: there is no such page.
    """
    which = "" if step < 0 else f", step={step}"
    return a_page(text, page, f"get_run(run_id={run.run_id!r}{which}, page=%d)", PAGE)


def a_page(text: str, page: int, next_page: str, length: int) -> str:
    """Page *page* of a text; *next_page* says how to ask for page `%d`.

    Raises:
        QuestionError: there is no such page.
    """
    pages = max(1, -(-len(text) // length))
    if page not in range(pages):
        raise QuestionError("page", f"there are pages 0 to {pages - 1} only.")
    more = f"\n[page {page} of 0 to {pages - 1}; the next: {next_page % (page + 1)}]"
    return text[page * length : (page + 1) * length] + (more if page < pages - 1 else "")
