"""Two servers on one ledger, killed with kill -9 while they work: the command, made small."""

from pathlib import Path

import anyio

from podium_lab.bench.kills import Amount, measure

SMALL = Amount(runs=6, parts=2, delay_s=0.2, parallel=2, lease_s=1.0, middles=False)


async def test_no_finished_step_is_paid_again_when_servers_are_killed(tmp_path: Path) -> None:
    with anyio.fail_after(150):
        found = await measure(SMALL, 7, tmp_path)

    assert found.kills_at_boundary == 2
    assert (found.finished, found.called_again, found.unexplained) == (6, 0, 0)
    assert (found.off_the_record, found.findings, found.leases_left) == (0, 0, 0)
    assert found.paid <= found.needed + found.lost_in_window + found.lost_in_flight
