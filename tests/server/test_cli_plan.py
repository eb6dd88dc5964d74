"""`podium plan` and `podium step`: a plan that is priced, walked and changed."""

from typing import cast

from pydantic import JsonValue
from tests.command_line import FACTS, CommandLine


def test_a_plan_is_priced_kept_and_not_carried_out(podium: CommandLine):
    done = podium("plan", "What is the answer?")

    run = podium.newest_run()
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[0] == "Plan of 3 steps, written by the conductor:"
    assert "  2 boss reads 0, 1: Weigh both." in lines
    assert "Price  free" in lines
    assert f"Run    {run}" in lines
    assert f"Carry it out:   podium resume {run}" in lines
    (kept,) = podium("runs", "--json").rows
    assert (kept["status"], kept["steps"]) == ("planned", 3)


def test_an_unknown_price_is_not_called_free(podium: CommandLine):
    podium.pool.write_text(
        '[[worker]]\nname = "far"\nkind = "openai"\nmodel = "m"\nbase_url = "https://h.invalid/v1"\n'
    )
    plan = '{"steps": [{"worker": "far", "subtask": "Do it.", "access": []}]}'
    text = podium("plan", "q", "--plan", "-", stdin=plan)
    assert "Price  low unknown, expected unknown, worst unknown (unknown for far)" in text.out
    data = podium("plan", "q", "--plan", "-", "--json", stdin=plan).data
    estimate = cast("dict[str, JsonValue]", data["estimate"])
    assert estimate["usd"] == {"low": None, "expected": None, "worst": None}


def test_a_plan_is_walked_changed_and_walked_again(podium: CommandLine):
    podium.inside("plan", "What is the answer?", "--quiet")
    run = podium.newest_run()

    first = podium("step", run)
    assert (first.code, first.out) == (0, f"{FACTS}\n")
    assert f"To be done: 1, 2; the next: podium step {run}" in first.err

    early = podium.inside("step", run, "2")
    assert (early.code, early.out) == (1, "")
    assert "Error: Step 2 reads steps [1], which are not done; run step 1 first." in early.err

    podium.inside("step", run, "1", "--quiet")
    last = podium.inside("step", run, "2", "--json")
    assert last.data["left"] == []
    again = podium.inside("step", run, "0")
    assert "Step 0 had been done; this is its reply from the record." in again.err

    edit = ("--worker", "hand", "--access", "0", "--subtask", "Doubt it.")
    changed = podium("step", run, "1", *edit)
    assert (changed.code, changed.out) == (0, f"{FACTS}\n")
    assert "To be done: 2 (again: 2)" in changed.err

    done = podium("resume", run)
    assert (done.code, done.out) == (0, "The answer is 42.\n")
    assert "1 hand reads 0: Doubt it." in podium.inside("show", run).out


def test_steps_refuse_what_they_cannot_take(podium: CommandLine):
    podium.inside("plan", "q", "--quiet")
    run = podium.newest_run()

    assert podium.inside("step", run, "--worker", "hand").code == 2
    assert podium.inside("step", run, "0", "--access", "x").code == 2
    unknown = podium.inside("step", run, "0", "--worker", "handy")
    assert (unknown.code, unknown.out) == (1, "")
    assert "handy" in unknown.err
    missing = podium.inside("step", run, "7")
    assert "There is no step 7" in missing.err
