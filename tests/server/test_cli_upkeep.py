"""`podium backup`, `export` and `prune`: looking after the ledger from the command line."""

import os
import pty
import sqlite3
import subprocess
from contextlib import closing
from typing import cast

import pytest
from pydantic import JsonValue
from tests.command_line import FACTS, CommandLine, finish

Object = dict[str, JsonValue]


def ask(podium: CommandLine, question: str, *options: str) -> str:
    """A run for that question; its id."""
    assert podium.inside("ask", question, "--quiet", *options).code == 0
    return podium.newest_run()


def age(podium: CommandLine, run_id: str) -> None:
    """Let a run have been over for years."""
    with closing(sqlite3.connect(podium.ledger)) as connection, connection:
        sql = "UPDATE runs SET created_at = 1, started_at = 1, finished_at = 1 WHERE run_id = ?"
        connection.execute(sql, (run_id,))
        connection.execute("UPDATE calls SET started_at = 1 WHERE run_id = ?", (run_id,))


def runs(podium: CommandLine) -> list[str]:
    return [str(line["run_id"]) for line in podium.inside("runs", "--json").rows]


def test_a_backup_can_be_looked_into_as_a_ledger(podium: CommandLine):
    run = ask(podium, "What is the answer?")

    done = podium.inside("backup", "copy.db")

    assert (done.code, done.out) == (0, "copy.db\n")
    assert "1 run, " in done.err
    assert "looked through" in done.err
    copied = podium.inside("--store", "copy.db", "show", run, "--json")
    assert copied.json == podium.inside("show", run, "--json").json
    again = podium.inside("backup", "copy.db")
    assert (again.code, again.out) == (1, "")
    assert "copy.db exists already" in again.err
    replaced = podium.inside("backup", "copy.db", "--force", "--json")
    assert (replaced.code, replaced.data["runs"]) == (0, 1)


def test_a_backup_of_no_ledger_makes_none(podium: CommandLine):
    done = podium.inside("backup", "copy.db")
    assert (done.code, done.out) == (1, "")
    assert "There is no ledger" in done.err
    assert {path.name for path in podium.folder.iterdir()} == {"pool.toml"}


