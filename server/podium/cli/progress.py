"""Progress of a run on stderr: plain lines in a pipe; `live` draws the same on a terminal."""

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from podium.cli.saying import printable, say
from podium.cli.wording import count, one_line, spent
from podium.plan import Plan
from podium.trace import Event, Round, Run

_SUBTASK = 100
"""Characters of a subtask that a line of progress shows."""


class Progress:
    """Is told of a run's events. This one shows nothing; it is the base of those that do."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave the display as it stands."""

    def begin(self, run: Run, rounds: Sequence[Round]) -> None:
        """The run that will be told of, and what its record already holds."""

    def tell(self, event: Event) -> None:
        """One thing that just happened in the run or in one nested in it."""


class Planning:
    """Tells apart the planning of a plan and the mere question which reply is accepted."""

    def __init__(self) -> None:
        self._most = 1
        self._written: dict[str, int] = {}

    def begin(self, run: Run, rounds: Sequence[Round]) -> None:
        """The run that will be told of; those nested in it may have as many plans."""
        self._most = run.request.rounds
        self._written[run.run_id] = sum(found.plan is not None for found in rounds)

    def is_real(self, event: Event) -> bool:
        """Whether there is something to tell; false for the planning of a plan too many."""
        written = self._written.get(event.run_id, 0)
        if event.kind == "plan":
            self._written[event.run_id] = written + 1
        return event.kind != "planning" or written < self._most


class Lines(Progress):
    """One line for each event; a *brief* one leaves out what was known before."""

    def __init__(self, *, brief: bool = False) -> None:
        self._brief = brief
        self._run_id = ""
        self._planning = Planning()

    def begin(self, run: Run, rounds: Sequence[Round]) -> None:
        self._run_id = run.run_id
        self._planning.begin(run, rounds)
        if self._brief:
            return
        say(f"run {run.run_id}")
        for found in rounds:
            if found.plan:
                say(plan_text(found.plan, f"plan of {count(len(found.plan.steps), 'step')}"))
            for result in found.results:
                if result.finished:
                    say(f"step {result.number} is already finished ({result.worker})")

    def tell(self, event: Event) -> None:
        indent = "" if event.run_id == self._run_id else "    "
        for text in lines_of(event) if self._planning.is_real(event) else ():
            say(indent + text)


def lines_of(event: Event) -> list[str]:
    """An event in words; none for what is said later, with the answer or the error."""
    step = f"step {event.step}"
    match event.kind:
        case "plan":
            return plan_text(event.plan, event.text).splitlines() if event.plan else []
        case "step_started":
            return [f"{step} {event.worker} started"]
        case "step_finished":
            took = "" if event.seconds is None else f" in {event.seconds:.1f} s"
            used = "" if event.usage is None else f", {spent(event.usage)}"
            return [f"{step} finished{took}{used}"]
        case "step_failed":
            return [f"{step} failed: {one_line(event.text, 300)}"]
        case "fallback":
            return [f"{step} {event.worker} gave nothing: {one_line(event.text, 300)}"]
        case "accepted" | "finished" | "failed":
            return []
        case _:
            return [printable(event.text)]


def plan_text(plan: Plan, head: str) -> str:
    """A plan, a line for each step."""
    lines = [
        f"  {number} {step.worker}{reads(plan, number)}: {one_line(step.subtask, _SUBTASK)}"
        for number, step in plan.numbered()
    ]
    return "\n".join([f"{head}:", *lines])


def reads(plan: Plan, number: int) -> str:
    """Which steps a step reads, in words; empty for none."""
    access = plan.step(number).access
    if access == "all":
        return " reads all" if number else ""
    return f" reads {', '.join(map(str, access))}" if access else ""
