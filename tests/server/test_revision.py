"""What a caller may change of a run that stands still, and what then has to be done again."""

from pathlib import Path

import anyio
import pytest
from tests.core_parts import (
    REFUSED,
    Parts,
    by_subtask,
    file,
    open_parts,
    plan_of,
    reading_all,
    step,
    subtasks_of,
    worker,
    written,
)

from podium.errors import PlanError, StepError
from podium.plan import CALLER, Plan, Step
from podium.revision import PLAN_STEPS, edit_step, replace_plan, run_step
from podium.trace import Run, StepResult, Waiting
from podium_workers.scripted import ScriptedWorker

LINE = plan_of(step("ann", "One."), step("ann", "Two.", 0), step("ann", "Three.", 1))


async def planned(parts: Parts, **request: object) -> Run:
    run = await parts.create("Why?", **request)
    await parts.orchestrator.plan(run, parts.observe)
    return run


async def walk(parts: Parts, run: Run, number: int | None = None, result: str | None = None):
    run = await parts.store.run(run.run_id)
    return await run_step(parts.orchestrator, run, number, parts.observe, result=result)


async def statuses(parts: Parts, run: Run) -> list[str]:
    return [result.status for result in await parts.store.steps(run.run_id)]


async def replaced(parts: Parts, run: Run, *steps: Step) -> Run:
    await replace_plan(parts.orchestrator, await parts.store.run(run.run_id), steps)
    return await parts.store.run(run.run_id)


def forget(worker: ScriptedWorker) -> None:
    worker.seen.clear()


# Another plan.


async def test_a_plan_may_be_replaced_before_it_is_started(tmp_path: Path):
    ann, bob = worker("ann"), worker("bob", ["Bob did it."])
    async with open_parts(tmp_path, ann, bob, plans=[LINE]) as parts:
        run = await replaced(parts, await planned(parts), step("bob", "Do it."))
        run = await parts.go_on(run)
        assert (run.answer, ann.seen) == ("Bob did it.", [])
        (first, _) = await parts.store.rounds(run.run_id)
        assert (first.plan, first.proposal.source) == (plan_of(step("bob", "Do it.")), "caller")


async def test_a_plan_of_ones_own_needs_no_conductor(tmp_path: Path):
    ann = worker("ann", ["Done."])
    async with open_parts(tmp_path, ann) as parts:
        run = await parts.create(strategy="conductor")
        run = await parts.go_on(await replaced(parts, run, step("ann", "Do it.")))
        assert (run.answer, subtasks_of(ann)) == ("Done.", ["Do it."])


async def test_steps_that_a_new_plan_keeps_are_not_paid_again(tmp_path: Path):
    ann = worker("ann")
    plan = plan_of(step("ann", "One."), step("ann", "Two."), reading_all("ann", "Three."))
    async with open_parts(tmp_path, ann, plans=[plan]) as parts:
        run = await parts.ask()
        forget(ann)
        run = await replaced(
            parts,
            run,
            step("ann", "One."),
            step("ann", "Two, but better."),
            step("ann", "Three.", 0, 1),
        )
        assert (run.status, run.answer, run.notes) == ("planned", None, ())
        assert await statuses(parts, run) == ["finished", "stale", "stale"]
        run = await parts.go_on(run)
        assert run.status == "finished"
        assert subtasks_of(ann) == ["Two, but better.", "Three."]
        assert await parts.findings(run) == []


async def test_a_plan_sent_back_as_it_was_shown_changes_nothing(tmp_path: Path):
    """What is shown names every step that `all` covers."""
    plan = plan_of(step("ann", "One."), step("ann", "Two."), reading_all("ann", "Three."))
    ann = worker("ann")
    async with open_parts(tmp_path, ann, plans=[plan]) as parts:
        run = await parts.ask()
        forget(ann)
        shown = [step(s.worker, s.subtask, *plan.reads(n)) for n, s in plan.numbered()]
        run = await parts.go_on(await replaced(parts, run, *shown))
        assert (run.status, ann.seen) == ("finished", [])
        assert await parts.findings(run) == []


