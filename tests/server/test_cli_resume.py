"""Runs that were stopped, killed or refused, and how `podium resume` goes on with them."""

import signal
import sqlite3
from contextlib import closing
from typing import cast

import pytest
from pydantic import JsonValue
from tests.command_line import CommandLine, add_hosted, finish, own_plan, use_hosted
from tests.provider_simulator import Answer, Provider, openai_reply


def test_ctrl_c_stops_the_run_and_resume_pays_nothing_twice(
    podium: CommandLine, provider: Provider
):
    provider.answers(openai_reply("One."), Answer(before="STALL"))
    add_hosted(podium, provider.url)
    plan = own_plan(("far", "First.", []), ("far", "Second.", [0]))
    process = podium.start("ask", "q", "--plan", podium.write("plan.json", plan))
    assert provider.stalling.wait(30)

    process.send_signal(signal.SIGINT)
    stopped = finish(process)
    run = podium.newest_run()

    assert (stopped.code, stopped.out) == (130, "")
    assert f"podium resume {run}" in stopped.err
    assert provider.disconnected.wait(5)
    assert podium.inside("runs", "--json").rows[0]["status"] == "stopped"

    provider.answers(openai_reply("Two."))
    done = podium("resume", run)
    assert (done.code, done.out) == (0, "Two.\n")
    assert "step 0 is already finished (far)" in done.err
    assert len(provider.requests) == 3


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("command", ["ask", "plan", "step"])
def test_a_signal_that_ends_a_process_stops_its_run(
    podium: CommandLine, provider: Provider, command: str, number: signal.Signals
):
    provider.answers(Answer(before="STALL"))
    use_hosted(podium, provider.url)
    arguments = [command, "q"]
    if command == "step":
        plan = own_plan(("far", "First.", []))
        podium.inside("plan", "q", "--plan", podium.write("plan.json", plan), "--quiet")
        arguments = ["step", podium.newest_run()]
    process = podium.start(*arguments)
    assert provider.stalling.wait(30)

    process.send_signal(number)
    stopped = finish(process)

    run = podium.newest_run()
    assert (stopped.code, stopped.out) == (128 + number, "")
    assert f"podium resume {run}" in stopped.err
    assert stopped.err.endswith("Stopped.\n")
    (kept,) = podium.inside("runs", "--json").rows
    assert kept["status"] == "stopped"
    assert lease_of(podium, run) is None


def test_a_hang_up_that_is_ignored_ends_nothing(podium: CommandLine, provider: Provider):
    """As below `nohup`: whoever started the command wants it to outlive the terminal."""
    provider.answers(Answer(before="STALL"))
    use_hosted(podium, provider.url)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        process = podium.start("ask", "q")
    finally:
        signal.signal(signal.SIGHUP, before)
    assert provider.stalling.wait(30)

    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGTERM)

    assert finish(process).code == 128 + signal.SIGTERM


def test_the_run_of_a_killed_process_goes_on(podium: CommandLine, provider: Provider):
    provider.answers(openai_reply("One."), Answer(before="STALL"))
    add_hosted(podium, provider.url)
    plan = own_plan(("far", "First.", []), ("far", "Second.", [0]))
    killed = podium.start("ask", "q", "--plan", podium.write("plan.json", plan))
    assert provider.stalling.wait(30)
    killed.kill()
    killed.communicate()
    provider.answers(openai_reply("Two."))

    done = podium("resume", podium.newest_run())

    assert (done.code, done.out) == (0, "Two.\n")
    assert "step 0 is already finished (far)" in done.err
    assert len(provider.requests) == 3


def test_a_run_of_a_process_that_hangs_is_waited_for_until_it_has_died(
    podium: CommandLine, provider: Provider
):
    provider.answers(openai_reply("One."), Answer(before="STALL"))
    add_hosted(podium, provider.url)
    plan = own_plan(("far", "First.", []), ("far", "Second.", [0]))
    hung = podium.start("ask", "q", "--plan", podium.write("plan.json", plan))
    assert provider.stalling.wait(30)
    hung.send_signal(signal.SIGSTOP)
    provider.answers(openai_reply("Two."))

    resumed = podium.start("resume", podium.newest_run())
    assert resumed.stderr is not None
    told = ""
    while "waiting for it" not in told:
        told = resumed.stderr.readline().decode()
        assert told
    assert "goes on here in at most 30 s" in told
    hung.kill()
    hung.communicate()
    done = finish(resumed)

    assert (done.code, done.out) == (0, "Two.\n")
    assert "step 0 is already finished (far)" in done.err


def lease_of(podium: CommandLine, run: str) -> float | None:
    """Until when a process holds a run."""
    with closing(sqlite3.connect(podium.ledger)) as connection:
        query = "SELECT lease_until FROM runs WHERE run_id = ?"
        return cast("float | None", connection.execute(query, (run,)).fetchone()[0])


def test_a_run_that_failed_on_its_limit_can_be_given_another(
    podium: CommandLine, provider: Provider
):
    provider.answers(Answer(before="STALL"))
    use_hosted(podium, provider.url)
    plan = podium.write("plan.json", own_plan(("far", "Do it.", [])))
    failed = podium("ask", "q", "--plan", plan, "--max-seconds", "0.5")
    run = podium.newest_run()
    assert failed.code == 1
    assert "The limit of 0.5 seconds struck" in failed.err
    assert f"(`podium resume {run}` goes on with a higher limit.)" in failed.err

    provider.answers(openai_reply("Done."))
    done = podium("resume", run, "--max-seconds", "60")

    assert (done.code, done.out) == (0, "Done.\n")


def test_a_run_is_not_handed_to_workers_that_it_was_not_made_for(podium: CommandLine):
    podium.inside("plan", "q", "--quiet")
    run = podium.newest_run()
    other = podium.write(
        "other.toml", '[[worker]]\nname = "far"\nkind = "scripted"\nreplies = ["x"]\n'
    )

    for arguments in (("resume", run), ("step", run)):
        refused = podium.inside("--pool", other, *arguments)
        assert (refused.code, refused.out) == (1, "")
        assert "made for the workers boss, hand, but this pool has far; give" in refused.err

    podium.inside("resume", run)
    assert podium.inside("--pool", other, "resume", run).out == "The answer is 42.\n"


def test_a_finished_run_is_told_again_without_a_call(podium: CommandLine):
    podium.inside("ask", "q", "--strategy", "single")
    done = podium.inside("resume", podium.newest_run(), "--json")
    assert done.data["answer"] == "The answer is 42."
    assert cast("dict[str, JsonValue]", done.data["receipt"])["calls"] == 1
