"""The one loop: what is refused before it is paid, how a run ends, and how it goes on."""

import math
from pathlib import Path

import anyio
import pytest
from tests.core_parts import (
    BOUND_S,
    HANGING_S,
    NO_KEY,
    REFUSED,
    ByDepth,
    by_subtask,
    hanging,
    open_parts,
    plan_of,
    step,
    text_of,
    worker,
    written,
)

from podium.errors import PodiumError, PoolError, QuestionError
from podium.plan import CALLER, PODIUM
from podium.trace import Run, RunRequest
from podium_workers.scripted import Line
from podium_workers.worker import Prompt

# What is refused.


@pytest.mark.parametrize("question", [" ", "\n\t \u3000"])
async def test_an_empty_question_is_refused(tmp_path: Path, question: str):
    async with open_parts(tmp_path, worker("ann")) as parts:
        with pytest.raises(QuestionError) as caught:
            await parts.create(question)
        assert caught.value.field == "question"
        assert await parts.store.summaries() == ()


async def test_an_unknown_strategy_is_refused_with_those_that_there_are(tmp_path: Path):
    async with open_parts(tmp_path, worker("ann")) as parts:
        with pytest.raises(QuestionError, match="chain, conductor, given, single") as caught:
            await parts.create(strategy="tree")
        assert caught.value.field == "strategy"


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        ({"workers": ("anm",)}, "did you mean 'ann'"),
        ({"exclude": ("bop",)}, "did you mean 'bob'"),
        ({"exclude": ("ann", "bob")}, "No worker of the pool is left"),
        ({"workers": ("bob",), "local_only": True}, "No worker of the pool is left"),
        ({"workers": ("ann",), "conductor": "bob"}, "'bob' is not in this run's pool; it has ann"),
    ],
)
async def test_a_choice_of_workers_that_cannot_be_met_is_refused(
    tmp_path: Path, request_: dict[str, object], says: str
):
    bob = worker("bob", card={"where": "hosted"})
    async with open_parts(tmp_path, worker("ann"), bob) as parts:
        with pytest.raises(PoolError, match=says):
            await parts.create("Why?", **request_)
        assert await parts.store.summaries() == ()


async def test_a_question_that_no_worker_could_read_is_refused_before_it_is_paid(tmp_path: Path):
    small = {"context_window": 1024, "max_output_tokens": 256}
    big = worker("big", card={"context_window": 4096, "max_output_tokens": 512})
    async with open_parts(tmp_path, worker("small", card=small), big) as parts:
        with pytest.raises(QuestionError, match=r"roomiest worker \(big\)") as caught:
            await parts.create("many words " * 2000)
        assert caught.value.field == "question"
        run = await parts.ask("many words " * 700, strategy="single", workers=("big",))
        assert run.status == "finished"


async def test_a_question_that_is_let_in_can_be_answered(tmp_path: Path):
    """The largest question that is not refused fits into the worker's prompt."""
    card = {"context_window": 2048, "max_output_tokens": 512}
    async with open_parts(tmp_path, worker("ann", card=card)) as parts:
        low, high = 1, 2000
        while low < high:
            middle = (low + high + 1) // 2
            try:
                run = await parts.create("word " * middle, strategy="single")
                low = middle
            except QuestionError:
                high = middle - 1
        run = await parts.ask("word " * low, strategy="single")
        assert run.status == "finished"
        assert low > 800


# How a run ends.


async def test_a_run_is_recorded_from_question_to_answer(tmp_path: Path):
    plan = plan_of(step("ann", "Think."), step("bob", "Say it.", 0))
    ann, bob = worker("ann"), worker("bob", ["Because."])
    async with open_parts(tmp_path, ann, bob, plans=[plan]) as parts:
        made = await parts.create("Why?")
        assert (made.status, made.started_at) == ("planned", None)
        run = await parts.go_on(made)

        assert run == await parts.store.run(run.run_id)
        assert (run.status, run.answer, run.answer_step) == ("finished", "Because.", 1)
        assert (run.error, run.notes, run.principal) == (None, (), "me")
        assert [card.name for card in run.pool] == ["ann", "bob"]
        assert run.finished_at is not None
        assert run.started_at is not None
        assert made.created_at <= run.started_at <= run.finished_at
        first, second = await parts.store.rounds(run.run_id)
        assert (first.plan, second.plan) == (plan, None)
        assert [result.status for result in first.results] == ["finished", "finished"]
        calls = await parts.store.calls(run.run_id)
        assert [(call.step, call.version, call.status) for call in calls] == [
            (0, 0, "finished"),
            (1, 0, "finished"),
        ]
        assert await parts.store.text(calls[1].reply or "") == "Because."
        assert [event.kind for event in parts.events] == [
            "planning",
            "plan",
            "step_started",
            "step_finished",
            "step_started",
            "step_finished",
            "planning",
            "accepted",
            "finished",
        ]
        assert {event.run_id for event in parts.events} == {run.run_id}


