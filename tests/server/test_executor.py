"""A plan being carried out: as parallel as it allows, and never sunk by one worker."""

import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path

import anyio
import pytest
from tests.core_parts import (
    NO_KEY,
    REFUSED,
    Parts,
    by_subtask,
    open_parts,
    plan_of,
    reading_all,
    step,
    subtasks_of,
    tags,
    text_of,
    worker,
)

from podium.plan import CALLER
from podium.revision import run_step
from podium.trace import Event, Failure, Run
from podium_workers.scripted import Line
from podium_workers.worker import Prompt


def meeting(own: anyio.Event, other: anyio.Event, reply: str) -> Callable[[], Awaitable[Line]]:
    """Replies only once *other* has happened too."""

    async def say() -> Line:
        own.set()
        await other.wait()
        return reply

    return say


async def seen_steps(parts: Parts, run: Run, number: int) -> list[str]:
    """The steps that stand in a step's prompt."""
    prompt = await parts.prompt(run, number)
    return [found for name, found in tags(prompt, run.fence) if name == "step"]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_steps_that_read_nothing_run_side_by_side(tmp_path: Path, backend: str) -> None:
    async def main() -> None:
        left, right = anyio.Event(), anyio.Event()
        replies = {
            "Left.": meeting(left, right, "Left is done."),
            "Right.": meeting(right, left, "Right is done."),
        }
        plan = plan_of(step("ann", "Left."), step("ann", "Right."), step("ann", "Join.", 0, 1))
        async with open_parts(tmp_path, worker("ann", by_subtask(replies)), plans=[plan]) as parts:
            run = await parts.ask()
            assert run.status == "finished"
            assert "Left is done." in await parts.prompt(run, 2)
            assert "Right is done." in await parts.prompt(run, 2)

    anyio.run(main, backend=backend)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_step_starts_as_soon_as_its_own_reads_are_done_and_not_later(
    tmp_path: Path, backend: str
) -> None:
    async def main() -> None:
        third_began = anyio.Event()

        async def slow() -> Line:
            await third_began.wait()
            return "Slow is done."

        async def third() -> Line:
            third_began.set()
            return "Third is done."

        replies = {"Slow.": slow, "Quick.": "Quick is done.", "Third.": third}
        plan = plan_of(
            step("ann", "Slow."),
            step("ann", "Quick."),
            step("ann", "Third.", 1),
            step("ann", "Last.", 0, 2),
        )
        async with open_parts(tmp_path, worker("ann", by_subtask(replies)), plans=[plan]) as parts:
            run = await parts.ask()
            assert run.status == "finished"
            assert "Quick is done." in await parts.prompt(run, 2)  # nor did it start earlier
            assert await seen_steps(parts, run, 3) == ['number="0"', 'number="2"']

    anyio.run(main, backend=backend)


async def test_a_diamond_flows_through_both_sides(tmp_path: Path):
    left, right = anyio.Event(), anyio.Event()
    replies = {
        "Begin.": "The beginning.",
        "Left.": meeting(left, right, "The left side."),
        "Right.": meeting(right, left, "The right side."),
        "End.": "The end.",
    }
    plan = plan_of(
        step("ann", "Begin."),
        step("ann", "Left.", 0),
        step("ann", "Right.", 0),
        step("ann", "End.", 1, 2),
    )
    async with open_parts(tmp_path, worker("ann", by_subtask(replies)), plans=[plan]) as parts:
        run = await parts.ask()
        assert (run.answer, run.answer_step) == ("The end.", 3)
        end = await parts.prompt(run, 3)
        assert "The left side." in end
        assert "The right side." in end
        assert "The beginning." not in end


async def test_t32_a_prompt_holds_what_its_access_list_grants_and_nothing_else(tmp_path: Path):
    def script(prompt: Prompt) -> Line:
        return "Secret of " + text_of(prompt).rsplit("Your subtask: ", 1)[1]

    plan = plan_of(
        step("ann", "zero"),
        step("bob", "one"),
        step("ann", "two", 0),
        step("bob", "three", 2, 0),
        reading_all("ann", "four"),
        step("bob", "five"),
    )
    async with open_parts(tmp_path, worker("ann", script), worker("bob", script), plans=[plan]) as (
        parts
    ):
        run = await parts.ask()
        for number, step_ in plan.numbered():
            prompt = await parts.prompt(run, number)
            held = {
                other for other, told in plan.numbered() if f"Secret of {told.subtask}" in prompt
            }
            assert held == set(plan.reads(number))
            assert await seen_steps(parts, run, number) == [
                f'number="{read}"' for read in plan.reads(number)
            ]
            assert prompt.endswith(f"Your subtask: {step_.subtask}")
        calls = await parts.store.calls(run.run_id)
        assert {call.step: call.prompt for call in calls} == {
            result.number: result.prompt for result in await parts.store.steps(run.run_id)
        }
        assert await parts.findings(run) == []


