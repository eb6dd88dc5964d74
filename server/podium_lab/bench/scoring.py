"""Judging answers that are numbers, and how sure a share of right ones is."""

import math
import re
from collections.abc import Sequence
from decimal import Decimal

_BLOCK = re.compile(r"^[ \t]*```.*?(?:^[ \t]*```[ \t]*$|\Z)", re.DOTALL | re.MULTILINE)
_NUMBER = re.compile(r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?")
_MARKED = re.compile(r"####[ \t]*\$?(-?\d[\d,]*(?:\.\d+)?)[ \t]*$", re.MULTILINE)


def last_number(answer: str) -> str:
    """The number that *answer* comes to; empty when it holds none.

    That is the one alone behind the last `####`, which marks results in GSM8K, else the last one
    that stands outside blocks of code, else the last of all. Thousands separators and empty
    decimals are left out.
    """
    if marked := _MARKED.findall(answer):
        return plain_number(marked[-1])
    for text in (_BLOCK.sub("", answer), answer):
        if found := _NUMBER.findall(text):
            return plain_number(found[-1])
    return ""


def plain_number(text: str) -> str:
    """A number in one form, of any length: `1,234.50` is 1234.5 and `18.00` is 18.

    Raises:
        decimal.InvalidOperation: it is no number.
    """
    plain = f"{Decimal(text.replace(',', '')):f}"
    plain = plain.rstrip("0").rstrip(".") if "." in plain else plain
    return "0" if plain == "-0" else plain


def wilson(right: int, count: int, z: float = 1.96) -> tuple[float, float]:
    """The interval in which the true share lies with 95 % confidence, by Wilson's score."""
    if not count:
        return 0.0, 1.0
    share = right / count
    spread = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    centre = share + z * z / (2 * count)
    scale = 1 + z * z / count
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)


def sign_test(better: int, worse: int) -> float:
    """How probable so uneven a count of pairs is, or a more uneven one, if both are equal."""
    pairs = better + worse
    tail = sum(math.comb(pairs, count) for count in range(min(better, worse) + 1))
    return min(1.0, 2 * tail / 2**pairs)


def median(numbers: Sequence[float]) -> float:
    """The middle one; 0 of none."""
    ordered = sorted(numbers)
    half = len(ordered) // 2
    if not ordered:
        return 0.0
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
