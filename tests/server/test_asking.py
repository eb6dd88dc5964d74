"""What a user may say to what a run asks, in both eras, and what happens where nobody can be asked.

The servers are real and in memory; `flow/test_asking` has them as processes.
"""

from pathlib import Path

import pytest
from mcp.client.context import ClientRequestContext
from mcp.types import INTERNAL_ERROR, ElicitRequestParams, ElicitResult, ErrorData
from pydantic import JsonValue
from tests.core_parts import conductor, worker, written
from tests.elicited import YES, User, boss, served, user
from tests.flow.client import Era, data, steps, text

from podium.app.asking import state_security
from podium.runs import Runs
from podium.trace import Run
from podium_workers.scripted import ScriptedWorker
from podium_workers.worker import Price

ERAS = pytest.mark.parametrize("era", ["legacy", "2026-07-28"])
ASKED: dict[str, JsonValue] = {"question": "What is it?", "strategy": "conductor"}
PLANNED = ASKED | {"approve": "plan"}
DEAR = Price(input=0, output=1000)


def dear(**card: object) -> ScriptedWorker:
    return worker("dear", ["Said well."], card={"price": DEAR, "max_output_tokens": 300} | card)


# The plan.


@ERAS
@pytest.mark.parametrize("said", [user("decline"), user("accept", approve=False)])
async def test_a_plan_that_the_user_does_not_want_is_stopped_and_says_so(
    tmp_path: Path, era: Era, said: User
):
    async with served(tmp_path, said, era) as (client, _):
        result = await client.call_tool("orchestrate", PLANNED)
        assert data(result)["status"] == "stopped"
        assert "declined" in text(result)
        assert [step["status"] for step in steps(result)] == ["planned", "planned"]


@ERAS
async def test_a_user_who_looks_away_leaves_the_plan_to_be_started_later(tmp_path: Path, era: Era):
    person = User([ElicitResult(action="cancel"), YES])
    async with served(tmp_path, person, era) as (client, _):
        result = await client.call_tool("orchestrate", PLANNED)
        run_id = str(data(result)["run_id"])
        assert data(result)["status"] == "planned"
        assert f"orchestrate(run_id={run_id!r})" in text(result)
        refused = await client.call_tool("run_step", {"run_id": run_id})
        assert refused.is_error
        assert "has not approved" in text(refused)
        answered = await client.call_tool("orchestrate", {"run_id": run_id})
        assert data(answered)["status"] == "finished"
        assert len(person.asked) == 2


@ERAS
async def test_an_answer_that_does_not_fit_the_form_changes_nothing(tmp_path: Path, era: Era):
    person = User([ElicitResult(action="accept", content={"aprove": "yes"}), YES])
    async with served(tmp_path, person, era) as (client, runs):
        result = await client.call_tool("orchestrate", PLANNED)
        assert result.is_error
        (found,) = await runs.store.summaries()
        assert text(result).startswith("approve: ")
        assert f"orchestrate(run_id={found.run_id!r}) asks again" in text(result)
        answered = await client.call_tool("orchestrate", {"run_id": found.run_id})
        assert data(answered)["status"] == "finished"


