"""Tasks of real servers: over both transports, through another process, and after a restart."""

import signal
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import cast

import anyio
import anyio.to_thread
import pytest
from mcp import Client, MCPError
from mcp.client.stdio import StdioServerParameters
from mcp.types import HEADER_MISMATCH
from pydantic import JsonValue
from tests.command_line import CommandLine, add_hosted
from tests.flow.client import Transport, address_of, http_server
from tests.provider_simulator import Answer, Provider, openai_reply
from tests.task_client import (
    DECLARED,
    Wire,
    call,
    cancel,
    data,
    ended,
    look,
    never_asked,
    raw,
    requests,
    result,
    task_of,
    text,
    until,
    update,
)

BOUND_S = 120
PLAN: list[JsonValue] = [
    {"worker": "far", "subtask": "First.", "access": []},
    {"worker": "far", "subtask": "Second.", "access": [0]},
]


@asynccontextmanager
async def connected(podium: CommandLine, transport: Transport) -> AsyncGenerator[Client]:
    """A client that takes tasks and can ask its user, of a `podium serve`."""
    if transport == "stdio":
        command = podium.argv("serve")
        server = StdioServerParameters(
            command=command[0], args=command[1:], env=podium.environ, cwd=podium.folder
        )
        async with Client(
            server, extensions=[DECLARED], elicitation_callback=never_asked
        ) as client:
            yield client
        return
    async with http_server(podium) as url, client_of(url) as client:
        yield client


def client_of(url: str) -> Client:
    return Client(url, extensions=[DECLARED], elicitation_callback=never_asked)


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_question_is_planned_asked_answered_and_told_through_tasks(
    podium: CommandLine, transport: Transport
) -> None:
    plan: list[JsonValue] = [
        {"worker": "caller", "subtask": "Run the tests.", "access": []},
        {"worker": "boss", "subtask": "Judge it.", "access": [0]},
    ]
    with anyio.fail_after(BOUND_S):
        async with connected(podium, transport) as client:
            planned = await ended(client, await task_of(client, "plan_only", question="What?"))
            assert data(planned)["estimate"]
            run_id = data(planned)["run_id"]
            done = await ended(client, await task_of(client, "orchestrate", run_id=run_id))
            assert data(done)["answer"] == "The answer is 42."
            assert text(done).startswith("The answer is 42.")

            task = await task_of(client, "orchestrate", question="Good?", plan=plan)
            (key,) = requests(await until(client, task, "input_required"))
            given: JsonValue = {"action": "accept", "content": {"result": "All tests pass."}}
            await update(client, task, {key: given})
            done = await ended(client, task)
            assert data(done)["status"] == "finished"
            judged = await client.call_tool("get_run", {"run_id": data(done)["run_id"], "step": 1})
            assert "All tests pass." in judged.model_dump_json()
    assert podium("verify", str(data(done)["run_id"])).code == 0


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_cancelled_task_closes_the_connection_to_the_provider(
    podium: CommandLine, provider: Provider, transport: Transport
) -> None:
    provider.answers(Answer(before="STALL"))
    add_hosted(podium, provider.url)
    with anyio.fail_after(BOUND_S):
        async with connected(podium, transport) as client:
            task = await task_of(client, "orchestrate", question="Which?", plan=PLAN)
            await anyio.to_thread.run_sync(provider.stalling.wait, 60)
            await cancel(client, task)
            assert (await look(client, task))["status"] == "cancelled"
            assert await anyio.to_thread.run_sync(provider.disconnected.wait, 5)
    assert podium("runs", "--json").rows[0]["status"] == "stopped"


@asynccontextmanager
async def in_the_second_step(
    podium: CommandLine, provider: Provider
) -> AsyncGenerator[tuple["subprocess.Popen[bytes]", str, str]]:
    """A server at work on the second step of a task's run; the server, its address, the task."""
    provider.answers(openai_reply("One."), Answer(before="STALL"))
    add_hosted(podium, provider.url)
    server = podium.start("serve", "--http", "--port", "0")
    try:
        url = await address_of(server)
        async with client_of(url) as client:
            task = await task_of(client, "orchestrate", question="Which?", plan=PLAN)
            assert await anyio.to_thread.run_sync(provider.stalling.wait, 60)
        yield server, url, task
    finally:
        server.kill()
        server.communicate()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