async def test_t13_a_failed_worker_is_stood_in_for_and_its_failure_stays_on_record(tmp_path: Path):
    plan = plan_of(step("bob", "Try."))
    ann, bob, cy = worker("ann", [REFUSED]), worker("bob", [NO_KEY]), worker("cy", ["Solved."])
    async with open_parts(tmp_path, ann, bob, cy, plans=[plan]) as parts:
        run = await parts.ask()

        result = await parts.step(run, 0)
        assert (result.worker, result.planned_worker, result.reply) == ("cy", "bob", "Solved.")
        assert result.failures == (
            Failure(worker="bob", code="authentication", message=NO_KEY.message, status=401),
            Failure(worker="ann", code="refused", message=REFUSED.message),
        )
        assert run.notes == (f"Step 0 was planned for bob and done by cy. bob: {NO_KEY.message}",)
        assert [event.worker for event in parts.told("fallback")] == ["bob", "ann"]
        (summary,) = await parts.store.summaries()
        assert summary.fallback
        assert await parts.findings(run) == []


async def test_t13_a_step_that_nobody_could_do_tells_what_happened_to_everybody(tmp_path: Path):
    plan = plan_of(step("ann", "Try."), step("ann", "Other."))
    ann = worker("ann", by_subtask({"Try.": REFUSED}))
    bob = worker("bob", [NO_KEY])
    async with open_parts(tmp_path, ann, bob, plans=[plan]) as parts:
        run = await parts.ask()
        result = await parts.step(run, 0)
        assert (result.status, result.reply) == ("failed", "")
        assert [(it.worker, it.code) for it in result.failures] == [
            ("ann", "refused"),
            ("bob", "authentication"),
        ]
        (told,) = parts.told("step_failed")
        assert told.text == f"ann: {REFUSED.message}; bob: {NO_KEY.message}"
        assert f"Step 0 failed. ann: {REFUSED.message}; bob: {NO_KEY.message}" in run.notes


async def test_t15_a_worker_with_a_lasting_failure_is_not_asked_again_in_the_run(tmp_path: Path):
    rounds = (
        plan_of(step("ann", "One."), step("ann", "Two.", 0)),
        plan_of(step("ann", "Three.", 0), first=2),
    )
    ann, bob = worker("ann", [NO_KEY]), worker("bob")
    async with open_parts(tmp_path, ann, bob, plans=rounds) as parts:
        run = await parts.ask(rounds=2)

        assert run.status == "finished"
        assert subtasks_of(ann) == ["One."]
        assert subtasks_of(bob) == ["One.", "Two.", "Three."]
        for number in (1, 2):  # and the record still says why
            (why,) = (await parts.step(run, number)).failures
            assert (why.worker, why.code, why.status) == ("ann", "authentication", 401)

        again = await parts.ask(rounds=2)  # a new run asks it again
        assert subtasks_of(ann) == ["One.", "One."]
        assert again.status == "finished"


async def test_a_failure_that_may_pass_does_not_rule_a_worker_out(tmp_path: Path):
    plan = plan_of(step("ann", "One."), step("ann", "Two.", 0))
    ann = worker("ann", by_subtask({"One.": REFUSED}))
    async with open_parts(tmp_path, ann, worker("bob"), plans=[plan]) as parts:
        run = await parts.ask()
        assert [(await parts.step(run, number)).worker for number in (0, 1)] == ["bob", "ann"]


async def test_when_everybody_is_ruled_out_every_step_says_why(tmp_path: Path):
    plan = plan_of(step("ann", "One."), step("ann", "Two."))
    async with open_parts(tmp_path, worker("ann", [NO_KEY]), plans=[plan]) as parts:
        run = await parts.ask()
        assert run.status == "failed"
        for number in (0, 1):
            (why,) = (await parts.step(run, number)).failures
            assert why.code == "authentication"


async def test_the_siblings_of_a_failed_step_finish(tmp_path: Path):
    failed, going_on = anyio.Event(), anyio.Event()

    async def fail() -> Line:
        await going_on.wait()
        failed.set()
        return REFUSED

    async def go_on() -> Line:
        going_on.set()
        await failed.wait()
        return "The sibling is done."

    plan = plan_of(step("ann", "Bad."), step("ann", "Good."), step("ann", "Join.", 0, 1))
    ann = worker("ann", by_subtask({"Bad.": fail, "Good.": go_on, "Join.": "Joined."}))
    async with open_parts(tmp_path, ann, plans=[plan]) as parts:
        run = await parts.ask()
        assert [result.status for result in await parts.store.steps(run.run_id)] == [
            "failed",
            "finished",
            "finished",
        ]
        assert run.answer == "Joined."
        prompt = await parts.prompt(run, 2)  # and who reads both is told of the gap
        assert "(This step gave no reply.)" in prompt
        assert "The sibling is done." in prompt
        assert await seen_steps(parts, run, 2) == ['number="0"', 'number="1"']
        assert await parts.findings(run) == []


async def test_a_step_is_not_paid_for_when_nothing_that_it_reads_is_there(tmp_path: Path):
    plan = plan_of(step("ann", "Bad."), step("ann", "Rest.", 0), step("ann", "Own."))
    ann = worker("ann", by_subtask({"Bad.": REFUSED}))
    async with open_parts(tmp_path, ann, plans=[plan]) as parts:
        run = await parts.ask()
        assert sorted(subtasks_of(ann)) == ["Bad.", "Own."]
        (why,) = (await parts.step(run, 1)).failures
        assert why.code == "no_input"
        assert run.answer == "Done."