async def test_a_step_that_a_new_plan_drops_counts_no_more(tmp_path: Path):
    """Its number is free for the next round, which would otherwise never be carried out."""
    boss = worker("boss", [written(("ann", "Four.", "all"))])
    ann = worker("ann", ["One.", "Two.", "Three.", "Four."])
    async with open_parts(tmp_path, boss, ann) as parts:
        run = await parts.create(strategy="conductor", rounds=2)
        run = await replaced(parts, run, *LINE.steps)
        for _ in range(3):
            await walk(parts, run)
        run = await replaced(parts, run, *LINE.steps[:2])
        assert await statuses(parts, run) == ["finished", "finished", "stale"]
        run = await parts.go_on(run)
        assert (run.answer, run.answer_step) == ("Four.", 2)
        assert subtasks_of(ann) == ["One.", "Two.", "Three.", "Four."]
        assert "Three." not in await parts.prompt(run, 2)
        assert await parts.findings(run) == []


async def test_a_longer_plan_does_only_what_is_new(tmp_path: Path):
    ann = worker("ann")
    async with open_parts(tmp_path, ann, plans=[LINE]) as parts:
        run = await parts.ask()
        forget(ann)
        run = await parts.go_on(await replaced(parts, run, *LINE.steps, step("ann", "Four.", 2)))
        assert (subtasks_of(ann), run.answer_step) == (["Four."], 3)
        assert await parts.findings(run) == []


async def test_t30_a_step_that_becomes_the_last_one_lists_what_it_could_not_read(tmp_path: Path):
    ann = worker("ann", card={"context_window": 2048, "max_output_tokens": 512})
    plan = plan_of(step("ann", "Read."), step("ann", "Sum up.", 0))
    async with open_parts(tmp_path, ann, plans=[plan]) as parts:
        run = await parts.ask(files=(file("log.txt", "many words " * 3000),))
        forget(ann)
        run = await parts.go_on(await replaced(parts, run, step("ann", "Read.")))
        assert subtasks_of(ann) == ["Read."]
        assert "what you could not read" in await parts.prompt(run, 0)
        assert await parts.findings(run) == []


@pytest.mark.parametrize(
    ("steps", "rule"),
    [
        ((step("anm", "x"),), "worker"),
        ((step("bob", "x"),), "worker"),
        ((step("podium", "x"),), "worker"),
        ((step("ann", "x", 0),), "access"),
        ((step("ann", "x"), step("ann", "y", 2)), "access"),
        ((), "empty"),
        ((step("ann", "x"),) * (PLAN_STEPS + 1), "length"),
    ],
)
async def test_a_plan_that_is_not_allowed_changes_nothing(
    tmp_path: Path, steps: tuple[Step, ...], rule: str
):
    async with open_parts(tmp_path, worker("ann"), worker("bob"), plans=[LINE]) as parts:
        run = await parts.ask(exclude=("bob",))
        with pytest.raises(PlanError) as caught:
            await replaced(parts, run, *steps)
        assert caught.value.rule == rule
        assert await parts.store.run(run.run_id) == run
        assert await statuses(parts, run) == ["finished"] * 3


async def test_the_newest_plan_is_the_one_that_is_replaced(tmp_path: Path):
    rounds = (plan_of(step("ann", "One.")), plan_of(step("ann", "Two.", 0), first=1))
    ann = worker("ann")
    async with open_parts(tmp_path, ann, plans=rounds) as parts:
        run = await parts.ask(rounds=2)
        run = await replaced(parts, run, step("ann", "Instead.", 0))
        run = await parts.go_on(run)
        assert subtasks_of(ann) == ["One.", "Two.", "Instead."]
        first, second, last = await parts.store.rounds(run.run_id)
        assert (first.plan, second.plan) == (
            rounds[0],
            plan_of(step("ann", "Instead.", 0), first=1),
        )
        assert last.number == 2
        assert run.answer_step == 1


# Another step.


async def test_editing_a_finished_step_makes_what_rests_on_it_stale_and_keeps_old_versions(
    tmp_path: Path,
):
    plan = plan_of(
        step("ann", "Zero."),
        step("ann", "One."),
        step("ann", "Two.", 1),
        reading_all("ann", "Three."),
        step("ann", "Four.", 0),
    )
    ann, bob = worker("ann", ["By ann."]), worker("bob", ["By bob."])
    async with open_parts(tmp_path, ann, bob, plans=[plan]) as parts:
        run = await parts.ask()
        forget(ann)
        edited = await edit_step(
            parts.orchestrator, run, 1, {"worker": "bob", "subtask": "One, again."}
        )
        assert edited.step(1) == step("bob", "One, again.")
        assert await statuses(parts, run) == ["finished", "stale", "stale", "stale", "finished"]

        run = await parts.go_on(run)
        assert (subtasks_of(ann), subtasks_of(bob)) == (["Two.", "Three."], ["One, again."])
        assert "By bob." in await parts.prompt(run, 2)
        versions = [
            (found.number, found.version, found.status, found.subtask)
            for found in await parts.store.steps(run.run_id, every_version=True)
            if found.number == 1
        ]
        assert versions == [(1, 0, "stale", "One."), (1, 1, "finished", "One, again.")]
        old = (await parts.store.steps(run.run_id, every_version=True))[1]
        assert old.reply == "By ann."
        assert len(await parts.store.calls(run.run_id)) == 8
        assert await parts.findings(run) == []


