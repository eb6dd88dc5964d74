"""A question answered by a program: a real sandbox, a real ledger, the command line around them."""

import os
from pathlib import Path
from typing import cast

import anyio
import pytest
from tests.command_line import CommandLine

from podium_workers.errors import NotInstalledError
from podium_workers.programs.sandbox import Sandbox

POOL = """
[[worker]]
name = "writer"
kind = "scripted"
replies = [
    "```python\\nprint(1 / 0)\\n```",
    "```python\\nprint(6 * 7)\\n```",
]

[[worker]]
name = "sums"
kind = "program"
by = "writer"
"""


@pytest.fixture
def podium(tmp_path: Path) -> CommandLine:
    """The command with a pool whose worker for programs can run them."""
    try:
        anyio.run(Sandbox(os.environ.get("PATH")).check)
    except NotInstalledError as error:
        pytest.skip(str(error))
    command = CommandLine(tmp_path, {"PATH": os.environ["PATH"]})
    command.pool.write_text(POOL)
    return command


def test_a_repaired_program_answers_and_the_receipt_has_both_calls(podium: CommandLine):
    asked = podium.inside("ask", "--strategy", "single", "--workers", "sums", "6 * 7?")
    assert asked.code == 0, asked.err
    assert asked.out.startswith("42\n")
    shown = podium.inside("show", podium.newest_run(), "--json").data
    receipt = cast("dict[str, object]", shown["receipt"])
    (line,) = cast("list[dict[str, object]]", receipt["steps"])
    assert receipt["calls"] == 2
    assert line["worker"] == "sums"
    assert line["usage"] == receipt["total"]
    assert cast("dict[str, int]", receipt["total"])["output_tokens"] > 0
