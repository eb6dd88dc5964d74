"""mcpcheck: an independent checker of the newest revision over HTTP."""

from pathlib import Path

import pytest
from tests.command_line import CommandLine
from tests.outside.programs import program
from tests.outside.serving import served

pytestmark = pytest.mark.outside


async def test_it_finds_nothing_wrong_not_even_a_warning(
    podium: CommandLine, tmp_path: Path
) -> None:
    mcpcheck = program("mcpcheck", tmp_path)
    async with served(podium) as address:
        ended = await mcpcheck(
            address, "--legacy-probes", "--probe", "all", "--strict", "--timeout", "60"
        )
    assert ended.code == 0, ended
    assert "All 8 checks passed" in ended.out
