"""Cold start against a bare MCPServer: import of the app, and a process to its list of tools.

    python -m podium_lab.bench.start

Each figure is the median of several runs, the two sides in turn, in one command.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import anyio
from mcp import Client
from mcp.client.stdio import StdioServerParameters

BARE = "from mcp.server import MCPServer\nMCPServer('bare').run()\n"
IMPORTS = {
    "bare": "from mcp.server import MCPServer; MCPServer('bare')",
    "podium": "import podium.app",
}
POOL = '[[worker]]\nname = "solo"\nkind = "scripted"\nreplies = ["Yes."]\n'


def import_seconds(code: str) -> float:
    """Seconds of a new interpreter that only imports, less those of one that does nothing."""
    return _run(code) - _run("pass")


def _run(code: str) -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return time.perf_counter() - started


def listed_seconds(command: Sequence[str], environment: dict[str, str]) -> float:
    """Seconds from starting a stdio server to its list of tools."""

    async def list_tools() -> float:
        parameters = StdioServerParameters(
            command=command[0], args=list(command[1:]), env=environment
        )
        started = time.perf_counter()
        async with Client(parameters) as client:
            await client.list_tools()
            return time.perf_counter() - started

    return anyio.run(list_tools)


def in_turn(runs: int, sides: dict[str, Callable[[], float]]) -> dict[str, float]:
    """The median of each side, measured in turn so that a busy moment strikes both."""
    found: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(runs):
        for name, measure in sides.items():
            found[name].append(measure())
    return {name: round(statistics.median(times), 3) for name, times in found.items()}


def main() -> None:
    """Print both comparisons as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=7)
    runs: int = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "pool.toml").write_text(POOL, encoding="utf-8")
        environment = dict(os.environ) | {
            "PODIUM_POOL": str(folder / "pool.toml"),
            "PODIUM_STORE": str(folder / "podium.db"),
        }
        servers = {
            "bare": [sys.executable, "-c", BARE],
            "podium": [sys.executable, "-m", "podium", "serve"],
        }
        imports = in_turn(
            runs, {side: lambda code=code: import_seconds(code) for side, code in IMPORTS.items()}
        )
        listed = in_turn(
            runs,
            {
                side: lambda command=command: listed_seconds(command, environment)
                for side, command in servers.items()
            },
        )
    for found in (imports, listed):
        found["ratio"] = round(found["podium"] / found["bare"], 2)
    print(json.dumps({"import_s": imports, "tools_list_s": listed}, indent=2))


if __name__ == "__main__":
    main()
