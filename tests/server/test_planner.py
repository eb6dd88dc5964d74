"""A conductor that does nothing but write plans: nobody plans for it, and it costs and counts."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from mcp import Client
from mcp.types import TextContent
from tests.core_parts import (
    NO_KEY,
    conductor,
    open_parts,
    plan_of,
    plans_asked,
    step,
    subtasks_of,
    worker,
    written,
)

from podium.admission import request_key
from podium.app import build_server
from podium.config import Settings
from podium.errors import PlanError, PoolError
from podium.estimate import estimate
from podium.plan import PODIUM, Step
from podium.plan_grammar import lists_grammar
from podium.plan_text import render_lists
from podium.results import WorkerList
from podium.revision import check_own_plan
from podium.runs import open_runs
from podium.views import full_receipt
from podium_workers.asked import Asked
from podium_workers.pool import Pool
from podium_workers.scripted import Line, ScriptedWorker
from podium_workers.worker import Price

ONE = written(("ann", "Answer it.", []))
PAID = Price(input=2.0, output=8.0)
BY_NUMBER = render_lists(plan_of(step("0", "First."), step("1", "Then.", 0)), ("0", "1"))
"""A plan for the first and the second of a team."""
NUMBERS = Asked(form="lists", shows="ordinals")


def led(*plans: Line, card: Mapping[str, object] | None = None, **changes: object) -> Pool:
    """Ann and bob under a conductor that does no steps, asked in any way that *changes* say."""
    trained = conductor(*plans, name="trained", **dict(card or {}))
    pool = Pool(workers=(worker("ann"), worker("bob")), conductor="trained", planner=trained)
    return replace(pool, **changes)


def scripted(pool: Pool, name: str) -> ScriptedWorker:
    found = pool.get(name)
    assert isinstance(found, ScriptedWorker)
    return found


async def test_the_team_and_the_schema_leave_it_out(tmp_path: Path):
    pool = led(ONE, card={"kind": "openai"})
    async with open_parts(tmp_path, pool=pool) as parts:
        run = await parts.ask(strategy="conductor", depth=1)
        ((prompt, asked),) = plans_asked(scripted(pool, "trained"))
        assert "- ann: " in prompt
        assert "- trained" not in prompt
        assert "'enum': ['ann', 'bob', 'podium']" in str(asked.response_schema)
        assert run.answer == "Done."
        (first, _) = await parts.store.rounds(run.run_id)
        assert first.proposal.worker == "trained"


async def test_a_plan_that_gives_it_a_step_is_unreadable(tmp_path: Path):
    pool = led(written(("trained", "Do it.", [])))
    async with open_parts(tmp_path, pool=pool) as parts:
        run = await parts.ask(strategy="conductor")
        (first, _) = await parts.store.rounds(run.run_id)
        assert (first.proposal.source, len(first.proposal.refused)) == ("fallback", 5)
        assert first.plan
        assert [found.worker for found in first.plan.steps] == ["ann"], "the first that does steps"
        with pytest.raises(PlanError, match="names 'trained', which is not in this run's pool"):
            check_own_plan(parts.orchestrator, run.request, [Step(worker="trained", subtask="x")])


async def test_numbers_count_those_who_do_steps_and_the_grammar_has_as_many(tmp_path: Path):
    card: dict[str, object] = {"kind": "local"}
    pool = led(BY_NUMBER, card=card, asked=NUMBERS)
    async with open_parts(tmp_path, pool=pool) as parts:
        run = await parts.ask(strategy="conductor")
        ((prompt, asked),) = plans_asked(scripted(pool, "trained"))
        assert "Model id 1" in prompt
        assert "Model id 2" not in prompt
        assert asked.grammar
        assert asked.grammar == lists_grammar(2, max_steps=5, may_accept=False, prose=1200)
        assert [found.worker for found in await parts.store.steps(run.run_id)] == ["ann", "bob"]


@pytest.mark.parametrize(
    ("asked", "prose"),
    [
        (Asked(form="lists"), 300),
        (Asked(form="lists", prose=0), 0),
        (NUMBERS.model_copy(update={"prose": 1999}), 1999),
    ],
)
async def test_reasoning_before_the_lists_has_the_room_of_the_training(
    tmp_path: Path, asked: Asked, prose: int
):
    card: dict[str, object] = {"kind": "vllm"}
    pool = led(BY_NUMBER, card=card, asked=asked)
    async with open_parts(tmp_path, pool=pool) as parts:
        await parts.ask(strategy="conductor")
        ((_, settings), *_) = plans_asked(scripted(pool, "trained"))
        assert settings.grammar == lists_grammar(2, max_steps=5, may_accept=False, prose=prose)


async def test_numbers_are_those_of_the_training(tmp_path: Path):
    numbers = led(BY_NUMBER, asked=NUMBERS)
    pool = replace(numbers, asked=NUMBERS.model_copy(update={"team": ("bob", "ann")}))
    async with open_parts(tmp_path, pool=pool) as parts:
        run = await parts.ask(strategy="conductor")
        assert [found.worker for found in await parts.store.steps(run.run_id)] == ["bob", "ann"]
        assert run.notes == ()
        alone = await parts.ask(strategy="single")
        assert (await parts.step(alone, 0)).worker == "ann", "the strongest, as before"


async def test_an_answer_says_that_the_team_is_not_that_of_the_training(tmp_path: Path):
    pool = led(ONE, asked=Asked(team=("ann", "bob")))
    async with open_parts(tmp_path, pool=pool) as parts:
        assert (await parts.ask(strategy="conductor")).notes == ()
        run = await parts.ask(strategy="conductor", workers=("ann",))
        (note,) = run.notes
        assert "'trained' was trained with ann, bob" in note
        assert "this team is ann, so that it may choose worse here" in note
        assert (await parts.ask(strategy="single", workers=("ann",))).notes == ()


async def test_its_plans_have_as_many_steps_as_in_its_training(tmp_path: Path):
    pool = led(ONE, asked=Asked(max_steps=2))
    async with open_parts(tmp_path, pool=pool) as parts:
        await parts.ask(strategy="conductor")
        await parts.ask(strategy="conductor", max_steps=1)
        (two, _), (one, _) = plans_asked(scripted(pool, "trained"))
        assert "1 to 2 steps" in two
        assert "1 to 2 steps" not in one


async def test_who_stands_in_for_it_is_asked_as_one_that_was_not_trained(tmp_path: Path):
    ann = conductor(ONE, name="ann")
    numbers = led(NO_KEY, asked=NUMBERS)
    pool = replace(numbers, workers=(ann, worker("bob")))
    async with open_parts(tmp_path, pool=pool) as parts:
        run = await parts.ask(strategy="conductor")
        ((prompt, _),) = plans_asked(ann)
        assert "\n- ann: " in prompt
        assert run.notes == ("The plan was written by ann, since trained: The key is wrong.",)


async def test_another_may_be_named_to_write_the_plan(tmp_path: Path):
    ann = conductor(ONE, name="ann")
    pool = led(ONE, asked=Asked(form="lists"), workers=(ann, worker("bob")))
    async with open_parts(tmp_path, pool=pool) as parts:
        run = await parts.ask(strategy="conductor", conductor="ann")
        (first, _) = await parts.store.rounds(run.run_id)
        assert first.proposal.worker == "ann"
        assert "\n- ann: " in plans_asked(ann)[0][0], "as one that was not trained"
        await parts.create(strategy="conductor", conductor="trained")
        with pytest.raises(PoolError, match=r"'x\.gguf' is not in this run's pool; it has ann"):
            await parts.create(strategy="conductor", conductor="x.gguf")


@pytest.mark.parametrize("strategy", ["single", "chain"])
async def test_fixed_strategies_never_ask_it(tmp_path: Path, strategy: str):
    pool = led(ONE)
    async with open_parts(tmp_path, pool=pool) as parts:
        await parts.ask(strategy=strategy)
        assert scripted(pool, "trained").seen == []
        assert subtasks_of(scripted(pool, "ann"))


async def test_its_plans_are_paid_for_and_recorded_with_its_model(tmp_path: Path):
    pool = led(ONE, card={"price": PAID, "model": "/models/trained.gguf"})
    async with open_parts(tmp_path, pool=pool) as parts:
        run = await parts.ask(strategy="conductor", max_usd=1)
        (planning,) = [it for it in await parts.store.calls(run.run_id) if it.step is None]
        assert (planning.worker, planning.model) == ("trained", "/models/trained.gguf")
        paid = (await full_receipt(parts.store, run)).planning
        assert paid.cost_usd
        kept = await parts.store.run(run.run_id)
        assert [card.name for card in kept.pool] == ["ann", "bob"]
        assert kept.planner
        assert kept.planner.model == "/models/trained.gguf"
        again = await parts.ask(strategy="conductor", max_usd=paid.cost_usd / 2)
        assert (again.status, again.limit) == ("failed", "usd")


async def test_with_an_unknown_price_it_is_left_out_where_money_is_limited(tmp_path: Path):
    ann = conductor(ONE, name="ann")
    pool = led(ONE, card={"price": None}, workers=(ann, worker("bob")))
    async with open_parts(tmp_path, pool=pool) as parts:
        run = await parts.ask(strategy="conductor", max_usd=1)
        assert run.planner is None
        left_out = "Left out, since money is limited and their price unknown: trained."
        assert run.notes == (left_out,)
        with pytest.raises(PoolError, match="the price of trained is unknown"):
            await parts.create(strategy="conductor", max_usd=1, conductor="trained")


async def test_only_a_nested_run_may_have_to_be_planned_once_more(tmp_path: Path):
    async with open_parts(tmp_path, pool=led(ONE, card={"price": PAID})) as parts:
        run = await parts.create(depth=1)
        plain = await estimate(parts.store, run, plan_of(step("ann", "Do it.")))
        nested = await estimate(parts.store, run, plan_of(step(PODIUM, "Do it.")))
        assert (plain.usd.worst, nested.usd.expected) == (0, 0)
        assert nested.usd.worst


async def test_a_nested_run_is_planned_by_it_too(tmp_path: Path):
    outer = written((PODIUM, "Solve the hard part.", []))
    pool = led(outer, ONE)
    async with open_parts(tmp_path, pool=pool) as parts:
        run = await parts.ask(strategy="conductor", depth=1)
        assert run.answer == "Done."
        assert len(plans_asked(scripted(pool, "trained"))) == 2
        assert await parts.findings(run) == []


async def test_a_run_is_that_of_its_conductor(tmp_path: Path):
    one, other = led(ONE, card={"model": "/a/x.gguf"}), led(ONE, card={"model": "/b/x.gguf"})
    async with open_parts(tmp_path, pool=one) as parts:
        run = await parts.create(strategy="conductor")
        assert parts.orchestrator.has_pool_of(run)
        elsewhere = replace(parts.orchestrator, pool=other)
        assert not elsewhere.has_pool_of(run), "it has a conductor of the same name only"
        same = await elsewhere.prepare(run.request, principal="me")
        assert request_key(run, "answer", ()) != request_key(same, "answer", ())


async def test_clients_see_it_apart_and_name_no_paths(tmp_path: Path):
    (tmp_path / "x.gguf").write_bytes(b"GGUF")
    async with open_parts(tmp_path, pool=led(ONE)) as parts:
        settings = Settings(store=tmp_path / "podium.db")
        async with (
            open_runs(parts.orchestrator) as runs,
            Client(build_server(runs, settings, reads_paths=True)) as client,
        ):
            listed = await client.call_tool("list_workers", {})
            assert isinstance(listed.content[0], TextContent)
            first = "Plans are written by trained (scripted, free, does no steps)."
            assert listed.content[0].text.splitlines()[0] == first
            seen = WorkerList.model_validate(listed.structured_content)
            assert [card.name for card in seen.workers] == ["ann", "bob"]
            assert (seen.conductor, seen.planner and seen.planner.name) == ("trained", "trained")
            path = {"question": "Why?", "conductor": str(tmp_path / "x.gguf")}
            refused = await client.call_tool("orchestrate", path)
            assert refused.is_error
            assert isinstance(refused.content[0], TextContent)
            assert "is not in this run's pool; it has ann, bob, trained" in refused.content[0].text
            asked = await client.call_tool("orchestrate", {"question": "Why?"})
            assert (asked.structured_content or {})["answer"] == "Done."
