"""What a run cost: to the last token, whoever was paid and whatever became of it."""

from pathlib import Path

import anyio
import pytest
from tests.core_parts import (
    NO_KEY,
    ByDepth,
    Parts,
    by_subtask,
    conducting,
    open_parts,
    plan_of,
    step,
    worker,
    written,
)
from tests.ledger_samples import PLAN, WRITTEN, a_run, a_step

from podium.plan import PODIUM, Accept, Plan, Proposal
from podium.receipt import best_so_far, notes, receipt
from podium.revision import edit_step
from podium.trace import Failure, Round, Run, StepResult
from podium.views import full_receipt, view
from podium_workers.scripted import Line
from podium_workers.worker import Price, Prompt, Usage

PRICED: dict[str, object] = {"price": Price(input=3.0, output=15.0)}


async def all_calls(parts: Parts, run: Run) -> Usage:
    """The sum over every call of a run and of the runs nested in it."""
    total = sum((call.usage for call in await parts.store.calls(run.run_id)), Usage())
    for child in await parts.store.children(run.run_id):
        total += await all_calls(parts, child)
    return total


def same(one: Usage, other: Usage) -> bool:
    """Equal to the last token; money but for rounding."""
    assert one.cost_usd == pytest.approx(other.cost_usd)
    return one.model_copy(update={"cost_usd": 0}) == other.model_copy(update={"cost_usd": 0})


async def test_the_sum_over_all_calls_is_the_total_to_the_last_token(tmp_path: Path):
    plans = ["No plan.", written(("ann", "Hard.", []), ("bob", "Easy.", [0]), ("bob", "End.", []))]

    def boss(prompt: Prompt) -> Line:
        return plans.pop(0) if conducting(prompt) else "Done."

    ann = worker("ann", by_subtask({"Hard.": "  "}), card=PRICED)  # empty, and paid all the same
    bob = worker("bob", by_subtask({"End.": NO_KEY}), card=PRICED)
    async with open_parts(tmp_path, worker("boss", boss, card=PRICED), ann, bob) as parts:
        run = await parts.ask(strategy="conductor")

        paid = await full_receipt(parts.store, run)
        calls = await parts.store.calls(run.run_id)
        assert paid.calls == len(calls) == 8
        assert same(paid.total, await all_calls(parts, run))
        assert same(paid.total, await parts.store.usage(run.run_id))
        assert same(sum((line.usage for line in paid.steps), paid.planning), paid.total)
        failed = [call.usage for call in calls if call.status == "failed" and call.worker == "ann"]
        assert len(failed) == 2
        assert all(usage.input_tokens > 0 for usage in failed)
        first = paid.steps[0]
        assert (first.worker, first.planned_worker) == ("boss", "ann")
        assert [it.code for it in first.failures] == ["empty"]
        assert first.usage.input_tokens > sum(usage.input_tokens for usage in failed)
        assert paid.planning.input_tokens > 0
        assert paid.total.cost_usd is not None
        assert paid.total.cost_usd > 0
        assert (await view(parts.store, run)).usage == paid.total


async def test_t36_a_run_that_goes_on_adds_up(tmp_path: Path):
    began = anyio.Event()

    async def hang() -> Line:
        began.set()
        await anyio.sleep_forever()
        return ""

    plan = plan_of(step("ann", "One."), step("ann", "Two.", 0))
    async with open_parts(
        tmp_path, worker("ann", by_subtask({"Two.": hang})), plans=[plan]
    ) as parts:
        run = await parts.stop_when(await parts.create(), began)
        before = (await full_receipt(parts.store, run)).total
    async with open_parts(tmp_path, worker("ann"), plans=[plan]) as parts:
        run = await parts.go_on(run)
        paid = await full_receipt(parts.store, run)
        assert same(paid.total, await all_calls(parts, run))
        assert paid.total.input_tokens > before.input_tokens > 0
        assert paid.calls == 3


async def test_replaced_versions_of_a_step_stay_on_the_bill(tmp_path: Path):
    plan = plan_of(step("ann", "One."), step("ann", "Two.", 0))
    async with open_parts(tmp_path, worker("ann"), plans=[plan]) as parts:
        run = await parts.ask()
        before = (await full_receipt(parts.store, run)).total
        await edit_step(parts.orchestrator, run, 1, {"subtask": "Two, again."})
        run = await parts.go_on(run)
        paid = await full_receipt(parts.store, run)
        assert paid.total.output_tokens > before.output_tokens
        assert same(paid.steps[0].usage + paid.steps[1].usage, paid.total)
        assert paid.calls == 3


