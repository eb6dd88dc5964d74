"""`podium ask` as a user types it: what goes to stdout, what to stderr, and the exit code."""

from typing import cast

import pytest
from pydantic import JsonValue
from tests.command_line import FACTS, CommandLine, add_hosted, own_plan
from tests.provider_simulator import Answer, Provider


def test_the_answer_alone_goes_to_stdout(podium: CommandLine):
    done = podium("ask", "What is the answer?")

    assert (done.code, done.out) == (0, "The answer is 42.\n")
    lines = done.err.splitlines()
    assert "plan of 3 steps (model):" in lines
    assert "  2 boss reads 0, 1: Weigh both." in lines
    assert "step 0 hand started" in lines
    assert any(line.startswith("step 2 finished in ") for line in lines)
    assert podium.newest_run() in lines[-1]
    assert "3 steps" in lines[-1]
    assert lines[-1].endswith("tokens, free")


def test_quiet_leaves_nothing_but_the_answer(podium: CommandLine):
    done = podium("ask", "What is the answer?", "--quiet")
    assert (done.code, done.out, done.err) == (0, "The answer is 42.\n", "")


def test_json_is_one_object_with_plan_and_receipt(podium: CommandLine):
    done = podium("ask", "What is the answer?", "--json", "--strategy", "single")

    assert done.code == 0
    assert done.data["status"] == "finished"
    assert done.data["answer"] == "The answer is 42."
    assert done.data["answer_step"] == 0
    assert done.data["notes"] == []
    (plan,) = cast("list[dict[str, JsonValue]]", done.data["plans"])
    assert plan["source"] == "fixed"
    receipt = cast("dict[str, JsonValue]", done.data["receipt"])
    assert receipt["run_id"] == done.data["run_id"]
    assert receipt["calls"] == 1


def test_a_pipe_beside_a_question_is_a_file_named_stdin(podium: CommandLine):
    done = podium("ask", "What is it?", "--json", stdin="the secret word is swordfish")
    assert done.data["answer"] == "The file was read."
    receipt = cast("dict[str, JsonValue]", done.data["receipt"])
    assert receipt["inputs"] == [{"name": "stdin", "bytes_given": 28, "bytes_sent": 28}]


def test_a_pipe_alone_is_the_question(podium: CommandLine):
    done = podium("ask", "-", "--json", "--strategy", "single", stdin="Wie geht's? 你好\n")
    assert done.data["question"] == "Wie geht's? 你好\n"


def test_files_reach_the_workers(podium: CommandLine):
    name = podium.write("note.txt", "the secret word is swordfish")
    done = podium.inside("ask", "What is it?", "--file", name, "--strategy", "single")
    assert done.out == "The file was read.\n"


def test_a_follow_up_knows_what_was_said_before(podium: CommandLine):
    podium.inside("ask", "Tell me: the secret word is swordfish", "--strategy", "chain")
    first = podium.newest_run()
    done = podium.inside("ask", "And now?", "--strategy", "single", "--follow-up", first[:10])
    assert done.out == "The file was read.\n"


def test_a_step_for_the_user_is_asked_for_and_the_run_goes_on(podium: CommandLine):
    plan = podium.write("plan.json", own_plan(("caller", "Look up the date.", [])))

    asked = podium("ask", "When?", "--plan", plan)
    run = podium.newest_run()
    assert (asked.code, asked.out) == (3, "")
    assert "Step 0 is yours: Look up the date." in asked.err
    assert f"podium step {run} 0 --result @FILE" in asked.err

    given = podium("step", run, "--result", "@-", stdin="Tuesday")
    assert (given.code, given.out) == (0, "Tuesday\n")

    done = podium("resume", run)
    assert (done.code, done.out) == (0, "Tuesday\n")


def test_a_time_limit_gives_the_best_answer_so_far(podium: CommandLine, provider: Provider):
    provider.answers(Answer(before="STALL"))
    add_hosted(podium, provider.url)
    plan = own_plan(("hand", "List the facts.", []), ("far", "Weigh them.", [0]))

    done = podium("ask", "q", "--plan", "-", "--max-seconds", "2", stdin=plan)

    assert (done.code, done.out) == (0, f"{FACTS}\n")
    assert "Note: The limit of 2 seconds struck" in done.err


@pytest.mark.parametrize("command", ["ask", "plan"])
def test_a_plan_that_is_not_allowed_leaves_no_run(podium: CommandLine, command: str):
    for worker, count in (("bos", 1), ("podium", 1), ("boss", 21)):
        step: tuple[str, str, list[int]] = (worker, "Do it.", [])
        plan = podium.write("plan.json", own_plan(*[step] * count))
        assert podium.inside(command, "q", "--plan", plan).code == 1
    assert podium.inside("runs", "--json").json == []


def test_an_empty_pipe_beside_a_question_is_no_file(podium: CommandLine):
    done = podium("ask", "q", "--strategy", "single", "--json", stdin="")
    assert done.code == 0
    assert cast("dict[str, JsonValue]", done.data["receipt"])["inputs"] == []


@pytest.mark.parametrize(
    ("redirection", "out"), [(">&-", ""), ("2>&-", "The answer is 42.\n"), ("<&- >&- 2>&-", "")]
)
def test_a_closed_stream_gets_nothing_and_nothing_else_gets_its_number(
    podium: CommandLine, redirection: str, out: str
):
    done = podium.redirected(redirection, "ask", "q", "--strategy", "single")
    assert (done.code, done.out) == (0, out)
    assert ("Pool: " in done.err) == ("2>" not in redirection)
    (run,) = podium.inside("runs", "--json").rows
    assert run["status"] == "finished"


