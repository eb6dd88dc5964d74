"""Equality of mathematical expressions, decided by math-verify in a process of its own.

The library stops a hard case by an alarm signal, which works only in a main thread, and a case
that it cannot stop must not hold up anything else: hence the process.
"""

from collections.abc import Callable
from importlib import import_module
from typing import cast

from anyio import to_process

Parse = Callable[[str], object]
Verify = Callable[[object, object], object]


async def equal_expressions(gold: str, reply: str) -> bool:
    """Whether the last expression of *reply* equals *gold*; a cancelled look kills its process."""
    return await to_process.run_sync(verified, gold, reply, cancellable=True)


def verified(gold: str, reply: str) -> bool:
    """Equal as text, or as what the library reads in both; *gold* is LaTeX without dollars."""
    if gold.strip() in (reply.strip(), _boxed(reply)):
        return True
    library = import_module("math_verify")  # it has no types of its own
    parse, verify = cast("Parse", library.parse), cast("Verify", library.verify)
    return bool(verify(parse(f"${gold}$"), parse(reply)))


def _boxed(reply: str) -> str:
    """What stands in the last \\boxed{…}; empty when there is none."""
    start = reply.rfind("\\boxed{")
    if start < 0:
        return ""
    depth, begin = 0, start + len("\\boxed{")
    for place in range(begin, len(reply)):
        if reply[place] == "}" and depth == 0:
            return reply[begin:place].strip()
        depth += {"{": 1, "}": -1}.get(reply[place], 0)
    return ""
