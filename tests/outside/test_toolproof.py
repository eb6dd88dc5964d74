"""mcp-toolproof: calls every tool with generated inputs, valid and not, and looks for trouble.

Trouble is a crash, a hang, an error that says nothing, or a result that does not fit its schema.
What is not meant is not trouble: models write 0 for false and "3" for 3, and are understood. The
whole proof is a command of its own:

    PODIUM_FUZZ_EXAMPLES=300 python -m pytest -m outside -k toolproof
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import pytest
from pydantic import JsonValue
from tests.command_line import CommandLine
from tests.outside.programs import Ended, Program, program
from tests.outside.serving import served

pytestmark = pytest.mark.outside
EXAMPLES = int(os.environ.get("PODIUM_FUZZ_EXAMPLES", "30"))
"""Valid inputs of each tool, and as many that are not."""
HANGS_S = 20
"""A call that takes longer, on a machine that has other things to do, hangs."""
SECONDS_EACH = 0.5
"""What calls take on such a machine, on average."""
TOOLS = 7
Data = dict[str, JsonValue]


async def test_no_input_harms_podium_over_http(podium: CommandLine, tmp_path: Path) -> None:
    toolproof = program("toolproof", tmp_path)
    async with served(podium) as address:
        ended = await _fuzz(toolproof, {"url": address})
    _assert_unharmed(ended, toolproof.folder)


async def test_no_input_harms_podium_on_stdio(podium: CommandLine, tmp_path: Path) -> None:
    toolproof = program("toolproof", tmp_path)
    server = {"command": podium.argv("serve"), "env": podium.environ, "cwd": str(podium.folder)}
    ended = await _fuzz(toolproof, {**server, "startup_timeout_s": 60})
    _assert_unharmed(ended, toolproof.folder)


async def _fuzz(toolproof: Program, server: Mapping[str, object]) -> Ended:
    allowed = 60 + SECONDS_EACH * 2 * EXAMPLES
    fuzz = {
        "max_examples": EXAMPLES,
        "seed": 1,
        "timeout_ms": 1000 * HANGS_S,
        "max_time_s": allowed,
        "invalid_must_fail": False,
    }
    settings = json.dumps({"server": server, "fuzz": fuzz})
    (toolproof.folder / "toolproof.yaml").write_text(settings)  # JSON is YAML
    given = ("--config", "toolproof.yaml", "--json", "report.json")
    return await toolproof("fuzz", *given, within_s=allowed * (TOOLS + 1))


def _assert_unharmed(ended: Ended, folder: Path) -> None:
    report = cast("Data", json.loads((folder / "report.json").read_text()))
    fuzzed = cast("list[Data]", cast("Data", report["fuzz"])["tools"])
    assert [tool["findings"] for tool in fuzzed] == [[]] * TOOLS
    assert [tool["skipped"] for tool in fuzzed] == [None] * TOOLS
    assert ended.code == 0, ended
    calls = {str(tool["tool"]): cast("int", tool["calls"]) for tool in fuzzed}
    del calls["list_workers"]  # has no arguments
    assert min(calls.values()) >= EXAMPLES, calls
