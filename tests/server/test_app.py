"""The MCP surface in memory: what a call waits for, what it survives, what its errors say."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import anyio
import pytest
from mcp import Client, MCPError
from mcp.types import CallToolResult, TextContent, TextResourceContents
from pydantic import JsonValue

from podium.app import build_server
from podium.calls import Caller
from podium.config import OnDisconnect, Settings
from podium.orchestrator import Orchestrator
from podium.policy.conductor import Conductor
from podium.policy.fixed import Single
from podium.runs import Runs, open_runs
from podium.store import open_store
from podium.trace import RunRequest
from podium_workers.errors import AuthenticationError
from podium_workers.pool import Pool
from podium_workers.scripted import Script, ScriptedWorker
from podium_workers.worker import Price, Prompt

FREE = Price(input=0, output=0)


@asynccontextmanager
async def served(
    folder: Path,
    script: Script,
    *,
    gate: anyio.Event | None = None,
    reads_paths: bool = True,
    on_disconnect: OnDisconnect = "continue",
    price: Price | None = FREE,
) -> AsyncGenerator[tuple[Client, Runs]]:
    """A client of a server whose pool is one scripted worker, asked alone."""
    card = ScriptedWorker.named("solo", script).card
    card = card.model_copy(update={"price": price, "max_output_tokens": 300})
    worker = ScriptedWorker(card, script, gate=gate)
    pool = Pool(workers=(worker,), conductor="solo")
    settings = Settings(
        store=folder / "podium.db",
        strategy="single",
        file_roots=(folder,),
        on_disconnect=on_disconnect,
    )
    async with open_store(settings.store) as store:
        orchestrator = Orchestrator(store, pool, Caller(store), {"single": Single()})
        async with (
            open_runs(orchestrator) as runs,
            Client(build_server(runs, settings, reads_paths=reads_paths)) as client,
        ):
            yield client, runs


def text(result: CallToolResult) -> str:
    assert isinstance(result.content[0], TextContent)
    return result.content[0].text


def data(result: CallToolResult) -> dict[str, JsonValue]:
    assert not result.is_error, text(result)
    return cast("dict[str, JsonValue]", result.structured_content)


async def test_a_call_hands_back_a_run_that_needs_longer(tmp_path: Path) -> None:
    gate = anyio.Event()
    async with served(tmp_path, ["Done."], gate=gate) as (client, _):
        arguments: dict[str, JsonValue] = {"question": "Long?", "max_wait_s": 0.2}
        early = await client.call_tool("orchestrate", arguments)
        assert data(early)["status"] == "running"
        assert "get_run" in text(early)
        gate.set()
        run_id = data(early)["run_id"]
        late = await client.call_tool("get_run", {"run_id": run_id, "wait_s": 30})
        assert data(late)["answer"] == "Done."


async def test_asking_again_attaches_and_pays_once(tmp_path: Path) -> None:
    gate = anyio.Event()
    async with served(tmp_path, ["Done."], gate=gate) as (client, runs):
        arguments: dict[str, JsonValue] = {"question": "Long?", "max_wait_s": 0.2}
        run_id = str(data(await client.call_tool("orchestrate", arguments))["run_id"])
        gate.set()
        again = await client.call_tool("orchestrate", {"run_id": run_id})
        assert data(again)["answer"] == "Done."
        assert len(await runs.orchestrator.store.calls(run_id)) == 1


async def test_a_client_that_goes_away_loses_its_view_and_not_the_run(tmp_path: Path) -> None:
    gate = anyio.Event()
    async with served(tmp_path, ["Done."], gate=gate) as (client, runs):
        started = anyio.Event()

        async def note(progress: float, total: float | None, message: str | None) -> None:
            if message and "step started" in message:
                started.set()

        async with anyio.create_task_group() as group:

            async def ask() -> None:
                await client.call_tool("orchestrate", {"question": "?"}, progress_callback=note)

            group.start_soon(ask)
            with anyio.fail_after(5):
                await started.wait()
            group.cancel_scope.cancel()
        found = await runs.orchestrator.store.summaries()
        assert found[0].status == "running"
        gate.set()
        with anyio.fail_after(5):
            run = await runs.wait(found[0].run_id)
        assert run.answer == "Done."


@pytest.mark.parametrize(("then", "status"), [("pause", "interrupted"), ("stop", "stopped")])
async def test_a_client_that_goes_away_may_end_its_run(
    tmp_path: Path, then: OnDisconnect, status: str
) -> None:
    gate = anyio.Event()
    async with served(tmp_path, ["Done."], gate=gate, on_disconnect=then) as (client, runs):
        started = anyio.Event()

        async def note(progress: float, total: float | None, message: str | None) -> None:
            if message and "step started" in message:
                started.set()

        async with anyio.create_task_group() as group:

            async def ask() -> None:
                await client.call_tool("orchestrate", {"question": "?"}, progress_callback=note)

            group.start_soon(ask)
            with anyio.fail_after(5):
                await started.wait()
            group.cancel_scope.cancel()
        (found,) = await runs.store.summaries()
        with anyio.fail_after(5):
            run = await runs.wait(found.run_id)
        assert run.status == status
        assert (await runs.store.holder(run.run_id)) is None
        gate.set()
        again = await client.call_tool("orchestrate", {"run_id": run.run_id})
        assert data(again)["answer"] == "Done."


async def test_the_best_answer_so_far_is_there_before_the_end(tmp_path: Path) -> None:
    gate = anyio.Event()

    async def script(prompt: Prompt) -> str:
        if not prompt.messages[-1].text.endswith("First."):
            await gate.wait()
        return "One."

    async with served(tmp_path, script) as (client, _):
        steps: list[JsonValue] = [
            {"worker": "solo", "subtask": "First."},
            {"worker": "solo", "subtask": "Second.", "access": [0]},
        ]
        arguments: dict[str, JsonValue] = {"question": "?", "plan": steps, "max_wait_s": 0.1}
        run_id = str(data(await client.call_tool("orchestrate", arguments))["run_id"])
        with anyio.fail_after(10):
            seen = await client.call_tool("get_run", {"run_id": run_id})
            while data(seen)["best_step"] != 0:
                seen = await client.call_tool("get_run", {"run_id": run_id})
        assert data(seen)["best_so_far"] == "One."
        assert "Best so far (step 0):\nOne." in text(seen)
        (content,) = (await client.read_resource(f"podium://runs/{run_id}/best")).contents
        assert isinstance(content, TextResourceContents)
        assert content.text == "One."
        gate.set()
        done = data(await client.call_tool("get_run", {"run_id": run_id, "wait_s": 10}))
        assert (done["best_step"], done["best_so_far"], done["answer_step"]) == (-1, "", 1)


async def test_a_run_at_its_limit_goes_on_with_a_higher_one(tmp_path: Path) -> None:
    dear = Price(input=0, output=1_000_000)
    async with served(tmp_path, ["word " * 60], price=dear) as (client, _):
        poor: dict[str, JsonValue] = {"question": "?", "max_usd": 1}
        failed = await client.call_tool("orchestrate", poor)
        assert (data(failed)["status"], data(failed)["limit"]) == ("failed", "usd")
        assert "Raise max_usd to go on" in text(failed)
        richer: dict[str, JsonValue] = {"run_id": data(failed)["run_id"], "max_usd": 1000}
        done = data(await client.call_tool("orchestrate", richer))
        assert (done["status"], done["limit"]) == ("finished", "")
        other: dict[str, JsonValue] = {"run_id": data(failed)["run_id"], "rounds": 2}
        assert "cannot be given with run_id" in text(await client.call_tool("orchestrate", other))


async def test_the_same_question_asked_twice_at_once_is_one_run(tmp_path: Path) -> None:
    gate = anyio.Event()
    async with served(tmp_path, ["Done."], gate=gate) as (client, runs):
        early: dict[str, JsonValue] = {"question": "?", "max_wait_s": 0.1}
        first = data(await client.call_tool("orchestrate", early))["run_id"]
        assert data(await client.call_tool("orchestrate", early))["run_id"] == first
        fresh = data(await client.call_tool("orchestrate", {**early, "fresh": True}))["run_id"]
        assert fresh != first
        gate.set()
        again = data(await client.call_tool("orchestrate", {"question": "?"}))
        assert again["answer"] == "Done."
        assert len(await runs.store.summaries()) == 2


async def test_a_cancelled_run_can_be_carried_on(tmp_path: Path) -> None:
    gate = anyio.Event()
    async with served(tmp_path, ["Done."], gate=gate) as (client, _):
        arguments: dict[str, JsonValue] = {"question": "Long?", "max_wait_s": 0.2}
        run_id = data(await client.call_tool("orchestrate", arguments))["run_id"]
        stopped = await client.call_tool("cancel_run", {"run_id": run_id})
        assert data(stopped)["status"] == "stopped"
        gate.set()
        resumed = await client.call_tool("orchestrate", {"run_id": run_id})
        assert data(resumed)["answer"] == "Done."


async def test_half_an_emoji_in_a_reply_does_not_break_the_connection(tmp_path: Path) -> None:
    async with served(tmp_path, ["half \ud83d emoji"]) as (client, _):
        answered = await client.call_tool("orchestrate", {"question": "Which?"})
        assert data(answered)["answer"] == "half \ufffd emoji"


async def test_a_long_answer_comes_in_pages(tmp_path: Path) -> None:
    async with served(tmp_path, ["word " * 10_000]) as (client, _):
        answered = await client.call_tool("orchestrate", {"question": "Which?"})
        run_id = data(answered)["run_id"]
        assert len(text(answered)) < 25_000
        assert f"get_run(run_id='{run_id}', page=1)" in text(answered)
        assert len(str(data(answered)["answer"])) == 20_000
        assert data(answered)["answer_characters"] == 50_000
        rest = await client.call_tool("get_run", {"run_id": run_id, "page": 2})
        assert "word word" in text(rest)


async def test_a_run_that_no_worker_can_answer_says_why(tmp_path: Path) -> None:
    refused = AuthenticationError("The key in SOLO_KEY was refused; set another.")
    async with served(tmp_path, [refused]) as (client, _):
        result = await client.call_tool("orchestrate", {"question": "Which?"})
        assert data(result)["status"] == "failed"
        assert "SOLO_KEY" in text(result)


async def test_paths_are_read_under_the_roots_only(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("the secret word is swordfish")
    async with served(tmp_path, ["Read."]) as (client, _):
        file = {"path": str(tmp_path / "notes.txt")}
        answered = await client.call_tool("orchestrate", {"question": "Q", "files": [file]})
        run_id = data(answered)["run_id"]
        seen = await client.call_tool("get_run", {"run_id": run_id, "step": 0})
        assert "swordfish" in text(seen)
        outside = {"path": "/etc/hostname"}
        refused = await client.call_tool("orchestrate", {"question": "Q", "files": [outside]})
        assert refused.is_error


async def test_paths_are_not_read_over_http(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("text")
    async with served(tmp_path, ["Read."], reads_paths=False) as (client, _):
        file = {"path": str(tmp_path / "notes.txt")}
        refused = await client.call_tool("orchestrate", {"question": "Q", "files": [file]})
        assert "paths are read only on stdio" in text(refused)


async def test_a_page_past_the_end_says_which_there_are(tmp_path: Path) -> None:
    async with served(tmp_path, ["Short."]) as (client, _):
        run_id = data(await client.call_tool("orchestrate", {"question": "Q"}))["run_id"]
        looked = await client.call_tool("get_run", {"run_id": run_id, "page": 7})
        assert looked.is_error
        assert "pages 0 to 0 only" in text(looked)


async def test_a_run_can_be_started_while_its_plan_is_still_being_written(tmp_path: Path) -> None:
    gate = anyio.Event()
    async with planned(tmp_path, gate) as client:
        arguments: dict[str, JsonValue] = {"question": "Long?", "max_wait_s": 0.2}
        early = await client.call_tool("plan_only", arguments)
        assert "Still working: planning" in text(early)
        run_id = data(early)["run_id"]
        again = await client.call_tool("orchestrate", {"run_id": run_id, "max_wait_s": 0.2})
        assert "Still working: planning" in text(again)
        gate.set()
        late = await client.call_tool("get_run", {"run_id": run_id, "wait_s": 30})
        assert data(late)["status"] == "finished"
        assert data(late)["answer"] == "The answer."


async def test_a_run_keeps_what_it_was_asked_with(tmp_path: Path) -> None:
    async with served(tmp_path, ["Done."]) as (client, _):
        run_id = data(await client.call_tool("orchestrate", {"question": "Q"}))["run_id"]
        for extra in ({"local_only": True}, {"exclude": ["solo"]}, {"question": "Other?"}):
            refused = await client.call_tool("orchestrate", {"run_id": run_id, **extra})
            assert refused.is_error
            assert next(iter(extra)) in text(refused)


async def test_a_run_whose_process_died_is_shown_as_interrupted(tmp_path: Path) -> None:
    async with served(tmp_path, ["Done."]) as (client, runs):
        orchestrator = runs.orchestrator
        run = await orchestrator.create(
            RunRequest(question="Q", strategy="single"), principal="local"
        )
        await orchestrator.store.save_run(run.model_copy(update={"status": "running"}))
        seen = await client.call_tool("get_run", {"run_id": run.run_id})
        assert data(seen)["status"] == "interrupted"
        assert "orchestrate" in text(seen)


async def test_an_unknown_run_is_an_error_that_the_reader_of_a_resource_sees(
    tmp_path: Path,
) -> None:
    async with served(tmp_path, ["Done."]) as (client, _):
        with pytest.raises(MCPError, match="no run 'ffffffff'"):
            await client.read_resource("podium://runs/ffffffff")


async def test_the_receipt_comes_with_get_run(tmp_path: Path) -> None:
    async with served(tmp_path, ["Done."]) as (client, _):
        file = {"name": "a.txt", "text": "some text"}
        answered = await client.call_tool("orchestrate", {"question": "Q", "files": [file]})
        seen = await client.call_tool("get_run", {"run_id": data(answered)["run_id"]})
        receipt = cast("dict[str, JsonValue]", data(seen)["receipt"])
        assert receipt["inputs"] == [{"name": "a.txt", "bytes_given": 9, "bytes_sent": 9}]
        assert receipt["calls"] == 1


@asynccontextmanager
async def planned(folder: Path, gate: anyio.Event) -> AsyncGenerator[Client]:
    """A client of a server whose conductor writes its plan once the gate is open."""

    async def script(prompt: Prompt) -> str:
        if "You lead a team" not in prompt.messages[-1].text:
            return "The answer."
        await gate.wait()
        return '{"steps": [{"subtask": "Answer it.", "worker": "solo", "access": []}]}'

    worker = ScriptedWorker.named("solo", script)
    settings = Settings(store=folder / "podium.db")
    async with open_store(settings.store) as store:
        pool = Pool(workers=(worker,), conductor="solo")
        orchestrator = Orchestrator(store, pool, Caller(store), {"conductor": Conductor()})
        async with (
            open_runs(orchestrator) as runs,
            Client(build_server(runs, settings, reads_paths=False)) as client,
        ):
            yield client
