"""`podium prices` and `podium prices check`: what is known, what is old, what is one's own."""

from datetime import date, timedelta

import pytest
from tests.command_line import CommandLine

POOL = """
[[worker]]
name = "sol"
kind = "openai"
model = "gpt-6.2-sol"

[[worker]]
name = "haiku"
kind = "anthropic"
model = "claude-haiku-5-5"
"""
UNKNOWN = """
[[worker]]
name = "new"
kind = "openai"
model = "gpt-99"

[[worker]]
name = "wide"
kind = "anthropic"
model = "claude-opus-5-5"
context_window = 2_000_000

[[worker]]
name = "routed"
kind = "openai"
model = "some/model"
base_url = "https://openrouter.ai/api/v1"

[[worker]]
name = "program"
kind = "program"
by = "sol"
"""


@pytest.fixture
def hosted(podium: CommandLine) -> CommandLine:
    """With a pool of two models that the shipped table knows."""
    podium.pool.write_text(POOL)
    return podium


def own(podium: CommandLine, read: date, input_: float = 1) -> None:
    """Write a table of the user's own."""
    podium.config.with_name("prices.toml").write_text(
        f'read = {read}\n[[model]]\nprovider = "openai"\nmodel = "gpt-6.2-sol"\n'
        f"input = {input_}\noutput = 5\n"
    )


def test_the_table_is_listed_with_its_days_and_the_prices_of_long_prompts(hosted: CommandLine):
    lines = hosted.inside("prices").out.splitlines()
    at = next(n for n, line in enumerate(lines) if line.startswith("gpt-6.2-sol"))
    assert lines[at].split() == ["gpt-6.2-sol", "openai", "2", "0.1", "2.5", "10", "2026-11-30"]
    assert "above 272,000 tokens: 4 in, 0.2 cached, 15 out" in lines[at + 1]


def test_the_table_as_json_has_sources_and_ones_own_rows_first(hosted: CommandLine):
    own(hosted, date(2026, 11, 1))
    first, *rest = hosted.inside("prices", "--json").rows
    assert (first["model"], first["input"], first["read"]) == ("gpt-6.2-sol", 1, "2026-11-01")
    assert first["window"] == 272_000
    assert any(row["model"] == "gpt-6.2-sol" and row["input"] == 2 for row in rest)
    assert all(str(row["source"]).startswith("https://") for row in rest)


def test_a_pool_whose_prices_are_known_and_new_passes(hosted: CommandLine):
    done = hosted.inside("prices", "check", "--days", "100000")
    assert done.code == 0
    assert done.out == "Every price is new, and every worker has one.\n"


def test_old_prices_are_named_with_their_page_and_who_uses_them(hosted: CommandLine):
    own(hosted, date.today() - timedelta(days=90))
    done = hosted.inside("prices", "check", "--days", "60")
    assert done.code == 1
    line = next(line for line in done.out.splitlines() if line.startswith("old       gpt-6.2-sol"))
    assert line.endswith("90 days ago, used by sol")
    assert "-> https://developers.openai.com/api/docs/pricing" in done.out


def test_an_old_price_that_nobody_uses_is_told_and_is_no_failure(hosted: CommandLine):
    hosted.pool.write_text(POOL.replace("gpt-6.2-sol", "gpt-6.1-sol"))
    own(hosted, date.today() - timedelta(days=90_000))
    done = hosted.inside("prices", "check", "--days", "89000")
    assert done.code == 0
    assert "gpt-6.2-sol" in done.out


def test_ones_own_prices_are_told_beside_the_shipped_ones(hosted: CommandLine):
    own(hosted, date.today())
    done = hosted.inside("prices", "check", "--days", "100000")
    assert done.code == 0
    assert done.out == "yours     gpt-6.2-sol: $1 in, $5 out instead of $2 in, $10 out\n"


def test_workers_without_a_price_are_named_with_the_reason_and_the_remedy(hosted: CommandLine):
    hosted.pool.write_text(POOL + UNKNOWN)
    done = hosted.inside("prices", "check", "--days", "100000", "--json")
    assert done.code == 1
    assert isinstance(done.data["unpriced"], list)
    missing = {it["worker"]: it["why"] for it in done.data["unpriced"] if isinstance(it, dict)}
    assert set(missing) == {"new", "wide"}, "OpenRouter states the price of each request itself"
    assert "gpt-99" in str(missing["new"])
    assert "2,000,000" in str(missing["wide"])
    text = hosted.inside("prices", "check", "--days", "100000").out
    assert "no price  new (gpt-99)" in text
    assert "prices.toml" in text


def test_a_local_pool_has_nothing_to_look_up(podium: CommandLine):
    assert podium.inside("prices", "check", "--days", "100000").code == 0


def test_a_table_with_a_mistake_is_an_error_that_names_it(hosted: CommandLine):
    own(hosted, date.today(), input_=-1)
    for command in (("prices",), ("prices", "check")):
        done = hosted.inside(*command)
        assert done.code == 1
        assert "prices.toml: model, row 1, input" in done.err
