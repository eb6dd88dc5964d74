"""Twenty questions at once: all are answered, and no worker is asked more than it may be."""

from pathlib import Path

import anyio
import pytest
from mcp import Client
from tests.command_line import CommandLine
from tests.flow.client import Transport, connected, data, rows

from podium_lab.bench.durable.asking import asking
from podium_lab.bench.durable.paying import Told, open_provider
from podium_lab.bench.durable.served import POOL

BOUND_S = 120
QUESTIONS = 20
AT_ONCE = 3


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_twenty_runs_at_once_share_what_a_worker_can_do(
    tmp_path: Path, transport: Transport
) -> None:
    podium = CommandLine(tmp_path)
    answers: dict[str, str] = {}
    told: dict[str, list[float]] = {}
    said: list[str] = []

    async def ask(client: Client, name: str) -> None:
        heard = told.setdefault(name, [])

        async def note(progress: float, total: float | None, message: str | None) -> None:
            heard.append(progress)
            said.append(message or "")

        found = await client.call_tool("orchestrate", asking(name, 2), progress_callback=note)
        while data(found)["status"] == "running":
            run_id = data(found)["run_id"]
            found = await client.call_tool("get_run", {"run_id": run_id, "wait_s": 30})
        answers[name] = str(data(found)["answer"])

    with anyio.fail_after(BOUND_S):
        async with open_provider(0.02) as provider:
            podium.pool.write_text(POOL.format(url=provider.url("podium"), parallel=AT_ONCE))
            async with connected(podium, transport) as client, anyio.create_task_group() as group:
                for number in range(QUESTIONS):
                    group.start_soon(ask, client, f"q{number}")
    for number in range(QUESTIONS):
        name = f"q{number}"
        assert answers[name].startswith(f"Part 1 of {name} is done:")
        assert told[name] == sorted(set(told[name]))
    assert len(provider.calls("paid")) == 2 * QUESTIONS
    assert any("in the queue of solver" in message for message in said)
    assert most_at_once(provider.told) <= AT_ONCE
    assert rows(podium, "SELECT DISTINCT status FROM runs") == [("finished",)]


def most_at_once(told: list[Told]) -> int:
    """How many calls the provider had begun and not yet paid for."""
    at_once = most = 0
    for it in told:
        at_once += {"begun": 1, "paid": -1}.get(it.kind, 0)
        most = max(most, at_once)
    return most
