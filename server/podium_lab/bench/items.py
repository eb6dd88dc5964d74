"""Twelve questions of our own, and how each answer is judged: facts, word problems, small code."""

import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from podium_lab.bench.scoring import last_number

Kind = Literal["fact", "words", "code"]
CODE_TIMEOUT_S = 10


@dataclass(frozen=True)
class Item:
    """A question and its judge."""

    name: str
    kind: Kind
    question: str
    expected: str
    """A pattern the answer must hold (fact), its last number (words), or checks to run (code)."""

    @property
    def hard(self) -> bool:
        return self.kind != "fact"

    def is_right(self, answer: str) -> bool:
        """Judge *answer*; code is run in a process of its own."""
        if self.kind == "fact":
            return re.search(self.expected, answer, re.IGNORECASE) is not None
        if self.kind == "words":
            return last_number(answer) == self.expected
        return _passes(_code(answer), self.expected)


ITEMS: Sequence[Item] = (
    Item("ocean", "fact", "Which ocean is the largest on Earth?", r"pacific"),
    Item("gold", "fact", "What is the chemical symbol of gold?", r"\bAu\b"),
    Item("hamlet", "fact", "Who wrote the play 'Hamlet'?", r"shakespeare"),
    Item("moon", "fact", "In which year did people first walk on the Moon?", r"\b1969\b"),
    Item(
        "pens", "words",
        "A shop sells pens at 3 for $2. Anna buys 18 pens and pays with a $20 note. How many "
        "dollars of change does she get?", "8",
    ),
    Item(
        "marbles", "words",
        "Tom has 3 times as many marbles as Ben. Together they have 64. Tom gives a quarter of his "
        "marbles to Ben. How many marbles does Ben have now?", "28",
    ),
    Item(
        "tank", "words",
        "A tank holds 480 litres and is 3/8 full. A pump adds 12 litres a minute while 4 litres a "
        "minute leak out. After how many minutes is it full?", "37.5",
    ),
    Item(
        "wages", "words",
        "Mia earns $15 an hour for the first 40 hours of a week and one and a half times that for "
        "each further hour. She works 46 hours and pays 20% tax. How many dollars does she keep?",
        "588",
    ),
    Item(
        "palindrome", "code",
        "Write a Python function is_palindrome(s) that ignores case, spaces and punctuation.",
        "assert is_palindrome('A man, a plan, a canal: Panama')\n"
        "assert not is_palindrome('Podium')\nassert is_palindrome('')\nassert is_palindrome('x!')",
    ),
    Item(
        "intervals", "code",
        "Write a Python function merge_intervals(intervals) that takes a list of [start, end] "
        "lists and returns them merged where they overlap or touch, sorted by start.",
        "assert [list(i) for i in merge_intervals([[5, 7], [1, 3], [2, 4]])] == [[1, 4], [5, 7]]\n"
        "assert [list(i) for i in merge_intervals([[1, 2], [2, 3]])] == [[1, 3]]\n"
        "assert list(merge_intervals([])) == []\n"
        "assert [list(i) for i in merge_intervals([[1, 9], [2, 3]])] == [[1, 9]]",
    ),
    Item(
        "roman", "code",
        "Write a Python function roman(n) that turns an integer from 1 to 3999 into a Roman "
        "numeral.",
        "assert roman(1994) == 'MCMXCIV'\nassert roman(4) == 'IV'\nassert roman(3999) == "
        "'MMMCMXCIX'\nassert roman(40) == 'XL'",
    ),
    Item(
        "top_words", "code",
        "Write a Python function top_words(text, n) that returns the n most frequent words of a "
        "text in lower case, the most frequent first and ties in alphabetical order. A word is a "
        "run of letters.",
        "assert top_words('b a b, A c', 2) == ['a', 'b']\n"
        "assert top_words('One two. Two! three three three', 2) == ['three', 'two']\n"
        "assert top_words('', 3) == []",
    ),
)  # fmt: skip
"""Written for this benchmark; the conductor's examples are other questions."""


def _code(answer: str) -> str:
    """The Python blocks that define functions; the whole answer when none is marked."""
    blocks = re.findall(r"```(?:python|py)?\s*\n(.*?)```", answer, re.DOTALL)
    return "\n".join(block for block in blocks if "def " in block) or answer


def _passes(code: str, checks: str) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        try:
            done = subprocess.run(
                [sys.executable, "-I", "-c", f"{code}\n{checks}\n"],
                cwd=folder, capture_output=True, timeout=CODE_TIMEOUT_S, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return False
    return done.returncode == 0
