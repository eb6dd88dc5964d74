"""Runs as what tasks look at: how they stand, what they ask for, and what the tool says at the end.

Everything is read from the ledger, so that any process can be asked, also after a restart.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from mcp.server.context import HandlerResult
from mcp.types import CallToolResult, ElicitRequest, ElicitRequestFormParams, TextContent
from pydantic import JsonValue, TypeAdapter, ValidationError

from podium.app.errors import sentence
from podium.app.guards import clean
from podium.app.leaving import BECOMES_TASK, RunBegun
from podium.app.task_source import Answers, Begun, TaskCall, result_data
from podium.app.telling import tell_plan, tell_run
from podium.asks import Ask, pending, respond
from podium.errors import PodiumError, QuestionError, RunError
from podium.orchestrator import Orchestrator
from podium.runs import Runs
from podium.store import Write
from podium.task_book import TaskBook, TaskRow, TaskState
from podium.trace import Round, Run, StepResult, seconds_of
from podium_workers.worker import Frozen

_SUBTASK = 80
"""Characters of a subtask in a status message."""


class _Answer(Frozen):
    """What a client says to a form that it was given."""

    action: Literal["accept", "decline", "cancel"]
    content: dict[str, JsonValue] | None = None


_ANSWER = TypeAdapter(_Answer)
_WANTED = {
    "action": "write accept, decline or cancel",
    "content": "write an object with the form's fields",
}
"""What to write in an answer, by field."""


@dataclass(frozen=True)
class RunTasks:
    """The runs that `orchestrate`, `plan_only` and `run_step` work on, for tasks."""

    runs: Runs
    book: TaskBook
    tools: frozenset[str] = frozenset({"orchestrate", "plan_only", "run_step"})
    only_as_tasks: frozenset[str] = frozenset()

    async def begin(self, call: TaskCall) -> Begun | HandlerResult:
        """Let the tool begin its run, and leave it there."""
        before = BECOMES_TASK.set(True)
        try:
            return await call.as_usual()
        except RunBegun as left:
            # At once, before the run has a chance to end.
            self._follow(left.run.run_id, call.task_id, call)
            return Begun(left.run.run_id, f"Run {left.run.run_id} has begun.")
        finally:
            BECOMES_TASK.reset(before)

    async def look(self, row: TaskRow) -> TaskState:
        run_id = _run_id(row)
        self._follow(run_id, row.task_id)
        run = await self.runs.store.run(run_id)
        if await self._busy(run_id):
            return await self._working(run)
        # Now, not as it stood before it was known to be at rest.
        run = await self.runs.store.run(run_id)
        state = await self._at_rest(row, run)
        if state is not None:
            return state
        if not self.runs.orchestrator.has_pool_of(run):
            waits = "interrupted; a Podium with the same pool and its keys carries it on"
            return TaskState(status="working", message=waits, since=run.created_at)
        await self._resume(row, run)
        return await self._working(await self.runs.store.run(run_id))

    async def answer(self, row: TaskRow, answers: Answers) -> None:
        run = await self.runs.store.run(_run_id(row))
        ask = None if await self._busy(run.run_id) else await self._pending(row, run)
        if ask is None or (said := answers.get(key := _key(row, ask))) is None:
            return
        answer = _read(said)
        declined = None if answer.action == "accept" else ask.key
        if answer.action != "cancel":
            await self._respond(row, run, ask, answer)
        await self.book.mark_answered(row.task_id, key, declined)
        self._follow(run.run_id, row.task_id)

    async def cancel(self, row: TaskRow) -> None:
        run = await self.runs.stop(_run_id(row))
        state = await self._at_rest(row, run)
        if state is not None and state.ended:
            await self.book.settle(row.task_id, state)

    async def delivered(self, row: TaskRow, state: TaskState) -> None:
        """Somebody is there to be told: the same question begins a new run from then on."""
        if row.tool != "plan_only" and state.status == "completed":
            await self.runs.store.mark_told(_run_id(row))

    # Behind it.

    async def _busy(self, run_id: str) -> bool:
        """Whether a process works on a run that is not known to be gone."""
        return self.runs.is_mine(run_id) or not await self.runs.holding.is_free(run_id)

    def _follow(self, run_id: str, task_id: str, call: TaskCall | None = None) -> None:
        self.runs.follow(run_id, f"task {task_id}", partial(self._over, run_id, task_id, call))

    async def _over(
        self, run_id: str, task_id: str, call: TaskCall | None, error: PodiumError | None
    ) -> Write | None:
        """What to store of how a task has ended, now that work on its run has."""
        if call is not None:
            await call.stored.wait()
        row = await self.book.find(task_id)
        if row is None or row.end is not None:
            return None
        run = await self.runs.store.run(run_id)
        if error is not None and not row.cancelled:
            state = _gone_wrong(sentence(error), run)
        else:
            state = await self._at_rest(row, run, over=True)
        return self.book.settling(task_id, state) if state is not None and state.ended else None

    async def _at_rest(self, row: TaskRow, run: Run, *, over: bool = False) -> TaskState | None:
        """How the task of a run stands at which nobody works; None when it is to be carried on.

        *over* says that the work which the tool has begun has just been done.
        """
        if row.cancelled and run.status in ("stopped", "planned", "interrupted", "needs_caller"):
            return _cancelled(run)
        if row.tool == "plan_only":
            return await self._planned(run)
        if row.tool == "run_step":
            return await self._walked(run, over=over)
        if ask := await self._pending(row, run):
            return _waiting(row, run, ask)
        if run.status in ("running", "interrupted"):
            return None
        if run.status == "planned" and not (
            run.request.waits_for_approval and await self.runs.store.rounds(run.run_id)
        ):
            return None
        return _completed(run, await tell_run(self.runs, run, working=False))

    async def _planned(self, run: Run) -> TaskState | None:
        rounds = await self.runs.store.rounds(run.run_id)
        if not rounds and run.status == "planned":
            return None
        if not rounds and run.error is not None:
            return _gone_wrong(run.error.message, run)
        return _completed(run, await tell_plan(self.runs, run, working=False))

    async def _walked(self, run: Run, *, over: bool) -> TaskState:
        if over:
            return _completed(run, await tell_run(self.runs, run, working=False))
        # What exactly was asked for went with the process; the steps that were paid are kept.
        again = f"run_step(run_id={run.run_id!r})"
        return _gone_wrong(f"The server ended before this step was done; {again} does it.", run)

    async def _pending(self, row: TaskRow, run: Run) -> Ask | None:
        if row.tool != "orchestrate" or not row.asks or row.cancelled:
            return None
        return await pending(self.runs, run, row.declined)

    async def _respond(self, row: TaskRow, run: Run, ask: Ask, answer: _Answer) -> None:
        content = (answer.content or {}) if answer.action == "accept" else None
        try:
            await respond(self.runs, run, ask, content)
        except RunError:
            # It was answered elsewhere meanwhile, and nothing is asked under this key any more.
            still = await self._pending(row, await self.runs.store.run(run.run_id))
            if still is not None and still.key == ask.key:
                raise

    async def _resume(self, row: TaskRow, run: Run) -> None:
        """Carry on what ended with its process; whoever polls still wants it."""
        if row.tool == "plan_only":
            try:
                await self.runs.launch(run, Orchestrator.plan)
            except RunError:  # somebody else was quicker
                return
        else:
            await self.runs.start(run)
        self._follow(run.run_id, row.task_id)

    async def _working(self, run: Run) -> TaskState:
        rounds = await self.runs.store.rounds(run.run_id)
        results = [result for found in rounds for result in found.results]
        moments = [result.started_at + result.seconds for result in results]
        since = max([run.created_at, run.started_at or 0.0, run.resumed_at or 0.0, *moments])
        return TaskState(status="working", message=_progress(run, rounds), since=since)


def _run_id(row: TaskRow) -> str:
    assert row.run_id is not None, "every task of these tools looks at a run"
    return row.run_id


def _key(row: TaskRow, ask: Ask) -> str:
    """The key of a question within its task, where none may come twice."""
    before = sum(key.partition("#")[0] == ask.key for key in row.answered)
    return f"{ask.key}#{before + 1}" if before else ask.key


def _read(said: Mapping[str, JsonValue]) -> _Answer:
    kept = {name: said[name] for name in ("action", "content") if name in said}
    try:
        return _ANSWER.validate_python(kept)
    except ValidationError as error:
        wrong = str(error.errors(include_url=False)[0]["loc"][0])
        raise QuestionError("inputResponses", f"{wrong}: {_WANTED[wrong]}.") from None


def _waiting(row: TaskRow, run: Run, ask: Ask) -> TaskState:
    form = ElicitRequestFormParams(message=ask.message, requested_schema=ask.form)
    request = result_data(ElicitRequest(params=form))
    line = ask.message.partition("\n")[0]
    return TaskState(
        status="input_required",
        message=line[:200],
        since=run.finished_at or run.resumed_at or run.created_at,
        requests={_key(row, ask): request},
    )


def _completed(run: Run, result: CallToolResult) -> TaskState:
    found = clean(result_data(result))
    assert isinstance(found, dict), "an object stays one"
    text = f"Run {run.run_id}: {run.status.replace('_', ' ')}."
    return TaskState(status="completed", message=text, since=_ended_at(run), result=found)


def _gone_wrong(text: str, run: Run) -> TaskState:
    """As the tool tells of a failure: in its result."""
    result = CallToolResult(content=[TextContent(type="text", text=text)], is_error=True)
    return _completed(run, result).model_copy(update={"message": text[:200]})


def _cancelled(run: Run) -> TaskState:
    again = f"orchestrate(run_id={run.run_id!r})"
    text = f"Stopped as asked. Replies already paid are kept; {again} resumes it."
    return TaskState(status="cancelled", message=text, since=_ended_at(run))


def _ended_at(run: Run) -> float:
    return run.finished_at or time.time()


def _progress(run: Run, rounds: Sequence[Round]) -> str:
    """Such as `step 2 of 3: qwen-1.5b, check it …, 42 s`."""
    seconds = seconds_of(run.worked_s, run.resumed_at, time.time())
    numbers = [number for found in rounds if found.plan for number in found.plan.numbers]
    results = [result for found in rounds for result in found.results]
    busy = [result for result in results if result.status == "running"]
    if not numbers:
        doing = "planning"
    elif busy:
        doing = "; ".join(_step(result, len(numbers)) for result in busy)
    else:
        done = sum(result.finished for result in results)
        doing = f"{done} of {len(numbers)} steps done"
    return f"{doing}, {seconds:.0f} s"


def _step(result: StepResult, count: int) -> str:
    subtask = " ".join(result.subtask.split())
    short = subtask if len(subtask) <= _SUBTASK else f"{subtask[:_SUBTASK]}…"
    return f"step {result.number + 1} of {count}: {result.worker}, {short}"
