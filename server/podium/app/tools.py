"""The tools: what a calling model may ask of Podium. Each looks at a run; none owns one."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import anyio
from mcp.server.mcpserver import Context
from mcp.types import (
    CallToolResult,
)

from podium.app.guards import answers_errors
from podium.app.showing import as_result, paged, seen, step_text
from podium.app.waiting import wait
from podium.arguments import (
    AllowUnpriced,
    ConductorName,
    Depth,
    Exclude,
    FileArgument,
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
from podium.errors import QuestionError
from podium.estimate import estimate
from podium.inputs import from_text, read_file, read_moment
from podium.orchestrator import Orchestrator
from podium.plan import Step
from podium.results import (
    PaidView,
    PlanView,
    RunList,
    RunResult,
    RunsResult,
    WorkerList,
    WorkersResult,
)
from podium.revision import LIMITS, change_limits, edit_step, replace_plan, run_step
from podium.runs import Runs, Work
from podium.trace import Observer, Run, RunRequest, TextFile
from podium.views import full_receipt, told, told_steps, told_worker
from podium_workers.worker import mend


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
        conductor: ConductorName = "",
        follow_up: FollowUp = "",
        max_usd: MaxUsd = 0,
        max_tokens: MaxTokens = 0,
        max_steps: MaxSteps = 0,
        max_seconds: MaxSeconds = 0,
        allow_unpriced: AllowUnpriced = False,
        fresh: Fresh = False,
        max_wait_s: MaxWait = 0,
    ) -> Annotated[CallToolResult, RunResult]:
        """Answer a hard question with a team of models, and keep the record.

        A conductor model writes a plan (who does what, who reads whom), workers carry it out.
        Give a question, or the run_id of a planned, stopped or running run to start, resume or
        wait for it; finished steps are never paid again. Status 'running' means that the run goes
        on: call get_run or this tool with its run_id, which is free.
        """
        options = _given(
            depth, strategy=strategy, rounds=rounds, conductor=conductor, workers=tuple(workers),
            exclude=tuple(exclude), local_only=local_only, follow_up=follow_up, max_usd=max_usd,
            max_tokens=max_tokens, max_steps=max_steps, max_seconds=max_seconds,
            allow_unpriced=allow_unpriced,
        )  # fmt: skip
        steps = [
            Step(worker=step.worker, subtask=step.subtask, access=tuple(step.access))
            for step in plan
        ]
        if run_id:
            run = await self._earlier(run_id, question, files, options, steps)
        else:
            request = await self._request(question, files, options)
            mine = self.principal()
            run = await self.runs.ask(request, principal=mine, steps=steps, fresh=fresh)
        until = anyio.current_time() + (max_wait_s or self.settings.max_wait_s)
        while True:
            await self.runs.start(run)
            left = until - anyio.current_time()
            run = await self._wait(run, ctx, max(left, 0.01))
            # A run of another process may have been left to us while we waited.
            if run.status != "running" or anyio.current_time() >= until:
                return await self._told(run)

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
        conductor: ConductorName = "",
        follow_up: FollowUp = "",
        max_usd: MaxUsd = 0,
        max_tokens: MaxTokens = 0,
        max_steps: MaxSteps = 0,
        max_seconds: MaxSeconds = 0,
        allow_unpriced: AllowUnpriced = False,
        fresh: Fresh = False,
        max_wait_s: MaxWait = 0,
    ) -> Annotated[CallToolResult, RunResult]:
        """Write a plan and say what it will cost and take, without carrying it out.

        Nothing is called but the conductor. The plan is kept as a run: orchestrate(run_id) starts
        it, orchestrate(run_id, plan=...) starts an edited one, run_step walks it step by step.
        """
        options = _given(
            depth, strategy=strategy, rounds=rounds, conductor=conductor, workers=tuple(workers),
            exclude=tuple(exclude), local_only=local_only, follow_up=follow_up, max_usd=max_usd,
            max_tokens=max_tokens, max_steps=max_steps, max_seconds=max_seconds,
            allow_unpriced=allow_unpriced,
        )  # fmt: skip
        request = await self._request(question, files, options)
        run = await self.runs.plan(request, principal=self.principal(), fresh=fresh)
        run = await self._wait(run, ctx, max_wait_s)
        store = self.runs.orchestrator.store
        rounds_so_far = await store.rounds(run.run_id)
        plan = rounds_so_far[0].plan if rounds_so_far else None
        expected = await estimate(store, run, plan) if plan else None
        shown = await seen(self.runs, run)
        planned = PlanView(**dict(shown), estimate=expected)
        return as_result(planned, paged(told(shown, expected), 0, run), run)

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
    ) -> Annotated[CallToolResult, RunResult]:
        """Run one step of a planned run: the next, a named one, an edited one, or take your result.

        Editing a finished step makes the steps that rest on it stale, to be run again; old replies
        stay in the record. When all steps are done, orchestrate(run_id) gives the answer.
        """
        run = await self.runs.of(run_id, self.principal())
        number = None if step < 0 else step
        changes: dict[str, object] = {}
        changes |= {"worker": worker} if worker else {}
        changes |= {"subtask": mend(subtask)} if subtask else {}
        changes |= {"access": tuple(access)} if access is not None else {}
        if changes and number is None:
            raise QuestionError("step", "name the step that is to be edited.")
        if worker and result:
            raise QuestionError("worker", "cannot be given with your own result; leave one out.")

        async def work(orchestrator: Orchestrator, run: Run, observer: Observer) -> None:
            if changes and number is not None:
                await edit_step(orchestrator, run, number, changes)
                run = await orchestrator.store.run(run.run_id)
            await run_step(orchestrator, run, number, observer, result=mend(result) or None)

        await self.runs.launch(run, work)
        return await self._told(await self._wait(run, ctx, max_wait_s))

    @answers_errors
    async def get_run(
        self,
        ctx: Context,
        run_id: RunId,
        wait_s: Annotated[float, argument("Wait for its end.", ge=0, le=3600)] = 0,
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
            text = f"{told(shown, answer=run.answer or '')}\n\n{told_steps(shown)}"
        paid = await full_receipt(self.runs.orchestrator.store, run)
        whole = PaidView(**dict(shown), receipt=paid)
        return as_result(whole, paged(text, page, run, step), run)

    @answers_errors
    async def cancel_run(self, run_id: RunId) -> Annotated[CallToolResult, RunResult]:
        """Stop a run: no new step is started, replies already paid stay; orchestrate resumes it."""
        run = await self.runs.of(run_id, self.principal())
        return await self._told(await self.runs.stop(run.run_id))

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
        after = _moment(since, "since")
        before = _moment(until, "until")
        mine = self.principal()
        if text.strip():
            hits = await store.search(text, principal=mine, since=after, until=before, limit=limit)
            listed = RunList(
                runs=tuple(hit.summary for hit in hits), snippets=tuple(hit.snippet for hit in hits)
            )
        else:
            found = await store.summaries(principal=mine, since=after, until=before, limit=limit)
            listed = RunList(runs=found)
        lines = [f"{run.run_id} {run.status}: {run.question[:120]}" for run in listed.runs]
        return as_result(listed, "\n".join(lines) or "No runs found.")

    @answers_errors
    async def list_workers(self) -> Annotated[CallToolResult, WorkersResult]:
        """The pool, strongest first: model, where it runs, window, price, what it is good at."""
        pool = self.runs.orchestrator.pool
        listed = WorkerList(workers=pool.cards, conductor=pool.conductor)
        lines = [told_worker(card) for card in pool.cards]
        return as_result(listed, "\n".join([*lines, f"Plans are written by {pool.conductor}."]))

    # Behind the tools.

    async def _request(
        self, question: str, files: Sequence[FileArgument], options: Mapping[str, object]
    ) -> RunRequest:
        """What is asked; what *options* lack is as the settings have it."""
        if not question.strip():
            raise QuestionError("question", "is empty; write what you want to know.")
        settings = self.settings
        defaults = {
            "strategy": settings.strategy,
            "rounds": settings.rounds,
            "depth": settings.depth,
            "max_usd": settings.max_usd,
        }
        texts = tuple([await self._file(file) for file in files])
        return RunRequest.model_validate(
            {**defaults, **options, "question": question, "files": texts}
        )

    async def _earlier(
        self,
        run_id: str,
        question: str,
        files: Sequence[FileArgument],
        options: Mapping[str, object],
        steps: Sequence[Step],
    ) -> Run:
        """An earlier run to be carried on, with other limits or another plan if they are given."""
        limits = {name: value for name, value in options.items() if name in LIMITS}
        given = [*(name for name in options if name not in limits)]
        given += [*(["question"] if question else []), *(["files"] if files else [])]
        if given:
            raise QuestionError(given[0], "cannot be given with run_id; it is the run's own.")
        run = await self.runs.of(run_id, self.principal())
        if limits:
            await change_limits(self.runs.orchestrator, run, limits)
        if steps:
            await self.runs.launch(run, self._new_plan(steps))
        return run

    async def _file(self, file: FileArgument) -> TextFile:
        if not file.path:
            return from_text(file.name or "file", mend(file.text))
        if not self.reads_paths:
            raise QuestionError("files", "paths are read only on stdio; send the text instead.")
        roots = self.settings.file_roots or (Path.cwd(),)
        return await anyio.to_thread.run_sync(read_file, Path(file.path), roots)

    def _new_plan(self, steps: Sequence[Step]) -> Work:
        async def work(orchestrator: Orchestrator, run: Run, observer: Observer) -> None:
            await replace_plan(orchestrator, run, steps)

        return work

    async def _wait(self, run: Run, ctx: Context, seconds: float) -> Run:
        """Wait for a run, at most as long as client and setting allow."""
        settings = self.settings
        seconds = seconds or settings.max_wait_s
        return await wait(self.runs, run, ctx, seconds, settings.on_disconnect)

    async def _told(self, run: Run) -> CallToolResult:
        if run.status not in ("running", "planned"):
            await self.runs.store.mark_told(run.run_id)
        shown = await seen(self.runs, run)
        return as_result(shown, paged(told(shown, answer=run.answer or ""), 0, run), run)


def _given(depth: int, **options: object) -> dict[str, object]:
    """The options that the caller has given: empty ones, and a depth below 0, stand for none."""
    given = {name: value for name, value in options.items() if value}
    return given if depth < 0 else {**given, "depth": depth}


def _moment(text: str, field: str) -> float | None:
    try:
        return read_moment(text, end=field == "until") if text.strip() else None
    except ValueError as error:
        raise QuestionError(field, str(error)) from None


TOOLS = (
    Tools.orchestrate, Tools.plan_only, Tools.run_step, Tools.get_run, Tools.cancel_run,
    Tools.search_runs, Tools.list_workers,
)  # fmt: skip
PARAMETERS = {
    tool.__name__: frozenset(inspect.signature(tool).parameters) - {"self", "ctx"} for tool in TOOLS
}
"""Names of the arguments of each tool."""
