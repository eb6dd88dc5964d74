"""From the arguments of a tool call to a request, or to an earlier run with what changes of it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio

from podium.arguments import FileArgument, PlanStep
from podium.at_work import Work
from podium.config import Settings
from podium.errors import QuestionError
from podium.inputs import from_text, read_file, read_moment
from podium.orchestrator import Orchestrator
from podium.plan import Step
from podium.revision import LIMITS, change_limits, replace_plan
from podium.runs import Runs
from podium.trace import Observer, Run, RunRequest, TextFile
from podium_workers.worker import mend


@dataclass(frozen=True)
class Requests:
    """What tool calls ask of the runs of this process, under its settings."""

    runs: Runs
    settings: Settings
    reads_paths: bool
    """Whether callers may name files by path: on stdio they share this machine's user."""
    principal: Callable[[], str]
    """The user that the call at hand comes from."""

    async def new(
        self, question: str, files: Sequence[FileArgument], options: Mapping[str, object]
    ) -> RunRequest:
        """What is asked; what *options* lack is as the settings have it.

        Raises:
            QuestionError: there is no question, or a file cannot be used.
            ValidationError: an option has a value that it cannot have.
        """
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

    async def earlier(
        self,
        run_id: str,
        question: str,
        files: Sequence[FileArgument],
        options: Mapping[str, object],
        steps: Sequence[Step],
    ) -> Run:
        """An earlier run to be carried on, with other limits or another plan if they are given.

        Raises:
            QuestionError: something is given that is the run's own.
            RunError: there is no such run, or it is at work and cannot get another plan.
            PlanError: the other plan is not allowed.
        """
        limits = {name: value for name, value in options.items() if name in LIMITS}
        given = [*(name for name in options if name not in {*limits, "approve"})]
        given += [*(["question"] if question else []), *(["files"] if files else [])]
        if given:
            raise QuestionError(given[0], "cannot be given with run_id; it is the run's own.")
        run = await self.runs.of(run_id, self.principal())
        if options.get("approve") == "plan" and self.is_unapproved(run):
            limits["approve"] = "plan"
        if limits:
            run = await change_limits(self.runs.orchestrator, run, limits)
        if steps:
            await self.runs.launch(run, _new_plan(steps))
            run = await self.runs.wait(run.run_id)
        return run

    def approval(self, asked: str) -> dict[str, object]:
        """The option `approve` as the user has it: a call may add it, not take it away.

        Raises:
            QuestionError: *asked* is neither empty nor `plan`.
        """
        if asked not in ("", "plan"):
            raise QuestionError("approve", "write 'plan', or leave it out.")
        return {"approve": asked or self.settings.approve}

    def is_unapproved(self, run: Run) -> bool:
        """Whether the plan of a run that stands still has to be approved, or may have to be."""
        wanted = run.request.approve == "plan" or self.settings.approve == "plan"
        return wanted and run.status == "planned" and not run.request.approved

    async def _file(self, file: FileArgument) -> TextFile:
        if not file.path and "text" not in file.model_fields_set:
            lacks = "neither text nor path; give one of both" if self.reads_paths else "no text"
            raise QuestionError("files", f"{(file.name or 'file')[:80]!r} has {lacks}.")
        if not file.path:
            return from_text(file.name or "file", mend(file.text))
        if not self.reads_paths:
            raise QuestionError("files", "paths are read only on stdio; send the text instead.")
        roots = self.settings.file_roots or (Path.cwd(),)
        return await anyio.to_thread.run_sync(read_file, Path(file.path), roots)


def steps_of(plan: Sequence[PlanStep]) -> tuple[Step, ...]:
    """A caller's plan as steps."""
    return tuple(
        Step(worker=step.worker, subtask=step.subtask, access=tuple(step.access)) for step in plan
    )


def given(depth: int, **options: object) -> dict[str, object]:
    """The options that the caller has given: empty ones, and a depth below 0, stand for none."""
    named = {name: value for name, value in options.items() if value}
    return named if depth < 0 else {**named, "depth": depth}


def moment(text: str, field: str) -> float | None:
    """The time that a caller names, as Unix time.

    Raises:
        QuestionError: it is none.
    """
    try:
        return read_moment(text, end=field == "until") if text.strip() else None
    except ValueError as error:
        raise QuestionError(field, str(error)) from None


def _new_plan(steps: Sequence[Step]) -> Work:
    async def work(orchestrator: Orchestrator, run: Run, observer: Observer) -> None:
        await replace_plan(orchestrator, run, steps)

    return work
