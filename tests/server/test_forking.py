"""Forks: what is taken over from a run, what is done again, and by whom."""

from pathlib import Path

import pytest
from tests.core_parts import (
    REFUSED,
    Parts,
    by_subtask,
    conductor,
    nesting,
    open_parts,
    plan_of,
    reading_all,
    step,
    subtasks_of,
    worker,
    written,
)

from podium.errors import PlanError, RunError, StepError
from podium.forking import fork
from podium.plan import Accept, Plan
from podium.trace import Run
from podium_workers.scripted import ScriptedWorker

PLAN = plan_of(
    step("ann", "Draft."),
    step("ann", "Doubt."),
    step("ann", "Revise.", 0),
    step("ann", "Conclude.", 1, 2),
)


def ann(**replies: str) -> ScriptedWorker:
    return worker("ann", by_subtask(replies, "Ann's."))


def bob() -> ScriptedWorker:
    return worker("bob", ["Bob's."])


async def forked(parts: Parts, run: Run, number: int, **changes: object) -> Run:
    """The fork, carried on to its end."""
    return await parts.go_on(await fork(parts.orchestrator, run, number, changes))


async def test_only_the_step_and_what_rests_on_it_is_done_again(tmp_path: Path):
    first, other = ann(), bob()
    async with open_parts(tmp_path, first, other, plans=[PLAN]) as parts:
        run = await parts.ask()
        seen = len(first.seen)
        again = await forked(parts, run, 2, worker="bob")
        assert again.run_id != run.run_id
        assert again.status == "finished"
        assert subtasks_of(other) == ["Revise."]
        assert subtasks_of(first)[seen:] == ["Conclude."]
        taken = {r.number: r.taken_from for r in await parts.store.steps(again.run_id)}
        assert taken == {0: run.run_id, 1: run.run_id, 2: None, 3: None}
        assert "Bob's." in await parts.prompt(again, 3)


async def test_a_fork_keeps_question_files_and_seed_and_says_what_it_is_of(tmp_path: Path):
    async with open_parts(tmp_path, ann(), bob(), plans=[PLAN]) as parts:
        before = await parts.ask("First?")
        run = await parts.ask("Second?", follow_up=before.run_id)
        again = await forked(parts, run, 3)
        assert again.request == run.request
        assert (again.seed, again.fence, again.principal) == (run.seed, run.fence, run.principal)
        assert again.forked_from == run.run_id
        assert run.forked_from is None
        stored = await parts.store.run(again.run_id)
        assert stored.forked_from == run.run_id
        assert stored.request == run.request


async def test_a_fork_pays_only_for_what_it_did_and_verifies(tmp_path: Path):
    async with open_parts(tmp_path, ann(), bob(), plans=[PLAN]) as parts:
        run = await parts.ask()
        again = await forked(parts, run, 2, worker="bob", subtask="Rewrite.")
        calls = await parts.store.calls(again.run_id)
        assert {call.step for call in calls} == {2, 3}
        paid = await parts.store.usage(again.run_id)
        assert paid == sum((call.usage for call in calls), type(paid)())
        assert not await parts.findings(again)
        assert not await parts.findings(run)


async def test_the_first_run_stays_as_it_was(tmp_path: Path):
    async with open_parts(tmp_path, ann(), bob(), plans=[PLAN]) as parts:
        run = await parts.ask()
        rounds = await parts.store.rounds(run.run_id)
        await forked(parts, run, 0, worker="bob")
        assert await parts.store.run(run.run_id) == run
        assert await parts.store.rounds(run.run_id) == rounds


async def test_a_changed_plan_is_the_users_and_an_unchanged_one_is_not(tmp_path: Path):
    async with open_parts(tmp_path, ann(), bob(), plans=[PLAN]) as parts:
        run = await parts.ask()
        changed = await forked(parts, run, 1, worker="bob")
        same = await forked(parts, run, 1)
        sources = [
            (await parts.store.rounds(found.run_id))[0].proposal.source for found in (changed, same)
        ]
        assert sources == ["caller", "fixed"]


