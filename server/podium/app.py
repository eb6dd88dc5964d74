"""The MCP surface: tools and resources over `Runs`. The only module that imports mcp.

A tool call is a view of a run: it waits a while, tells of progress, and hands back the run's id
when the run needs longer. Expected failures become `ToolError`s that say what to do.
"""

import difflib
import inspect
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, ParamSpec, TypeVar

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream
from mcp.server import MCPServer, ServerRequestContext
from mcp.server.context import CallNext, HandlerResult
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ResourceNotFoundError, ToolError
from mcp.types import (
    CallToolRequestParams,
    CallToolResult,
    ContentBlock,
    ResourceLink,
    TextContent,
    Tool,
    ToolAnnotations,
)
from pydantic import BaseModel, ValidationError

from podium import __version__
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
    untitled,
)
from podium.config import Settings
from podium.errors import PodiumError, QuestionError
from podium.estimate import estimate
from podium.inputs import from_text, read_file, read_moment
from podium.orchestrator import Orchestrator
from podium.plan import Step
from podium.receipt import best_so_far
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
from podium.trace import Event, Observer, Run, RunRequest, TextFile
from podium.views import RunView, full_receipt, prompt_text, told, told_steps, told_worker, view
from podium_workers.errors import WorkerError
from podium_workers.worker import mend

PROGRESS_S = 8.0
"""Seconds between signs of life while nothing happens; idle limits of clients start at 10."""
PAGE = 20_000
"""Characters of text in one result; clients cut at about 25,000 tokens and warn at 10,000."""

INSTRUCTIONS = (
    "Podium hands a hard question to a team of models: a conductor writes a small plan, workers "
    "carry it out, and one answer comes back with its record. Use `orchestrate` for questions that "
    "are worth more than one model's first reply; `plan_only` first when price or time matter. A "
    "result with status `running` is not an error: call `get_run` with its run_id, which is free."
)

EXPECTED = (PodiumError, WorkerError, ValidationError)
"""Failures whose text is written for the caller."""
P = ParamSpec("P")
R = TypeVar("R")


def answers_errors(tool: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R]]:
    """Turn expected failures of a tool into text that the calling model can act on."""

    @wraps(tool)
    async def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return await tool(*args, **kwargs)
        except EXPECTED as error:
            raise ToolError(_sentence(error)) from error

    return guarded


def answers_reader(resource: Callable[P, Awaitable[str]]) -> Callable[P, Awaitable[str]]:
    """Turn expected failures of a resource into text for its reader."""

    @wraps(resource)
    async def guarded(*args: P.args, **kwargs: P.kwargs) -> str:
        try:
            return mend(await resource(*args, **kwargs))
        except EXPECTED as error:
            raise ResourceNotFoundError(_sentence(error)) from error

    return guarded


