"""What models cost: the shipped table, the user's own, and each physical token priced once."""

from datetime import date
from importlib.resources import files
from pathlib import Path
from typing import Literal

import pytest
from anthropic.types import RawMessageDeltaEvent, RawMessageStartEvent
from openai.types import CompletionUsage
from openai.types.responses import Response, ResponseUsage
from pydantic import JsonValue, ValidationError
from tests.provider_simulator import message_start

from podium_workers.entries.named import card_of
from podium_workers.errors import ManifestError
from podium_workers.hosted.anthropic_stream import Streamed
from podium_workers.hosted.response_reading import Reading
from podium_workers.manifest import parse_manifest
from podium_workers.openai import OpenAIWorker
from podium_workers.opening import open_pool
from podium_workers.prices import (
    PricedModel,
    all_prices,
    overridden,
    own_prices,
    own_table,
    price_table,
    row_of,
    source_of,
)
from podium_workers.wire import ANTHROPIC_URL, OPENAI_URL, ApiKey
from podium_workers.worker import Frozen, LongPrice, Price, Usage, WorkerCard

TODAY = date(2026, 11, 30)
SOL = Price(
    input=2,
    output=10,
    cached_input=0.10,
    cache_write=2.50,
    cache_write_long=5,
    long=(LongPrice(above=272_000, input=4, output=15, cached_input=0.20, cache_write=5),),
)


def test_a_known_model_has_price_window_and_source():
    row = row_of("gpt-6.2-sol")
    assert row
    assert row.price == SOL
    assert (row.window, row.priced_up_to) == (272_000, 1_050_000)
    source = source_of(row.price, "gpt-6.2-sol")
    assert source
    assert source.startswith("https://developers.openai.com/")
    assert source.endswith("read 2026-11-30")


def test_a_price_that_is_not_the_tables_has_no_source():
    assert source_of(Price(input=1, output=2), "gpt-6.2-sol") is None
    assert source_of(None, "gpt-6.2-sol") is None
    assert source_of(Price(input=0, output=0), "qwen-1.5b") is None


@pytest.mark.parametrize(
    "model",
    [
        "",
        "gpt",
        "gpt-6.2-solar",
        "gpt-6.2-sol-fast",
        "my/gpt-6.2-sol",
        "anthropic/claude-opus-5-5",
        "anthropic/claude-opus-5.5",
        "claude-opus-5.5",
        "claude-opus-5-5-latest",
        "claude-opus-5-5-20261",
        "qwen-1.5b",
    ],
)
def test_a_name_that_is_not_the_providers_own_is_unknown_and_not_guessed(model: str):
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


def test_every_row_has_a_source_that_is_a_page_of_its_provider_and_a_day():
    table = price_table()
    for row in table.model:
        assert table.read_on(row) <= TODAY, row.model
        assert table.source_of(row).startswith("https://"), row.model


def test_no_two_rows_speak_of_a_model_on_one_day():
    table = price_table()
    for day in (TODAY, date(2027, 6, 1)):
        for row in table.model:
            if row.holds(row.model, day):
                same = [other for other in table.model if other.holds(row.model, day)]
                assert same == [row]


@pytest.mark.parametrize("row", price_table().model, ids=lambda row: row.model)
def test_prices_are_sane(row: PricedModel):
    for rates in (row, *row.long):
        assert 0 < rates.input < rates.output < 1000
        assert rates.cached_input is None or rates.cached_input < rates.input
        assert rates.cache_write is None or rates.input < rates.cache_write < 3 * rates.input
        written = rates.cache_write or 0
        assert rates.cache_write_long is None or rates.cache_write_long > written
    for rates in row.long:
        assert row.input < rates.input
        assert row.output < rates.output
        # A worker that is set up without a window of its own never meets the dear rates.
        assert rates.above == row.window
    assert row.window
    assert row.priced_up_to
    assert row.max_output
    assert row.max_output <= row.window <= row.priced_up_to or row.window == 100_000


def test_a_row_with_an_unknown_column_is_refused():
    row = price_table().model[0].model_dump(by_alias=True)
    with pytest.raises(ValidationError):
        PricedModel.model_validate(row | {"inptu": 1})


def test_the_folder_of_manifests_repeats_the_shipped_table():
    repeated = Path(__file__).parents[2] / "manifests" / "prices.toml"
    shipped = (files("podium_workers") / "prices.toml").read_bytes()
    assert repeated.read_bytes() == shipped, "copy prices.toml again"


