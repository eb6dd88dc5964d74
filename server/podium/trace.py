"""What happened in a run, as data, and the events that tell of it while it happens."""

from collections.abc import Awaitable, Callable
from typing import Literal

from pydantic import Field, JsonValue

from podium.errors import LimitName
from podium.plan import Access, Cut, Plan, PlanSource, Proposal
from podium_workers.worker import FinishReason, Frozen, Text, Usage, WorkerCard

StepStatus = Literal["running", "finished", "failed", "waiting", "stale", "stopped"]


class Failure(Frozen):
    """One worker's failure on a step or proposal."""

    worker: str
    code: str
    message: Text
    status: int | None = None
    """HTTP status where there was one."""


class StepResult(Frozen):
    """What a step produced, or why it produced nothing. One row of the ledger.

    An edited or repeated step gets a new version; old versions stay.
    """

    number: int
    version: int = 0
    round: int
    worker: str
    """Who did it in the end."""
    planned_worker: str
    subtask: str
    access: Access
    status: StepStatus
    reply: str = ""
    finish_reason: FinishReason | None = None
    note: str = ""
    """What the reader of the reply has to know of how it came."""
    failures: tuple[Failure, ...] = ()
    """Workers that failed before (or instead of) the one that did it."""
    cuts: tuple[Cut, ...] = ()
    prompt: str = ""
    """Hash of the stored prompt."""
    template: str = ""
    """Hash of the worker prompt's template."""
    final: bool = False
    """Whether the prompt said that the reply goes to the user."""
    window: tuple[int, float] | None = None
    """What the prompt was fitted to: budget in tokens, and tokens per estimated token."""
    usage: Usage = Usage()
    seconds: float = 0.0
    started_at: float = 0.0
    """Unix time."""
    nested_run: str | None = None
    """The run that did this step, when its worker is `podium`."""
    taken_from: str | None = None
    """The run that did this step and paid for it, when this run is a fork of it."""

    @property
    def finished(self) -> bool:
        return self.status == "finished"


class Waiting(Frozen):
    """A step cannot go on until somebody outside does something; the clock stands still."""

    kind: Literal["caller"]
    step: int
    ask: str
    """What is asked, as text for whoever has to do it."""


class Round(Frozen):
    """One proposal and what became of it."""

    number: int
    proposal: Proposal
    results: tuple[StepResult, ...] = ()
    """Newest version of each step, by number."""

    @property
    def plan(self) -> Plan | None:
        return self.proposal.next if isinstance(self.proposal.next, Plan) else None


EventKind = Literal[
    "planning", "plan", "step_started", "step_finished", "step_failed", "fallback",
    "waiting", "accepted", "finished", "failed",
]  # fmt: skip


class Event(Frozen):
    """One thing that just happened; sent to whoever watches the run."""

    kind: EventKind
    run_id: str
    text: str
    """One line for a person."""
    step: int | None = None
    worker: str | None = None
    plan: Plan | None = None
    usage: Usage | None = None
    seconds: float | None = None


Observer = Callable[[Event], Awaitable[None]]


async def ignore(event: Event) -> None:
    """An observer that looks away."""


class TextFile(Frozen):
    """A file that belongs to a question, as text."""

    name: Text = Field(min_length=1, max_length=255)
    text: Text = Field(min_length=1)
    bytes: int = Field(ge=0)
    """Size of the file as given."""