def _sentence(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return mend(f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}.")
    return mend(str(error))


@dataclass(frozen=True)
class Tools:
    """The tools, bound to the runs of this process."""

    runs: Runs
    settings: Settings
    reads_paths: bool
    """Whether callers may name files by path: on stdio they share this machine's user."""

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
            mine = self.settings.principal
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
        run = await self.runs.plan(request, principal=self.settings.principal, fresh=fresh)
        run = await self._wait(run, ctx, max_wait_s)
        store = self.runs.orchestrator.store
        rounds_so_far = await store.rounds(run.run_id)
        plan = rounds_so_far[0].plan if rounds_so_far else None
        expected = await estimate(store, run, plan) if plan else None
        seen = await self._view(run)
        planned = PlanView(**dict(seen), estimate=expected)
        return self._result(planned, _page(told(seen, expected), 0, run), run)

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
        run = await self.runs.of(run_id, self.settings.principal)
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
        run = await self.runs.of(run_id, self.settings.principal)
        if wait_s:
            run = await self._wait(run, ctx, wait_s)
        if run.status not in ("running", "planned"):
            await self.runs.store.mark_told(run.run_id)
        seen = await self._view(run)
        if step >= 0:
            text = await self._step_text(run, step)
        else:
            text = f"{told(seen, answer=run.answer or '')}\n\n{told_steps(seen)}"
        paid = await full_receipt(self.runs.orchestrator.store, run)
        seen = PaidView(**dict(seen), receipt=paid)
        return self._result(seen, _page(text, page, run, step), run)

    @answers_errors
    async def cancel_run(self, run_id: RunId) -> Annotated[CallToolResult, RunResult]:
        """Stop a run: no new step is started, replies already paid stay; orchestrate resumes it."""
        run = await self.runs.of(run_id, self.settings.principal)
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
        mine = self.settings.principal
        if text.strip():
            hits = await store.search(text, principal=mine, since=after, until=before, limit=limit)
            listed = RunList(
                runs=tuple(hit.summary for hit in hits), snippets=tuple(hit.snippet for hit in hits)
            )
        else:
            found = await store.summaries(principal=mine, since=after, until=before, limit=limit)
            listed = RunList(runs=found)
        lines = [f"{run.run_id} {run.status}: {run.question[:120]}" for run in listed.runs]
        return self._result(listed, "\n".join(lines) or "No runs found.")

    @answers_errors
    async def list_workers(self) -> Annotated[CallToolResult, WorkersResult]:
        """The pool, strongest first: model, where it runs, window, price, what it is good at."""
        pool = self.runs.orchestrator.pool
        listed = WorkerList(workers=pool.cards, conductor=pool.conductor)
        lines = [told_worker(card) for card in pool.cards]
        return self._result(listed, "\n".join([*lines, f"Plans are written by {pool.conductor}."]))

    # Resources: the same, to look at.

    @answers_reader
    async def runs_resource(self) -> str:
        """The newest runs."""
        found = await self.runs.orchestrator.store.summaries(
            principal=self.settings.principal, limit=50
        )
        return RunList(runs=found).model_dump_json(indent=2)

    @answers_reader
    async def run_resource(self, run_id: str) -> str:
        """One run with all steps and its receipt."""
        run = await self.runs.of(run_id, self.settings.principal)
        store = self.runs.orchestrator.store
        seen = await self._view(run, reply_characters=PAGE)
        whole = {"run": seen.model_dump(), "receipt": (await full_receipt(store, run)).model_dump()}
        return json.dumps(whole, ensure_ascii=False, indent=2)

    @answers_reader
    async def best_resource(self, run_id: str) -> str:
        """The answer of a run, or its best one so far, whole."""
        run = await self.runs.of(run_id, self.settings.principal)
        if run.answer is not None:
            return run.answer
        best = best_so_far(await self.runs.store.rounds(run.run_id))
        return best.reply if best else "No step has finished yet."

    @answers_reader
    async def step_resource(self, run_id: str, step: int) -> str:
        """One step's prompt and reply, whole."""
        run = await self.runs.of(run_id, self.settings.principal)
        return await self._step_text(run, step)

    @answers_reader
    async def pool_resource(self) -> str:
        """The pool."""
        pool = self.runs.orchestrator.pool
        listed = WorkerList(workers=pool.cards, conductor=pool.conductor)
        return listed.model_dump_json(indent=2)

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
        run = await self.runs.of(run_id, self.settings.principal)
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

    async def _wait(self, run: Run, ctx: Context, max_wait_s: float) -> Run:
        """Wait for the run, telling of its events, at most as long as client and setting allow."""
        try:
            return await self._watched(run, ctx, max_wait_s or self.settings.max_wait_s)
        except anyio.get_cancelled_exc_class():
            # A time-out, a cancel and a disconnect of a client look alike here.
            await self.runs.left(run.run_id, self.settings.on_disconnect)
            raise

    async def _watched(self, run: Run, ctx: Context, seconds: float) -> Run:
        failed: PodiumError | None = None
        async with self.runs.watch(run.run_id) as events, anyio.create_task_group() as group:
            group.start_soon(_report, events, ctx)
            try:
                run = await self.runs.wait(run.run_id, seconds)
            except PodiumError as error:  # raised below: the group would wrap it
                failed = error
            group.cancel_scope.cancel()
        if failed:
            raise failed
        return run

    async def _view(self, run: Run, *, reply_characters: int = 2000) -> RunView:
        working = await self.runs.at_work(run.run_id)
        store = self.runs.orchestrator.store
        return await view(store, run, working=working, reply_characters=reply_characters)

    async def _told(self, run: Run) -> CallToolResult:
        if run.status not in ("running", "planned"):
            await self.runs.store.mark_told(run.run_id)
        seen = await self._view(run)
        return self._result(seen, _page(told(seen, answer=run.answer or ""), 0, run), run)

    async def _step_text(self, run: Run, number: int) -> str:
        store = self.runs.orchestrator.store
        for result in await store.steps(run.run_id):
            if result.number == number:
                prompt = prompt_text(await store.text(result.prompt)) if result.prompt else "none"
                head = f"Step {number}, {result.worker}, {result.status}"
                return f"{head}\n\nPROMPT\n{prompt}\n\nREPLY\n{result.reply}"
        raise QuestionError("step", f"step {number} of run {run.run_id} has not been run.")

    def _result(self, structured: BaseModel, text: str, run: Run | None = None) -> CallToolResult:
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


class BriefServer(MCPServer):
    """Lists tools without the titles that the SDK makes of argument names."""

    async def list_tools(self) -> list[Tool]:
        tools = await super().list_tools()
        for tool in tools:
            untitled(tool.input_schema)
        return tools


async def refuse_unknown_arguments(
    ctx: ServerRequestContext[object, object], call_next: CallNext
) -> HandlerResult:
    """A misspelled limit must not be ignored: the SDK drops arguments that no tool has."""
    if ctx.method == "tools/call" and isinstance(ctx.params, Mapping):
        called = CallToolRequestParams.model_validate(ctx.params)
        if problem := _unknown_argument(called.name, called.arguments or {}):
            return CallToolResult(content=[TextContent(type="text", text=problem)], is_error=True)
    return await call_next(ctx)


def _unknown_argument(tool: str, arguments: Mapping[str, object]) -> str:
    known = sorted(PARAMETERS.get(tool, arguments))
    for name in sorted(set(arguments).difference(known)):
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(known)}."
        return f"{mend(name)}: {tool} has no such argument; {hint}"
    return ""


