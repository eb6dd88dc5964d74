"""The tools: what a calling model may ask of Podium. Each looks at a run; none owns one."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from mcp.server.mcpserver import Context
from mcp.types import CallToolResult, InputRequiredResult, TextContent

from podium.app.asking import Conversation, can_ask
from podium.app.clients import name_of_client, patience
from podium.app.guards import answers_errors
from podium.app.leaving import BECOMES_TASK
from podium.app.requests import Requests, given, moment, steps_of
from podium.app.showing import POOL_LINK, RUNS_LINK, as_result, paged, seen, step_text
from podium.app.telling import tell, tell_plan, tell_run
from podium.app.waiting import Progress, carry_on, wait
from podium.arguments import (
    AllowUnpriced,
    Approve,
    CallerJoins,
    ConductorName,
    Depth,
    Exclude,
    Files,
    FollowUp,
    Fresh,
    LocalOnly,
    MaxSeconds,
    MaxSteps,
    MaxTokens,
    MaxUsd,
    MaxWait,
    PlanArgument,
    Question,
    Rounds,
    RunId,
    Strategy,
    Workers,
    argument,
)
from podium.config import Settings
from podium.errors import QuestionError, StepError
from podium.orchestrator import Orchestrator
from podium.results import (
    PaidView,
    RunList,
    RunResult,
    RunsResult,
    WorkerList,
    WorkersResult,
)
from podium.revision import edit_step, run_step
from podium.runs import Runs
from podium.trace import Observer, Run, RunRequest
from podium.views import full_receipt, told_runs, told_steps, told_worker
from podium_workers.worker import mend

KEPT_LIMIT = "The user would not raise the limit: do not raise it unless the user asks you to."
"""What stands behind an answer that its user was content with."""


@dataclass(frozen=True)
class Tools:
    """The tools, bound to the runs of this process."""

    runs: Runs
    settings: Settings
    reads_paths: bool
    """Whether callers may name files by path: on stdio they share this machine's user."""
    principal: Callable[[], str]
    """The user that the call at hand comes from."""

    @answers_errors
    async def orchestrate(
        self,
        ctx: Context,
        question: Question = "",
        run_id: Annotated[
            str, argument("Start or carry on this run instead of asking a new question.")
        ] = "",
        plan: PlanArgument = [],  # noqa: B006 - the SDK publishes it as the default; never changed
        files: Files = [],  # noqa: B006
        strategy: Strategy = "",
        rounds: Rounds = 0,
        depth: Depth = -1,
        workers: Workers = [],  # noqa: B006
        exclude: Exclude = [],  # noqa: B006
        local_only: LocalOnly = False,
        caller: CallerJoins = False,
        conductor: ConductorName = "",
        follow_up: FollowUp = "",
        max_usd: MaxUsd = 0,
        max_tokens: MaxTokens = 0,
        max_steps: MaxSteps = 0,
        max_seconds: MaxSeconds = 0,
        allow_unpriced: AllowUnpriced = False,
        approve: Approve = "",
        fresh: Fresh = False,
        max_wait_s: MaxWait = 0,
    ) -> Annotated[CallToolResult, RunResult] | InputRequiredResult:
        """Answer a hard question with a team of models, and keep the record.

        A conductor model writes a plan (who does what, who reads whom), workers carry it out.
        Give a question, or the run_id of a planned, stopped or running run to start, resume or
        wait for it; finished steps are never paid again. Status 'running' means that the run goes
        on: call get_run or this tool with its run_id, which is free. Status 'needs_caller': do the
        step that the text gives you, and hand its result to run_step.
        """
        options = given(
            depth, strategy=strategy, rounds=rounds, conductor=conductor, workers=tuple(workers),
            exclude=tuple(exclude), local_only=local_only, caller=caller, follow_up=follow_up,
            max_usd=max_usd, max_tokens=max_tokens, max_steps=max_steps, max_seconds=max_seconds,
            allow_unpriced=allow_unpriced,
        )  # fmt: skip
        options |= self._requests.approval(approve)
        steps, mine, talk = steps_of(plan), self.principal(), Conversation.of(self.runs, ctx)

        async def begin(request: RunRequest) -> Run:
            return await self.runs.ask(request, principal=mine, steps=steps, fresh=fresh)

        if talk.run_id:
            run = await self.runs.of(talk.run_id, mine)
        elif run_id:
            run = await self._requests.earlier(run_id, question, files, options, steps)
            run = await talk.take_as_yes(run)
        else:
            run = await talk.begin(await self._requests.new(question, files, options), begin)
        if isinstance(run, InputRequiredResult):
            return run
        return await self._answered(run, talk, max_wait_s)

    @answers_errors
    async def plan_only(
        self,
        ctx: Context,
        question: Question,
        files: Files = [],  # noqa: B006
        strategy: Strategy = "",
        rounds: Rounds = 0,
        depth: Depth = -1,
        workers: Workers = [],  # noqa: B006
        exclude: Exclude = [],  # noqa: B006
        local_only: LocalOnly = False,
        caller: CallerJoins = False,
        conductor: ConductorName = "",
        follow_up: FollowUp = "",
        max_usd: MaxUsd = 0,
        max_tokens: MaxTokens = 0,
        max_steps: MaxSteps = 0,
        max_seconds: MaxSeconds = 0,
        allow_unpriced: AllowUnpriced = False,
        fresh: Fresh = False,
        max_wait_s: MaxWait = 0,
    ) -> Annotated[CallToolResult, RunResult] | InputRequiredResult:
        """Write a plan and say what it will cost and take, without carrying it out.

        Nothing is called but the conductor. The plan is kept as a run: orchestrate(run_id) starts
        it, orchestrate(run_id, plan=...) starts an edited one, run_step walks it step by step.
        """
        options = given(
            depth, strategy=strategy, rounds=rounds, conductor=conductor, workers=tuple(workers),
            exclude=tuple(exclude), local_only=local_only, caller=caller, follow_up=follow_up,
            max_usd=max_usd, max_tokens=max_tokens, max_steps=max_steps, max_seconds=max_seconds,
            allow_unpriced=allow_unpriced,
        )  # fmt: skip
        mine, talk = self.principal(), Conversation.of(self.runs, ctx)

        async def begin(request: RunRequest) -> Run:
            return await self.runs.plan(request, principal=mine, fresh=fresh)

        run = await talk.begin(await self._requests.new(question, files, options), begin)
        if isinstance(run, InputRequiredResult):
            return run
        run = await self._wait(run, ctx, max_wait_s)
        return await tell_plan(self.runs, run, wait_s=patience(name_of_client(ctx)))

    @answers_errors
    async def run_step(
        self,
        ctx: Context,
        run_id: RunId,
        step: Annotated[int, argument("Step number; -1 for the next one.", ge=-1)] = -1,
        worker: Annotated[str, argument("Edit: another worker for this step.")] = "",
        subtask: Annotated[str, argument("Edit: another subtask for this step.")] = "",
        access: Annotated[
            list[int] | None, argument("Edit: the earlier steps that it may read.")
        ] = None,
        result: Annotated[
            str, argument("Your own result for this step, instead of asking a worker.")
        ] = "",
        max_wait_s: MaxWait = 0,
    ) -> Annotated[CallToolResult, RunResult] | InputRequiredResult:
        """Run one step of a planned run: the next, a named one, an edited one, or take your result.

        Editing a finished step makes the steps that rest on it stale, to be run again; old replies
        stay in the record. A run that waited for your result goes on by itself; else, when all
        steps are done, orchestrate(run_id) gives the answer.
        """
        talk = Conversation.of(self.runs, ctx)
        run = await self.runs.of(talk.run_id or run_id, self.principal())
        if talk.run_id:
            return await self._answered(run, talk, max_wait_s)
        if not result and self._requests.is_unapproved(run) and can_ask(ctx):
            raise StepError(
                f"The user has not approved this plan; orchestrate(run_id={run.run_id!r}) asks."
            )
        number = None if step < 0 else step
        changes: dict[str, object] = {}
        changes |= {"worker": worker} if worker else {}
        changes |= {"subtask": mend(subtask)} if subtask else {}
        changes |= {"access": tuple(access)} if access is not None else {}
        if changes and number is None:
            raise QuestionError("step", "name the step that is to be edited.")
        if worker and result:
            raise QuestionError("worker", "cannot be given with your own result; leave one out.")
        if result and not result.strip():
            raise QuestionError("result", "is empty; write what the step gives, as text.")

        async def work(orchestrator: Orchestrator, run: Run, observer: Observer) -> None:
            if changes and number is not None:
                await edit_step(orchestrator, run, number, changes)
                run = await orchestrator.store.run(run.run_id)
            await run_step(orchestrator, run, number, observer, result=mend(result) or None)

        if result and not BECOMES_TASK.get() and await self.runs.at_work(run.run_id):
            run = await self._wait(run, ctx, max_wait_s)
        await self.runs.launch(run, work)
        if result and run.status == "needs_caller":
            return await self._answered(run, talk, max_wait_s)
        return await self._told(await self._wait(run, ctx, max_wait_s), ctx)

    @answers_errors
    async def get_run(
        self,
        ctx: Context,
        run_id: RunId,
        wait_s: Annotated[float, argument("Wait for its end.", ge=0, le=3600, finite=True)] = 0,
        step: Annotated[
            int, argument("This step's whole prompt and reply; -1 for the run.", ge=-1)
        ] = -1,
        page: Annotated[int, argument("Page of a long text, from 0.", ge=0)] = 0,
    ) -> Annotated[CallToolResult, RunResult]:
        """A run's status, plan, steps, answer and receipt; costs nothing, can wait for the end."""
        run = await self.runs.of(run_id, self.principal())
        if wait_s:
            run = await self._wait(run, ctx, wait_s)
        if run.status not in ("running", "planned"):
            await self.runs.store.mark_told(run.run_id)
        shown = await seen(self.runs, run)
        if step >= 0:
            text = await step_text(self.runs, run, step)
        else:
            wait_s = patience(name_of_client(ctx))
            text = f"{await tell(self.runs, run, shown, wait_s)}\n\n{told_steps(shown)}"
        paid = await full_receipt(self.runs.orchestrator.store, run)
        whole = PaidView(**dict(shown), receipt=paid)
        return as_result(whole, paged(text, page, run, step), run)

    @answers_errors
    async def cancel_run(self, ctx: Context, run_id: RunId) -> Annotated[CallToolResult, RunResult]:
        """Stop a run: no new step is started, replies already paid stay; orchestrate resumes it."""
        run = await self.runs.of(run_id, self.principal())
        return await self._told(await self.runs.stop(run.run_id), ctx)

    @answers_errors
    async def search_runs(
        self,
        text: Annotated[str, argument("Words to find; empty lists the newest.")] = "",
        since: Annotated[str, argument("Earliest date, as 2026-11-30, or 7d ago.")] = "",
        until: Annotated[str, argument("Latest date; a day counts to its end.")] = "",
        limit: Annotated[int, argument("Runs at most.", ge=1, le=100)] = 10,
    ) -> Annotated[CallToolResult, RunsResult]:
        """Find earlier runs by words in question, answer, subtasks and replies, or by date."""
        store = self.runs.orchestrator.store
        after = moment(since, "since")
        before = moment(until, "until")
        mine = self.principal()
        if text.strip():
            hits = await store.search(text, principal=mine, since=after, until=before, limit=limit)
            listed = RunList(
                runs=tuple(hit.summary for hit in hits), snippets=tuple(hit.snippet for hit in hits)
            )
        else:
            found = await store.summaries(principal=mine, since=after, until=before, limit=limit)
            listed = RunList(runs=found)
        return as_result(listed, told_runs(listed.runs, limit), RUNS_LINK)

    @answers_errors
    async def list_workers(self) -> Annotated[CallToolResult, WorkersResult]:
        """The pool, strongest first: model, where it runs, window, price, what it is good at."""
        listed = WorkerList.of(self.runs.orchestrator.pool)
        lines = [listed.written_by, *map(told_worker, listed.workers)]
        return as_result(listed, "\n".join(lines), POOL_LINK)

    # Behind the tools.

    @property
    def _requests(self) -> Requests:
        return Requests(self.runs, self.settings, self.reads_paths, self.principal)

    async def _answered(
        self, run: Run, talk: Conversation, max_wait_s: float
    ) -> CallToolResult | InputRequiredResult:
        """Carry a run on, asking the user where it needs one, and tell how it stands."""
        progress, seconds = Progress(talk.ctx), self._seconds(talk.ctx, max_wait_s)
        if not talk.run_id:
            run = await carry_on(self.runs, run, progress, seconds, self.settings.on_disconnect)
        while (settled := await talk.settle(run)) is not None:
            if isinstance(settled, InputRequiredResult):
                return settled
            run = await carry_on(self.runs, settled, progress, seconds, self.settings.on_disconnect)
        told = await self._told(await self.runs.store.run(run.run_id), talk.ctx)
        if talk.kept_limit:
            told.content.insert(1, TextContent(type="text", text=KEPT_LIMIT))
        return told

    async def _wait(self, run: Run, ctx: Context, seconds: float) -> Run:
        """Wait for a run, at most as long as client and setting allow."""
        seconds = self._seconds(ctx, seconds)
        return await wait(self.runs, run, Progress(ctx), seconds, self.settings.on_disconnect)

    def _seconds(self, ctx: Context, asked: float) -> float:
        """How long to wait: as asked, else as set, else as long as the client will."""
        return asked or self.settings.max_wait_s or patience(name_of_client(ctx))

    async def _told(self, run: Run, ctx: Context) -> CallToolResult:
        if run.status not in ("running", "planned"):
            await self.runs.store.mark_told(run.run_id)
        return await tell_run(self.runs, run, wait_s=patience(name_of_client(ctx)))
