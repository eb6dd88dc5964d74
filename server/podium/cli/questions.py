"""What `ask` and `plan` have in common: their options, and the request that these make.

Of the options, `resume` has the limits too.
"""

import math
import os
import stat
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Literal, TypeVar

import click
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from podium.cli.ranges import Number, Whole
from podium.cli.saying import say
from podium.config import Settings
from podium.errors import PlanError, QuestionError
from podium.inputs import MAX_BYTES, from_bytes, read_file, read_files
from podium.plan import Step
from podium.trace import RunRequest, TextFile
from podium_workers.worker import Frozen

Command = TypeVar("Command", bound=Callable[..., object])

STDIN = "-"
_PATIENCE_S = 2.0
"""Seconds of silence on stdin after which the user is told that it is waited for."""


def names(ctx: click.Context, option: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    """Names given one by one, or several in one argument with commas between."""
    return tuple(name.strip() for part in value for name in part.split(",") if name.strip())


def _finite(ctx: click.Context, option: click.Parameter, value: float | None) -> float | None:
    if value is not None and not math.isfinite(value):
        raise click.BadParameter("must be a finite number.")
    return value


_LIMITS = (
    click.option(
        "--max-usd", type=Number(min=0, min_open=True), callback=_finite, metavar="USD",
        help="What the run may cost; at the limit the best answer so far is given.",
    ),
    click.option(
        "--max-tokens", type=Whole(min=1), metavar="N", help="Tokens of prompts and replies."
    ),
    click.option("--max-steps", type=Whole(min=1), metavar="N", help="Steps of all plans."),
    click.option(
        "--max-seconds", type=Number(min=0, min_open=True), callback=_finite, metavar="N",
        help="Seconds of work, those before it was resumed included.",
    ),
    click.option(
        "--allow-unpriced", is_flag=True,
        help="Let workers of unknown price take part although money is limited.",
    ),
)  # fmt: skip
conductor_option = click.option(
    "--conductor", metavar="NAME|PATH",
    help="The worker that writes plans; or a model that does nothing else: a GGUF file, or a "
    "folder that `podium train export` wrote.",
)  # fmt: skip
_OPTIONS = (
    click.argument("question", required=False),
    click.option(
        "--file", "files", multiple=True, metavar="PATH",
        help="A text file that belongs to the question; may be given again.",
    ),
    click.option(
        "--strategy", metavar="NAME",
        help="conductor (a model plans), single, chain, or trinity (an evolved head) "
        "[default: the setting].",
    ),
    click.option(
        "--rounds", type=Whole(1, 10), metavar="N",
        help="Plans at most: with 2 the conductor may correct once [default: the setting].",
    ),
    click.option(
        "--depth", type=Whole(0, 3), metavar="N",
        help="How deep the conductor may be its own worker [default: the setting].",
    ),
    click.option(
        "--workers", multiple=True, callback=names, metavar="A,B",
        help="The only workers allowed.",
    ),
    click.option(
        "--exclude", multiple=True, callback=names, metavar="A,B", help="Workers not allowed."
    ),
    click.option("--local-only", is_flag=True, help="Only workers that run on this machine."),
    click.option(
        "--caller", is_flag=True,
        help="Let the plan give steps to you: what only you can look up or run.",
    ),
    conductor_option,
    click.option("--follow-up", metavar="RUN", help="The earlier run that this question follows."),
    click.option(
        "--plan", "plan_source", metavar="FILE",
        help='Your own plan as JSON, - for stdin: {"steps": [{"subtask", "worker", "access"}]}.',
    ),
    click.option(
        "--fresh", is_flag=True, help="Ask anew, although the same question is being worked on."
    ),
)  # fmt: skip


def question_options(command: Command) -> Command:
    """The argument and the options that describe a question."""
    for decorate in reversed(_OPTIONS):
        command = decorate(command)
    return limit_options(command)


def limit_options(command: Command) -> Command:
    """The options that limit what a run may take."""
    for decorate in reversed(_LIMITS):
        command = decorate(command)
    return command


class GivenQuestion(Frozen):
    """A question as it stands on the command line."""

    question: str | None
    files: tuple[str, ...]
    strategy: str | None
    rounds: int | None
    depth: int | None
    workers: tuple[str, ...]
    exclude: tuple[str, ...]
    local_only: bool
    caller: bool
    conductor: str | None
    max_usd: float | None
    max_tokens: int | None
    max_steps: int | None
    max_seconds: float | None
    allow_unpriced: bool
    fresh: bool
    follow_up: str | None
    plan_source: str | None
    approve: Literal["nothing", "plan"] | None = None

    def request(self, settings: Settings) -> RunRequest:
        """The request, with stdin and files read.

        Raises:
            QuestionError: the question or a file cannot be used.
            click.UsageError: there is no question.
        """
        question, piped = self._question()
        return RunRequest(
            question=_checked(question),
            files=(*read_files([Path(path) for path in self.files]), *piped),
            strategy=settings.strategy if self.strategy is None else self.strategy,
            conductor=self.conductor,
            rounds=self.rounds or settings.rounds,
            depth=settings.depth if self.depth is None else self.depth,
            workers=self.workers,
            exclude=self.exclude,
            local_only=self.local_only,
            caller=self.caller,
            approve=self.approve or settings.approve,
            max_usd=settings.max_usd if self.max_usd is None else self.max_usd,
            max_tokens=self.max_tokens,
            max_steps=self.max_steps,
            max_seconds=self.max_seconds,
            allow_unpriced=self.allow_unpriced,
            follow_up=self.follow_up,
        )

    def plan(self) -> tuple[Step, ...] | None:
        """The user's own plan, if one was given.

        Raises:
            PlanError: it is not a plan in JSON.
        """
        return None if self.plan_source is None else read_plan(self.plan_source)

    def _question(self) -> tuple[str, tuple[TextFile, ...]]:
        """The question's text, and what came through a pipe beside it."""
        free = self.plan_source != STDIN
        if self.question == STDIN and not free:
            raise click.UsageError("stdin can be the question or the plan, not both.")
        if self.question == STDIN or (self.question is None and free and not is_terminal()):
            data = read_stdin()
            return (from_bytes("stdin", data).text if data else "", ())
        if self.question is None:
            raise click.UsageError('Missing question: podium ask "…", or pipe it in.')
        if free and _is_piped():
            data = read_stdin()  # whoever starts programs often gives them an empty pipe
            return self.question, (from_bytes("stdin", data),) if data else ()
        return self.question, ()


def read_plan(source: str) -> tuple[Step, ...]:
    """The plan in a file, or on stdin.

    Raises:
        QuestionError: the file cannot be used.
        PlanError: it is not a plan in JSON.
    """
    if source == STDIN:
        return _steps("stdin", read_stdin())
    return _steps(source, read_named(source, "--plan").encode())


def read_named(path: str, option: str) -> str:
    """The text of the file that is named in *option*.

    Raises:
        QuestionError: the file cannot be used; it names the option.
    """
    try:
        return read_file(Path(path)).text
    except QuestionError as error:
        raise QuestionError(option, str(error).removeprefix(f"{error.field}: ")) from None


def read_stdin() -> bytes:
    """All of stdin, up to what a file may have and one byte more."""
    waiting = threading.Timer(
        _PATIENCE_S,
        say,
        ["Waiting for the end of stdin (Ctrl-D ends it; < /dev/null says there is none)."],
    )
    waiting.daemon = True
    waiting.start()
    try:
        return bytes(sys.__stdin__.buffer.read(MAX_BYTES + 1)) if sys.__stdin__ else b""
    finally:
        waiting.cancel()


def is_terminal() -> bool:
    """Whether a person can type into stdin."""
    return sys.__stdin__ is not None and sys.__stdin__.isatty()


def _is_piped() -> bool:
    """Whether stdin is a pipe or a file, not closed, a terminal or /dev/null."""
    if sys.__stdin__ is None:
        return False
    mode = os.fstat(sys.__stdin__.fileno()).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode)


