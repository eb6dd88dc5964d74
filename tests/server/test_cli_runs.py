"""`podium runs`, `show` and `verify`: looking at the ledger."""

import json
import sqlite3
from contextlib import closing
from typing import cast

import pytest
from pydantic import JsonValue
from tests.command_line import FACTS, CommandLine

Object = dict[str, JsonValue]


def test_an_empty_ledger_lists_nothing_and_is_not_made(podium: CommandLine):
    done = podium("runs", "--json")
    assert (done.code, done.json) == (0, [])
    assert "holds no runs yet" in done.err
    assert not podium.ledger.exists()


def test_runs_are_listed_with_what_a_program_needs(podium: CommandLine):
    podium.inside("ask", "What is the answer?", "--quiet")
    podium.inside("ask", "Another thing altogether", "--strategy", "single", "--quiet")

    newest, oldest = podium.inside("runs", "--json").rows
    assert (newest["policy"], newest["plan_source"]) == ("single", "fixed")
    assert (oldest["policy"], oldest["plan_source"]) == ("conductor", "model")
    assert (oldest["status"], oldest["fallback"], oldest["steps"]) == ("finished", False, 3)
    assert cast("float", oldest["seconds"]) > 0
    assert cast("Object", oldest["usage"])["cost_usd"] == 0

    table = podium.inside("runs").out.splitlines()
    assert table[0].split()[:3] == ["run", "when", "status"]
    assert str(newest["run_id"]) in table[1]

    (found,) = podium.inside("runs", "--search", "altogether", "--json").rows
    assert found["run_id"] == newest["run_id"]
    assert "altogether" in str(found["snippet"])
    assert (
        podium.inside("runs", "--search", "altogether", "--status", "failed", "--json").json == []
    )
    assert podium.inside("runs", "--until", "2d", "--json").json == []
    wide = podium.inside("runs", "--since", "0001-01-01", "--until", "9999-12-31", "--json")
    assert wide.json == podium.inside("runs", "--json").json != []
    turned = podium.inside("runs", "--since", "2026-02-01", "--until", "2026-01-01")
    assert (turned.code, turned.out) == (1, "")
    assert "since: is later than until" in turned.err
    assert len(podium.inside("runs", "--since", "1h", "--json").rows) == 2


def test_runs_that_are_steps_of_others_are_listed_only_when_asked_for(podium: CommandLine):
    plan = '{"steps": [{"worker": "podium", "subtask": "Find the swallow.", "access": []}]}'
    podium.inside("ask", "Why?", "--plan", podium.write("plan.json", plan), "--depth", "1")

    (whole,) = podium.inside("runs", "--json").rows
    assert whole["question"] == "Why?"
    nested, outer = podium.inside("runs", "--nested", "--json").rows
    assert (nested["parent_id"], outer) == (whole["run_id"], whole)

    found = podium.inside("runs", "--search", "swallow", "--json").rows
    assert [run["run_id"] for run in found] == [whole["run_id"]]
    every = podium.inside("runs", "--search", "swallow", "--nested", "--json").rows
    assert [run["run_id"] for run in every] == [nested["run_id"], whole["run_id"]]


@pytest.mark.parametrize("arguments", [["--since", "soon"], ["--limit", "0"], ["--status", "x"]])
def test_a_wrong_filter_is_wrong_usage(podium: CommandLine, arguments: list[str]):
    done = podium.inside("runs", *arguments)
    assert (done.code, done.out) == (2, "")


def test_show_has_question_plans_prompts_replies_and_receipt(podium: CommandLine):
    podium("ask", "What is the answer?", "--quiet", stdin="some notes")
    run = podium.newest_run()

    shown = podium.inside("show", run[:12], "--prompts").out

    for part in (
        f"Run {run}: finished",
        "Question\n  What is the answer?\n  with stdin, 10 bytes",
        "Prompt for plan 0 to boss",
        'Plan 0 as it was written by boss\n  {"steps": [',
        "Plan 0 as it is run, written by the conductor\n  0 hand: List the facts.",
        "Step 2: boss reads 0, 1, finished",
        "Prompt of step 2",
        f"Reply of step 0\n  {FACTS}",
        "Answer (step 2)\n  The answer is 42.",
        "stdin: 10 of 10 bytes read",
    ):
        assert part in shown
    assert FACTS not in podium.inside("show", run, "--no-replies").out
    data = podium.inside("show", run, "--json").data
    assert len(cast("list[JsonValue]", data["steps"])) == 3
    assert len(cast("list[JsonValue]", data["calls"])) == 4
    assert data["prompts"] == {}


def test_verify_holds_and_finds_a_planted_leak(podium: CommandLine):
    podium.inside("ask", "What is the answer?", "--quiet")
    run = podium.newest_run()
    held = podium.inside("verify", run)
    assert (held.code, held.out) == (0, "")
    assert "3 prompts rebuilt, each exactly what its access list grants" in held.err

    steps = cast("list[Object]", podium.inside("show", run, "--json").data["steps"])
    plant(podium, sha=str(steps[1]["prompt"]), text=FACTS)

    leaked = podium.inside("verify", run)
    assert leaked.code == 1
    assert "step 1: It holds the reply of step 0, which is not granted." in leaked.out
    verdict = podium("verify", run, "--json")
    assert verdict.code == 1
    findings = cast("list[Object]", verdict.data["findings"])
    assert [finding["step"] for finding in findings] == [1] * len(findings)


def test_a_damaged_prompt_is_shown_as_damaged(podium: CommandLine):
    podium.inside("ask", "q", "--quiet", "--strategy", "single")
    run = podium.newest_run()
    with closing(sqlite3.connect(podium.ledger)) as connection, connection:
        connection.execute("UPDATE blobs SET text = 'rubbish' WHERE text LIKE '%messages%'")
    assert "(damaged in the ledger) rubbish" in podium.inside("show", run, "--prompts").out
    assert podium.inside("verify", run).code == 1


def plant(podium: CommandLine, *, sha: str, text: str) -> None:
    """Add *text* to a stored prompt, as a fault that leaks it would have."""
    with closing(sqlite3.connect(podium.ledger)) as connection, connection:
        query = "SELECT text FROM blobs WHERE sha = ?"
        prompt = json.loads(connection.execute(query, (sha,)).fetchone()[0])
        prompt["messages"][-1]["text"] += text
        connection.execute("UPDATE blobs SET text = ? WHERE sha = ?", (json.dumps(prompt), sha))


def test_unknown_runs_are_named(podium: CommandLine):
    missing = podium.inside("show", "abcdef")
    assert (missing.code, missing.out) == (1, "")
    assert "There is no ledger" in missing.err
    podium.inside("ask", "q", "--quiet")
    unknown = podium.inside("verify", "abcdef")
    assert (unknown.code, unknown.out) == (1, "")
    assert "There is no run 'abcdef'" in unknown.err