async def test_a_new_server_knows_the_task_of_one_that_ended_and_carries_it_on(
    podium: CommandLine, provider: Provider, how: signal.Signals
) -> None:
    with anyio.fail_after(BOUND_S):
        async with in_the_second_step(podium, provider) as (server, _, task):
            server.send_signal(how)
            await anyio.to_thread.run_sync(server.wait)
        provider.answers(openai_reply("Two."))
        async with http_server(podium) as url, client_of(url) as client:
            assert (await look(client, task))["status"] == "working"
            done = await ended(client, task)
            assert data(done)["answer"] == "Two."
            again = await look(client, task)
            assert result(again) == result(done)
    assert len(provider.requests) == 3
    assert len(podium("runs", "--json").rows) == 1


async def test_a_server_that_died_with_a_step_says_so_and_keeps_the_others(
    podium: CommandLine, provider: Provider
) -> None:
    provider.answers(Answer(before="STALL"))
    add_hosted(podium, provider.url)
    with anyio.fail_after(BOUND_S):
        server = podium.start("serve", "--http", "--port", "0")
        try:
            async with client_of(await address_of(server)) as client:
                planned = await ended(client, await task_of(client, "plan_only", question="What?"))
                run_id = data(planned)["run_id"]
                edit: Wire = {"run_id": run_id, "step": 0, "worker": "far"}
                task = await task_of(client, "run_step", **edit)
                assert await anyio.to_thread.run_sync(provider.stalling.wait, 60)
        finally:
            server.kill()
            server.communicate()
        async with http_server(podium) as url, client_of(url) as client:
            lost = await ended(client, task)
            assert result(lost)["isError"] is True
            assert f"run_step(run_id='{run_id}')" in text(lost)
            provider.answers(openai_reply("Done."))
            again = await ended(client, await task_of(client, "run_step", run_id=run_id))
            steps = cast("list[Wire]", data(again)["steps"])
            assert steps[0]["reply"] == "Done."


async def test_a_task_of_one_server_is_seen_and_cancelled_through_another(
    podium: CommandLine, provider: Provider
) -> None:
    with anyio.fail_after(BOUND_S):
        async with (
            in_the_second_step(podium, provider) as (_, there, task),
            http_server(podium) as here,
            client_of(here) as client,
        ):
            seen = await look(client, task)
            assert seen["status"] == "working"
            assert str(seen["statusMessage"]).startswith("step 2 of 2: far, Second., ")
            await cancel(client, task)
            assert (await look(client, task))["status"] == "cancelled"
            assert await anyio.to_thread.run_sync(provider.disconnected.wait, 5)
            async with client_of(there) as other:
                assert (await look(other, task))["status"] == "cancelled"


async def test_over_http_a_header_has_to_name_the_task(podium: CommandLine) -> None:
    with anyio.fail_after(BOUND_S):
        async with http_server(podium) as url, client_of(url) as client:
            task = await task_of(client, "plan_only", question="What?")
            for method in ("tasks/get", "tasks/update", "tasks/cancel"):
                with pytest.raises(MCPError) as caught:
                    await raw(client, method, {"taskId": task, "inputResponses": {}})
                assert caught.value.code == HEADER_MISMATCH
            assert (await ended(client, task))["status"] == "completed"


async def test_an_end_in_one_server_is_told_by_another(podium: CommandLine) -> None:
    with anyio.fail_after(BOUND_S):
        async with (
            connected(podium, "stdio") as one,
            http_server(podium) as url,
            client_of(url) as other,
        ):
            made = await call(one, "orchestrate", question="What?")
            done = await ended(other, str(made["taskId"]))
            assert data(done)["answer"] == "The answer is 42."
            assert result(await look(one, str(made["taskId"]))) == result(done)
