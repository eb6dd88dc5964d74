"""The official conformance suite, over HTTP, with what each revision of the protocol requires.

The extension for tasks is in its set for 2026-07-28. `tasks-status-notifications` checks nothing
in this version of the suite, whatever a server does.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.command_line import CommandLine
from tests.outside.programs import Ended, Program, program
from tests.outside.serving import served, served_with_fixtures

pytestmark = pytest.mark.outside
HERE = Path(__file__).parent
REVISIONS = ("2025-11-25", "2026-07-28")
BASELINES = [f"{kind}-{revision}" for kind in ("production", "fixtures") for revision in REVISIONS]
LINE = re.compile(r"  - (\S+)  # (\S.*)")
SCENARIO = re.compile(r"^server-|-\d{4}-\d\d-\d\dT.*$")
"""What stands around the name of a scenario in that of its folder."""


def expected(baseline: str) -> set[str]:
    """The scenarios, or single checks of one, that are known to fail."""
    lines = (HERE / f"{baseline}.yml").read_text().splitlines()
    return {found[1] for line in lines if (found := LINE.fullmatch(line))}


@pytest.mark.parametrize("baseline", BASELINES)
def test_every_known_failure_has_its_reason(baseline: str) -> None:
    lines = (HERE / f"{baseline}.yml").read_text().splitlines()
    listed = [line for line in lines if not line.startswith("#")]
    assert listed[0] == "server:"
    assert all(LINE.fullmatch(line) for line in listed[1:])


@pytest.mark.parametrize("revision", REVISIONS)
async def test_production_lacks_nothing_but_fixtures(
    podium: CommandLine, tmp_path: Path, revision: str
) -> None:
    suite = Conformance.find(tmp_path, f"production-{revision}")
    async with served(podium) as address:
        ended = await suite.run(address, revision)
    assert ended.code == 0, ended
    assert suite.failed() == expected(suite.baseline)


@pytest.mark.parametrize("revision", REVISIONS)
async def test_with_the_fixtures_everything_passes(
    podium: CommandLine, tmp_path: Path, revision: str
) -> None:
    suite = Conformance.find(tmp_path, f"fixtures-{revision}")
    async with served_with_fixtures(podium) as address:
        ended = await suite.run(address, revision)
    assert ended.code == 0, ended
    assert suite.failed() == expected(suite.baseline)


@dataclass(frozen=True)
class Conformance:
    """The suite, with what it is to expect."""

    program: Program
    results: Path
    baseline: str

    @classmethod
    def find(cls, folder: Path, baseline: str) -> "Conformance":
        return cls(program("conformance", folder), folder / "results", baseline)

    async def run(self, address: str, revision: str) -> Ended:
        return await self.program(
            "server", "--url", address, "--requirements", revision,
            "--output-dir", str(self.results),
            "--expected-failures", str(HERE / f"{self.baseline}.yml"), within_s=300,
        )  # fmt: skip

    def failed(self) -> set[str]:
        """What did not pass, scored or not, in the words of the baseline."""
        known = expected(self.baseline)
        failed: set[str] = set()
        for file in self.results.glob("*/checks.json"):
            scenario = SCENARIO.sub("", file.parent.name)
            for check in json.loads(file.read_text()):
                if check["status"] in ("FAILURE", "WARNING"):
                    one = f"{scenario}:{check['id']}"
                    failed.add(one if one in known else scenario)
        return failed
