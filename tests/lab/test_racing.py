"""Eight processes on one ledger: nothing is lost, and a day's budget is met exactly."""

import json
import subprocess
import sys

import pytest

from podium_lab.bench.racing import Amount


@pytest.mark.skipif(sys.platform == "win32", reason="processes are forked")
def test_eight_processes_lose_nothing_and_meet_the_budget_exactly() -> None:
    amount = Amount(processes=8, runs=40, requests=320)
    sizes = [f"--{name}={value}" for name, value in amount.model_dump().items()]
    command = [sys.executable, "-m", "podium_lab.bench.racing", "--json", *sizes]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["holds"] is True
    assert found["granted"] == found["refused"] == 160
    assert found["spent_nano_usd"] == found["budget_nano_usd"] == 160_000_000