class RunRequest(Frozen):
    """What was asked, and how it is to be done. Everything that shapes a run is here."""

    question: Text = Field(min_length=1)
    files: tuple[TextFile, ...] = ()
    strategy: str = "conductor"
    """Name of the policy."""
    conductor: str | None = None
    """Worker that writes the plans; None means the first allowed one."""
    rounds: int = Field(default=1, ge=1, le=10)
    """Plans at most; from the second on the conductor sees its team's last reply."""
    depth: int = Field(default=0, ge=0, le=3)
    """How deep `podium` may be its own worker."""
    workers: tuple[str, ...] = ()
    """The only workers allowed; empty means all."""
    exclude: tuple[str, ...] = ()
    local_only: bool = False
    """Only workers that run on this machine."""
    max_seconds: float | None = Field(default=None, gt=0)
    """Seconds of work on the whole run; they stand still while it waits."""
    max_usd: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Money that the whole run may cost, nested runs included, in US dollars."""
    max_tokens: int | None = Field(default=None, ge=1)
    """Tokens of all prompts and replies of the run together."""
    max_steps: int | None = Field(default=None, ge=1)
    """Steps of all plans of the run together."""
    allow_unpriced: bool = False
    """Whether workers of unknown price may work although money is limited."""
    caller: bool = False
    """Whether the conductor may give steps to `caller`, the assistant that asked."""
    approve: Literal["nothing", "plan"] = "nothing"
    """What the user wants to see before it is paid for."""
    approved: bool = False
    """Whether the user has said yes to it."""
    follow_up: str | None = None
    """Run whose question and answer come before this question."""
    earlier: str = ""
    """The text of that earlier exchange, as it stood when this run was made."""

    @property
    def waits_for_approval(self) -> bool:
        """Whether a plan may be made, but not carried out, before the user says yes."""
        return self.approve == "plan" and not self.approved


RunStatus = Literal[
    "planned", "running", "needs_caller", "finished", "partial", "failed", "stopped", "interrupted"
]
"""`planned` waits to be started; `interrupted` was stopped with its server and can go on."""


class Run(Frozen):
    """The stored record of one question."""

    run_id: str
    principal: str
    """The user that the run belongs to."""
    request: RunRequest
    pool: tuple[WorkerCard, ...]
    """Cards of the allowed workers, in the pool's order, as they were."""
    planner: WorkerCard | None = None
    """Card of the conductor, where it is none of them since it does nothing but write plans."""
    fence: str
    """Random tag that fences other workers' replies in this run's prompts."""
    seed: int
    status: RunStatus
    created_at: float
    """Unix time, as all times here."""
    started_at: float | None = None
    finished_at: float | None = None
    worked_s: float = 0.0
    """Seconds that this run was worked on; they stand still while it waits."""
    resumed_at: float | None = None
    """When the work began that is going on now; None while the run stands still."""
    parent_id: str | None = None
    """The run of which this one is a step."""
    forked_from: str | None = None
    """The run whose question, plan and first steps this one has taken over."""
    answer: str | None = None
    answer_step: int | None = None
    error: Failure | None = None
    """Why the run has no answer."""
    limit: LimitName | None = None
    """The limit that ended it."""
    notes: tuple[str, ...] = ()
    """What the reader of the answer has to know: fallbacks, cuts, limits."""


def seconds_of(worked_s: float, resumed_at: float | None, until: float) -> float:
    """Seconds of work on a run, with the work that is going on counted up to *until*."""
    return worked_s + (max(0.0, until - resumed_at) if resumed_at is not None else 0.0)


class CallRecord(Frozen):
    """One request to a provider: every attempt has one, whatever became of it."""

    call_id: str
    run_id: str
    round: int
    step: int | None
    """None for a call that proposed a plan."""
    version: int | None = None
    worker: str
    model: str
    prompt: str
    """Hash of the prompt."""
    request: dict[str, JsonValue] = Field(default_factory=dict)
    """What was really sent beside the prompt: parameters, never keys."""
    request_id: str | None = None
    status: Literal["running", "finished", "failed", "stopped"] = "running"
    reply: str | None = None
    """Hash of the reply's text."""
    reasoning: str | None = None
    """Hash of the reasoning that the provider showed; no other worker is given it."""
    served_by: str = ""
    """The model as the provider names it in its reply."""
    usage: Usage = Usage()
    finish_reason: FinishReason | None = None
    error: Failure | None = None
    note: str = ""
    """What the reader of the reply has to know of how it came."""
    started_at: float = 0.0
    seconds: float = 0.0


DECLINED = "The user has declined this plan; nothing of it was carried out."
"""What a run says whose plan was not approved."""


class RunSummary(Frozen):
    """One line of a list of runs."""

    run_id: str
    status: RunStatus
    question: str
    policy: str
    plan_source: PlanSource | None
    """Who wrote the newest plan; None before there is one."""
    fallback: bool
    """Whether any step was done by another worker than planned, or the plan is the fallback one."""
    steps: int
    rounds: int
    seconds: float
    usage: Usage
    created_at: float
    parent_id: str | None = None
