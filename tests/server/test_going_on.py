"""A run that was cut short goes on where it stood, and nothing is paid twice (T39)."""

from pathlib import Path

import anyio
from tests.core_parts import (
    HANGING_S,
    NO_KEY,
    REFUSED,
    by_subtask,
    hanging,
    open_parts,
    plan_of,
    reading_all,
    step,
    subtasks_of,
    text_of,
    worker,
    written,
)

from podium_workers.scripted import Line
from podium_workers.worker import Prompt


async def test_t39_work_goes_on_where_it_stood_and_nothing_is_paid_twice(tmp_path: Path):
    began = anyio.Event()
    plan = plan_of(step("ann", "One."), step("ann", "Two.", 0), reading_all("ann", "Three."))
    hung = worker("ann", by_subtask({"One.": "It is one.", "Two.": hanging(began)}))
    async with open_parts(tmp_path, hung, plans=[plan]) as parts:
        run = await parts.stop_when(await parts.create(), began)
        assert (run.status, run.answer) == ("interrupted", None)

    ann = worker("ann", ["Two is done.", "Three is done."])
    async with open_parts(tmp_path, ann, plans=[plan]) as parts:
        again = await parts.go_on(run)
        assert (again.status, again.answer) == ("finished", "Three is done.")
        assert subtasks_of(ann) == ["Two.", "Three."]
        assert ann.seen[0] == hung.seen[1]  # the same prompt, the same fence
        assert (again.fence, again.seed) == (run.fence, run.seed)
        assert [setting.seed for setting in ann.asked] == [run.seed + 1, run.seed + 2]
        versions = await parts.store.steps(run.run_id, every_version=True)
        assert [(v.number, v.version, v.status) for v in versions] == [
            (0, 0, "finished"),
            (1, 0, "stopped"),
            (1, 1, "finished"),
            (2, 0, "finished"),
        ]
        assert len(await parts.store.calls(run.run_id)) == 4
        assert await parts.findings(run) == []


async def test_a_plan_that_was_written_is_not_asked_for_again(tmp_path: Path):
    began = anyio.Event()

    async def script(prompt: Prompt) -> Line:
        if text_of(prompt).startswith("You lead a team"):
            return written(("ann", "Work.", []))
        return await hanging(began)()

    async with open_parts(tmp_path, worker("ann", script)) as parts:
        run = await parts.stop_when(await parts.create(strategy="conductor"), began)
    ann = worker("ann", ["It works."])
    async with open_parts(tmp_path, ann) as parts:
        run = await parts.go_on(run)
        assert (run.answer, len(ann.seen)) == ("It works.", 1)


async def test_a_failed_step_is_tried_again_when_work_goes_on(tmp_path: Path):
    plan = plan_of(step("ann", "One."), step("ann", "Two.", 0))
    async with open_parts(tmp_path, worker("ann", [NO_KEY]), plans=[plan]) as parts:
        run = await parts.ask()
        assert run.status == "failed"
    ann = worker("ann", ["One.", "Two."])
    async with open_parts(tmp_path, ann, plans=[plan]) as parts:
        run = await parts.go_on(run)
        assert (run.status, run.answer, run.error) == ("finished", "Two.", None)
        assert run.notes == ()
        versions = await parts.store.steps(run.run_id, every_version=True)
        assert [(v.number, v.version, v.status) for v in versions] == [
            (0, 0, "stale"),
            (0, 1, "finished"),
            (1, 0, "stale"),
            (1, 1, "finished"),
        ]


async def test_a_failed_step_stays_failed_when_a_finished_one_was_done_without_it(tmp_path: Path):
    """Else the finished one would have to be paid again, or its prompt would be a lie."""
    began = anyio.Event()
    plan = plan_of(
        step("ann", "Bad."),
        step("ann", "Good."),
        step("ann", "Join.", 0, 1),
        step("ann", "Hang.", 2),
    )
    ann = worker("ann", by_subtask({"Bad.": REFUSED, "Hang.": hanging(began)}))
    async with open_parts(tmp_path, ann, plans=[plan]) as parts:
        run = await parts.stop_when(await parts.create(), began)
    again = worker("ann", ["The end."])
    async with open_parts(tmp_path, again, plans=[plan]) as parts:
        run = await parts.go_on(run)
        assert run.answer == "The end."
        assert subtasks_of(again) == ["Hang."]
        assert (await parts.step(run, 0)).status == "failed"
        assert f"Step 0 failed. ann: {REFUSED.message}" in run.notes
        assert await parts.findings(run) == []


async def test_a_partial_run_goes_on_to_its_answer(tmp_path: Path):
    plan = plan_of(step("ann", "Quick."), step("ann", "Slow.", 0))
    hung = worker("ann", by_subtask({"Slow.": hanging()}))
    async with open_parts(tmp_path, hung, plans=[plan]) as parts:
        run = await parts.ask(max_seconds=HANGING_S)
        assert run.status == "partial"
    ann = worker("ann", ["In the end."])
    async with open_parts(tmp_path, ann, plans=[plan]) as parts:
        again = await parts.go_on(run)
        assert again.status == "partial", "its seconds are used up, and stay so"
        await parts.store.set_limits(run.run_id, {"max_seconds": None})
        run = await parts.go_on(run)
        assert (run.status, run.answer, run.notes) == ("finished", "In the end.", ())
        assert subtasks_of(ann) == ["Slow."]


async def test_the_error_of_an_earlier_try_does_not_outlive_it(tmp_path: Path):
    plan = plan_of(step("ann", "Quick."), step("ann", "Slow.", 0))
    async with open_parts(tmp_path, worker("ann", [REFUSED]), plans=[plan]) as parts:
        run = await parts.ask(max_seconds=HANGING_S)
        assert run.error is not None
    hung = worker("ann", by_subtask({"Slow.": hanging()}))
    async with open_parts(tmp_path, hung, plans=[plan]) as parts:
        run = await parts.go_on(run)
        assert (run.status, run.answer, run.error) == ("partial", "Done.", None)


async def test_cancelled_at_once_a_run_is_interrupted(tmp_path: Path):
    async with open_parts(tmp_path, worker("ann")) as parts:
        run = await parts.create(strategy="single")
        with anyio.CancelScope() as scope:
            scope.cancel()
            await parts.orchestrator.answer(run, parts.observe)
        assert (await parts.store.run(run.run_id)).status == "interrupted"
