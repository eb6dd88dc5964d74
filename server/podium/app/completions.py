"""What a client may complete while its user types: ids of runs, steps, workers, strategies."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from mcp.types import (
    Completion,
    CompletionArgument,
    CompletionContext,
    PromptReference,
    ResourceTemplateReference,
)

from podium.app.prompts import FOCUSES
from podium.errors import RunError
from podium.runs import Runs

MOST = 100
"""Values in one completion, as the protocol has it."""
_RUNS = 1_000
"""Newest runs that are looked through."""


@dataclass(frozen=True)
class Completions:
    """Completion of arguments of prompts and of the parts of a resource's address."""

    runs: Runs
    principal: Callable[[], str]
    """The user that the call at hand comes from: nobody is shown the runs of others."""

    async def complete(
        self,
        ref: PromptReference | ResourceTemplateReference,
        argument: CompletionArgument,
        context: CompletionContext | None,
    ) -> Completion:
        """The values that begin as the user has, best or newest first."""
        earlier = (context.arguments if context else None) or {}
        before, typed = _last_of_list(argument)
        known = await self._known(argument.name, earlier)
        fitting = [value for value in known if value.lower().startswith(typed.lower())]
        return Completion(
            values=[before + value for value in fitting[:MOST]],
            total=len(fitting),
            has_more=len(fitting) > MOST,
        )

    async def _known(self, name: str, earlier: dict[str, str]) -> Iterable[str]:
        orchestrator = self.runs.orchestrator
        match name:
            case "run_id" | "follow_up":
                return await self._run_ids()
            case "step":
                return await self._steps(earlier.get("run_id", ""))
            case "worker" | "workers":
                return orchestrator.pool.names
            case "strategy":
                return orchestrator.policies
            case "focus":
                return FOCUSES
            case _:
                return ()

    async def _run_ids(self) -> list[str]:
        store, mine = self.runs.store, self.principal()
        return [run.run_id for run in await store.summaries(principal=mine, limit=_RUNS)]

    async def _steps(self, run_id: str) -> list[str]:
        try:
            run = await self.runs.of(run_id, self.principal())
        except RunError:
            return []
        rounds = await self.runs.store.rounds(run.run_id)
        return [str(number) for found in rounds if found.plan for number in found.plan.numbers]


def _last_of_list(argument: CompletionArgument) -> tuple[str, str]:
    """What stands before the last name of a list with commas, and the name that is typed."""
    if argument.name != "workers" or "," not in argument.value:
        return "", argument.value
    before, _, typed = argument.value.rpartition(",")
    return f"{before}, ", typed.strip()
