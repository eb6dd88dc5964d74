"""The resources: runs, steps and the pool, to look at."""

import json
from collections.abc import Callable
from dataclasses import dataclass

from podium.app.guards import answers_reader
from podium.app.showing import PAGE, seen, step_text
from podium.receipt import best_so_far
from podium.results import (
    RunList,
    WorkerList,
)
from podium.runs import Runs
from podium.views import full_receipt


@dataclass(frozen=True)
class Resources:
    """The resources, bound to the runs of this process."""

    runs: Runs
    principal: Callable[[], str]
    """The user that the call at hand comes from."""

    @answers_reader
    async def runs_resource(self) -> str:
        """The newest runs."""
        found = await self.runs.orchestrator.store.summaries(principal=self.principal(), limit=50)
        return RunList(runs=found).model_dump_json(indent=2)

    @answers_reader
    async def run_resource(self, run_id: str) -> str:
        """One run with all steps and its receipt."""
        run = await self.runs.of(run_id, self.principal())
        store = self.runs.orchestrator.store
        shown = await seen(self.runs, run, reply_characters=PAGE)
        whole = {
            "run": shown.model_dump(),
            "receipt": (await full_receipt(store, run)).model_dump(),
        }
        return json.dumps(whole, ensure_ascii=False, indent=2)

    @answers_reader
    async def best_resource(self, run_id: str) -> str:
        """The answer of a run, or its best one so far, whole."""
        run = await self.runs.of(run_id, self.principal())
        if run.answer is not None:
            return run.answer
        best = best_so_far(await self.runs.store.rounds(run.run_id))
        return best.reply if best else "No step has finished yet."

    @answers_reader
    async def step_resource(self, run_id: str, step: int) -> str:
        """One step's prompt and reply, whole."""
        run = await self.runs.of(run_id, self.principal())
        return await step_text(self.runs, run, step)

    @answers_reader
    async def pool_resource(self) -> str:
        """The pool."""
        pool = self.runs.orchestrator.pool
        listed = WorkerList(workers=pool.cards, conductor=pool.conductor)
        return listed.model_dump_json(indent=2)