async def test_a_failed_last_step_leaves_the_newest_reply_as_the_answer_and_says_so(
    tmp_path: Path,
):
    plan = plan_of(step("ann", "One."), step("ann", "Two."), step("ann", "Three.", 0, 1))
    ann = worker("ann", by_subtask({"Two.": "It is two.", "Three.": REFUSED}))
    async with open_parts(tmp_path, ann, plans=[plan]) as parts:
        run = await parts.ask()
        assert (run.status, run.answer, run.answer_step) == ("finished", "It is two.", 1)
        assert run.notes == (
            "The last step gave no reply; this is the reply of step 1.",
            f"Step 2 failed. ann: {REFUSED.message}",
        )


async def test_when_nothing_has_finished_a_run_fails_with_every_workers_reason(tmp_path: Path):
    plan = plan_of(step("ann", "One."), step("bob", "Two.", 0))
    ann, bob = worker("ann", [REFUSED]), worker("bob", [NO_KEY])
    async with open_parts(tmp_path, ann, bob, plans=[plan]) as parts:
        run = await parts.ask()
        assert (run.status, run.answer) == ("failed", None)
        assert run.error is not None
        assert f"ann: {REFUSED.message}" in run.error.message
        assert f"bob: {NO_KEY.message}" in run.error.message
        assert run.finished_at is not None
        assert [event.kind for event in parts.events][-1] == "failed"


async def test_t09_a_time_limit_ends_a_run_with_the_best_answer_so_far(tmp_path: Path):
    plan = plan_of(step("ann", "Quick."), step("ann", "Slow.", 0), step("ann", "Last.", 1))
    ann = worker("ann", by_subtask({"Quick.": "A first answer.", "Slow.": hanging()}))
    async with open_parts(tmp_path, ann, plans=[plan]) as parts:
        run = await parts.ask(max_seconds=HANGING_S)
        assert (run.status, run.answer, run.answer_step) == ("partial", "A first answer.", 0)
        assert run.notes[0] == (
            f"The limit of {HANGING_S} seconds struck. Raise max_seconds to go on. 2 planned steps "
            "were not done. "
            "This is the best answer so far."
        )
        assert (await parts.step(run, 1)).status in ("stopped", "failed")
        assert [event.kind for event in parts.events][-1] == "finished"


@pytest.mark.parametrize("subtask", ["planning", "working"])
async def test_t04_a_time_limit_before_anything_has_finished_is_a_failure(
    tmp_path: Path, subtask: str
):
    async def script(prompt: Prompt) -> Line:
        if text_of(prompt).startswith("You lead a team") and subtask == "working":
            return written(("ann", "Work.", []))
        await anyio.sleep_forever()
        return ""

    async with open_parts(tmp_path, worker("ann", script), worker("bob", script)) as parts:
        run = await parts.ask(strategy="conductor", max_seconds=HANGING_S)
        assert (run.status, run.answer) == ("failed", None)
        assert run.error is not None
        assert run.error.message == (
            f"The limit of {HANGING_S} seconds struck. Raise max_seconds to go on. "
            "No step had finished before that."
        )


async def test_a_limit_of_the_parent_bounds_a_nested_run(tmp_path: Path):
    inner = plan_of(step("ann", "Hang."))
    outer = plan_of(step("ann", "Quick."), step(PODIUM, "Hard.", 0))
    ann = worker("ann", by_subtask({"Hang.": hanging()}))
    policies = {"given": ByDepth({0: inner, 1: outer})}
    async with open_parts(tmp_path, ann, policies=policies) as parts:
        run = await parts.ask(depth=1, max_seconds=HANGING_S)
        assert (run.status, run.answer) == ("partial", "Done.")
        (child,) = await parts.store.children(run.run_id)
        assert child.status in ("failed", "interrupted")
        assert child.request.max_seconds is not None
        assert child.request.max_seconds <= HANGING_S


async def test_a_nested_run_that_goes_on_has_its_parents_new_time(tmp_path: Path):
    began = anyio.Event()
    replies = {"Hang.": hanging(began)}
    policies = {"given": ByDepth({0: plan_of(step("ann", "Hang.")), 1: plan_of(step(PODIUM, "x"))})}
    ann = worker("ann", by_subtask(replies))
    async with open_parts(tmp_path, ann, policies=policies) as parts:
        run = await parts.ask(depth=1, max_seconds=HANGING_S)
        assert run.status == "failed"
    ann = worker("ann", ["At last."])
    async with open_parts(tmp_path, ann, policies=policies) as parts:
        # The user waits longer this time.
        await parts.store.set_limits(run.run_id, {"max_seconds": None})
        run = await parts.go_on(run)
        assert (run.status, run.answer, run.error) == ("finished", "At last.", None)
        (child,) = await parts.store.children(run.run_id)
        assert child.status == "finished"


# Planning alone.


async def test_a_plan_is_made_once_and_nothing_of_it_is_carried_out(tmp_path: Path):
    ann = worker("ann", [written(("ann", "Do it.", []))])
    async with open_parts(tmp_path, ann) as parts:
        run = await parts.create(strategy="conductor")
        first = await parts.orchestrator.plan(run, parts.observe)
        again = await parts.orchestrator.plan(run, parts.observe)
        assert first == again
        assert len(ann.seen) == 1
        assert (await parts.store.run(run.run_id)).status == "planned"
        assert await parts.store.steps(run.run_id) == ()


