"""A run drawn on a terminal while it happens: a table of its steps, redrawn as they run."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from podium.cli.progress import Planning, Progress, lines_of
from podium.cli.wording import one_line
from podium.plan import Plan
from podium.trace import Event, Round, Run
from podium.views import money
from podium_workers.worker import Usage

_TICKS = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_LANE = 16
"""Characters of the lane that shows when a step ran."""
_WIDE = 100
"""Columns from which a terminal has room for the lane."""
_STYLES = {
    "waits": "dim",
    "running": "yellow",
    "finished": "green",
    "failed": "red",
    "stopped": "red",
    "your turn": "magenta",
}


@dataclass
class _Row:
    """One step as it is drawn."""

    step: str
    worker: str
    subtask: str
    reads: str
    state: str = "waits"
    started: float | None = None
    seconds: float | None = None
    """Length once it has ended."""
    usage: Usage | None = None

    def elapsed(self) -> float:
        if self.seconds is not None:
            return self.seconds
        return time.monotonic() - self.started if self.started else 0.0


class LiveTable(Progress):
    """The plan as a table whose rows change while steps run, side by side where they run so."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._rows: dict[tuple[str, int], _Row] = {}
        self._run_id = ""
        self._planning = Planning()
        self._doing = ""
        self._since = 0.0
        self._live = Live(
            console=self._console,
            get_renderable=self._draw,
            refresh_per_second=6,
            redirect_stdout=False,
        )

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._doing = ""
        for row in self._rows.values():
            if row.state == "running":
                row.state, row.seconds = "stopped", row.elapsed()
        self._live.stop()

    def begin(self, run: Run, rounds: Sequence[Round]) -> None:
        self._run_id = run.run_id
        self._planning.begin(run, rounds)
        for found in rounds:
            if found.plan:
                self._add(run.run_id, found.plan)
            for result in found.results:
                row = self._rows.get((run.run_id, result.number))
                if row and result.finished:
                    row.state, row.worker = "finished", result.worker
                    row.seconds, row.usage = result.seconds, result.usage

    def tell(self, event: Event) -> None:
        if not self._planning.is_real(event):
            return
        match event.kind:
            case "planning":
                self._doing, self._since = event.text, time.monotonic()
            case "plan" if event.plan:
                self._doing = ""
                self._add(event.run_id, event.plan)
            case "accepted" | "finished" | "failed":
                self._doing = ""
            case "step_failed" | "fallback":
                for line in lines_of(event):
                    self._console.print(Text(line, style="yellow"))
            case _:
                pass
        row = self._rows.get((event.run_id, -1 if event.step is None else event.step))
        if row:
            _advance(row, event)

    def _add(self, run_id: str, plan: Plan) -> None:
        nested = "" if run_id == self._run_id else "· "
        for number, step in plan.numbered():
            access = "all" if step.access == "all" else ", ".join(map(str, step.access))
            self._rows[run_id, number] = _Row(
                step=f"{nested}{number}",
                worker=step.worker,
                subtask=one_line(step.subtask, 200),
                reads=access,
            )

    def _draw(self) -> RenderableType:
        lane = self._console.width >= _WIDE
        parts: list[RenderableType] = []
        rows = tuple(self._rows.values())
        if rows:
            parts.append(_table(rows, lane=lane))
        if self._doing:
            seconds = time.monotonic() - self._since
            tick = _TICKS[int(seconds * 6) % len(_TICKS)]
            parts.append(Text(f"{tick} {self._doing}  {seconds:.0f} s", style="cyan"))
        return Group(*parts)


def _advance(row: _Row, event: Event) -> None:
    match event.kind:
        case "step_started":
            row.state, row.started, row.seconds = "running", time.monotonic(), None
            row.worker = event.worker or row.worker
        case "step_finished":
            row.state, row.usage = "finished", event.usage
            row.seconds = row.elapsed() if event.seconds is None else event.seconds
        case "step_failed":
            row.state, row.seconds = "failed", row.elapsed()
        case "waiting":
            row.state = "your turn"
        case _:
            pass


def _table(rows: Sequence[_Row], *, lane: bool) -> Table:
    drawn = Table(box=None, pad_edge=False, header_style="bold", expand=True)
    drawn.add_column("step", no_wrap=True)
    drawn.add_column("worker", no_wrap=True)
    drawn.add_column("subtask", no_wrap=True, overflow="ellipsis", ratio=1)
    drawn.add_column("reads", no_wrap=True)
    drawn.add_column("state", no_wrap=True, min_width=8)
    drawn.add_column("time", no_wrap=True, justify="right", min_width=6)
    drawn.add_column("tokens", no_wrap=True, justify="right")
    drawn.add_column("cost", no_wrap=True, justify="right")
    if lane:
        drawn.add_column("when", no_wrap=True, width=_LANE)
    for row in rows:
        drawn.add_row(*_cells(row), *([_lane(row, rows)] if lane else []))
    return drawn


def _cells(row: _Row) -> list[Text]:
    style = _STYLES[row.state]
    used = row.usage
    return [
        Text(row.step),
        Text(row.worker),
        Text(row.subtask),
        Text(row.reads),
        Text(row.state, style=style),
        Text(f"{row.elapsed():.1f} s" if row.started or row.seconds is not None else ""),
        Text(f"{used.input_tokens + used.output_tokens:,}" if used else ""),
        Text(money(used.cost_usd) if used else ""),
    ]


def _lane(row: _Row, rows: Sequence[_Row]) -> Text:
    """When a step ran, on the time line of all of them; what overlaps ran at the same time."""
    starts = [other.started for other in rows if other.started]
    if not row.started:
        return Text("")
    first = min(starts)
    last = max(other.started + other.elapsed() for other in rows if other.started)
    scale = _LANE / max(last - first, 0.001)
    before = min(int((row.started - first) * scale), _LANE - 1)
    length = max(1, min(round(row.elapsed() * scale), _LANE - before))
    return Text(" " * before + "━" * length, style=_STYLES[row.state])
