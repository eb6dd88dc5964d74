"""Steps for whoever asked: who may plan them, how a run waits for them, and how it goes on."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import anyio
import pytest
from tests.core_parts import (
    BOUND_S,
    Parts,
    asks_for,
    conductor,
    open_parts,
    plan_of,
    plans_asked,
    reading_all,
    step,
    text_of,
    worker,
    written,
)

from podium.asks import Ask, pending, respond
from podium.comparison import compare
from podium.errors import QuestionError, RunError
from podium.forking import fork
from podium.plan import CALLER, Plan
from podium.plan_text import render_lists
from podium.prompting import prompt_hash
from podium.runs import Runs, open_runs
from podium.trace import Run, RunRequest
from podium.views import full_receipt
from podium_workers.scripted import Line, ScriptedWorker
from podium_workers.worker import Prompt

LOOK_THEN_SAY = written((CALLER, "Run the tests.", []), ("ann", "Explain them.", [0]))
RUNS_TESTS = plan_of(step(CALLER, "Run the tests."), step("ann", "Explain them.", 0))
Form = Literal["json", "lists"]


@asynccontextmanager
async def opened(folder: Path, *workers: ScriptedWorker, plan: Plan) -> AsyncGenerator[Runs]:
    """One of the processes on the ledger in *folder*."""
    async with (
        open_parts(folder, *workers, plans=[plan]) as parts,
        open_runs(parts.orchestrator) as runs,
    ):
        yield runs


async def asked(runs: Runs, **request: object) -> Run:
    """A run that has come to a stand."""
    wanted = RunRequest.model_validate({"question": "Why?", "strategy": "given"} | request)
    return await waited(runs, await runs.ask(wanted, principal="me"))


async def waited(runs: Runs, run: Run) -> Run:
    with anyio.fail_after(BOUND_S):
        return await runs.wait(run.run_id)


async def the_ask(runs: Runs, run: Run, *declined: str) -> Ask:
    ask = await pending(runs, run, declined)
    assert ask is not None
    return ask


# Who may plan them.


@pytest.mark.parametrize(
    ("form", "shows", "line"),
    [
        ("json", "cards", "\n- caller: the user's own assistant."),
        ("json", "ordinals", "\n- caller: the user's own assistant."),
        ("lists", "cards", "\nModel id 2: caller: the user's own assistant."),
        ("lists", "ordinals", "\nModel id 2: the user's own assistant."),
    ],
)
async def test_a_conductor_knows_of_the_caller_where_it_is_allowed(
    tmp_path: Path, form: Form, shows: Literal["cards", "ordinals"], line: str
):
    lists = render_lists(RUNS_TESTS, ("boss", "ann", CALLER))
    head = conductor(LOOK_THEN_SAY if form == "json" else lists)
    async with open_parts(tmp_path, head, worker("ann"), form=form, shows=shows) as parts:
        run = await parts.ask(strategy="conductor", caller=True)
        assert run.status == "needs_caller"
        ((prompt, _),) = plans_asked(head)
        assert line in prompt
        assert "costs the user's time" in prompt
        assert "Why does the test test_total of my project fail?" in prompt
        (first,) = await parts.store.rounds(run.run_id)
        assert first.plan == RUNS_TESTS
        texts = ("conductor" if form == "json" else "conductor_lists", "examples_general")
        assert first.proposal.prompt_hash == prompt_hash(*texts, "caller", "examples_caller")


@pytest.mark.parametrize("form", ["json", "lists"])
async def test_else_it_hears_nothing_of_it_and_its_step_is_refused(tmp_path: Path, form: Form):
    lists = render_lists(RUNS_TESTS, ("boss", "ann", CALLER))
    head = conductor(LOOK_THEN_SAY if form == "json" else lists)
    async with open_parts(tmp_path, head, worker("ann"), form=form) as parts:
        run = await parts.ask(strategy="conductor")
        assert run.status == "finished"
        prompts = [prompt.partition("(The plan before")[0] for prompt, _ in plans_asked(head)]
        assert not [prompt for prompt in prompts if "caller" in prompt or "test_total" in prompt]
        (first, _) = await parts.store.rounds(run.run_id)
        assert first.proposal.source == "fallback"
        assert len(first.proposal.refused) == 5
        named = "'caller'" if form == "json" else "'2'"
        assert f"names the worker {named}, which is not in the pool" in first.proposal.refused[0]


@pytest.mark.parametrize("caller", [True, False])
async def test_decoding_is_held_to_it_where_it_is_allowed(tmp_path: Path, caller: bool):
    by_schema = conductor(written(("ann", "Do.", [])), kind="openai")
    async with open_parts(tmp_path, by_schema, worker("ann")) as parts:
        await parts.ask(strategy="conductor", caller=caller)
        ((_, settings),) = plans_asked(by_schema)
        assert ("'caller'" in str(settings.response_schema)) is caller
    lists = render_lists(plan_of(step("ann", "Do it now.")), ("boss", "ann"))
    by_grammar = conductor(lists, kind="local")
    async with open_parts(tmp_path, by_grammar, worker("ann"), form="lists") as parts:
        await parts.ask(strategy="conductor", caller=caller)
        ((_, settings),) = plans_asked(by_grammar)
        assert ('worker ::= "0" | "1" | "2"\n' in (settings.grammar or "")) is caller


@pytest.mark.parametrize("strategy", ["single", "chain"])
async def test_fixed_strategies_give_it_nothing(tmp_path: Path, strategy: str):
    async with open_parts(tmp_path, worker("ann")) as parts:
        run = await parts.ask(strategy=strategy, caller=True)
        assert run.status == "finished"


async def test_a_nested_run_has_no_caller(tmp_path: Path):
    nested = written(("podium", "Find out.", []), ("ann", "Say it.", [0]))
    head = conductor(nested, LOOK_THEN_SAY, written(("ann", "Do.", [])))
    async with open_parts(tmp_path, head, worker("ann")) as parts:
        run = await parts.ask(strategy="conductor", depth=1, caller=True, approve="nothing")
        assert run.status == "finished"
        (child,) = await parts.store.children(run.run_id)
        assert not child.request.caller


# How a run waits, and goes on.


async def test_a_run_waits_for_its_caller_and_goes_on_with_what_he_gives(tmp_path: Path):
    ann = worker("ann", ["Two tests fail."])
    async with opened(tmp_path, ann, plan=RUNS_TESTS) as runs:
        run = await asked(runs)
        assert (run.status, run.resumed_at) == ("needs_caller", None)
        ask = await the_ask(runs, run)
        assert (ask.key, ask.kind) == ("step-0", "caller")
        assert "Run the tests." in ask.message

        run = await waited(runs, await respond(runs, run, ask, {"result": "2 failed, 7 passed"}))
        assert (run.status, run.answer) == ("finished", "Two tests fail.")
        assert "2 failed, 7 passed" in text_of(ann.seen[0])
        assert await pending(runs, run) is None


async def test_what_it_may_read_is_in_the_question(tmp_path: Path):
    plan = plan_of(
        step("ann", "Name the file."), step("ann", "Hush."), step(CALLER, "Show the file.", 0)
    )
    replies = {"Name the file.": "server.py", "Hush.": "A secret."}

    def script(prompt: Prompt) -> Line:
        return next(reply for subtask, reply in replies.items() if asks_for(subtask)(prompt))

    async with opened(tmp_path, worker("ann", script), plan=plan) as runs:
        ask = await the_ask(runs, await asked(runs))
        assert "Step 0 (ann): server.py" in ask.message
        assert "secret" not in ask.message


async def test_several_steps_at_once_are_asked_for_one_after_the_other(tmp_path: Path):
    plan = plan_of(step(CALLER, "Look."), step(CALLER, "Listen."), reading_all("ann", "Sum up."))
    ann = worker("ann", ["All."])
    async with opened(tmp_path, ann, plan=plan) as runs:
        run = await asked(runs)
        assert (await the_ask(runs, run)).key == "step-0"
        other = await the_ask(runs, run, "step-0")
        assert other.key == "step-1"
        assert await pending(runs, run, ["step-0", "step-1"]) is None
        run = await waited(runs, await respond(runs, run, other, {"result": "A bell."}))
        assert run.status == "needs_caller"
        first = await the_ask(runs, run)
        run = await waited(runs, await respond(runs, run, first, {"result": "A tower."}))
        assert run.status == "finished"
        prompt = text_of(ann.seen[0])
        assert prompt.index("A tower.") < prompt.index("A bell.")


async def test_the_plan_of_a_later_round_may_have_such_a_step(tmp_path: Path):
    head = conductor(written(("ann", "Guess.", [])), written((CALLER, "Look it up.", "all")))
    async with (
        open_parts(tmp_path, head, worker("ann")) as parts,
        open_runs(parts.orchestrator) as runs,
    ):
        run = await asked(runs, strategy="conductor", caller=True, rounds=2)
        ask = await the_ask(runs, run)
        assert ask.key == "step-1"
        assert "Step 0 (ann): Done." in ask.message
        run = await waited(runs, await respond(runs, run, ask, {"result": "It is blue."}))
        assert (run.status, run.answer, run.answer_step) == ("finished", "It is blue.", 1)


async def test_a_refused_step_leaves_the_run_waiting(tmp_path: Path):
    async with opened(tmp_path, worker("ann"), plan=RUNS_TESTS) as runs:
        run = await asked(runs)
        ask = await the_ask(runs, run)
        assert (await respond(runs, run, ask, None)).status == "needs_caller"
        assert await pending(runs, run, [ask.key]) is None
        assert await the_ask(runs, run) == ask


@pytest.mark.parametrize("content", [{}, {"result": " "}, {"result": 7}, {"text": "Done."}])
async def test_what_does_not_fit_the_form_changes_nothing(
    tmp_path: Path, content: dict[str, str | int]
):
    async with opened(tmp_path, worker("ann"), plan=RUNS_TESTS) as runs:
        run = await asked(runs)
        ask = await the_ask(runs, run)
        with pytest.raises(QuestionError, match="result: is empty"):
            await respond(runs, run, ask, {**content})
        assert await the_ask(runs, run) == ask


async def test_after_a_restart_the_same_is_asked_and_its_answer_taken(tmp_path: Path):
    async with opened(tmp_path, worker("ann"), plan=RUNS_TESTS) as runs:
        run = await asked(runs)
        before = await the_ask(runs, run)
    async with opened(tmp_path, worker("ann", ["So."]), plan=RUNS_TESTS) as runs:
        assert await the_ask(runs, run) == before
        run = await waited(runs, await respond(runs, run, before, {"result": "2 failed"}))
        assert run.answer == "So."


async def test_of_two_processes_one_is_heard_and_the_other_is_told_so(tmp_path: Path):
    async with (
        opened(tmp_path, worker("ann"), plan=RUNS_TESTS) as left,
        opened(tmp_path, worker("ann"), plan=RUNS_TESTS) as right,
    ):
        run = await asked(left)
        ask = await the_ask(right, run)
        await waited(left, await respond(left, run, ask, {"result": "From the left."}))
        with pytest.raises(RunError, match="does not wait for this any more"):
            await respond(right, run, ask, {"result": "From the right."})
        first = (await left.store.steps(run.run_id))[0]
        assert first.reply == "From the left."


async def test_of_two_answers_at_once_one_is_heard(tmp_path: Path):
    heard: list[str] = []
    refused: list[RunError] = []

    async def give(runs: Runs, ask: Ask, result: str) -> None:
        try:
            await respond(runs, run, ask, {"result": result})
            heard.append(result)
        except RunError as error:
            refused.append(error)

    async with (
        opened(tmp_path, worker("ann"), plan=RUNS_TESTS) as left,
        opened(tmp_path, worker("ann"), plan=RUNS_TESTS) as right,
    ):
        run = await asked(left)
        asks = [await the_ask(left, run), await the_ask(right, run)]
        async with anyio.create_task_group() as group:
            group.start_soon(give, left, asks[0], "From the left.")
            group.start_soon(give, right, asks[1], "From the right.")
        await waited(left, run)
        await waited(right, run)
        assert len(heard) == len(refused) == 1
        assert (await left.store.steps(run.run_id))[0].reply == heard[0]


# What is said of it afterwards.


@asynccontextmanager
async def answered(folder: Path) -> AsyncGenerator[tuple[Parts, Runs, Run]]:
    """A finished run whose first step the caller has done."""
    async with (
        open_parts(folder, worker("ann"), plans=[RUNS_TESTS]) as parts,
        open_runs(parts.orchestrator) as runs,
    ):
        run = await asked(runs)
        given = {"result": "2 failed, 7 passed"}
        yield (
            parts,
            runs,
            await waited(runs, await respond(runs, run, await the_ask(runs, run), {**given})),
        )


async def test_it_is_verified_and_costs_nothing(tmp_path: Path):
    async with answered(tmp_path) as (parts, runs, run):
        assert await parts.findings(run) == []
        first = (await full_receipt(runs.store, run)).steps[0]
        assert (first.worker, first.status, first.usage.cost_usd) == (CALLER, "finished", 0.0)
        assert run.notes == ()


async def test_a_fork_takes_it_over_or_waits_for_it_anew(tmp_path: Path):
    async with answered(tmp_path) as (parts, _, run):
        later = await parts.go_on(await fork(parts.orchestrator, run, 1, {}))
        assert later.status == "finished"
        assert (await parts.step(later, 0)).taken_from == run.run_id
        pair = (await compare(parts.store, run, later)).steps[0]
        assert pair.first is not None
        assert pair.second is not None
        assert pair.first.worker == pair.second.worker == CALLER
        assert pair.reply is not None
        assert pair.reply.same
        anew = await parts.go_on(await fork(parts.orchestrator, run, 0, {}))
        assert anew.status == "needs_caller"
