"""`--conductor`: a worker of the pool, or the path of a model that does nothing but write plans."""

import json
import sys
from pathlib import Path
from typing import cast

import pytest
from pydantic import JsonValue
from tests.command_line import CommandLine
from tests.gguf_writer import write_gguf

PLAN = json.dumps({"steps": [{"subtask": "Say it.", "worker": "hand", "access": []}]})
PLANNER = f"""
[[worker]]
name = "planner"
kind = "scripted"
steps = false
replies = ['{PLAN}']
"""


@pytest.fixture
def led(podium: CommandLine) -> CommandLine:
    """The scripted pool under a conductor that does no steps."""
    podium.pool.write_text(podium.pool.read_text() + PLANNER)
    return podium


def checks(podium: CommandLine) -> dict[str, str]:
    found = cast("list[dict[str, str]]", podium.inside("doctor", "--json").data["checks"])
    return {check["area"]: check["found"] for check in found}


def test_a_pool_may_have_a_conductor_that_does_no_steps(led: CommandLine):
    done = led.inside("ask", "Who says what?", "--json")
    assert done.code == 0, done.err
    (plan,) = cast("list[dict[str, JsonValue]]", done.data["plans"])
    assert plan["source"] == "model"
    assert cast("str", done.data["answer"]).startswith("The facts are these")
    exported = led.inside("export", str(done.data["run_id"]), "--format", "markdown").out
    assert "| planner | planner" in exported


def test_it_is_listed_and_looked_after_like_the_workers(led: CommandLine):
    text = led.inside("workers")
    assert "writes plans and does no steps" in text.out
    assert "Plans are written by planner, which does no steps." in text.err
    rows = led.inside("workers", "--json").rows
    assert [(row["name"], row["steps"], row["conductor"]) for row in rows] == [
        ("boss", True, False), ("hand", True, False), ("planner", False, True),
    ]  # fmt: skip
    assert checks(led)["workers"] == "2 workers of 2: boss, hand; planner writes the plans"


def test_it_is_not_measured(led: CommandLine):
    done = led.inside("workers", "profile", "planner")
    assert done.code == 1
    assert "'planner' does nothing but write plans (steps = false)" in done.err


def test_a_worker_by_name_writes_the_plan_instead(led: CommandLine):
    done = led.inside("ask", "Who says what?", "--conductor", "boss", "--json")
    assert done.code == 0, done.err
    shown = led.inside("show", str(done.data["run_id"]), "--json").data
    (proposal, *_) = cast("list[dict[str, JsonValue]]", shown["proposals"])
    assert proposal["worker"] == "boss"


@pytest.mark.parametrize("command", ["resume", "fork"])
def test_a_run_that_goes_on_may_have_another_conductor(led: CommandLine, command: str):
    first = "ask" if command == "fork" else "plan"
    begun = led.inside(first, "Who says what?", "--rounds", "2", "--json")
    run_id = str(begun.data["run_id"])
    more = ("--step", "0") if command == "fork" else ()
    done = led.inside(command, run_id, *more, "--conductor", "boss", "--json")
    assert done.code == 0, done.err
    shown = led.inside("show", str(done.data["run_id"]), "--json").data
    proposals = cast("list[dict[str, JsonValue]]", shown["proposals"])
    assert [proposal["worker"] for proposal in proposals[:2]] == ["planner", "boss"]


def test_a_plan_says_that_another_wrote_it(led: CommandLine):
    far = 'kind = "openai"\nmodel = "m"\napi_key_env = "NO_SUCH_KEY"\nsteps = false\n'
    led.pool.write_text(led.pool.read_text().replace(PLANNER, '\n[[worker]]\nname = "far"\n' + far))
    done = led.inside("plan", "Who says what?")
    assert "Note: The plan was written by boss, since far: " in done.out
    assert "NO_SUCH_KEY is not set" in done.out


