"""The conductor as its own worker: nested runs, what they cost and how they go on."""

from pathlib import Path

import anyio
from tests.core_parts import (
    REFUSED,
    by_subtask,
    conducting,
    file,
    nesting,
    open_parts,
    plan_of,
    reading_all,
    step,
    subtasks_of,
    text_of,
    worker,
    written,
)

from podium.plan import PODIUM
from podium.revision import edit_step
from podium.views import full_receipt
from podium_workers.scripted import Line
from podium_workers.worker import Price, Prompt


async def test_a_nested_step_is_a_run_of_its_own_one_level_less_deep(tmp_path: Path):
    outer = written(("podium", "Solve the hard part.", []), ("ann", "Say it.", [0]))
    inner = written(("ann", "Think.", []))

    def script(prompt: Prompt) -> Line:
        if not conducting(prompt):
            return "The hard part is 7." if "Think." in text_of(prompt) else "It is 7."
        return inner if "Solve the hard part." in text_of(prompt) else outer

    ann = worker("ann", script)
    async with open_parts(tmp_path, ann) as parts:
        run = await parts.ask(strategy="conductor", depth=1)

        assert run.answer == "It is 7."
        (child,) = await parts.store.children(run.run_id)
        nested = await parts.step(run, 0)
        assert (nested.worker, nested.nested_run) == (PODIUM, child.run_id)
        assert nested.reply == child.answer == "The hard part is 7."
        assert (child.parent_id, child.request.depth, child.principal) == (run.run_id, 0, "me")
        assert "- podium:" in text_of(ann.seen[0])
        assert "- podium:" not in text_of(ann.seen[1])
        assert await parts.findings(run) == []


async def test_a_nested_run_is_counted_once(tmp_path: Path):
    inner = plan_of(step("ann", "Think."))
    outer = plan_of(step(PODIUM, "Hard."), step("ann", "Easy.", 0))
    ann = worker("ann", card={"price": Price(input=2.0, output=8.0)})
    async with open_parts(tmp_path, ann, policies=nesting(inner, outer)) as parts:
        run = await parts.ask(depth=1)
        (child,) = await parts.store.children(run.run_id)
        own, nested = [(await parts.store.calls(one.run_id))[0].usage for one in (run, child)]
        paid = await full_receipt(parts.store, run)
        assert paid.total == await parts.store.usage(run.run_id) == own + nested
        assert (await parts.step(run, 0)).usage == paid.steps[0].usage == nested
        assert paid.steps[1].usage == own
        assert paid.total.cost_usd is not None
        assert paid.total.cost_usd > 0


async def test_a_nested_run_holds_no_place_of_a_worker_meanwhile(tmp_path: Path):
    inner = plan_of(step("ann", "Think."))
    middle = plan_of(step(PODIUM, "Deeper."), step("ann", "Say it.", 0))
    outer = plan_of(step(PODIUM, "Hard."), step(PODIUM, "Harder."), step("ann", "Join.", 0, 1))
    ann = worker("ann", card={"parallel": 1})
    async with open_parts(tmp_path, ann, policies=nesting(inner, middle, outer)) as parts:
        run = await parts.ask(depth=2)
        assert run.status == "finished"
        assert sorted(subtasks_of(ann)) == ["Join.", "Say it.", "Say it.", "Think.", "Think."]


async def test_nested_steps_that_ask_the_same_have_a_run_each(tmp_path: Path):
    inner = plan_of(step("ann", "Think."))
    outer = plan_of(*[step(PODIUM, "Guess.")] * 3, reading_all("ann", "Vote."))
    async with open_parts(tmp_path, worker("ann"), policies=nesting(inner, outer)) as parts:
        run = await parts.ask(depth=1)
        children = await parts.store.children(run.run_id)
        used = [(await parts.step(run, number)).nested_run for number in range(3)]
        assert sorted(child.run_id for child in children) == sorted(map(str, used))
        assert len(set(used)) == 3
        assert all(child.status == "finished" for child in children)


