"""A program for tests: removes every run from the ledger whose path is its argument.

Prints how many are gone after each part.
"""

import sys
from pathlib import Path

import anyio

from podium.pruning import Wanted
from podium.upkeep import prune


def told(gone: int) -> None:
    print(gone, flush=True)


async def main(path: str) -> None:
    await prune(Path(path), Wanted(), told=told)


anyio.run(main, sys.argv[1])
