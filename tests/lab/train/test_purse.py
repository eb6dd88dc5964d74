"""A job's money: shared between rollouts at the same time, and never passed."""

import anyio
import pytest

from podium_lab.train.purse import Purse, PurseEmptyError


async def test_what_a_rollout_does_not_use_goes_back() -> None:
    purse = Purse(usd=1.0, parallel=4)
    async with purse.share() as share:
        assert share.usd == 0.25
        assert purse.left == 0.75
        share.spent = 0.1
    assert purse.left == pytest.approx(0.9)


async def test_an_unknown_cost_counts_as_the_whole_share() -> None:
    purse = Purse(usd=1.0, parallel=4)
    async with purse.share():
        pass
    assert purse.spent == 0.25


async def test_rollouts_at_the_same_time_never_pass_the_purse_together() -> None:
    purse = Purse(usd=1.0, parallel=8)
    held: list[float] = []

    async def roll() -> None:
        async with purse.share() as share:
            held.append(share.usd)
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as group:
        for _ in range(8):
            group.start_soon(roll)
    assert sum(held) <= 1.0
    assert purse.spent == pytest.approx(sum(held))


async def test_an_empty_purse_begins_nothing_and_says_how_to_go_on() -> None:
    purse = Purse(usd=0.5, parallel=2, spent=0.5)
    with pytest.raises(PurseEmptyError, match=r"spent \$0.5000 of its \$0.5; raise max_usd"):
        async with purse.share():
            raise AssertionError("it has begun")


async def test_a_rollout_that_fails_before_it_costs_anything_gives_its_share_back() -> None:
    purse = Purse(usd=1.0, parallel=2)

    async def fail() -> None:
        async with purse.share() as share:
            share.spent = 0.0
            raise RuntimeError

    with pytest.raises(RuntimeError):
        await fail()
    assert purse.left == 1.0
