"""The resources: runs, steps and the pool, to look at."""

import json
from collections.abc import Callable
from dataclasses import dataclass

from mcp.server import MCPServer

from podium.app.bounding import bounded
from podium.app.guards import answers_reader
from podium.app.showing import JSON, PAGE, a_page, seen, step_text
from podium.errors import QuestionError
from podium.receipt import best_so_far
from podium.results import (
    RunList,
    WorkerList,
)
from podium.runs import Runs
from podium.views import full_receipt

LONGEST = 40_000
"""Characters of one resource; longer texts come in pages: some clients hand all to a model."""
TEXT = "text/plain"
RUN = "podium://runs/{run_id}"
BEST = "podium://runs/{run_id}/best{?page}"
STEP = "podium://runs/{run_id}/steps/{step}{?page}"


@dataclass(frozen=True)
class Resources:
    """The resources, bound to the runs of this process."""

    runs: Runs
    principal: Callable[[], str]
    """The user that the call at hand comes from."""

    def add_to(self, server: MCPServer) -> None:
        """Offer them all."""
        offer = server.resource
        offer("podium://pool", name="pool", title="The pool", mime_type=JSON)(self.pool)
        offer("podium://runs", name="runs", title="Newest runs", mime_type=JSON)(self.newest)
        offer(RUN, name="run", title="A run", mime_type=JSON)(self.run)
        offer(BEST, name="best answer", title="Best answer", mime_type=TEXT)(self.best)
        offer(STEP, name="step", title="A step", mime_type=TEXT)(self.step)

    @answers_reader
    async def pool(self) -> str:
        """The workers, strongest first: model, where it runs, window, price."""
        return _json(WorkerList.of(self.runs.orchestrator.pool).model_dump_json())

    @answers_reader
    async def newest(self) -> str:
        """Your fifty newest runs."""
        found = await self.runs.orchestrator.store.summaries(principal=self.principal(), limit=50)
        return _json(RunList(runs=found).model_dump_json())

    @answers_reader
    async def run(self, run_id: str) -> str:
        """One run: plan, steps with the beginning of their replies, answer and receipt."""
        run = await self.runs.of(run_id, self.principal())
        store = self.runs.orchestrator.store
        shown = await seen(self.runs, run, reply_characters=PAGE)
        paid = await full_receipt(store, run)
        whole = f'{{"run": {shown.model_dump_json()}, "receipt": {paid.model_dump_json()}}}'
        return _json(whole, f"podium://runs/{run.run_id}/steps/N and /best have each text whole")

    @answers_reader
    async def best(self, run_id: str, page: str = "0") -> str:
        """The answer of a run, or its best one so far, a page at a time."""
        run = await self.runs.of(run_id, self.principal())
        text = run.answer
        if text is None:
            best = best_so_far(await self.runs.store.rounds(run.run_id))
            text = best.reply if best else "No step has finished yet."
        place = f"podium://runs/{run.run_id}/best?page=%d"
        return a_page(text, _number("page", page), place, LONGEST)

    @answers_reader
    async def step(self, run_id: str, step: str, page: str = "0") -> str:
        """One step's whole prompt and reply, a page at a time."""
        run = await self.runs.of(run_id, self.principal())
        number = _number("step", step)
        text = await step_text(self.runs, run, number)
        place = f"podium://runs/{run.run_id}/steps/{number}?page=%d"
        return a_page(text, _number("page", page), place, LONGEST)


def _json(text: str, whole: str = "get_run and search_runs give them one by one") -> str:
    """JSON for people, of a size for every client."""
    return json.dumps(bounded(json.loads(text), whole, LONGEST), ensure_ascii=False, indent=1)


def _number(name: str, text: str) -> int:
    # Not int() alone: it takes signs, spaces, underscores and digits of other scripts.
    if text.isascii() and text.isdigit() and len(text) < 10:
        return int(text)
    raise QuestionError(name, f"write a whole number, 0 or more (found {text[:20]!r}).")