async def test_a_plan_that_cannot_be_made_is_an_error_and_a_failed_run(tmp_path: Path):
    async with open_parts(tmp_path, worker("ann", [NO_KEY])) as parts:
        run = await parts.create(strategy="conductor")
        with pytest.raises(PodiumError, match="key is wrong"):
            await parts.orchestrator.plan(run, parts.observe)
        run = await parts.store.run(run.run_id)
        assert run.status == "failed"
        assert run.error is not None
        assert run.error.code == "authentication"


# What a request allows.


async def test_the_choice_of_workers_binds_planning_fallback_and_nested_runs(tmp_path: Path):
    def script(prompt: Prompt) -> Line:
        if not text_of(prompt).startswith("You lead a team"):
            return REFUSED if "Fail." in text_of(prompt) else "Done."
        if "The hard part." in text_of(prompt):
            return written(("cy", "Fail.", []), ("cy", "Say so.", []))
        return written(("podium", "The hard part.", []), ("cy", "Fail.", []), ("cy", "End.", "all"))

    far, out = worker("far", script, card={"where": "hosted"}), worker("out", script)
    bob, cy = worker("bob", script), worker("cy", script)
    async with open_parts(tmp_path, far, out, bob, cy) as parts:
        run = await parts.ask(
            strategy="conductor",
            depth=1,
            workers=("far", "out", "cy", "bob"),
            exclude=("out",),
            local_only=True,
        )
        assert run.status == "finished"
        assert [card.name for card in run.pool] == ["bob", "cy"]
        (child,) = await parts.store.children(run.run_id)
        assert child.pool == run.pool
        assert far.seen == out.seen == []
        failed = [(await parts.step(one, 1 if one is run else 0)) for one in (run, child)]
        for result in failed:
            assert {it.worker for it in result.failures} == {"bob", "cy"}


# Follow-ups.


async def test_a_follow_up_puts_the_earlier_exchange_into_every_prompt(tmp_path: Path):
    plan = plan_of(step("ann", "Think."), step("ann", "Say.", 0))
    async with open_parts(tmp_path, worker("ann", ["A swan."]), plans=[plan]) as parts:
        first = await parts.ask("Which bird?")
        second = await parts.ask("How large?", follow_up=first.run_id[:8])
        third = await parts.ask("How old?", follow_up=second.run_id)

        assert second.request.follow_up == first.run_id
        exchange = "Question: Which bird?\n\nAnswer: A swan."
        for number in (0, 1):
            prompt = await parts.prompt(second, number)
            assert f"<earlier_{second.fence}>\n{exchange}\n</earlier_{second.fence}>" in prompt
        both = f"{exchange}\n\nQuestion: How large?\n\nAnswer: A swan."
        assert f"\n{both}\n" in await parts.prompt(third, 0)
        assert await parts.findings(third) == []


async def test_a_run_that_cannot_be_followed_up_is_refused(tmp_path: Path):
    async with open_parts(tmp_path, worker("ann")) as parts:
        theirs = await parts.orchestrator.create(
            RunRequest(question="Whose?", strategy="single"), principal="somebody"
        )
        theirs = await parts.orchestrator.answer(theirs, parts.observe)
        assert theirs.answer
        with pytest.raises(QuestionError, match="follow_up: There is no run"):
            await parts.create(follow_up=theirs.run_id)
        unanswered = await parts.create()
        with pytest.raises(QuestionError, match="has no answer to follow up"):
            await parts.create(follow_up=unanswered.run_id)
        with pytest.raises(QuestionError):
            await parts.create(follow_up="no-such-run")


async def test_a_waiting_run_can_be_asked_for_again(tmp_path: Path):
    plan = plan_of(step(CALLER, "Look."))
    async with open_parts(tmp_path, worker("ann"), plans=[plan]) as parts:
        run = await parts.ask()
        assert run.status == "needs_caller"
        assert (await parts.go_on(run)).status == "needs_caller"


async def test_runs_side_by_side_do_not_disturb_each_other(tmp_path: Path):
    """T38: no state is shared by runs but the ledger and the workers' limits."""

    def script(prompt: Prompt) -> Line:
        return "Reply to " + text_of(prompt).split(">\n")[1].split("\n<")[0]

    plan = plan_of(step("ann", "One."), step("ann", "Two."), step("ann", "Join.", 0, 1))
    async with open_parts(tmp_path, worker("ann", script), plans=[plan]) as parts:
        answers: list[Run] = []

        async def ask(number: int) -> None:
            answers.append(await parts.ask(f"Question {number}"))

        with anyio.fail_after(BOUND_S):
            async with anyio.create_task_group() as group:
                for number in range(8):
                    group.start_soon(ask, number)
        for run in answers:
            assert run.answer == f"Reply to {run.request.question}"
            assert len(await parts.store.calls(run.run_id)) == 3
            assert await parts.findings(run) == []
        assert len({run.fence for run in answers}) == 8
        assert math.prod(len(run.run_id) for run in answers) == 16**8