async def test_an_edit_after_acceptance_gets_a_new_acceptance(tmp_path: Path):
    ann = worker("ann", ["1.", "2.", "3.", "Another end."])
    async with open_parts(tmp_path, ann, plans=[LINE]) as parts:
        run = await parts.ask()
        assert (run.status, run.answer) == ("finished", "3.")
        await edit_step(parts.orchestrator, run, 2, {"subtask": "Three, otherwise."})
        opened = await parts.store.run(run.run_id)
        assert (opened.status, opened.answer, opened.answer_step) == ("planned", None, None)
        assert len(await parts.store.rounds(run.run_id)) == 1
        run = await parts.go_on(run)
        assert (run.status, run.answer) == ("finished", "Another end.")
        assert len(await parts.store.rounds(run.run_id)) == 2


async def test_an_edit_reaches_into_later_rounds(tmp_path: Path):
    rounds = (
        plan_of(step("ann", "One."), step("ann", "Two.")),
        plan_of(reading_all("ann", "Three."), step("ann", "Four.", 1), first=2),
    )
    ann = worker("ann")
    async with open_parts(tmp_path, ann, plans=rounds) as parts:
        run = await parts.ask(rounds=2)
        forget(ann)
        await edit_step(parts.orchestrator, run, 0, {"subtask": "One, again."})
        assert await statuses(parts, run) == ["stale", "finished", "stale", "finished"]
        run = await parts.go_on(run)
        assert subtasks_of(ann) == ["One, again.", "Three."]
        assert await parts.findings(run) == []


@pytest.mark.parametrize(
    ("number", "changes", "error"),
    [
        (3, {"subtask": "x"}, StepError),
        (0, {"worker": "zoe"}, PlanError),
        (0, {"worker": "podium"}, PlanError),
        (1, {"access": (1,)}, PlanError),
        (1, {"access": (-1,)}, PlanError),
    ],
)
async def test_an_edit_that_is_not_allowed_changes_nothing(
    tmp_path: Path, number: int, changes: dict[str, object], error: type[Exception]
):
    async with open_parts(tmp_path, worker("ann"), plans=[LINE]) as parts:
        run = await parts.ask()
        with pytest.raises(error):
            await edit_step(parts.orchestrator, run, number, changes)
        assert await parts.store.run(run.run_id) == run
        assert await statuses(parts, run) == ["finished"] * 3


# Step by step.


async def test_a_plan_is_walked_step_by_step_to_its_answer(tmp_path: Path):
    ann = worker("ann", ["1.", "2.", "3."])
    async with open_parts(tmp_path, ann, plans=[LINE]) as parts:
        run = await planned(parts)
        for number in range(3):
            result = await walk(parts, run)
            assert isinstance(result, StepResult)
            assert (result.number, result.reply) == (number, f"{number + 1}.")
        with pytest.raises(StepError, match="Every step of this run is done"):
            await walk(parts, run)
        again = await walk(parts, run, 1)  # a finished step is only shown
        assert isinstance(again, StepResult)
        assert (again.version, again.reply) == (0, "2.")
        run = await parts.go_on(run)
        assert (run.answer, len(ann.seen)) == ("3.", 3)


async def test_a_step_needs_what_it_reads(tmp_path: Path):
    async with open_parts(tmp_path, worker("ann"), plans=[LINE]) as parts:
        run = await planned(parts)
        with pytest.raises(StepError, match=r"reads steps \[0\].*run step 0 first"):
            await walk(parts, run, 1)
        with pytest.raises(StepError, match=r"reads steps \[1\]"):
            await walk(parts, run, 2, "My own.")
        with pytest.raises(StepError, match="no step 3; the run has 3 steps"):
            await walk(parts, run, 3)
        assert await parts.store.steps(run.run_id) == ()