@ERAS
async def test_the_clock_of_a_run_stands_still_while_its_user_thinks(tmp_path: Path, era: Era):
    seen: list[Run] = []
    of: list[Runs] = []

    async def thinks(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        (found,) = await of[0].store.summaries()
        assert not await of[0].at_work(found.run_id)
        seen.append(await of[0].store.run(found.run_id))
        return YES

    async with served(tmp_path, thinks, era) as (client, runs):
        of.append(runs)
        result = await client.call_tool("orchestrate", PLANNED | {"max_seconds": 30})
        assert data(result)["status"] == "finished"
        assert [(run.status, run.resumed_at) for run in seen] == [("planned", None)]


@ERAS
async def test_where_nobody_can_be_asked_starting_the_planned_run_is_the_yes(
    tmp_path: Path, era: Era
):
    async with served(tmp_path, None, era) as (client, _):
        result = await client.call_tool("orchestrate", PLANNED)
        run_id = str(data(result)["run_id"])
        assert data(result)["status"] == "planned"
        assert data(result)["needs"]
        assert "0. ann: List." in text(result)
        assert f"orchestrate(run_id={run_id!r}) starts it" in text(result)
        again = await client.call_tool("orchestrate", PLANNED)
        assert data(again)["run_id"] == run_id, "it still waits, so it is not planned again"
        answered = await client.call_tool("orchestrate", {"run_id": run_id})
        assert data(answered)["answer"] == "Reply of boss."


async def test_a_client_that_cannot_do_what_it_declared_is_like_one_that_did_not(tmp_path: Path):
    async def fails(context: ClientRequestContext, params: ElicitRequestParams) -> ErrorData:
        return ErrorData(code=INTERNAL_ERROR, message="No window to ask in.")

    async with served(tmp_path, fails, "legacy") as (client, _):
        result = await client.call_tool("orchestrate", PLANNED)
        assert data(result)["status"] == "planned"


@ERAS
async def test_an_own_plan_in_place_of_the_conductors_is_asked_about_anew(tmp_path: Path, era: Era):
    person = User([ElicitResult(action="cancel"), YES])
    own: list[JsonValue] = [{"worker": "ann", "subtask": "Just say it.", "access": []}]
    async with served(tmp_path, person, era) as (client, _):
        result = await client.call_tool("orchestrate", PLANNED)
        changed = {"run_id": data(result)["run_id"], "plan": own}
        answered = await client.call_tool("orchestrate", changed)
        assert data(answered)["answer"] == "Done."
        assert "0. ann: Just say it." in person.asked[1].message


async def test_the_setting_asks_for_a_yes_that_no_call_can_leave_out(tmp_path: Path):
    person = User([YES])
    async with served(tmp_path, person, "2026-07-28", approve="plan") as (client, _):
        planned = await client.call_tool("plan_only", ASKED)
        assert not person.asked, "a plan alone costs nothing more"
        run_id = data(planned)["run_id"]
        refused = await client.call_tool("run_step", {"run_id": run_id})
        assert "has not approved" in text(refused)
        answered = await client.call_tool("orchestrate", {"run_id": run_id})
        assert data(answered)["status"] == "finished"
        assert len(person.asked) == 1
        wrong = await client.call_tool("orchestrate", ASKED | {"approve": "nothing"})
        assert wrong.is_error
        assert text(wrong).startswith("approve: write 'plan'")


# Money.


@ERAS
async def test_who_does_not_raise_the_limit_keeps_the_best_so_far(tmp_path: Path, era: Era):
    team = (boss(("ann", "List.", []), ("dear", "Say it.", [0])), worker("ann"), dear())
    limited = ASKED | {"max_usd": 0.01}
    async with served(tmp_path, user("decline"), era, *team) as (client, _):
        kept = await client.call_tool("orchestrate", limited)
        assert data(kept)["status"] == "partial"
        assert text(kept).startswith("Done.")
        assert "do not raise it unless the user asks" in str(kept.content)
    run: dict[str, JsonValue] = {"run_id": data(kept)["run_id"]}
    async with served(tmp_path, user("accept", max_usd=0.001), era, *team) as (client, _):
        wrong = await client.call_tool("orchestrate", run)
        assert wrong.is_error
        assert text(wrong).startswith("max_usd: has to be a number of US dollars above 0.01")
    async with served(tmp_path, None, era, *team) as (client, _):
        kept = await client.call_tool("orchestrate", run)
        assert data(kept)["status"] == "partial"
        assert f"orchestrate(run_id={run['run_id']!r}, max_usd=…)" in text(kept)
        raised = await client.call_tool("orchestrate", run | {"max_usd": 2})
        assert data(raised)["answer"] == "Said well."


@ERAS
async def test_a_limit_that_struck_before_the_first_reply_may_be_raised_as_well(
    tmp_path: Path, era: Era
):
    team = (boss(("dear", "Say it.", [])), dear())
    person = user("accept", max_usd=2)
    async with served(tmp_path, person, era, *team) as (client, _):
        result = await client.call_tool("orchestrate", ASKED | {"max_usd": 0.01})
        assert data(result)["answer"] == "Said well."
        assert "no step has finished" in person.asked[0].message


@ERAS
async def test_a_limit_may_be_raised_again_and_again(tmp_path: Path, era: Era):
    team = (boss(("ann", "List.", []), ("dear", "Say it.", [0])), worker("ann"), dear())
    raises = [ElicitResult(action="accept", content={"max_usd": usd}) for usd in (0.02, 0.03, 2)]
    person = User(raises)
    async with served(tmp_path, person, era, *team) as (client, runs):
        result = await client.call_tool("orchestrate", ASKED | {"max_usd": 0.01})
        assert data(result)["answer"] == "Said well."
        assert len(person.asked) == 3
        run = await runs.store.run(str(data(result)["run_id"]))
        assert run.request.max_usd == 2
        assert run.limit is None


@ERAS
@pytest.mark.parametrize("tool", ["orchestrate", "plan_only"])
async def test_unknown_prices_are_asked_about_before_anything_is_stored(
    tmp_path: Path, era: Era, tool: str
):
    person = user("accept", allow_unpriced=True)
    only = conductor(written(("dear", "Say it.", [])), name="dear", price=None)
    async with served(tmp_path, person, era, only) as (client, runs):
        result = await client.call_tool(tool, ASKED | {"max_usd": 1})
        assert data(result)["status"] in ("finished", "planned")
        assert len(person.asked) == len(await runs.store.summaries()) == 1


@ERAS
@pytest.mark.parametrize(
    "said", [user("decline"), user("cancel"), user("accept", allow_unpriced=False), None]
)
async def test_else_they_are_refused_with_the_argument_that_lets_them(
    tmp_path: Path, era: Era, said: User | None
):
    async with served(tmp_path, said, era, dear(price=None)) as (client, runs):
        refused = await client.call_tool("orchestrate", ASKED | {"max_usd": 1})
        assert refused.is_error
        assert "allow_unpriced" in text(refused)
        assert not await runs.store.summaries()


# What a client carries.


def test_all_servers_of_a_ledger_seal_with_one_key_that_only_its_user_can_read(tmp_path: Path):
    ledger = tmp_path / "podium.db"
    token = state_security(ledger).codec.seal(b"a run")
    assert state_security(ledger).codec.unseal(token) == b"a run"
    (file,) = tmp_path.iterdir()
    assert file.stat().st_mode & 0o077 == 0


def test_where_no_key_can_be_kept_questions_last_as_long_as_the_server(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    gone = tmp_path / "no such folder" / "podium.db"
    security = state_security(gone)
    assert security.codec.unseal(security.codec.seal(b"a run")) == b"a run"
    assert "questions end with this process" in caplog.text
