"""Runs that are stopped and clients that are cut off leave nothing: a small version."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from podium_lab.bench.durable.paying import Told
from podium_lab.bench.stops import Ended, closing_times


@pytest.mark.skipif(not Path("/dev/fd").exists(), reason="descriptors cannot be counted here")
def test_stopped_runs_and_lost_clients_leave_nothing_behind() -> None:
    command = [sys.executable, "-m", "podium_lab.bench.stops", "--json", "--stops=20", "--cuts=20"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["holds"] is True
    # How many end by themselves first is a matter of how busy the machine is.
    assert found["stopped"] >= 5
    assert found["cut_off"] >= 5
    assert found["closed"] > 0
    assert set(found["left"].values()) == {0}


def test_a_connection_that_was_never_closed_is_seen() -> None:
    ended = Ended(question="a", how="stop", asked_at=5.0, done_at=5.5)
    told = [
        *_call(1, begun=1.0, taken=2.0),
        *_call(2, begun=3.0, gone=5.25),
        *_call(3, begun=4.0),
        *_call(4, begun=6.0),
    ]

    assert closing_times(ended, told) == [0.25, None]


def _call(number: int, **events: float) -> list[Told]:
    return [
        Told.model_validate(
            {"kind": kind, "call": number, "server": "s", "question": "a", "part": 0, "at": at}
        )
        for kind, at in events.items()
    ]