@pytest.mark.parametrize("command", ["ask", "plan"])
def test_who_is_neither_a_worker_nor_a_path_is_said_to_be_so(led: CommandLine, command: str):
    done = led.inside(command, "Why?", "--conductor", "bos")
    assert done.code == 1
    assert "conductor: 'bos' is no worker of this pool, which has boss, hand, planner" in done.err
    assert not led.ledger.exists() or led.inside("runs", "--json").rows == []


def test_a_path_without_a_model_is_an_error_before_anything_is_asked(led: CommandLine):
    done = led.inside("ask", "Why?", "--conductor", "./gone.gguf")
    assert done.code == 1
    assert "gone.gguf: there is no such file or folder." in done.err
    (led.folder / "empty").mkdir()
    assert "holds no model" in led.inside("plan", "Why?", "--conductor", "empty").err


def test_a_model_by_its_path_leads_the_pool_and_is_looked_after(podium: CommandLine):
    write_gguf(podium.folder / "mine.gguf")
    found = CommandLine(podium.folder, {"PODIUM_CONDUCTOR": "./mine.gguf"})
    told = checks(found)["pool"]
    assert told.endswith("mine.gguf, prompted, since no conductor.json lies beside it.")
    rows = found.inside("workers", "--no-check", "--json").rows
    assert [(row["name"], row["steps"]) for row in rows] == [
        ("boss", True), ("hand", True), ("mine", False),
    ]  # fmt: skip


def test_the_setting_keeps_a_path_for_any_folder(podium: CommandLine):
    assert podium.inside("config", "set", "conductor", "./mine.gguf").code == 0
    kept = str(Path(podium.folder / "mine.gguf"))
    assert f'conductor = "{kept}"' in podium.config.read_text()
    assert podium.inside("config", "set", "conductor", "hand").code == 0
    assert 'conductor = "hand"' in podium.config.read_text()
    rows = podium.inside("workers", "--no-check", "--json").rows
    assert [row["conductor"] for row in rows] == [False, True]


def test_a_folder_for_vllm_says_what_to_type_where_there_is_none(podium: CommandLine):
    folder = podium.folder / "trained"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    bare = CommandLine(podium.folder, {"PATH": str(podium.folder)})
    done = bare.inside("ask", "Why?", "--conductor", "trained")
    assert done.code == 1
    assert "trained is a folder for vLLM. vLLM is not installed: make an environment" in done.err


def test_doctor_says_that_a_folder_needs_vllm_where_there_is_none(podium: CommandLine):
    folder = podium.folder / "trained"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    bare = CommandLine(podium.folder, {"PATH": "", "PODIUM_CONDUCTOR": "./trained"})
    assert checks(bare)["worker trained"].startswith("vLLM is not installed: make an environment")
    python = folder / "bin" / "python"
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    (folder / "bin" / "vllm").write_text("#!/bin/sh\n")
    (folder / "bin" / "vllm").chmod(0o755)
    found = CommandLine(
        podium.folder, {"PATH": str(folder / "bin"), "PODIUM_CONDUCTOR": "./trained"}
    )
    assert "worker trained" not in checks(found)


def test_a_replay_has_the_conductors_that_were_recorded(led: CommandLine):
    assert led.inside("--record", "tape.jsonl", "ask", "Who?").code == 0
    again = led.inside("--replay", "tape.jsonl", "ask", "Who?", "--fresh", "--quiet")
    assert (again.code, again.out.startswith("The facts")) == (0, True)
    named = led.inside("--replay", "tape.jsonl", "plan", "Who?", "--conductor", "planner")
    assert named.code == 0, named.err
    refused = led.inside("--replay", "tape.jsonl", "plan", "Who?", "--conductor", "./x.gguf")
    assert "'./x.gguf' is not in the cassette" in refused.err


def test_a_server_is_told_who_writes_its_plans(podium: CommandLine):
    done = podium.inside("serve", "--http", "--port", "0", "--conductor", "./gone.gguf")
    assert done.code == 1
    assert "gone.gguf: there is no such file or folder." in done.err
