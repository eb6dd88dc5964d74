"""The same question asked twice: one run, paid once, unless it is to be fresh."""

import sqlite3
import threading
from contextlib import closing

import anyio
import anyio.to_thread
import pytest
from mcp import Client
from pydantic import JsonValue
from tests.command_line import CommandLine, use_hosted
from tests.flow.client import connected, data, http_server
from tests.provider_simulator import Answer, Asked, Provider, openai_reply

BOUND_S = 90
ASKED: dict[str, JsonValue] = {"question": "Which?", "strategy": "single", "max_wait_s": 0.3}


class Gate:
    """A provider that replies once it is let."""

    def __init__(self) -> None:
        self.open = threading.Event()

    def __call__(self, asked: Asked) -> Answer:
        assert self.open.wait(BOUND_S)
        return openai_reply("That one.")


@pytest.fixture
def gate(podium: CommandLine, provider: Provider) -> Gate:
    gate = Gate()
    provider.answers(gate)
    use_hosted(podium, provider.url)
    return gate


async def ask_at_once(clients: list[Client], arguments: dict[str, JsonValue]) -> list[str]:
    """Ask the same of every client at the same time; the ids of the runs that they are told."""
    told: dict[int, str] = {}

    async def ask(at: int, client: Client) -> None:
        result = data(await client.call_tool("orchestrate", arguments))
        assert result["status"] == "running"
        told[at] = str(result["run_id"])

    async with anyio.create_task_group() as group:
        for at, client in enumerate(clients):
            group.start_soon(ask, at, client)
    return [told[at] for at in sorted(told)]


@pytest.mark.parametrize("fresh", [False, True])
async def test_two_servers_that_are_asked_the_same_at_once_pay_once(
    podium: CommandLine, provider: Provider, gate: Gate, fresh: bool
) -> None:
    with anyio.fail_after(BOUND_S):
        async with connected(podium) as one, connected(podium) as other:
            try:
                runs = await ask_at_once([one, other], {**ASKED, "fresh": fresh})
            finally:
                gate.open.set()
            for client, run_id in zip((one, other), runs, strict=True):
                arguments: dict[str, JsonValue] = {"run_id": run_id, "wait_s": 60}
                ended = data(await client.call_tool("get_run", arguments))
                assert (ended["status"], ended["answer"]) == ("finished", "That one.")

    assert len(set(runs)) == (2 if fresh else 1)
    assert len(provider.requests) == (2 if fresh else 1)


async def test_a_client_that_was_cut_off_asks_again_and_is_told_for_nothing(
    podium: CommandLine, provider: Provider, gate: Gate
) -> None:
    """The answer that nobody was there to be told waits for the same question."""
    asking = ASKED | {"max_wait_s": 60}
    with anyio.fail_after(BOUND_S):
        async with http_server(podium) as url:
            async with Client(url) as cut, anyio.create_task_group() as group:
                group.start_soon(cut.call_tool, "orchestrate", asking)
                await anyio.to_thread.run_sync(_asked, provider)
                group.cancel_scope.cancel()
            gate.open.set()
            await _finished(podium)

            async with Client(url) as client:
                again = data(await client.call_tool("orchestrate", asking))
                assert (again["status"], again["answer"]) == ("finished", "That one.")
                assert len(provider.requests) == 1
                anew = data(await client.call_tool("orchestrate", asking))
                assert anew["run_id"] != again["run_id"]
                assert len(provider.requests) == 2


def _asked(provider: Provider) -> None:
    while not provider.requests:
        threading.Event().wait(0.01)


async def _finished(podium: CommandLine) -> None:
    """Wait until the one run has finished, as the ledger's file has it."""
    with closing(sqlite3.connect(podium.ledger)) as connection:
        query = "SELECT status FROM runs"
        while connection.execute(query).fetchall() != [("finished",)]:  # noqa: ASYNC110
            await anyio.sleep(0.02)
