"""`--record` and `--replay`: a question asked once, and asked again for nothing."""

from pathlib import Path

import pytest
from tests.command_line import CommandLine, add_hosted
from tests.provider_simulator import Provider, openai_reply

TAPE = "tape.jsonl"


def fresh(podium: CommandLine) -> CommandLine:
    """The same home, but with no pool and no ledger."""
    podium.pool.unlink()
    for file in podium.folder.glob("ledger.db*"):
        file.unlink()
    return podium


def asked(podium: CommandLine, *options: str, question: str = "Weigh it.") -> dict[str, object]:
    done = podium.inside(*options, "ask", question, "--json")
    assert done.code == 0, done.err
    return dict(done.data)


def alike(record: dict[str, object]) -> tuple[object, ...]:
    return record["answer"], record["plans"], record["status"]


def test_a_question_is_replayed_without_pool_and_ledger(podium: CommandLine):
    live = asked(podium, "--record", TAPE)
    again = asked(fresh(podium), "--replay", TAPE)
    assert alike(again) == alike(live)
    assert again["run_id"] != live["run_id"]


def test_what_is_replayed_says_so(podium: CommandLine):
    asked(podium, "--record", TAPE)
    done = fresh(podium).inside("--replay", TAPE, "ask", "Weigh it.")
    assert "Pool: boss, hand (replayed from tape.jsonl; no model is asked)." in done.err
    seen = podium.inside("show", podium.newest_run(), "--json").data
    calls = seen["calls"]
    assert isinstance(calls, list)
    for call in calls:
        assert isinstance(call, dict)
        assert isinstance(call["request"], dict)
        assert call["request"]["replayed"] is True
    listed = podium.inside("--replay", TAPE, "workers")
    assert "ok: answers from tape.jsonl" in listed.out


def test_another_question_is_a_sentence_that_says_what_to_do(podium: CommandLine):
    asked(podium, "--record", TAPE)
    done = podium.inside("--replay", TAPE, "ask", "Something else.")
    assert done.code == 1
    assert "holds no reply of 'hand' to the prompt" in done.err
    assert "record it again" in done.err


def test_what_is_missing_can_be_asked_live_and_added(podium: CommandLine):
    asked(podium, "--record", TAPE)
    lines = len((podium.folder / TAPE).read_text().splitlines())
    live = CommandLine(podium.folder, {"PODIUM_REPLAY_MISSES": "live"})
    first = asked(live, "--record", TAPE, "--replay", TAPE, question="Something else.")
    assert len((podium.folder / TAPE).read_text().splitlines()) > lines
    again = asked(fresh(podium), "--replay", TAPE, question="Something else.")
    assert alike(again) == alike(first)


def test_recording_what_is_all_replayed_is_refused(podium: CommandLine):
    asked(podium, "--record", TAPE)
    done = podium.inside("--record", "other", "--replay", TAPE, "ask", "Weigh it.")
    assert done.code == 1
    assert "set `replay_misses` to live" in done.err


@pytest.mark.parametrize("option", ["--record", "--replay"])
def test_a_file_that_is_no_cassette_is_told(podium: CommandLine, option: str):
    podium.write("notes.txt", "Buy milk.\n")
    done = podium.inside(option, "notes.txt", "ask", "Weigh it.")
    assert done.code == 1
    assert "notes.txt, line 1: this is no line of a cassette" in done.err
    assert (podium.folder / "notes.txt").read_text() == "Buy milk.\n"


def test_a_paid_worker_is_paid_once(podium: CommandLine, provider: Provider):
    add_hosted(podium, provider.url)
    provider.answers(openai_reply("From far away."))
    far = ("ask", "Weigh it.", "--strategy", "single", "--workers", "far", "--json")
    live = podium.inside("--record", TAPE, *far).data
    again = fresh(podium).inside("--replay", TAPE, *far).data
    assert live["answer"] == again["answer"] == "From far away."
    assert len(provider.requests) == 1
    paid, free = (record["receipt"] for record in (live, again))
    assert isinstance(paid, dict)
    assert isinstance(free, dict)
    assert isinstance(paid["total"], dict)
    assert isinstance(free["total"], dict)
    assert free["total"] == paid["total"] | {"cost_usd": 0.0}


def test_a_cassette_can_be_named_in_the_settings(podium: CommandLine):
    tape = str(podium.folder / TAPE)
    assert podium.inside("config", "set", "record", tape).code == 0
    asked(podium)
    assert Path(tape).exists()
