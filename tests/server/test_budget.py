"""Limits as arithmetic: what a call takes at most, what is left for it, what a refusal says."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.ledger_samples import CARD

from podium.budget import (
    FEWEST_TOKENS,
    NANO,
    Account,
    Amount,
    longest_reply,
    nano,
    prompt_bound,
    refusal,
    worst,
)
from podium.errors import LimitName
from podium_workers.worker import Price

PRICED = CARD.model_copy(update={"price": Price(input=1.0, output=2.0)})


def account(
    limit: LimitName = "usd", allowed: int = NANO, spent: int = 0, held: int = 0
) -> Account:
    return Account(limit=limit, allowed=allowed, spent=spent, held=held)


def test_what_is_left_is_neither_spent_nor_reserved() -> None:
    assert account(allowed=10, spent=3, held=4).left == 3
    assert account(allowed=10, spent=8, held=4).left == -2


def test_a_dollar_is_a_whole_number_of_its_parts() -> None:
    assert sum(nano(0.1) for _ in range(10)) == nano(1.0) == NANO


def test_money_beyond_all_measure_is_still_a_number_that_the_ledger_holds() -> None:
    dear = PRICED.model_copy(update={"price": Price(input=1e300, output=1e300)})
    assert nano(1e308) == worst(dear, 1_000_000, 1).nano_usd == 10**9 * NANO < 2**63


def test_the_worst_case_has_every_token_at_its_dearest() -> None:
    written = PRICED.model_copy(update={"price": Price(input=1, output=2, cache_write=1.25)})
    assert worst(PRICED, 1_000_000, 1_000_000) == Amount(nano_usd=3 * NANO, tokens=2_000_000)
    assert worst(written, 1_000_000, 0).nano_usd == nano(1.25)
    free = PRICED.model_copy(update={"price": None})
    assert worst(free, 10, 20) == Amount(nano_usd=0, tokens=30)


def test_a_prompt_is_never_bounded_by_more_than_its_bytes() -> None:
    assert prompt_bound(100, 1.0, 1000) == 125 + 64
    assert prompt_bound(100, 2.0, 1000) == 250 + 64
    assert prompt_bound(100, 0.5, 1000) == 125 + 64, "a worker that counted less may count more"
    assert prompt_bound(1000, 4.0, 100) == 400 + 64


@settings(deadline=None)
@given(
    wanted=st.integers(1, 200_000),
    prompt=st.integers(0, 100_000),
    left=st.integers(0, NANO),
    tokens=st.integers(0, 300_000),
)
def test_a_reply_is_as_long_as_every_limit_allows_and_no_longer(
    wanted: int, prompt: int, left: int, tokens: int
) -> None:
    accounts = [account(allowed=left), account("tokens", allowed=tokens)]
    length = longest_reply(PRICED, prompt, wanted, accounts)

    def fits(reply: int) -> bool:
        amount = worst(PRICED, prompt, reply)
        return all(it.part(amount) <= it.left for it in accounts)

    if length:
        assert fits(length)
        assert length == wanted or not fits(length + 1)
        assert length >= min(FEWEST_TOKENS, wanted)
    else:
        assert not fits(min(FEWEST_TOKENS, wanted))


@pytest.mark.parametrize(
    ("limit", "left", "words"),
    [
        ("usd", "$0.25", "Raise max_usd to go on."),
        ("day_usd", "$0.25", "Raise day_usd to go on."),
        ("tokens", "250000000 are left", "Raise max_tokens to go on."),
    ],
)
def test_a_refusal_says_which_limit_what_is_left_and_what_to_do(
    limit: LimitName, left: str, words: str
) -> None:
    amount = Amount(nano_usd=NANO, tokens=NANO)
    error = refusal(PRICED, amount, [account(limit, spent=NANO // 2, held=NANO // 4)])
    assert error.limit == limit
    for part in (left, words, "solver"):
        assert part in str(error)