# The user's own table.

OWN = """
read = 2026-11-01
[providers.openrouter]
host = "openrouter.ai"
source = "my contract"
[[model]]
provider = "openai"
model = "gpt-6.2-sol"
input = 1
output = 5
[[model]]
provider = "openrouter"
model = "anthropic/claude-opus-5.5"
input = 4
output = 20
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "prices.toml"
    path.write_text(OWN)
    return path


def test_rows_of_the_users_own_table_win_and_take_sizes_from_the_shipped_ones(own: Path):
    table = all_prices(own_table(own))
    row = row_of("gpt-6.2-sol", base_url=OPENAI_URL, table=table)
    assert row
    assert (row.input, row.output, row.cached_input, row.long) == (1, 5, None, ())
    assert (row.window, row.max_output, row.priced_up_to) == (272_000, 128_000, 272_000)
    assert source_of(row.price, "gpt-6.2-sol", table) == (
        "https://developers.openai.com/api/docs/pricing, read 2026-11-01"
    )
    assert [
        (mine.input, theirs.input) for mine, theirs in overridden(own_table(own), price_table())
    ] == [(1, 2)]


def test_a_reseller_needs_rows_of_its_own(own: Path):
    table = all_prices(own_table(own))
    url, model = "https://openrouter.ai/api/v1", "anthropic/claude-opus-5.5"
    assert row_of(model, base_url=url) is None
    found = row_of(model, base_url=url, table=table)
    assert found
    assert (found.input, found.window, found.priced_up_to) == (4, None, None)


def test_the_manifests_price_wins_over_the_users_table_and_that_over_the_shipped_one(own: Path):
    table = all_prices(own_table(own))
    entry = '[[worker]]\nname = "g"\nkind = "openai"\nmodel = "gpt-6.2-sol"\n'
    stated = entry + "price = { input = 7, output = 9 }"
    assert card_of(parse_manifest(stated, "p").workers[0], table).price == Price(input=7, output=9)
    assert card_of(parse_manifest(entry, "p").workers[0], table).price == Price(input=1, output=5)
    assert card_of(parse_manifest(entry, "p").workers[0]).price == SOL
    unknown = entry.replace("gpt-6.2-sol", "gpt-99")
    assert card_of(parse_manifest(unknown, "p").workers[0], table).price is None


async def test_a_pool_is_opened_with_the_users_own_prices(own: Path, tmp_path: Path):
    entry = '[[worker]]\nname = "g"\nkind = "openai"\nmodel = "gpt-6.2-sol"\n'
    async with open_pool(
        parse_manifest(entry, "p"),
        env={},
        models_dir=tmp_path / "models",
        state_dir=tmp_path / "state",
        memory_limit_bytes=2**30,
        notify=lambda text: None,
        prices=all_prices(own_table(own)),
    ) as pool:
        assert pool.cards[0].price == Price(input=1, output=5)


def test_a_table_of_ones_own_is_found_beside_the_settings_or_by_name(own: Path, tmp_path: Path):
    assert own_prices(tmp_path) == own_prices(tmp_path / "elsewhere", own) == own_table(own)
    assert own_prices(tmp_path / "elsewhere") is None
    with pytest.raises(ManifestError, match="there is no such file"):
        own_prices(tmp_path, tmp_path / "missing.toml")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("read = ", "not valid TOML"),
        ("", "read is missing"),
        ("read = 2026-11-01\n[[model]]\nmodel = 'x'\nprovider = 'y'", "row 1, input"),
        (OWN.replace("input = 1", "inptu = 1"), "row 1, inptu: there is no such key"),
        (OWN.replace('"openai"', '"opnai"'), r"no provider 'opnai'; use one of openai"),
        (OWN.replace("input = 1", "input = -1"), "row 1, input: input should be greater"),
    ],
)
def test_a_wrong_table_is_an_error_that_names_file_and_place(own: Path, text: str, words: str):
    own.write_text(text)
    with pytest.raises(ManifestError, match=words) as caught:
        own_table(own)
    assert str(caught.value).startswith(str(own))


# Each physical token is priced once.


def test_each_token_is_priced_once():
    price = Price(input=10, output=100, cached_input=1, cache_write=20, cache_write_long=40)
    usage = Usage(input_tokens=1_000_000, cached_tokens=500_000, output_tokens=1_000_000)
    assert price.cost(usage) == 5 + 0.5 + 100
    assert price.cost(usage, written_tokens=500_000) == 10 + 0.5 + 100
    both = price.cost(usage, written_tokens=250_000, written_long_tokens=250_000)
    assert both == 5 + 10 + 0.5 + 100


@pytest.mark.parametrize(
    ("prompt", "rate"),
    [(100, 1), (101, 2), (200, 2), (201, 3)],
)
def test_a_long_prompt_is_priced_as_a_whole_by_the_highest_threshold_that_it_exceeds(
    prompt: int, rate: float
):
    price = Price(
        input=1,
        output=1,
        long=(LongPrice(above=200, input=3, output=3), LongPrice(above=100, input=2, output=2)),
    )
    usage = Usage(input_tokens=prompt, cached_tokens=prompt // 2, output_tokens=10)
    assert price.cost(usage) == pytest.approx((prompt + 10) * rate / 1_000_000, rel=1e-12)


def test_a_price_with_dear_long_prompts_is_not_free():
    assert Price(input=0, output=0).is_free
    assert not Price(input=0, output=0, long=(LongPrice(above=1, input=1, output=1),)).is_free


class Golden(Frozen):
    """A usage block as an endpoint sends it, and what it costs by hand."""

    about: str
    api: Literal["chat", "responses", "anthropic"]
    base_url: str
    model: str
    price: Price | None
    usage: dict[str, JsonValue]
    arithmetic: tuple[tuple[str, int, float], ...]
    """What tokens they are, how many, and dollars per million."""
    expected: Usage


class CountingWorker(OpenAIWorker):
    """Counts a usage block of Chat Completions without a request."""

    def count(self, said: CompletionUsage) -> Usage:
        return self._usage(said)


def counted(golden: Golden) -> Usage:
    """The usage as the adapter for that interface reads it."""
    card = WorkerCard(
        name="w",
        kind="golden",
        model=golden.model,
        where="hosted",
        context_window=1_000_000,
        price=golden.price,
    )
    match golden.api:
        case "chat":
            worker = CountingWorker(card, key=ApiKey(), base_url=golden.base_url)
            return worker.count(CompletionUsage.model_validate(golden.usage))
        case "responses":
            reading = Reading(card)
            usage = ResponseUsage.model_validate(golden.usage)
            reading.found(
                Response.model_construct(
                    id="r", model="m", status="completed", output=[], usage=usage
                )
            )
            return reading.usage
        case "anthropic":
            streamed = Streamed(card)
            start = golden.usage["start"]
            assert isinstance(start, dict)
            streamed.add(RawMessageStartEvent.model_validate(message_start(start)))
            end = {"type": "message_delta", "delta": {}, "usage": golden.usage["end"]}
            streamed.add(RawMessageDeltaEvent.model_validate(end))
            return streamed.usage


GOLDEN = sorted((Path(__file__).parent / "golden").glob("usage_*.json"))


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_t34_a_usage_block_costs_what_it_costs_by_hand(path: Path):
    """T34: cached, written, fresh and reasoning tokens, of every interface, each once."""
    golden = Golden.model_validate_json(path.read_bytes())
    found, expected = counted(golden), golden.expected
    assert found.model_copy(update={"cost_usd": 0}) == expected.model_copy(update={"cost_usd": 0})
    assert found.cost_usd == pytest.approx(expected.cost_usd, rel=1e-12)


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_t34_the_arithmetic_by_hand_holds_each_token_once(path: Path):
    """T34: the golden figures themselves count every token, and none twice."""
    golden = Golden.model_validate_json(path.read_bytes())
    expected = golden.expected
    if golden.price is None:
        assert not golden.arithmetic, "the endpoint states the cost itself"
        return
    tokens = sum(count for _, count, _ in golden.arithmetic)
    assert tokens == expected.input_tokens + expected.output_tokens
    cost = sum(count * rate for _, count, rate in golden.arithmetic) / 1_000_000
    assert cost == pytest.approx(expected.cost_usd, rel=1e-12)


def test_t34_the_golden_blocks_are_of_every_interface():
    """T34: none was forgotten."""
    names = {path.stem.removeprefix("usage_").split("_")[0] for path in GOLDEN}
    assert names == {"openai", "anthropic", "gemini", "openrouter", "vllm"}
