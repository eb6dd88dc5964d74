"""What is said to the person at the keyboard, on stderr, in text that cannot steer a terminal."""

import re
import sys

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Everything that a terminal could take as an order, tabs and line ends excepted."""


def printable(text: str) -> str:
    """*text* without control characters: what a model wrote must not steer a terminal."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n"))


def say(text: str) -> None:
    """Something for the person at the keyboard; stdout stays free for results and protocol."""
    print(printable(text), file=sys.stderr, flush=True)
