from datetime import date

import pytest
from pydantic import ValidationError

from podium_workers.prices import PricedModel, price_table, row_of, source_of
from podium_workers.wire import ANTHROPIC_URL, OPENAI_URL
from podium_workers.worker import Price, Usage

TODAY = date(2026, 11, 30)


def test_a_known_model_has_price_window_and_source():
    row = row_of("gpt-6.2-sol")
    assert row
    assert row.price == Price(input=2, output=10, cached_input=0.10, cache_write=2.50)
    assert row.window == 272_000
    source = source_of(row.price, "gpt-6.2-sol")
    assert source
    assert source.startswith("https://developers.openai.com/")
    assert source.endswith("read 2026-11-30")


def test_a_price_that_is_not_the_tables_has_no_source():
    assert source_of(Price(input=1, output=2), "gpt-6.2-sol") is None
    assert source_of(None, "gpt-6.2-sol") is None
    assert source_of(Price(input=0, output=0), "qwen-1.5b") is None


@pytest.mark.parametrize(
    "model", ["", "gpt", "gpt-6.2-solar", "gpt-6.2-sol-fast", "my/gpt-6.2-sol", "qwen-1.5b"]
)
def test_what_is_not_in_the_table_is_unknown_and_not_free(model: str):
    assert row_of(model) is None


@pytest.mark.parametrize("suffix", ["-20261117", "-2026-11-17", "@20261117"])
def test_a_dated_name_is_the_same_model(suffix: str):
    assert row_of(f"claude-opus-5-5{suffix}") == row_of("claude-opus-5-5") is not None


def test_a_price_holds_only_at_the_providers_own_address():
    assert row_of("gpt-6.2-sol", base_url=OPENAI_URL)
    assert row_of("claude-opus-5-5", base_url=ANTHROPIC_URL)
    assert row_of("gpt-6.2-sol", base_url="https://reseller.example/v1") is None
    assert row_of("gpt-6.2-sol", base_url=ANTHROPIC_URL) is None


def test_an_announced_change_of_price_happens_on_its_day():
    before = row_of("gemini-3.8-flash", on=date(2026, 12, 31))
    after = row_of("gemini-3.8-flash", on=date(2027, 1, 1))
    assert before
    assert after
    assert (before.input, after.input) == (0.75, 1.50)


def test_every_row_has_a_source_that_is_a_page_of_its_provider():
    table = price_table()
    assert table.read <= TODAY
    for row in table.model:
        assert table.providers[row.provider].source.startswith("https://"), row.model


def test_no_two_rows_speak_of_a_model_on_one_day():
    table = price_table()
    for day in (TODAY, date(2027, 6, 1)):
        for row in table.model:
            if row.holds(row.model, day):
                same = [other for other in table.model if other.holds(row.model, day)]
                assert same == [row]


@pytest.mark.parametrize("row", price_table().model, ids=lambda row: row.model)
def test_prices_are_sane(row: PricedModel):
    assert 0 < row.input < row.output < 1000
    assert row.cached_input is None or row.cached_input < row.input
    assert row.cache_write is None or row.input < row.cache_write < 2 * row.input
    assert row.max_output <= row.window or row.window == 100_000


def test_a_row_with_an_unknown_column_is_refused():
    row = price_table().model[0].model_dump(by_alias=True)
    with pytest.raises(ValidationError):
        PricedModel.model_validate(row | {"inptu": 1})


def test_each_token_is_priced_once():
    price = Price(input=10, output=100, cached_input=1, cache_write=20)
    usage = Usage(input_tokens=1_000_000, cached_tokens=500_000, output_tokens=1_000_000)
    assert price.cost(usage) == 5 + 0.5 + 100
    assert price.cost(usage, written_tokens=500_000) == 10 + 0.5 + 100