async def test_later_rounds_are_proposed_anew(tmp_path: Path):
    second = plan_of(reading_all("ann", "Improve."), first=4)
    async with open_parts(tmp_path, ann(), bob(), plans=[PLAN, second]) as parts:
        run = await parts.ask(rounds=2)
        made = await fork(parts.orchestrator, run, 3, {"worker": "bob"})
        assert len(await parts.store.rounds(made.run_id)) == 1
        again = await parts.go_on(made)
        rounds = await parts.store.rounds(again.run_id)
        assert [type(found.proposal.next) for found in rounds] == [Plan, Plan, Accept]
        assert "Bob's." in await parts.prompt(again, 4)


async def test_a_step_of_a_later_round_keeps_the_rounds_before_it(tmp_path: Path):
    second = plan_of(reading_all("ann", "Improve."), first=4)
    other = bob()
    async with open_parts(tmp_path, ann(), other, plans=[PLAN, second]) as parts:
        run = await parts.ask(rounds=2)
        again = await forked(parts, run, 4, worker="bob")
        assert again.answer == "Bob's."
        assert subtasks_of(other) == ["Improve."]
        assert not await parts.findings(again)


async def test_the_conductor_is_not_asked_for_the_plan_again(tmp_path: Path):
    boss = conductor(written(("boss", "Draft.", []), ("boss", "Conclude.", [0])))
    async with open_parts(tmp_path, boss, bob()) as parts:
        run = await parts.ask(strategy="conductor")
        again = await forked(parts, run, 1, worker="bob")
        assert again.answer == "Bob's."
        assert all(call.step is not None for call in await parts.store.calls(again.run_id))


async def test_a_fork_of_a_fork_says_who_did_each_step_first(tmp_path: Path):
    async with open_parts(tmp_path, ann(), bob(), plans=[PLAN]) as parts:
        run = await parts.ask()
        second = await forked(parts, run, 2, worker="bob")
        third = await forked(parts, second, 3, worker="bob")
        taken = [result.taken_from for result in await parts.store.steps(third.run_id)]
        assert taken == [run.run_id, run.run_id, second.run_id, None]


async def test_a_run_that_broke_off_can_be_forked_and_its_failed_steps_are_tried_again(
    tmp_path: Path,
):
    failing = worker("ann", by_subtask({"Doubt.": REFUSED}, "Ann's."))
    plan = Plan(steps=PLAN.steps[:2])
    async with open_parts(tmp_path, failing, plans=[plan]) as parts:
        run = await parts.ask()
        assert (await parts.step(run, 1)).status == "failed"
    other = bob()
    async with open_parts(tmp_path, ann(), other, plans=[plan]) as parts:
        again = await forked(parts, run, 0, worker="bob")
        assert (await parts.step(again, 1)).finished
        assert subtasks_of(other) == ["Draft."]


async def test_a_step_that_was_done_by_a_nested_run_is_taken_over_without_it(tmp_path: Path):
    nested = plan_of(step("podium", "All of it."), step("ann", "Conclude.", 0))
    inner = plan_of(step("ann", "Inside."))
    async with open_parts(tmp_path, ann(), bob(), policies=nesting(inner, nested)) as parts:
        run = await parts.ask(depth=1)
        again = await forked(parts, run, 1, worker="bob")
        assert (again.status, again.answer) == ("finished", "Bob's.")
        assert not await parts.store.children(again.run_id)
        assert (await parts.step(again, 0)).nested_run is None


@pytest.mark.parametrize(
    ("number", "changes", "error"),
    [
        (9, {}, StepError),
        (0, {"worker": "nobody"}, PlanError),
        (0, {"worker": "podium"}, PlanError),
    ],
)
async def test_what_cannot_be_forked_is_an_error_and_leaves_no_run(
    tmp_path: Path, number: int, changes: dict[str, object], error: type[Exception]
):
    async with open_parts(tmp_path, ann(), bob(), plans=[PLAN]) as parts:
        run = await parts.ask()
        with pytest.raises(error):
            await fork(parts.orchestrator, run, number, changes)
        assert len(await parts.store.summaries(principal="me", limit=10)) == 1


async def test_a_run_without_a_plan_has_nothing_to_fork(tmp_path: Path):
    async with open_parts(tmp_path, ann(), plans=[PLAN]) as parts:
        with pytest.raises(RunError, match="no plan"):
            await fork(parts.orchestrator, await parts.create(), 0, {})
