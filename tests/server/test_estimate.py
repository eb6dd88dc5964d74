"""Price and time of a plan before it is paid for (T37)."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core_parts import Parts, file, open_parts, plan_of, reading_all, step, worker
from tests.ledger_samples import a_call

from podium.estimate import SPEED, TYPICAL_REPLY, Estimate, estimate
from podium.plan import CALLER, PODIUM, Plan
from podium.store import open_store
from podium.trace import Run, RunRequest
from podium.window import prompt_budget, reply_limit
from podium_workers.retry import ATTEMPTS
from podium_workers.worker import Price, Usage, WorkerCard

PRICE = Price(input=2.0, output=10.0)
PAID: dict[str, object] = {"price": PRICE, "where": "hosted"}


async def estimated(parts: Parts, plan: Plan, **request: object) -> Estimate:
    run = await parts.create("Why is it so?", **request)
    return await estimate(parts.store, run, plan)


def known(*figures: float | None) -> list[float]:
    found = [figure for figure in figures if figure is not None]
    assert len(found) == len(figures)
    return found


async def test_t37_a_plan_is_priced_low_expected_and_worst(tmp_path: Path):
    ann = worker("ann", card=PAID)
    async with open_parts(tmp_path, ann) as parts:
        found = await estimated(parts, plan_of(step("ann", "Do it.")))
        low, expected, worst = known(found.usd.low, found.usd.expected, found.usd.worst)
        assert 0 < low < expected < worst
        assert expected > TYPICAL_REPLY * 10 / 1_000_000
        assert worst > ATTEMPTS * reply_limit(ann.card) * 10 / 1_000_000
        assert found.unpriced == ()
        quick, usual, slow = known(found.seconds.low, found.seconds.expected, found.seconds.worst)
        assert quick < usual < slow
        assert usual == pytest.approx(TYPICAL_REPLY / SPEED["hosted"], abs=0.01)


async def test_t37_an_unknown_price_is_unknown_and_named(tmp_path: Path):
    far = worker("far", card={"price": None})
    async with open_parts(tmp_path, worker("ann", card=PAID), far) as parts:
        plan = plan_of(step("ann", "Do it."), step("far", "And that."))
        found = await estimated(parts, plan)
        assert (found.usd.low, found.usd.expected, found.usd.worst) == (None, None, None)
        assert found.unpriced == ("far",)
        # Somebody without a price might stand in, so only the worst is unknown here.
        found = await estimated(parts, plan_of(step("ann", "Do it.")))
        assert found.usd.worst is None
        assert known(found.usd.low, found.usd.expected)
        assert found.unpriced == ()


async def test_local_work_is_free_and_takes_its_time(tmp_path: Path):
    async with open_parts(tmp_path, worker("ann")) as parts:
        found = await estimated(parts, plan_of(step("ann", "Do it.")))
        assert (found.usd.low, found.usd.worst) == (0, 0)
        assert found.seconds.expected == pytest.approx(TYPICAL_REPLY / SPEED["local"], abs=0.01)


async def test_steps_side_by_side_take_the_time_of_the_longest_and_cost_the_sum(tmp_path: Path):
    async with open_parts(tmp_path, worker("ann", card=PAID)) as parts:
        one = await estimated(parts, plan_of(step("ann", "Do it.")))
        side = await estimated(parts, plan_of(step("ann", "Do it."), step("ann", "Do it.")))
        line = await estimated(parts, plan_of(step("ann", "Do it."), step("ann", "Do it.", 0)))
        (time,) = known(one.seconds.expected)
        assert side.seconds.expected == time
        assert line.seconds.expected == pytest.approx(2 * time, abs=0.02)
        price, twice, read = known(one.usd.expected, side.usd.expected, line.usd.expected)
        assert twice == pytest.approx(2 * price, rel=0.05)
        # What a step reads is paid as input once more.
        assert read - twice == pytest.approx(TYPICAL_REPLY * 2 / 1_000_000, rel=0.2)


async def test_the_ledger_of_earlier_replies_makes_the_estimate_better(tmp_path: Path):
    ann = worker("ann", card=PAID)
    async with open_parts(tmp_path, ann) as parts:
        run = await parts.create()
        for number in range(3):
            usage = Usage(input_tokens=100, output_tokens=50)
            call = a_call(
                f"call{number}", run.run_id, worker="ann", model="scripted", usage=usage,
                seconds=0.5,
            )  # fmt: skip
            await parts.store.save_call(call)
        found = await estimated(parts, plan_of(step("ann", "Do it.")))
        assert found.seconds.expected == pytest.approx(0.5, abs=0.01)
        (expected,) = known(found.usd.expected)
        assert expected < TYPICAL_REPLY * 10 / 1_000_000


async def test_a_large_file_is_priced_as_far_as_it_is_sent(tmp_path: Path):
    ann = worker("ann", card=PAID)
    async with open_parts(tmp_path, ann) as parts:
        huge = file("log.txt", "many words " * 200_000)
        found = await estimated(parts, plan_of(step("ann", "Do it.")), files=(huge,))
        most = prompt_budget(ann.card) * 2 / 1_000_000
        (expected, worst) = known(found.usd.expected, found.usd.worst)
        assert most * 0.8 < expected < most + 2 * TYPICAL_REPLY * 10 / 1_000_000
        assert worst == pytest.approx(
            ATTEMPTS * (most + reply_limit(ann.card) * 10 / 1_000_000), rel=0.01
        )


async def test_the_worst_case_is_every_worker_that_could_stand_in(tmp_path: Path):
    dear = Price(input=20.0, output=100.0)
    cheap, rich = worker("cheap", card=PAID), worker("rich", card=PAID | {"price": dear})
    async with open_parts(tmp_path, cheap, rich) as parts:
        plan = plan_of(step("cheap", "Do it."))
        alone = await estimated(parts, plan, workers=("cheap",))
        both = await estimated(parts, plan)
        assert both.usd.expected == pytest.approx(alone.usd.expected, rel=0.02)  # fences differ
        (one, ten) = known(alone.usd.worst, both.usd.worst)
        assert ten == pytest.approx(11 * one, rel=0.02)


async def test_the_caller_costs_nothing_and_a_team_more_than_a_worker(tmp_path: Path):
    async with open_parts(tmp_path, worker("ann", card=PAID)) as parts:
        own = await estimated(parts, plan_of(step(CALLER, "Look.")))
        assert (own.usd.worst, own.seconds.worst) == (0, 0)
        plan = plan_of(step(PODIUM, "Think."), step("ann", "Say.", 0))
        plain = plan_of(step("ann", "Think."), step("ann", "Say.", 0))
        (team,) = known((await estimated(parts, plan, depth=1)).usd.worst)
        (single,) = known((await estimated(parts, plain)).usd.worst)
        assert team > single


CARDS = st.builds(
    WorkerCard,
    name=st.just("ann"),
    kind=st.just("scripted"),
    model=st.just("scripted"),
    where=st.sampled_from(["local", "hosted"]),
    context_window=st.integers(256, 20_000),
    max_output_tokens=st.integers(1, 8000),
    price=st.builds(Price, input=st.floats(0, 50), output=st.floats(0, 50)),
)
PLANS = st.lists(st.sampled_from(["ann", CALLER, PODIUM]), min_size=1, max_size=5).map(
    lambda names: plan_of(*[reading_all(name, "Do it.") for name in names])
)


@settings(max_examples=40, derandomize=True, deadline=None)
@given(CARDS, PLANS, st.integers(0, 3000))
async def test_low_is_never_above_expected_nor_expected_above_worst(
    card: WorkerCard, plan: Plan, seen: int
):
    async with open_store(":memory:") as store:
        run = Run(
            run_id="run-000001", principal="me", request=RunRequest(question="Why?"),
            pool=(card,), fence="0a1b2c3d4e5f", seed=1, status="planned", created_at=0.0,
        )  # fmt: skip
        await store.create_run(run)
        usage = Usage(input_tokens=10, output_tokens=seen)
        call = a_call("call", worker="ann", model="scripted", usage=usage, seconds=1.0)
        await store.save_call(call)
        found = await estimate(store, run, plan)
        for figures in (found.usd, found.seconds):
            low, expected, worst = known(figures.low, figures.expected, figures.worst)
            assert 0 <= low <= expected <= worst
