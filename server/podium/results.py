"""Results of the tools: what their schemas promise, and the data that is really sent."""

from pydantic import BaseModel, ConfigDict, JsonValue

from podium.arguments import untitled
from podium.estimate import Estimate
from podium.receipt import Receipt
from podium.trace import RunSummary
from podium.views import RunView
from podium_workers.pool import Pool
from podium_workers.worker import Frozen, WorkerCard


class Published(BaseModel):
    """Base of the published result types: they name the main fields and allow the others.

    Whole schemas would cost every client thousands of tokens in `tools/list`.
    """

    model_config = ConfigDict(extra="allow", json_schema_extra=untitled)


class RunResult(Published):
    run_id: str
    status: str
    answer: str


class RunsResult(Published):
    runs: list[dict[str, JsonValue]]


class WorkersResult(Published):
    workers: list[dict[str, JsonValue]]
    conductor: str


class PlanView(RunView):
    """A planned run with what it will take."""

    estimate: Estimate | None


class PaidView(RunView):
    """A run with its receipt: who did what, what it cost, what was cut or not read."""

    receipt: Receipt


class RunList(Frozen):
    """Runs, newest first or best match first."""

    runs: tuple[RunSummary, ...]
    snippets: tuple[str, ...] = ()
    """For a search, where each run matches."""


class WorkerList(Frozen):
    """The pool, strongest first."""

    workers: tuple[WorkerCard, ...]
    conductor: str
    """Worker that writes the plans."""
    planner: WorkerCard | None
    """That worker, where it does nothing else and so is none of `workers`."""

    @classmethod
    def of(cls, pool: Pool) -> "WorkerList":
        planner = pool.planner.card if pool.planner else None
        return cls(workers=pool.cards, conductor=pool.conductor, planner=planner)

    @property
    def written_by(self) -> str:
        """Who writes the plans, in a sentence."""
        if self.planner is None:
            return f"Plans are written by {self.conductor}."
        does = f"{self.planner.model}, {self.planner.told_price}, does no steps"
        return f"Plans are written by {self.conductor} ({does})."