def test_a_missing_key_is_named_and_the_failed_run_is_kept(podium: CommandLine):
    podium.pool.write_text(
        '[[worker]]\nname = "far"\nkind = "openai"\nmodel = "m"\napi_key_env = "NO_SUCH_KEY"\n'
    )
    done = podium("ask", "q")
    assert (done.code, done.out) == (1, "")
    assert "Error: NO_SUCH_KEY is not set" in done.err
    (run,) = podium.inside("runs", "--json").rows
    assert run["status"] == "failed"


LATER = own_plan(("boss", "First.", [1]), ("boss", "Second.", []))
EARLIER = 'access of step 1: write a list of earlier step numbers ([] for none), or "all"'
BAD_PLANS = {
    "blank subtask": ('[{"worker": "boss", "subtask": " "}]', "subtask of step 0: write what"),
    "no worker": ('[{"subtask": "x"}]', "worker of step 0: write the name of a worker"),
    "extra field": ('[{"worker": "boss", "subtask": "x", "y": 1}]', "step 0 has 'y'; a step has"),
    "no steps": ("[]", "steps: write one at least."),
    "no step": ("[3]", "is not a plan; write"),
    "no JSON": ("[", "is not a plan (Invalid JSON"),
} | {
    f"access {access}": (
        '[{"worker": "boss", "subtask": "x"}, '
        f'{{"worker": "boss", "subtask": "y", "access": {access}}}]',
        EARLIER,
    )
    for access in ('"none"', "[true]", "0", '["0"]')
}


@pytest.mark.parametrize("case", BAD_PLANS)
def test_a_plan_that_cannot_be_read_says_what_to_write(podium: CommandLine, case: str):
    steps, sentence = BAD_PLANS[case]
    plan = podium.write("plan.json", f'{{"steps": {steps}}}')
    done = podium.inside("ask", "q", "--plan", plan)
    assert (done.code, done.out) == (1, "")
    assert f"Error: plan.json: {sentence}" in done.err


BAD_INPUT = {
    "empty question": (["ask", "  "], 1, "question: is empty"),
    "huge question": (["ask", "word " * 20_000], 1, "question: has about"),
    "no question": (["ask", "--plan", "-"], 2, "Missing question"),
    "unknown worker": (["ask", "q", "--workers", "bos"], 1, "did you mean 'boss'?"),
    "unknown strategy": (["ask", "q", "--strategy", "x"], 1, "use one of chain, conductor, single"),
    "no worker left": (["ask", "q", "--exclude", "boss,hand"], 1, "No worker of the pool is left"),
    "empty file": (["ask", "q", "--file", "empty.txt"], 1, "file: empty.txt is empty (0 bytes)"),
    "binary file": (["ask", "q", "--file", "binary"], 1, "file: binary is not UTF-8 text"),
    "missing file": (["ask", "q", "--file", "gone.txt"], 1, "file: gone.txt does not exist"),
    "missing plan": (["ask", "q", "--plan", "gone.json"], 1, "--plan: gone.json does not exist"),
    "missing result": (["step", "a", "0", "--result", "@no"], 1, "--result: no does not exist"),
    "plan names a later step": (["ask", "q", "--plan", "later.json"], 1, "Step 0 reads step 1"),
    "plan is no plan": (["ask", "q", "--plan", "empty.json"], 1, "is not a plan; write"),
    "plan names nobody": (["ask", "q", "--plan", "nobody.json"], 1, "pool; allowed are boss, hand"),
    "plan misspells": (["ask", "q", "--plan", "near.json"], 1, "'boss'? Allowed are boss, hand"),
    "no number": (["ask", "q", "--rounds", "x"], 2, "'x' is not a valid whole number"),
    "no seconds": (["ask", "q", "--max-seconds", "x"], 2, "'x' is not a valid number"),
    "order to a terminal": (["--pool", "a\x1b[2Jb", "ask", "q"], 1, "a\ufffd[2Jb: there is no"),
    "ledger is a folder": (["--store", ".", "ask", "q"], 1, ". is a folder; name a file in it"),
    "wrong key in a manifest": (["--pool", "wrong.toml", "ask", "q"], 1, "did you mean 'model'?"),
    "no such manifest": (["--pool", "gone.toml", "ask", "q"], 1, "gone.toml: there is no"),
    "ledger below a file": (["--store", "empty.txt/l.db", "ask", "q"], 1, "is not a folder"),
    "ledger of another program": (["--store", "wrong.toml", "ask", "q"], 1, "is not a ledger"),
    "unknown run": (["resume", "abcdef"], 1, "There is no run 'abcdef'"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_gets_one_sentence(podium: CommandLine, case: str):
    arguments, code, sentence = BAD_INPUT[case]
    podium.write("empty.txt", "")
    podium.write("binary", b"\x7fELF\x00\x01")
    podium.write("later.json", LATER)
    podium.write("empty.json", "{}")
    podium.write("nobody.json", own_plan(("xyz", "First.", [])))
    podium.write("near.json", own_plan(("bos", "First.", [])))
    podium.write("wrong.toml", '[[worker]]\nname = "far"\nkind = "openai"\nmodell = "m"\n')

    done = podium.inside(*arguments)

    assert (done.code, done.out) == (code, "")
    (error,) = (line for line in done.err.splitlines() if line.startswith("Error: "))
    assert sentence in error