async def test_a_nested_run_that_fails_is_stood_in_for_by_a_worker(tmp_path: Path):
    inner = plan_of(step("ann", "Think."))
    outer = plan_of(step(PODIUM, "Hard."))
    ann = worker("ann", by_subtask({"Think.": REFUSED}, "Done without a team."))
    async with open_parts(tmp_path, ann, policies=nesting(inner, outer)) as parts:
        run = await parts.ask(depth=1)
        result = await parts.step(run, 0)
        assert (result.worker, result.planned_worker) == ("ann", PODIUM)
        (why,) = result.failures
        assert (why.worker, why.code) == (PODIUM, "pool")
        assert REFUSED.message in why.message
        assert run.answer == "Done without a team."
        # What the failed nested run cost is part of the total.
        (child,) = await parts.store.children(run.run_id)
        assert child.status == "failed"
        paid = await full_receipt(parts.store, run)
        assert paid.total == await parts.store.usage(run.run_id)


async def test_nested_steps_that_ask_the_same_go_on_with_their_own_runs(tmp_path: Path):
    inner = plan_of(step("ann", "Think."))
    outer = plan_of(*[step(PODIUM, "Guess.")] * 2, reading_all("ann", "Vote."))
    first, second = anyio.Event(), anyio.Event()

    async def hang() -> Line:
        (second if first.is_set() else first).set()
        await anyio.sleep_forever()
        return ""

    hung = worker("ann", by_subtask({"Think.": hang}))
    async with open_parts(tmp_path, hung, policies=nesting(inner, outer)) as parts:
        run = await parts.stop_when(await parts.create(depth=1), second)
    ann = worker("ann")
    async with open_parts(tmp_path, ann, policies=nesting(inner, outer)) as parts:
        run = await parts.go_on(run)
        children = await parts.store.children(run.run_id)
        assert [child.status for child in children] == ["finished", "finished"]
        used = {(await parts.step(run, number)).nested_run for number in (0, 1)}
        assert used == {child.run_id for child in children}
        assert sorted(subtasks_of(ann)) == ["Think.", "Think.", "Vote."]


async def test_t39_a_nested_run_that_was_paid_is_used_when_work_goes_on(tmp_path: Path):
    inner, outer = plan_of(step("ann", "Think.")), plan_of(step(PODIUM, "Hard."))
    ann = worker("ann")
    async with open_parts(tmp_path, ann, policies=nesting(inner, outer)) as parts:
        run = await parts.ask(depth=1)
        done = await parts.step(run, 0)
        # As if the process had died between the two.
        lost = done.model_copy(update={"status": "running", "reply": "", "nested_run": None})
        await parts.store.save_step(run.run_id, lost)

        run = await parts.go_on(run)
        assert subtasks_of(ann) == ["Think."]
        (child,) = await parts.store.children(run.run_id)
        again = await parts.step(run, 0)
        assert (again.reply, again.nested_run) == (done.reply, child.run_id)
        assert run.answer == done.reply


async def test_a_nested_step_that_is_edited_is_a_new_nested_run(tmp_path: Path):
    inner, outer = plan_of(step("ann", "Think.")), plan_of(step(PODIUM, "Hard."))
    async with open_parts(tmp_path, worker("ann"), policies=nesting(inner, outer)) as parts:
        run = await parts.ask(depth=1)
        await edit_step(parts.orchestrator, run, 0, {})
        run = await parts.go_on(run)
        assert len(await parts.store.children(run.run_id)) == 2


async def test_a_nested_run_has_room_for_a_prompt_that_had_to_be_shortened(tmp_path: Path):
    inner, outer = plan_of(step("ann", "Think.")), plan_of(step(PODIUM, "Read it."))
    ann = worker(
        "ann", ["I have read it."], card={"context_window": 2048, "max_output_tokens": 512}
    )
    async with open_parts(tmp_path, ann, policies=nesting(inner, outer)) as parts:
        run = await parts.ask(depth=1, files=(file("log.txt", "line\n" * 4000),))
        result = await parts.step(run, 0)
        assert (result.worker, result.failures) == (PODIUM, ())
        (cut,) = result.cuts
        assert cut.part == "file:log.txt"
        assert await parts.findings(run) == []