async def test_nested_runs_are_on_the_bill_once_at_every_depth(tmp_path: Path):
    policies = {
        "given": ByDepth(
            {
                0: plan_of(step("ann", "Think.")),
                1: plan_of(step(PODIUM, "Deeper."), step("ann", "Say.", 0)),
                2: plan_of(step(PODIUM, "Deep."), step("ann", "End.", 0)),
            }
        )
    }
    async with open_parts(tmp_path, worker("ann", card=PRICED), policies=policies) as parts:
        run = await parts.ask(depth=2)
        paid = await full_receipt(parts.store, run)
        assert same(paid.total, await all_calls(parts, run))
        assert same(paid.steps[0].usage + paid.steps[1].usage, paid.total)
        assert paid.calls == 1


async def test_an_unknown_price_makes_the_total_unknown_and_not_zero(tmp_path: Path):
    plan = plan_of(step("ann", "One."), step("far", "Two."))
    far = worker("far", card={"price": None})
    async with open_parts(tmp_path, worker("ann", card=PRICED), far, plans=[plan]) as parts:
        paid = await full_receipt(parts.store, await parts.ask())
        assert paid.total.cost_usd is None
        assert paid.steps[0].usage.cost_usd is not None
        assert paid.steps[1].usage.cost_usd is None


async def test_a_run_that_nobody_answered_has_a_receipt_too(tmp_path: Path):
    async with open_parts(tmp_path, worker("ann", [NO_KEY])) as parts:
        planned = await parts.create(strategy="single")
        empty = await full_receipt(parts.store, planned)
        assert (empty.steps, empty.calls, empty.total, empty.seconds) == ((), 0, Usage(), 0.0)
        paid = await full_receipt(parts.store, await parts.go_on(planned))
        assert [(line.status, line.failures[0].code) for line in paid.steps] == [
            ("failed", "authentication")
        ]


def test_seconds_run_from_start_to_end():
    run = a_run(started_at=100.0, finished_at=109.0, worked_s=2.5)
    assert receipt(run, (), (), Usage()).seconds == 2.5
    assert receipt(a_run(), (), (), Usage()).seconds == 0.0


# What the reader of an answer has to know.


def rounds_with(*results: object, source: str = "model") -> tuple[Round, ...]:
    proposal = WRITTEN.model_copy(update={"source": source})
    return (Round(number=0, proposal=proposal).model_copy(update={"results": results}),)


FAILED = Failure(worker="solver", code="refused", message="It would not.")


def test_a_plain_run_has_nothing_to_say():
    last = a_step(1)
    assert notes(rounds_with(a_step(0), last), last) == ()


@pytest.mark.parametrize(
    ("first", "last", "said"),
    [
        (
            a_step(0, worker="checker", failures=(FAILED,)),
            a_step(1),
            "Step 0 was planned for solver and done by checker. solver: It would not.",
        ),
        (a_step(0, worker="caller"), a_step(1), "Step 0 was done by caller."),
        (
            a_step(0, status="failed", failures=(FAILED,)),
            a_step(1),
            "Step 0 failed. solver: It would not.",
        ),
        (
            a_step(0),
            a_step(1, finish_reason="length"),
            "The answer reached the worker's longest reply and may be cut off at its end.",
        ),
    ],
)
def test_the_notes_tell_what_went_otherwise_than_planned(first: object, last: object, said: str):
    steps = rounds_with(first, last)
    assert notes(steps, steps[0].results[-1]) == (said,)


def test_the_best_so_far_is_the_newest_finished_step_of_the_newest_round():
    second = Proposal(next=Plan(steps=PLAN.steps, first=2), source="model")
    part, whole = a_step(2), a_step(3)
    first = rounds_with(a_step(0), a_step(1))

    def best(*results: StepResult) -> int | None:
        later = Round(number=1, proposal=second, results=results)
        found = best_so_far((*first, later))
        return found and found.number

    assert (best(part), best(part, whole), best()) == (2, 3, 1)
    assert best_so_far(rounds_with(a_step(0))) == a_step(0), "a part is better than nothing"


def test_the_notes_tell_of_an_answer_that_is_not_the_last_steps_and_of_a_missing_plan():
    first = a_step(0)
    assert len(PLAN.steps) == 2
    assert notes(rounds_with(first, source="fallback"), first) == (
        "No plan could be used; one worker answered alone.",
        "The last step gave no reply; this is the reply of step 0.",
    )
    accepted = Round(number=1, proposal=Proposal(next=Accept(step=1), source="fallback"))
    last = a_step(1)
    assert notes((*rounds_with(first, last), accepted), last) == ()