def _checked(question: str) -> str:
    if not question.strip():
        raise QuestionError("question", "is empty; type what you want to know.")
    try:
        question.encode()
    except UnicodeEncodeError:
        raise QuestionError("question", "is not UTF-8 text; convert it first.") from None
    return question


class _PlanFile(Frozen):
    steps: tuple[Step, ...]


_FIELDS = {
    "worker": "write the name of a worker, as `podium workers` lists them",
    "subtask": "write what is to be done",
    "access": 'write a list of earlier step numbers ([] for none), or "all"',
}
"""The fields of a step, and what to write in them."""


def _steps(source: str, data: bytes) -> tuple[Step, ...]:
    try:
        steps = _PlanFile.model_validate_json(data, strict=True).steps
    except ValidationError as error:
        raise PlanError("shape", f"{source}: {_wrong(error.errors()[0])}.") from None
    if not steps:
        raise PlanError("empty", f"{source}: steps: write one at least.")
    for number, step in enumerate(steps):
        if not step.subtask.strip():
            what = f"subtask of step {number}: {_FIELDS['subtask']}"
            raise PlanError("subtask", f"{source}: {what}.")
    return steps


def _wrong(error: ErrorDetails) -> str:
    match error["loc"]:
        case ("steps", int(number), str(field), *_) if field in _FIELDS:
            return f"{field} of step {number}: {_FIELDS[field]}"
        case ("steps", int(number), str(field), *_):
            return f"step {number} has {field!r}; a step has only {', '.join(_FIELDS)}"
        case _:
            why = f" ({error['msg']})" if error["type"] == "json_invalid" else ""
            return f'is not a plan{why}; write {{"steps": [{{"worker", "subtask", "access"}}]}}'
