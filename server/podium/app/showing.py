"""Runs as tools and resources show them: short text, the same as data, and a link."""

import json

from mcp.types import (
    CallToolResult,
    ContentBlock,
    ResourceLink,
    TextContent,
)
from pydantic import BaseModel

from podium.errors import QuestionError
from podium.runs import Runs
from podium.trace import Run
from podium.views import RunView, prompt_text, view
from podium_workers.worker import mend

PAGE = 20_000
"""Characters of text in one result; clients cut at about 25,000 tokens and warn at 10,000."""


async def seen(runs: Runs, run: Run, *, reply_characters: int = 2000) -> RunView:
    working = await runs.at_work(run.run_id)
    store = runs.orchestrator.store
    return await view(store, run, working=working, reply_characters=reply_characters)


async def step_text(runs: Runs, run: Run, number: int) -> str:
    store = runs.orchestrator.store
    for result in await store.steps(run.run_id):
        if result.number == number:
            prompt = prompt_text(await store.text(result.prompt)) if result.prompt else "none"
            head = f"Step {number}, {result.worker}, {result.status}"
            return f"{head}\n\nPROMPT\n{prompt}\n\nREPLY\n{result.reply}"
    raise QuestionError("step", f"step {number} of run {run.run_id} has not been run.")


def as_result(structured: BaseModel, text: str, run: Run | None = None) -> CallToolResult:
    """Short text, the same as data, and a link to the whole record."""
    content: list[ContentBlock] = [TextContent(type="text", text=mend(text))]
    if run:
        link = ResourceLink(
            type="resource_link",
            name=f"run {run.run_id}",
            uri=f"podium://runs/{run.run_id}",
            description="The whole record of this run.",
            mime_type="application/json",
        )
        content.append(link)
    data = json.loads(structured.model_dump_json())
    return CallToolResult(content=content, structured_content=data)


def paged(text: str, page: int, run: Run, step: int = -1) -> str:
    """One page of a long text, with a line that says how to get the next."""
    pages = max(1, -(-len(text) // PAGE))
    if page >= pages:
        raise QuestionError("page", f"there are pages 0 to {pages - 1} only.")
    shown = text[page * PAGE : (page + 1) * PAGE]
    which = "" if step < 0 else f", step={step}"
    next_page = f"get_run(run_id={run.run_id!r}{which}, page={page + 1})"
    more = f"\n[page {page} of 0 to {pages - 1}; the next: {next_page}]"
    return shown + (more if page < pages - 1 else "")
