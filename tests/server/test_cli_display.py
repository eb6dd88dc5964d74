"""What the command line draws: the live table, its lines in a pipe, help, harmless text."""

import io

import click
import pytest
from rich.console import Console

from podium.cli.commands import COMMANDS, podium
from podium.cli.live import LiveTable
from podium.cli.progress import Lines
from podium.cli.saying import printable
from podium.cli.wording import one_line, table
from podium.plan import Plan, Step
from podium.trace import Event, EventKind, Run, RunRequest
from podium_workers.worker import Usage

PLAN = Plan(
    steps=(
        Step(worker="hand", subtask="List the facts."),
        Step(worker="boss", subtask="List the [bold]doubts[/bold]."),
        Step(worker="boss", subtask="Weigh both.", access=(0, 1)),
    )
)
RUN = Run(
    run_id="r1",
    principal="local",
    request=RunRequest(question="q"),
    pool=(),
    fence="f",
    seed=1,
    status="running",
    created_at=0,
)


def event(kind: EventKind, text: str = "", *, step: int | None = None, **more: object) -> Event:
    values = {"kind": kind, "run_id": "r1", "text": text, "step": step, **more}
    return Event.model_validate(values)


EVENTS = (
    event("planning", "planning round 0"),
    event("plan", "plan of 3 steps (model)", plan=PLAN),
    event("step_started", step=0, worker="hand"),
    event("step_started", step=1, worker="boss"),
    event("fallback", "it is\x1b[2J down", step=0, worker="hand"),
    event("step_started", step=0, worker="boss"),
    event(
        "step_finished",
        step=0,
        worker="boss",
        seconds=1.25,
        usage=Usage(input_tokens=1000, output_tokens=200, cost_usd=0.5),
    ),
    event("step_failed", "boss: refused", step=1, worker="boss"),
    event("planning", "planning round 1"),
    event("finished", "the answer", step=0),
)


def draw(*, width: int) -> str:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=width, color_system=None)
    with LiveTable(console) as live:
        live.begin(RUN, ())
        for told in EVENTS:
            live.tell(told)
    return screen.getvalue()


def last_lines(drawn: str, count: int) -> list[list[str]]:
    """The words of the lines that stay on the screen."""
    return [line.replace("\x1b[2K", "").split() for line in drawn.splitlines()[-count - 1 : -1]]


def test_the_live_table_ends_with_every_step_as_it_is():
    head, *rows = last_lines(draw(width=120), 4)
    assert " ".join(head) == "step worker subtask reads state time tokens cost when"
    assert " ".join(rows[0]).startswith("0 boss List the facts. finished 1.2 s 1,200 $0.5000 ━")
    assert " ".join(rows[1]).startswith("1 boss List the [bold]doubts[/bold]. failed 0.0 s")
    assert " ".join(rows[2]) == "2 boss Weigh both. 0, 1 waits"


def test_what_a_worker_said_does_not_steer_the_terminal():
    drawn = draw(width=80)
    assert "step 0 hand gave nothing: it is\ufffd[2J down" in drawn
    assert "\x1b[2J" not in drawn
    assert "when" not in last_lines(drawn, 4)[0]  # no room for it


def test_an_interrupted_step_is_drawn_as_stopped():
    screen = io.StringIO()
    with LiveTable(Console(file=screen, force_terminal=True, width=100)) as live:
        live.begin(RUN, ())
        for told in EVENTS[:4]:
            live.tell(told)
    assert screen.getvalue().count("stopped") == 2


def test_a_pipe_gets_a_line_for_each_event(capsys: pytest.CaptureFixture[str]):
    with Lines() as lines:
        lines.begin(RUN, ())
        for told in EVENTS:
            lines.tell(told)
    assert capsys.readouterr().err.splitlines() == [
        "run r1",
        "planning round 0",
        "plan of 3 steps (model):",
        "  0 hand: List the facts.",
        "  1 boss: List the [bold]doubts[/bold].",
        "  2 boss reads 0, 1: Weigh both.",
        "step 0 hand started",
        "step 1 boss started",
        "step 0 hand gave nothing: it is\ufffd[2J down",
        "step 0 boss started",
        "step 0 finished in 1.2 s, 1,200 tokens, $0.5000",
        "step 1 failed: boss: refused",
    ]


def test_printable_text_keeps_line_ends_and_nothing_else_that_acts():
    assert printable("a\r\n\tb\x1b[31m\x07\x9b") == "a\n\tb\ufffd[31m\ufffd\ufffd"
    assert one_line("a\n  b\tc", 80) == "a b c"
    assert one_line("abcdef", 4) == "abc…"


def test_a_table_is_as_wide_as_it_must_be():
    rows = [("long", "x"), ("s", "")]
    assert table(("a", "bb"), rows) == "a     bb\nlong  x\ns"
    assert table(("a", "bb"), rows, [["below"], []]) == "a     bb\nlong  x\n    below\ns"


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_every_command_has_an_example(name: str):
    context = click.Context(podium)
    command = podium.get_command(context, name)
    assert command is not None
    assert command.help
    assert f"podium {name}" in (command.epilog or "")


def test_the_commands_are_listed_and_an_unknown_one_is_wrong_usage():
    context = click.Context(podium)
    assert podium.get_command(context, "asks") is None
    assert podium.list_commands(context)[: len(COMMANDS)] == list(COMMANDS)