TOOLS = (
    Tools.orchestrate, Tools.plan_only, Tools.run_step, Tools.get_run, Tools.cancel_run,
    Tools.search_runs, Tools.list_workers,
)  # fmt: skip
PARAMETERS = {
    tool.__name__: frozenset(inspect.signature(tool).parameters) - {"self", "ctx"} for tool in TOOLS
}
"""Names of the arguments of each tool."""


def build_server(runs: Runs, settings: Settings, *, reads_paths: bool) -> MCPServer:
    """The MCP server over the runs of this process, both protocol eras, any transport."""
    tools = Tools(runs, settings, reads_paths)
    server = BriefServer(
        "podium", title="Podium", version=__version__, instructions=INSTRUCTIONS,
        log_level="WARNING", middleware=[refuse_unknown_arguments],
    )  # fmt: skip
    works = ToolAnnotations(
        read_only_hint=False, destructive_hint=False, idempotent_hint=False, open_world_hint=True
    )
    looks = ToolAnnotations(read_only_hint=True, open_world_hint=False)
    server.add_tool(tools.orchestrate, title="Ask the team", annotations=works)
    server.add_tool(tools.plan_only, title="Plan, do not run", annotations=works)
    server.add_tool(tools.run_step, title="Run one step", annotations=works)
    server.add_tool(tools.get_run, title="Look at a run", annotations=looks)
    server.add_tool(tools.cancel_run, title="Stop a run", annotations=works)
    server.add_tool(tools.search_runs, title="Search earlier runs", annotations=looks)
    server.add_tool(tools.list_workers, title="List the pool", annotations=looks)
    as_json = "application/json"
    server.resource("podium://runs", title="Newest runs", mime_type=as_json)(tools.runs_resource)
    server.resource("podium://runs/{run_id}", title="A run", mime_type=as_json)(tools.run_resource)
    server.resource("podium://runs/{run_id}/best", title="Best answer", mime_type="text/plain")(
        tools.best_resource
    )
    server.resource("podium://runs/{run_id}/steps/{step}", title="A step", mime_type="text/plain")(
        tools.step_resource
    )
    server.resource("podium://pool", title="The pool", mime_type=as_json)(tools.pool_resource)
    return server


async def _report(events: MemoryObjectReceiveStream[Event], ctx: Context) -> None:
    """Progress that only rises: one for each event, and a sign of life while nothing happens."""
    done, last = 0.0, "working"
    started = anyio.current_time()
    while True:
        event: Event | None = None
        with anyio.move_on_after(PROGRESS_S):
            try:
                event = await events.receive()
            except anyio.EndOfStream:
                return
        done += 1.0
        if event is not None:
            step = "" if event.step is None else f"step {event.step} "
            by = f"{event.worker} " if event.worker else ""
            last = f"{event.kind.replace('_', ' ')}: {step}{by}{event.text}"[:200]
        seconds = anyio.current_time() - started
        await ctx.report_progress(done, None, mend(f"{last} ({seconds:.0f} s)"))


def _given(depth: int, **options: object) -> dict[str, object]:
    """The options that the caller has given: empty ones, and a depth below 0, stand for none."""
    given = {name: value for name, value in options.items() if value}
    return given if depth < 0 else {**given, "depth": depth}


def _page(text: str, page: int, run: Run, step: int = -1) -> str:
    """One page of a long text, with a line that says how to get the next."""
    pages = max(1, -(-len(text) // PAGE))
    if page >= pages:
        raise QuestionError("page", f"there are pages 0 to {pages - 1} only.")
    shown = text[page * PAGE : (page + 1) * PAGE]
    which = "" if step < 0 else f", step={step}"
    next_page = f"get_run(run_id={run.run_id!r}{which}, page={page + 1})"
    more = f"\n[page {page} of 0 to {pages - 1}; the next: {next_page}]"
    return shown + (more if page < pages - 1 else "")


def _moment(text: str, field: str) -> float | None:
    try:
        return read_moment(text, end=field == "until") if text.strip() else None
    except ValueError as error:
        raise QuestionError(field, str(error)) from None
