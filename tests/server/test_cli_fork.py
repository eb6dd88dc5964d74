"""`podium fork` and `podium compare`: a run again from one step on, and both side by side."""

import pytest
from tests.command_line import FACTS, CommandLine, own_plan


def asked(podium: CommandLine) -> str:
    assert podium.inside("ask", "Weigh it.", "--quiet").code == 0
    return podium.newest_run()


def test_a_fork_gives_an_answer_and_its_record(podium: CommandLine):
    run = asked(podium)
    done = podium.inside("fork", run, "--step", "2", "--worker", "hand", "--json")
    assert done.code == 0
    assert done.data["answer"] == FACTS
    assert done.data["run_id"] != run
    assert f"podium compare {run} {done.data['run_id']}" in done.err
    assert "2 steps taken over" in done.err
    receipt = done.data["receipt"]
    assert isinstance(receipt, dict)
    assert receipt["calls"] == 1


def test_a_fork_as_a_process_says_the_answer_on_stdout_alone(podium: CommandLine):
    run = asked(podium)
    done = podium("fork", run[:8], "--step", "0", "--worker", "boss", "--quiet")
    assert (done.code, done.out) == (0, "The answer is 42.\n")
    assert "taken over" not in done.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--step", "9"), "There is no step 9"),
        (("--step", "0", "--worker", "hnad"), "did you mean 'hand'"),
        (("--step", "-1"), "not in the range"),
        (("--step", "0", "--subtask", ""), "'--subtask': is empty"),
        (("--step", "0", "--worker", " "), "'--worker': is empty"),
        ((), "Missing option '--step'"),
    ],
)
def test_what_cannot_be_forked_is_told(podium: CommandLine, arguments: tuple[str, ...], words: str):
    run = asked(podium)
    done = podium.inside("fork", run, *arguments)
    assert done.code in (1, 2)
    assert words in done.err


def test_a_step_that_is_the_users_waits_in_a_fork_too(podium: CommandLine):
    plan = own_plan(("hand", "Facts.", []), ("caller", "Look.", [0]), ("boss", "Sum up.", [0, 1]))
    podium.write("plan.json", plan)
    waiting = podium.inside("ask", "Weigh it.", "--plan", "plan.json")
    assert waiting.code == 3
    done = podium.inside("fork", podium.newest_run(), "--step", "0", "--worker", "boss")
    assert done.code == 3
    assert "Step 1 is yours: Look." in done.err


def test_two_runs_stand_side_by_side(podium: CommandLine):
    run = asked(podium)
    forked = podium.inside("fork", run, "--step", "0", "--worker", "boss", "--json").data["run_id"]
    done = podium.inside("compare", run, str(forked))
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[0].split() == ["run", run, str(forked)]
    assert ["status", "finished", "finished"] in [line.split() for line in lines]
    assert any(line.startswith("fork of") and line.endswith(run) for line in lines)
    assert any(line.split()[:3] == ["0", "hand", "boss"] for line in lines)
    taken = next(line for line in lines if line.startswith("1 "))
    assert "the same" in taken
    assert taken.endswith("taken over")
    assert f"  -{FACTS}" in lines
    assert "  +The answer is 42." in lines
    assert "Step 0 was planned otherwise" in done.out
    assert lines[-1] == "Answer: the same"
    last = podium.inside("fork", run, "--step", "2", "--worker", "hand", "--json").data["run_id"]
    assert podium.inside("compare", run, str(last)).out.endswith(
        "Answer: differs as the replies of step 2 do\n"
    )


def test_a_fork_is_shown_with_what_it_took_over(podium: CommandLine):
    run = asked(podium)
    forked = str(podium.inside("fork", run, "--step", "2", "--json").data["run_id"])
    shown = podium.inside("show", forked).out
    assert f"A fork of run {run}" in shown
    assert shown.count(f"taken over from run {run}, which paid for it") == 2
    assert podium.inside("verify", forked).code == 0


def test_a_comparison_as_data_has_both_runs_whole(podium: CommandLine):
    run = asked(podium)
    forked = podium.inside("fork", run, "--step", "1", "--json").data["run_id"]
    data = podium.inside("compare", run, str(forked), "--json").data
    assert data["same_question"] is True
    first, second, steps = data["first"], data["second"], data["steps"]
    assert isinstance(first, dict)
    assert isinstance(second, dict)
    assert isinstance(steps, list)
    assert (second["forked_from"], first["forked_from"]) == (run, None)
    assert (first["calls"], second["calls"]) == (4, 2)
    assert data["answer"] == {"same": True, "alike": 1.0, "lines": []}
    assert len(steps) == 3


def test_runs_of_other_questions_and_other_shapes_can_be_compared(podium: CommandLine):
    run = asked(podium)
    podium.inside("plan", "Something else?", "--strategy", "single")
    done = podium.inside("compare", run, podium.newest_run())
    assert done.code == 0
    assert "The questions differ:" in done.out
    assert "(no such step)" in done.out
    assert f"Answer: none in {podium.newest_run()}" in done.out


def test_a_long_difference_is_cut_and_shown_in_full_when_asked_for(podium: CommandLine):
    long = "\\n".join(f"line {number}" for number in range(100))
    podium.pool.write_text(podium.pool.read_text().replace(FACTS, long))
    run = asked(podium)
    forked = str(
        podium.inside("fork", run, "--step", "0", "--worker", "boss", "--json").data["run_id"]
    )
    short, full = (
        podium.inside("compare", run, forked),
        podium.inside("compare", run, forked, "--full"),
    )
    assert "more; --full shows them" in short.out
    assert "line 99" not in short.out
    assert "  -line 99" in full.out


def test_an_unknown_run_is_told(podium: CommandLine):
    run = asked(podium)
    assert podium.inside("compare", run, "ffffff").code == 1
    assert podium.inside("fork", "ffffff", "--step", "0").code == 1