def test_a_backup_onto_a_full_disk_leaves_nothing_behind(podium: CommandLine):
    ask(podium, "What is the answer?", "--file", podium.write("long.txt", "word " * 100_000))
    folder = podium.folder / "full"
    folder.mkdir()
    limited = ["sh", "-c", 'ulimit -f 100; exec "$@"', "sh"]

    process = subprocess.Popen(
        limited + podium.argv("backup", "full/copy.db"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=podium.folder,
        env=podium.environ,
    )
    done = finish(process)

    assert (done.code, done.out) == (1, "")
    assert "The backup full/copy.db cannot be written" in done.err
    assert list(folder.iterdir()) == []


def test_an_export_holds_all_that_the_ledger_has_of_a_run(podium: CommandLine):
    run = ask(podium, "What is the answer?", "--file", podium.write("notes.txt", "some notes"))

    data = podium.inside("export", run[:12]).data

    assert (data["format"], data["format_version"]) == ("podium-run", 1)
    stored = cast("Object", data["run"])
    request = cast("Object", stored["request"])
    assert (stored["run_id"], stored["answer"]) == (run, "The answer is 42.")
    assert (request["question"], cast("list[Object]", request["files"])[0]["text"]) == (
        "What is the answer?",
        "some notes",
    )
    (first, *_) = cast("list[Object]", data["rounds"])
    assert cast("Object", first["proposal"])["source"] == "model"
    steps = cast("list[Object]", data["steps"])
    calls = cast("list[Object]", data["calls"])
    texts = cast("dict[str, str]", data["texts"])
    assert [step["reply"] for step in steps] == [FACTS] + ["The answer is 42."] * 2
    assert all("some notes" in texts[str(step["prompt"])] for step in steps)
    assert all("What is the answer?" in texts[str(call["prompt"])] for call in calls)
    assert {texts[str(call["reply"])] for call in calls} >= {FACTS, "The answer is 42."}
    assert cast("Object", data["receipt"])["calls"] == 4
    assert data["nested"] == []


def test_an_export_says_nothing_of_the_environment(podium: CommandLine):
    secret = CommandLine(
        podium.folder, {"OPENAI_API_KEY": "sk-very-secret", "SOME_VARIABLE": "xyz"}
    )
    run = ask(secret, "What is the answer?")
    for form in ("json", "markdown"):
        done = secret.inside("export", run, "--format", form)
        assert "very-secret" not in done.out + done.err
        assert "SOME_VARIABLE" not in done.out
        assert str(podium.folder) not in done.out


def test_an_export_has_the_nested_runs_and_every_version_of_a_step(podium: CommandLine):
    plan = (
        '{"steps": [{"worker": "podium", "subtask": "Find the swallow.", "access": []}, '
        '{"worker": "boss", "subtask": "Say it.", "access": [0]}]}'
    )
    run = ask(podium, "Why?", "--plan", podium.write("plan.json", plan), "--depth", "1")
    podium.inside("step", run, "1", "--subtask", "Say it again.")

    data = podium.inside("export", run).data

    (inner,) = cast("list[Object]", data["nested"])
    assert cast("Object", inner["run"])["parent_id"] == run
    versions = [
        (step["number"], step["version"], step["subtask"])
        for step in cast("list[Object]", data["steps"])
    ]
    assert versions[1:] == [(1, 0, "Say it."), (1, 1, "Say it again.")]
    page = podium.inside("export", run, "--format", "markdown").out
    for part in (
        "### Step 1, version 0: boss reads 0",
        "### Step 1, version 1: boss reads 0",
        f"| step of run | {run} |",
    ):
        assert part in page


def test_a_page_is_written_beside_what_was_there(podium: CommandLine):
    run = ask(podium, "Which *one*?\n```\ncode\n```\n# No heading")
    podium.write("run.md", "an older page")

    done = podium.inside("export", run, "--output", "run.md")

    assert (done.code, done.out) == (0, "")
    page = (podium.folder / "run.md").read_text()
    assert page.startswith(f"# Run `{run}`\n\n")
    for part in (
        "| status | finished |",
        "## Question\n\n````text\nWhich *one*?\n```\ncode\n```\n# No heading\n````",
        "## Answer\n\nThe reply of step 2.\n\n```text\nThe answer is 42.\n```",
        "## Plan 0\n\nWritten by the conductor.\n\n- **0** hand: List the facts.",
        "### Step 2: boss reads 0, 1, finished",
        f"Reply:\n\n```text\n{FACTS}\n```",
        "## Receipt\n\n|  | worker | status | time | used |\n| --- |",
        "| step 0 | hand | finished |",
        "### Requests to models",
    ):
        assert part in page
    assert page.count("\n# ") == page.count("\n# No heading")
    assert [it.name for it in podium.folder.glob("*.part")] == []


@pytest.mark.skipif(os.name == "nt", reason="there are no such pipes")
def test_a_pipe_or_a_device_is_never_replaced(podium: CommandLine):
    run = ask(podium, "q", "--strategy", "single")
    pipe = podium.folder / "pipe"
    os.mkfifo(pipe)

    refused = podium.inside("backup", "pipe", "--force")
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    written = podium.inside("export", run, "--output", "pipe", "--format", "markdown")
    page = os.read(reader, 1000)
    os.close(reader)

    assert (refused.code, "pipe is a device or a pipe; name a file." in refused.err) == (1, True)
    assert (written.code, pipe.is_fifo()) == (0, True)
    assert page.startswith(f"# Run `{run}`".encode())


def test_an_export_into_a_folder_that_is_not_there_is_refused(podium: CommandLine):
    run = ask(podium, "q", "--strategy", "single")
    done = podium.inside("export", run, "--output", "missing/run.json")
    assert (done.code, done.out) == (1, "")
    assert "missing" in done.err


def test_an_export_goes_on_without_a_text_that_is_gone(podium: CommandLine):
    run = ask(podium, "q", "--strategy", "single")
    with closing(sqlite3.connect(podium.ledger)) as connection, connection:
        connection.execute("DELETE FROM blobs WHERE text LIKE '%messages%'")

    done = podium.inside("export", run)

    assert done.code == 0
    assert "1 text could not be read" in done.err
    assert None in cast("Object", done.data["texts"]).values()
    page = podium.inside("export", run, "--format", "markdown").out
    assert "(not in the ledger any more)" in page
    assert podium.inside("export", "abcdef").code == 1


def test_pruning_shows_first_what_would_go(podium: CommandLine):
    old = ask(podium, "An old question", "--strategy", "single")
    new = ask(podium, "A new question", "--strategy", "single")
    age(podium, old)

    shown = podium.inside("prune", "--older-than", "30d", "--dry-run")
    assert (shown.code, runs(podium)) == (0, [new, old])
    assert old in shown.out
    assert "An old question" in shown.out
    assert new not in shown.out
    assert "1 run, about" in shown.err
    (line,) = cast(
        "list[Object]",
        podium.inside("prune", "--older-than", "30d", "--dry-run", "--json").data["runs"],
    )
    assert line["run_id"] == old

    unasked = podium.inside("prune", "--older-than", "30d")
    assert (unasked.code, unasked.out, runs(podium)) == (2, "", [new, old])
    assert "--yes" in unasked.err

    done = podium.inside("prune", "--older-than", "30d", "--yes")
    assert (done.code, runs(podium)) == (0, [new])
    assert done.out.startswith("Removed 1 run; the ledger takes ")
    assert podium.inside("verify", new).code == 0

    nothing = podium.inside("prune", "--older-than", "30d", "--json")
    assert (nothing.code, nothing.data["runs"]) == (0, 0)


def test_pruning_says_that_runs_of_the_last_minute_stay(podium: CommandLine):
    run = ask(podium, "Why?", "--strategy", "single")
    for option in ("--dry-run", "--yes"):
        done = podium.inside("prune", "--older-than", "0d", option)
        assert (done.code, runs(podium)) == (0, [run])
        assert "something was done in the last 60 seconds stay" in done.err
    assert "seconds stay" not in podium.inside("prune", "--older-than", "1d", "--yes").err
    assert "in the last 60 seconds" in " ".join(podium.inside("prune", "--help").out.split())


def test_pruning_by_size_takes_the_oldest(podium: CommandLine):
    asked = [
        ask(podium, f"q{n}", "--strategy", "single", "--file", name)
        for n, name in enumerate(
            podium.write(f"{n}.txt", f"{n} " + "word " * 100_000) for n in range(3)
        )
    ]
    for run in asked[:2]:
        age(podium, run)
    before = podium.ledger.stat().st_size

    limit = before - 300_000  # of which each file takes 500,000

    done = podium.inside("prune", "--keep-size", f"{limit / 1e6}MB", "--yes", "--json")

    assert done.code == 0
    assert runs(podium) == asked[:0:-1]
    assert (done.data["runs"], done.data["compacted"]) == (1, True)
    assert podium.ledger.stat().st_size <= limit < before
    rest = podium.inside("prune", "--keep-size", "1kB", "--yes")
    assert (rest.code, runs(podium)) == (0, asked[2:])
    assert "That is more than 1 kB" in rest.err


def test_a_run_that_waits_for_you_goes_only_when_it_is_named(podium: CommandLine):
    plan = '{"steps": [{"worker": "caller", "subtask": "Ask Ann.", "access": []}]}'
    podium.inside("ask", "Why?", "--quiet", "--plan", podium.write("plan.json", plan))
    run = podium.newest_run()
    age(podium, run)

    assert podium.inside("prune", "--older-than", "1d", "--yes").code == 0
    assert runs(podium) == [run]
    named = ("--status", "needs_caller", "--status", "failed")
    assert podium.inside("prune", "--older-than", "1d", "--yes", *named).code == 0
    assert runs(podium) == []


def test_a_ledger_that_is_in_use_is_pruned_and_keeps_its_size(podium: CommandLine):
    old = ask(podium, "An old question", "--strategy", "single")
    age(podium, old)
    with closing(sqlite3.connect(podium.ledger)) as other:
        other.execute("SELECT count(*) FROM runs").fetchone()
        done = podium.inside("prune", "--older-than", "30d", "--yes")
    assert (done.code, runs(podium)) == (0, [])
    assert "Another process has the ledger open" in done.err


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--yes"],
        ["--older-than", "soon"],
        ["--keep-size", "500"],
        ["--keep-size", "-1MB"],
        ["--older-than", "1d", "--status", "running"],
    ],
)
def test_a_wrong_limit_is_wrong_usage(podium: CommandLine, arguments: list[str]):
    done = podium.inside("prune", *arguments)
    assert (done.code, done.out) == (2, "")


@pytest.mark.parametrize(("said", "code"), [(b"n\n", 1), (b"y\n", 0)])
def test_on_a_terminal_one_is_asked(podium: CommandLine, said: bytes, code: int):
    old = ask(podium, "An old question", "--strategy", "single")
    age(podium, old)
    terminal, inner = pty.openpty()
    process = subprocess.Popen(
        podium.argv("prune", "--older-than", "30d"),
        stdin=inner,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=podium.folder,
        env=podium.environ,
    )
    os.write(terminal, said)

    done = finish(process)

    os.close(inner)
    os.close(terminal)
    assert done.code == code
    assert "Remove them for good?" in done.err
    assert old in done.err
    assert runs(podium) == ([old] if code else [])