async def test_a_worker_that_has_left_the_pool_is_stood_in_for(tmp_path: Path):
    plan = plan_of(step("bob", "Do it."))
    async with open_parts(tmp_path, worker("ann"), worker("bob"), plans=[plan]) as parts:
        run = await parts.create()
        await parts.orchestrator.plan(run, parts.observe)
    cy = worker("cy", ["Cy did it."], card={"role": "You are Cy."})
    async with open_parts(tmp_path, cy, plans=[plan]) as parts:
        run = await parts.go_on(run)
        assert run.answer == "Cy did it."
        (why,) = (await parts.step(run, 0)).failures
        assert (why.worker, why.code) == ("bob", "pool")
        assert await parts.findings(run) == []


# The caller as a worker.


async def test_a_step_of_the_caller_waits_and_its_dependents_with_it(tmp_path: Path):
    plan = plan_of(
        step(CALLER, "Look at the screen."),
        step("ann", "Meanwhile."),
        step("ann", "Use both.", 0, 1),
        step("ann", "Use that.", 2),
    )
    ann = worker("ann")
    async with open_parts(tmp_path, ann, plans=[plan]) as parts:
        run = await parts.ask()
        assert run.status == "needs_caller"
        assert subtasks_of(ann) == ["Meanwhile."]
        assert [(s.number, s.status) for s in await parts.store.steps(run.run_id)] == [
            (0, "waiting"),
            (1, "finished"),
        ]
        assert [event.step for event in parts.told("waiting")] == [0]

        await parts.go_on(run)  # asking again changes nothing
        assert len(await parts.store.steps(run.run_id, every_version=True)) == 2

        await run_step(parts.orchestrator, run, 0, parts.observe, result="It is red.")
        run = await parts.go_on(run)
        assert run.status == "finished"
        assert "It is red." in await parts.prompt(run, 2)
        assert (await parts.step(run, 0)).worker == CALLER
        assert subtasks_of(ann) == ["Meanwhile.", "Use both.", "Use that."]
        assert await parts.findings(run) == []


# Being stopped, and faults.


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_cancelled_a_running_step_is_stored_as_stopped(tmp_path: Path, backend: str) -> None:
    async def main() -> None:
        began = anyio.Event()

        async def hang() -> Line:
            began.set()
            await anyio.sleep_forever()
            return ""

        plan = plan_of(step("ann", "Quick."), step("ann", "Hang.", 0), step("ann", "Last.", 1))
        ann = worker("ann", by_subtask({"Hang.": hang}))
        async with open_parts(tmp_path, ann, plans=[plan]) as parts:
            run = await parts.create()
            run = await parts.stop_when(run, began)
            assert run.status == "interrupted"
            assert [result.status for result in await parts.store.steps(run.run_id)] == [
                "finished",
                "stopped",
            ]
            calls = await parts.store.calls(run.run_id)
            assert [call.status for call in calls] == ["finished", "stopped"]

    anyio.run(main, backend=backend)


async def test_cancelled_before_its_worker_is_asked_a_step_is_stored_as_stopped(tmp_path: Path):
    began = anyio.Event()

    async def hold(event: Event) -> None:
        if event.kind == "step_started":
            began.set()
            await anyio.sleep_forever()

    async with open_parts(tmp_path, worker("ann"), plans=[plan_of(step("ann", "x"))]) as parts:
        run = await parts.create()
        async with anyio.create_task_group() as group:
            group.start_soon(parts.orchestrator.answer, run, hold)
            await began.wait()
            group.cancel_scope.cancel()
        assert (await parts.step(run, 0)).status == "stopped"


async def test_a_ledger_that_breaks_ends_the_run_with_its_own_sentence(tmp_path: Path):
    def break_ledger(prompt: Prompt) -> Line:
        with closing(sqlite3.connect(tmp_path / "podium.db")) as connection:
            connection.execute("DROP TABLE steps")
        return "Done."

    ann = worker("ann", break_ledger)
    plan = plan_of(step("ann", "One."))
    async with open_parts(tmp_path, ann, worker("bob"), plans=[plan]) as parts:
        run = await parts.ask()
        assert run.status == "failed"
        assert run.error is not None
        assert run.error.code == "store"
        assert len(ann.seen) == 1


async def test_a_step_that_the_time_limit_keeps_from_starting_says_so(tmp_path: Path):
    async with open_parts(tmp_path, worker("ann"), plans=[plan_of(step("ann", "x"))]) as parts:
        run = await parts.create()
        await parts.orchestrator.plan(run, parts.observe)
        rounds = await parts.store.rounds(run.run_id)
        past = anyio.current_time() - 1
        await parts.orchestrator.execution(run, rounds, 0, parts.observe, past).run_pending()
        (why,) = (await parts.step(run, 0)).failures
        assert (why.worker, why.code) == ("ann", "timeout")
