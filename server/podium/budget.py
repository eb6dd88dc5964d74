"""Limits in money and tokens: what a call may take at most, and what is left for it.

Knows neither the ledger, which keeps the accounts, nor how a worker is called.
"""

import math
from collections.abc import Sequence

from podium.errors import LimitError, LimitName
from podium_workers.worker import Frozen, Usage, WorkerCard

NANO = 1_000_000_000
"""Parts of a dollar that money is counted in, as whole numbers: sums of these are exact."""
MOST_USD = 1e9
"""More than this counts as this: any sum of it is still a whole number that the ledger holds."""
FEWEST_TOKENS = 256
"""A reply that would have to be shorter than this, to stay within a limit, is not asked for."""
_MARGIN = 1.25
"""By how much a prompt may be longer than estimated."""
_OVERHEAD = 64
"""Tokens that a provider's own framing of a prompt takes."""


class Amount(Frozen):
    """Money in billionths of a dollar, and tokens of prompt and reply together."""

    nano_usd: int = 0
    tokens: int = 0


class Account(Frozen):
    """One limit and what stands against it, in billionths of a dollar or in tokens."""

    limit: LimitName
    allowed: int
    spent: int
    held: int
    """Reserved by calls that are running."""

    @property
    def left(self) -> int:
        return self.allowed - self.spent - self.held

    def part(self, amount: Amount) -> int:
        """What *amount* takes of this account."""
        return amount.tokens if self.limit == "tokens" else amount.nano_usd


def nano(usd: float) -> int:
    """*usd* dollars as a whole number of billionths."""
    return round(min(usd, MOST_USD) * NANO)


def prompt_bound(estimate: int, ratio: float, characters: int) -> int:
    """Tokens that a prompt has at most.

    *estimate* are its tokens as estimated, *ratio* is what the worker reported per estimated token
    so far. No token is shorter than a byte.
    """
    likely = math.ceil(estimate * max(1.0, ratio) * _MARGIN)
    return min(likely, 4 * characters) + _OVERHEAD


def worst(card: WorkerCard, prompt_tokens: int, reply_tokens: int) -> Amount:
    """What a call takes at most; an unknown price counts as nothing."""
    usage = Usage(input_tokens=prompt_tokens, output_tokens=reply_tokens)
    usd = 0.0
    if card.price is not None:
        written = card.price.cost(usage, written_tokens=prompt_tokens)
        usd = max(card.price.cost(usage), written)
    return Amount(
        nano_usd=math.ceil(min(usd, MOST_USD) * NANO), tokens=prompt_tokens + reply_tokens
    )


def longest_reply(
    card: WorkerCard, prompt_tokens: int, wanted: int, accounts: Sequence[Account]
) -> int:
    """Tokens that the reply may have, *wanted* at most, if the call is to pass no account; or 0."""

    def fits(reply_tokens: int) -> bool:
        amount = worst(card, prompt_tokens, reply_tokens)
        return all(account.part(amount) <= account.left for account in accounts)

    if fits(wanted):
        return wanted
    low, high = 0, wanted  # `high` does not fit
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low if low >= min(FEWEST_TOKENS, wanted) else 0


def refusal(card: WorkerCard, amount: Amount, accounts: Sequence[Account]) -> LimitError:
    """The error that says which account *amount* does not fit into, and what to do."""
    account = next(account for account in accounts if account.part(amount) > account.left)
    needed, left = account.part(amount), max(0, account.left)
    if account.limit == "tokens":
        text = (
            f"The limit of {account.allowed} tokens struck: {left} are left, and a call of "
            f"{card.name} may take {needed}. Raise max_tokens to go on."
        )
    else:
        whose = "of this day" if account.limit == "day_usd" else "of this run"
        name = "day_usd" if account.limit == "day_usd" else "max_usd"
        text = (
            f"The limit {whose} of ${account.allowed / NANO:.6g} struck: ${left / NANO:.6g} are "
            f"left, and a call of {card.name} may cost ${needed / NANO:.6g}. "
            f"Raise {name} to go on."
        )
    return LimitError(account.limit, text)