async def test_a_run_without_a_plan_has_no_steps(tmp_path: Path):
    async with open_parts(tmp_path, worker("ann")) as parts:
        run = await parts.create(strategy="single")
        with pytest.raises(StepError):
            await walk(parts, run, 0)


async def test_the_caller_may_give_any_steps_result(tmp_path: Path):
    ann = worker("ann", ["Three."])
    async with open_parts(tmp_path, ann, plans=[LINE]) as parts:
        run = await planned(parts)
        await walk(parts, run, 0, "One, by me.")
        await walk(parts, run, None, "Two, by me.")
        run = await parts.go_on(run)
        assert subtasks_of(ann) == ["Three."]
        assert "Two, by me." in await parts.prompt(run, 2)
        first = await parts.step(run, 0)
        assert (first.worker, first.planned_worker, first.prompt) == (CALLER, "ann", "")
        assert await parts.findings(run) == []


async def test_a_callers_result_for_a_finished_step_makes_a_new_answer(tmp_path: Path):
    ann = worker("ann", ["1.", "2.", "3.", "2 again.", "3 again."])
    async with open_parts(tmp_path, ann, plans=[LINE]) as parts:
        run = await parts.ask()
        await walk(parts, run, 0, "Better.")
        assert await statuses(parts, run) == ["finished", "stale", "stale"]
        opened = await parts.store.run(run.run_id)
        assert (opened.status, opened.answer) == ("planned", None)
        run = await parts.go_on(run)
        assert (run.status, run.answer) == ("finished", "3 again.")
        versions = await parts.store.steps(run.run_id, every_version=True)
        assert [(v.number, v.version, v.worker) for v in versions] == [
            (0, 0, "ann"),
            (0, 1, CALLER),
            (1, 0, "ann"),
            (1, 1, "ann"),
            (2, 0, "ann"),
            (2, 1, "ann"),
        ]
        assert await parts.findings(run) == []


async def test_a_failed_step_that_is_run_again_makes_a_new_answer(tmp_path: Path):
    plan = plan_of(step("ann", "Bad."), step("ann", "Good."), step("ann", "Join.", 0, 1))
    ann = worker("ann", by_subtask({"Bad.": REFUSED, "Join.": "Half of it."}))
    async with open_parts(tmp_path, ann, plans=[plan]) as parts:
        run = await parts.ask()
        assert run.answer == "Half of it."
    better = worker("ann", by_subtask({"Bad.": "Good now.", "Join.": "All of it."}))
    async with open_parts(tmp_path, better, plans=[plan]) as parts:
        await walk(parts, run, 0)
        assert await statuses(parts, run) == ["finished", "finished", "stale"]
        run = await parts.go_on(run)
        assert (run.answer, run.notes) == ("All of it.", ())
        assert subtasks_of(better) == ["Bad.", "Join."]
        assert await parts.findings(run) == []


async def test_a_step_of_the_caller_says_what_it_asks(tmp_path: Path):
    plan = plan_of(step("ann", "One."), step(CALLER, "Look at it.", 0))
    async with open_parts(tmp_path, worker("ann"), plans=[plan]) as parts:
        run = await planned(parts)
        await walk(parts, run)
        assert await walk(parts, run) == Waiting(kind="caller", step=1, ask="Look at it.")
        await walk(parts, run, 1, "It is red.")
        run = await parts.go_on(run)
        assert (run.answer, run.answer_step) == ("It is red.", 1)


async def test_a_single_step_falls_back_and_keeps_to_the_limit(tmp_path: Path):
    ann, bob = worker("ann", [REFUSED]), worker("bob", ["Bob did it."])
    async with open_parts(tmp_path, ann, bob, plans=[LINE]) as parts:
        run = await planned(parts)
        result = await walk(parts, run)
        assert isinstance(result, StepResult)
        assert (result.worker, result.failures[0].worker) == ("bob", "ann")

    async def hang(prompt: object) -> str:
        await anyio.sleep_forever()
        return ""

    slow = worker("ann", hang)
    plan = Plan(steps=LINE.steps)
    folder = tmp_path / "slow"
    folder.mkdir()
    async with open_parts(folder, slow, plans=[plan]) as parts:
        run = await planned(parts, max_seconds=0.2)
        result = await walk(parts, run)
        assert isinstance(result, StepResult)
        assert (result.status, result.failures[0].code) == ("failed", "timeout")
