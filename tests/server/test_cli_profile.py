"""`podium workers profile`: measuring, keeping, and asking before money is spent."""

import json
from pathlib import Path
from typing import cast

import pytest
from tests.command_line import CommandLine
from tests.provider_simulator import OPENAI_USAGE, Provider, openai_error, openai_reply

PRICED = """
[[worker]]
name = "dear"
kind = "openai"
model = "some-model"
base_url = "{url}/v1"
where = "hosted"
{price}
"""
USED = {**OPENAI_USAGE, "completion_tokens": 4000}
PRICE = "price = {input = 3.0, output = 15.0}"


@pytest.fixture
def home(podium: CommandLine) -> CommandLine:
    """A pool of which `ann` is measured as good at facts, and `bob` says himself what he can."""
    podium.pool.write_text(
        '[[worker]]\nname = "ann"\nkind = "scripted"\nreplies = ["No idea."]\n'
        '[[worker.rule]]\nwhen = "capital of Canada"\nreply = "Ottawa"\n'
        '[[worker.rule]]\nwhen = "symbol of iron"\nreply = "Fe"\n'
        '[[worker.rule]]\nwhen = "Pride and Prejudice"\nreply = "Jane Austen"\n'
        '[[worker.rule]]\nwhen = "coast of Africa"\nreply = "The Indian Ocean"\n'
        '[[worker]]\nname = "bob"\nkind = "scripted"\ngood_at = "riddles"\nreplies = ["42"]\n'
    )
    return podium


def use_priced(podium: CommandLine, provider: Provider, price: str = PRICE) -> None:
    podium.pool.write_text(PRICED.format(url=provider.url, price=price))


def profiles(podium: CommandLine) -> list[Path]:
    return sorted((podium.folder / "profiles").glob("*.json"))


def test_the_pool_is_measured_and_the_results_are_kept(home: CommandLine):
    done = home("workers", "profile")
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[0].split()[:7] == [
        "worker", "arithmetic", "facts", "choice", "code", "extraction", "format",
    ]  # fmt: skip
    assert lines[1].startswith("ann")
    assert "4 of 5" in lines[1]
    assert "the conductor is told: strong at facts; weak at calculation" in lines[2]
    assert "the conductor is told, by the manifest: riddles" in done.out
    assert "ann: 20 of 30 questions answered" in done.err
    assert len(profiles(home)) == 2


def test_what_was_measured_is_shown_and_not_measured_again(home: CommandLine):
    first = home.inside("workers", "profile", "ann", "--json")
    assert len(profiles(home)) == 1
    again = home.inside("workers", "profile", "ann", "--json")
    assert again.json == first.json
    assert "answered" not in again.err
    refreshed = home.inside("workers", "profile", "ann", "--refresh", "--json")
    assert "answered" in refreshed.err
    assert refreshed.rows[0]["skills"] == first.rows[0]["skills"]


def test_a_measurement_as_data_has_every_reply(home: CommandLine):
    (row,) = home.inside("workers", "profile", "ann", "--json").rows
    answered = cast("list[dict[str, object]]", row["answered"])
    assert (row["right"], len(answered)) == (4, 30)
    assert {"skill", "ask", "reply", "right", "seconds", "failure"} == set(answered[0])
    assert str(row["good_at"]).startswith("strong at facts")


def test_the_list_of_workers_stays_and_shows_what_was_measured(home: CommandLine):
    before = home.inside("workers", "--no-check")
    assert before.code == 0
    assert "measured" not in before.out
    home.inside("workers", "profile", "ann")
    after = home.inside("workers", "--no-check")
    assert ": strong at facts; weak at" in after.out
    rows = home.inside("workers", "--no-check", "--json").rows
    assert [row["name"] for row in rows] == ["ann", "bob"]
    assert [bool(row["profile"]) for row in rows] == [True, False]


def test_a_damaged_profile_is_told(home: CommandLine):
    home.inside("workers", "profile", "ann")
    profiles(home)[0].write_text("{")
    done = home.inside("workers", "profile", "ann")
    assert done.code == 1
    assert str(profiles(home)[0]) in done.err
    profiles(home)[0].unlink()
    assert home.inside("workers", "profile", "ann").code == 0


def test_an_unknown_worker_is_told(home: CommandLine):
    done = home.inside("workers", "profile", "anm")
    assert done.code == 1
    assert "did you mean 'ann'" in done.err


def test_a_worker_that_costs_money_is_not_asked_without_a_yes(
    podium: CommandLine, provider: Provider
):
    use_priced(podium, provider)
    done = podium.inside("workers", "profile")
    assert done.code == 2
    assert "dear: about $0.0" in done.err
    assert "add --yes" in done.err
    assert not provider.requests


def test_with_a_yes_it_is_asked_and_its_price_is_in_the_line(
    podium: CommandLine, provider: Provider
):
    use_priced(podium, provider)
    provider.answers(*[openai_reply("Ottawa")] * 30)
    done = podium.inside("workers", "profile", "--yes", "--json")
    assert done.code == 0
    (row,) = done.rows
    assert len(provider.requests) == 30
    assert "$3 a million tokens read, $15 written" in str(row["good_at"])
    usage = cast("dict[str, float]", row["usage"])
    assert usage["cost_usd"] > 0


def test_a_limit_below_the_estimate_asks_nobody(podium: CommandLine, provider: Provider):
    use_priced(podium, provider)
    done = podium.inside("workers", "profile", "--yes", "--max-usd", "0.001")
    assert done.code == 1
    assert "--max-usd: it is likely to cost" in done.err
    assert not provider.requests


def test_a_limit_that_is_reached_ends_the_measurement(podium: CommandLine, provider: Provider):
    use_priced(podium, provider)
    provider.answers(*[openai_reply("Hm.", usage=USED)] * 30)
    done = podium.inside("workers", "profile", "--yes", "--max-usd", "0.1")
    assert done.code == 1
    assert "--max-usd" in done.err
    assert len(provider.requests) == 2
    assert not profiles(podium)


def test_a_limit_cannot_be_kept_where_the_price_is_unknown(podium: CommandLine, provider: Provider):
    use_priced(podium, provider, price="")
    done = podium.inside("workers", "profile", "--yes", "--max-usd", "1")
    assert done.code == 1
    assert "the price of dear is unknown" in done.err


def test_a_worker_that_cannot_be_asked_ends_it_in_a_sentence(
    podium: CommandLine, provider: Provider
):
    use_priced(podium, provider)
    provider.answers(openai_error(401, "bad key"))
    done = podium.inside("workers", "profile", "--yes")
    assert done.code == 1
    assert "Error: " in done.err
    assert not profiles(podium)


def test_the_conductor_is_told_what_was_measured_and_nothing_without_it(home: CommandLine):
    def shown() -> str:
        home.inside("ask", "Why?", "--quiet")
        return json.dumps(home.inside("show", home.newest_run(), "--prompts", "--json").json)

    plain = shown()
    assert "- ann: scripted" in plain
    home.inside("workers", "profile", "ann")
    told = shown()
    assert "- ann: strong at facts; weak at calculation" in told
    assert "- bob: riddles" in told
