"""Money and tokens add up: from one call to the receipt, whatever the figures are."""

import tempfile
from fractions import Fraction
from functools import partial
from math import fsum
from pathlib import Path

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.ledger_samples import WRITTEN, a_call, a_run, a_step

from podium.receipt import Receipt, receipt
from podium.store import open_store
from podium.trace import CallRecord, Round
from podium.views import full_receipt
from podium_workers.worker import LongPrice, Price, Usage

STEPS = 3
TOKENS = st.integers(0, 2_000_000)
RATES = st.just(0.0) | st.floats(1e-6, 1000) | st.sampled_from([0.01, 0.1, 1 / 3, 2.5])
OPTIONAL_RATES = st.none() | RATES


@st.composite
def rates(draw: st.DrawFn) -> dict[str, float | None]:
    return {
        "input": draw(RATES),
        "output": draw(RATES),
        "cached_input": draw(OPTIONAL_RATES),
        "cache_write": draw(OPTIONAL_RATES),
        "cache_write_long": draw(OPTIONAL_RATES),
    }


@st.composite
def prices(draw: st.DrawFn) -> Price:
    above = draw(st.lists(st.integers(1, 1_000_000), max_size=2, unique=True))
    long = tuple(LongPrice.model_validate({"above": it, **draw(rates())}) for it in above)
    return Price.model_validate({**draw(rates()), "long": long})


@st.composite
def requests(draw: st.DrawFn) -> tuple[Usage, int, int]:
    """What one request used: its counts, and what of it was written to the cache, twice."""
    fresh, cached, written, written_long, made = (draw(TOKENS) for _ in range(5))
    usage = Usage(
        input_tokens=fresh + cached + written + written_long,
        cached_tokens=cached,
        output_tokens=made,
        reasoning_tokens=draw(st.integers(0, made)),
    )
    return usage, written, written_long


@st.composite
def usages(draw: st.DrawFn) -> Usage:
    """What one call cost; now and then its price is not known."""
    usage, written, written_long = draw(requests())
    price = draw(st.none() | prices())
    cost = (
        None
        if price is None
        else price.cost(usage, written_tokens=written, written_long_tokens=written_long)
    )
    return usage.model_copy(update={"cost_usd": cost})


@st.composite
def all_calls(draw: st.DrawFn) -> tuple[CallRecord, ...]:
    """The calls of one run: of its planning (no step) and of its steps, failed ones too."""
    found = draw(st.lists(usages(), max_size=12))
    return tuple(
        a_call(
            f"call-{number}",
            step=draw(st.none() | st.integers(0, STEPS - 1)),
            status=draw(st.sampled_from(["finished", "failed", "stopped"])),
            usage=usage,
        )
        for number, usage in enumerate(found)
    )


def assert_adds_up(total: Usage, parts: list[Usage]) -> None:
    """*total* has every token of *parts*, and their money but for rounding."""
    for name in ("input_tokens", "cached_tokens", "output_tokens", "reasoning_tokens"):
        assert getattr(total, name) == sum(getattr(part, name) for part in parts), name
    costs = [part.cost_usd for part in parts]
    known = [cost for cost in costs if cost is not None]
    if len(known) < len(costs):
        assert total.cost_usd is None, "a total with an unknown part is unknown"
    else:
        assert total.cost_usd == pytest.approx(fsum(known), rel=1e-12, abs=0)


def assert_is_the_sum(paid: Receipt, calls: tuple[CallRecord, ...]) -> None:
    assert paid.calls == len(calls)
    assert_adds_up(paid.total, [call.usage for call in calls])
    assert_adds_up(paid.total, [paid.planning, *(line.usage for line in paid.steps)])
    for line in paid.steps:
        assert_adds_up(line.usage, [call.usage for call in calls if call.step == line.step])


@given(request=requests(), price=prices())
def test_t34_every_token_of_a_request_is_priced_once_at_the_rate_of_its_kind(
    request: tuple[Usage, int, int], price: Price
):
    """T34: against exact arithmetic, for any counts and any price."""
    usage, written, written_long = request
    met = [tier for tier in price.long if usage.input_tokens > tier.above]
    rate = max(met, key=lambda tier: tier.above, default=price)
    write = rate.input if rate.cache_write is None else rate.cache_write
    kinds = (
        (usage.input_tokens - usage.cached_tokens - written - written_long, rate.input),
        (usage.cached_tokens, rate.input if rate.cached_input is None else rate.cached_input),
        (written, write),
        (written_long, write if rate.cache_write_long is None else rate.cache_write_long),
        (usage.output_tokens, rate.output),
    )
    exact = sum(count * Fraction(each) for count, each in kinds) / 1_000_000
    cost = price.cost(usage, written_tokens=written, written_long_tokens=written_long)
    assert cost == pytest.approx(float(exact), rel=1e-12, abs=0)


@given(calls=all_calls())
def test_the_sum_over_calls_is_the_receipt_to_the_last_token(calls: tuple[CallRecord, ...]):
    results = tuple(a_step(number) for number in range(STEPS))
    rounds = (Round(number=0, proposal=WRITTEN, results=results),)
    assert_is_the_sum(receipt(a_run(), rounds, calls, Usage()), calls)


@given(calls=all_calls(), nested=usages())
def test_what_a_nested_run_used_is_on_the_receipt_once(
    calls: tuple[CallRecord, ...], nested: Usage
):
    own = tuple(call for call in calls if call.step != 0)  # its step made no call itself
    first = a_step(0, usage=nested, nested_run="run-000002")
    results = (first, *(a_step(number) for number in range(1, STEPS)))
    paid = receipt(a_run(), (Round(number=0, proposal=WRITTEN, results=results),), own, nested)
    assert_adds_up(paid.total, [nested, *(call.usage for call in own)])
    assert_adds_up(paid.total, [paid.planning, *(line.usage for line in paid.steps)])


async def through_the_ledger(calls: tuple[CallRecord, ...]) -> None:
    run = a_run()
    with tempfile.TemporaryDirectory() as folder:
        async with open_store(Path(folder) / "ledger.db") as store:
            await store.create_run(run)
            await store.save_round(run.run_id, 0, WRITTEN)
            for number in range(STEPS):
                await store.save_step(run.run_id, a_step(number))
            for call in calls:
                await store.save_call(call)
            with anyio.fail_after(10):
                assert_is_the_sum(await full_receipt(store, run), calls)
                assert_adds_up(await store.usage(run.run_id), [call.usage for call in calls])


@settings(max_examples=15, deadline=None)
@given(calls=all_calls())
def test_the_ledger_loses_no_token_and_no_cent_on_the_way(calls: tuple[CallRecord, ...]):
    anyio.run(partial(through_the_ledger, calls))
