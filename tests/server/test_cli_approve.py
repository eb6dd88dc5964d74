"""`podium ask --caller` and `--approve plan`: what the user does, and says yes to, in a shell."""

import os
import pty
import subprocess

import pytest
from tests.command_line import FACTS, PLAN, POOL, TIMEOUT_S, CommandLine, own_plan

YOURS = own_plan(("caller", "Run the tests.", []), ("hand", "Explain them.", [0]))


def at_a_terminal(podium: CommandLine, typed: str, *arguments: str) -> tuple[int, str, str]:
    """A command whose stdin is a terminal at which that is typed; its code, stdout and stderr."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        podium.argv(*arguments),
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=podium.folder,
        env=podium.environ,
    ) as process:
        os.close(theirs)
        os.write(ours, typed.encode())
        out, err = process.communicate(timeout=TIMEOUT_S)
        os.close(ours)
    return process.returncode, out.decode(), err.decode()


def test_a_plan_may_give_steps_to_the_user_and_everything_shows_them(podium: CommandLine):
    podium.pool.write_text(POOL.replace(PLAN, YOURS))
    asked = podium.inside("ask", "Why do they fail?", "--caller")
    run = podium.newest_run()
    assert (asked.code, asked.out) == (3, "")
    assert "Step 0 is yours: Run the tests." in asked.err
    assert podium.inside("step", run, "0", "--result", "2 failed").out == "2 failed\n"
    done = podium.inside("resume", run)
    assert (done.code, done.out) == (0, f"{FACTS}\n")
    assert podium.inside("verify", run).code == 0
    shown = podium.inside("show", run)
    assert "caller" in shown.out
    exported = podium.inside("export", run)
    assert exported.code == 0
    assert "2 failed" in exported.out
    assert podium.inside("compare", run, run).code == 0


def test_without_it_such_a_plan_is_not_taken(podium: CommandLine):
    podium.pool.write_text(POOL.replace(PLAN, YOURS))
    assert podium.inside("ask", "Why do they fail?").code == 0
    assert podium.inside("runs", "--json").rows[0]["plan_source"] == "fallback"


def test_a_plan_waits_for_a_yes_that_resume_is(podium: CommandLine):
    asked = podium.inside("ask", "Why?", "--approve", "plan")
    run = podium.newest_run()
    assert (asked.code, asked.out) == (3, "")
    assert "0. hand: List the facts." in asked.err
    assert "Price: free" in asked.err
    assert f"The plan waits for your yes:  podium resume {run}" in asked.err
    done = podium.inside("resume", run)
    assert (done.code, done.out) == (0, "The answer is 42.\n")


def test_the_setting_may_be_left_out_by_its_owner(podium: CommandLine):
    podium.write("podium.toml", 'approve = "plan"\n')
    assert podium.inside("ask", "Why?").code == 3
    assert podium.inside("ask", "Why not?", "--approve", "nothing").code == 0


@pytest.mark.parametrize(
    ("typed", "code", "out"), [("y\n", 0, "The answer is 42.\n"), ("n\n", 1, "")]
)
def test_at_a_terminal_it_is_asked(podium: CommandLine, typed: str, code: int, out: str):
    found = at_a_terminal(podium, typed, "ask", "Why?", "--approve", "plan")
    assert found[:2] == (code, out)
    assert "Carry it out?" in found[2]
    status = podium.inside("runs", "--json").rows[0]["status"]
    assert status == ("finished" if code == 0 else "stopped")
