"""A client that gives up, at each stage of a run, over every wire: what is closed and what is left.

A time-out of the client's own, a cancel and a disconnect all come to this.
"""

from pathlib import Path
from typing import cast

import anyio
import pytest
from mcp import Client, MCPError
from pydantic import JsonValue
from tests.command_line import CommandLine, add_hosted
from tests.flow.client import Era, Transport, connected, data, rows
from tests.provider_simulator import Answer, Provider, openai_reply

from podium_lab.bench.durable.paying import open_provider
from podium_lab.bench.durable.served import POOL

BOUND_S = 60
CLOSED_WITHIN_S = 5.0
STALL = Answer(before="STALL")
STEPS: list[JsonValue] = [
    {"worker": "hand", "subtask": "List the facts.", "access": []},
    {"worker": "far", "subtask": "Weigh them.", "access": [0]},
    {"worker": "boss", "subtask": "Say it.", "access": [0, 1]},
]
STAGES: dict[str, dict[str, JsonValue]] = {
    "planning": {"question": "Which?", "conductor": "far"},
    "a step": {"question": "Which?", "plan": STEPS},
}
"""What to ask so that `far`, which stands still, is at work in that stage."""
WIRES = pytest.mark.parametrize(
    ("transport", "era"),
    [(transport, era) for transport in ("stdio", "http") for era in ("legacy", "2026-07-28")],
)


async def stalling(provider: Provider) -> None:
    """Wait until the provider stands still."""
    while not provider.stalling.is_set():  # noqa: ASYNC110
        await anyio.sleep(0.02)


async def hung_up(provider: Provider) -> None:
    """Wait until the connection to the provider is closed."""
    with anyio.fail_after(CLOSED_WITHIN_S):
        while not provider.disconnected.is_set():  # noqa: ASYNC110
            await anyio.sleep(0.02)


async def give_up(client: Client, provider: Provider, stage: str) -> None:
    """Ask, and cancel the call in that stage."""
    async with anyio.create_task_group() as group:
        group.start_soon(client.call_tool, "orchestrate", STAGES[stage])
        await stalling(provider)
        group.cancel_scope.cancel()


@WIRES
@pytest.mark.parametrize("stage", STAGES)
async def test_a_call_that_is_cancelled_closes_what_is_paid_for_and_the_next_one_works(
    podium: CommandLine, provider: Provider, transport: Transport, era: Era, stage: str
) -> None:
    provider.answers(STALL)
    add_hosted(podium, provider.url)
    podium.config.write_text('on_disconnect = "stop"\n')
    with anyio.fail_after(BOUND_S):
        async with connected(podium, transport, era) as client:
            await give_up(client, provider, stage)
            await hung_up(provider)
            while rows(podium, "SELECT status FROM runs") != [("stopped",)]:  # noqa: ASYNC110
                await anyio.sleep(0.02)

            provider.answers(openai_reply("Weighed."))
            (run_id,) = rows(podium, "SELECT run_id FROM runs")[0]
            again = await client.call_tool("orchestrate", {**STAGES["a step"], "fresh": True})
            assert data(again)["status"] == "finished"
            assert data(again)["run_id"] != run_id


@pytest.mark.parametrize("stage", STAGES)
async def test_a_run_that_is_stopped_by_its_id_closes_what_is_paid_for(
    podium: CommandLine, provider: Provider, stage: str
) -> None:
    provider.answers(STALL)
    add_hosted(podium, provider.url)
    with anyio.fail_after(BOUND_S):
        async with connected(podium) as client:
            asking: dict[str, JsonValue] = {**STAGES[stage], "max_wait_s": 0.1}
            run = data(await client.call_tool("orchestrate", asking))
            await stalling(provider)
            ended = await client.call_tool("cancel_run", {"run_id": run["run_id"]})
            assert data(ended)["status"] == "stopped"
            await hung_up(provider)


@pytest.mark.parametrize(("transport", "era"), [("stdio", "legacy"), ("http", "2026-07-28")])
async def test_a_council_that_ends_after_its_client_gave_up_is_found_and_paid_once(
    tmp_path: Path, transport: Transport, era: Era
) -> None:
    """The client's own limit strikes while all three advisers are at work."""
    podium = CommandLine(tmp_path)
    advisers: list[JsonValue] = [
        {"worker": "solver", "subtask": f"Do part {part}.", "access": []} for part in range(3)
    ]
    chair: JsonValue = {"worker": "solver", "subtask": "Do part 3.", "access": [0, 1, 2]}
    asking: dict[str, JsonValue] = {"question": "Work on [q].", "plan": [*advisers, chair]}
    with anyio.fail_after(BOUND_S):
        async with open_provider(0.05, held=True) as provider:
            podium.pool.write_text(POOL.format(url=provider.url("podium"), parallel=3))
            async with connected(podium, transport, era) as client:
                with pytest.raises(MCPError):
                    await client.call_tool("orchestrate", asking, read_timeout_seconds=2)
                while len(provider.calls("begun")) < 3:  # noqa: ASYNC110
                    await anyio.sleep(0.02)
                await provider.let_go()
                while rows(podium, "SELECT status FROM runs") != [("finished",)]:  # noqa: ASYNC110
                    await anyio.sleep(0.02)

                found = data(await client.call_tool("search_runs", {"text": "Work on"}))
                (run,) = cast("list[dict[str, JsonValue]]", found["runs"])
                seen = data(await client.call_tool("get_run", {"run_id": run["run_id"]}))
                assert str(seen["answer"]).startswith("Part 3 of q is done:")
    assert len(provider.calls("paid")) == 4
