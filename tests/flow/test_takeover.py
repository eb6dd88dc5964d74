"""Two servers on one ledger: one is suspended, killed or told to stop a run, the other looks on."""

import signal
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest
from mcp import Client
from pydantic import JsonValue
from tests.flow.client import data

from podium.store import Store, open_store
from podium.trace import Run
from podium_lab.bench.durable.asking import asking
from podium_lab.bench.durable.paying import Paid, Told, open_provider
from podium_lab.bench.durable.served import Server, write_pool

BOUND_S = 120
LEASE_S = 1.0
DELAY_S = 0.3


@dataclass(frozen=True)
class Pair:
    """Two servers, their provider and their ledger."""

    left: Server
    right: Server
    provider: Paid
    store: Store

    async def ask(self, name: str) -> str:
        """Ask the left server; the run's id."""
        arguments = asking(name, 2) | {"max_wait_s": 0.01}
        async with Client(self.left.url) as client:
            return str(data(await client.call_tool("orchestrate", arguments))["run_id"])

    async def until(self, holds: Callable[[], Awaitable[bool]]) -> None:
        """Wait for something that another process does."""
        while not await holds():  # noqa: ASYNC110
            await anyio.sleep(0.02)

    async def told(self, kind: str, server: str, name: str) -> None:
        """Wait until the provider has told that of a call."""

        async def holds() -> bool:
            return bool(self.calls(kind, server, name))

        await self.until(holds)

    def calls(self, kind: str, server: str, name: str) -> list[Told]:
        wanted = (kind, server, name)
        return [it for it in self.provider.told if (it.kind, it.server, it.question) == wanted]

    async def finished(self, run_id: str) -> Run:
        async def holds() -> bool:
            return (await self.store.run(run_id)).status == "finished"

        await self.until(holds)
        return await self.store.run(run_id)


@asynccontextmanager
async def open_pair(folder: Path) -> AsyncGenerator[Pair]:
    async with open_provider(DELAY_S, held=True) as provider:
        left, right = (
            Server(name, folder, write_pool(folder, name, provider.url(name), 4), LEASE_S)
            for name in ("left", "right")
        )
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(left.start)
                group.start_soon(right.start)
            async with open_store(folder / "podium.db") as store:
                yield Pair(left, right, provider, store)
        finally:
            await left.aclose()
            await right.aclose()


async def test_a_suspended_server_that_lost_its_run_stops_without_spending(tmp_path: Path) -> None:
    with anyio.fail_after(BOUND_S):
        async with open_pair(tmp_path) as pair:
            run_id = await pair.ask("q")
            await pair.told("begun", "left", "q")
            pair.left.signal(signal.SIGSTOP)
            await pair.provider.let_go()
            run = await pair.finished(run_id)
            assert len(await _paid(pair.store, run_id)) == 2

            pair.left.signal(signal.SIGCONT)

            async def recorded() -> bool:
                return len(await _paid(pair.store, run_id)) == 3

            await pair.until(recorded)
            async with Client(pair.left.url) as client:
                seen = data(await client.call_tool("get_run", {"run_id": run_id}))
            assert (seen["status"], seen["answer"]) == ("finished", run.answer)
            assert len(pair.calls("begun", "left", "q")) == 1
            assert len(pair.calls("begun", "right", "q")) == 2
            assert await pair.store.running() == ()


async def _paid(store: Store, run_id: str) -> list[str]:
    """The replies that are on the record of a run, the late ones too."""
    return [call.reply for call in await store.calls(run_id) if call.reply]


async def test_a_run_that_was_stopped_is_left_alone_and_one_whose_server_died_is_not(
    tmp_path: Path,
) -> None:
    with anyio.fail_after(BOUND_S):
        async with open_pair(tmp_path) as pair:
            stopped, orphan = await pair.ask("stopped"), await pair.ask("orphan")
            await pair.told("begun", "left", "stopped")
            await pair.told("begun", "left", "orphan")
            async with Client(pair.left.url) as client:
                ended = data(await client.call_tool("cancel_run", {"run_id": stopped}))
                assert ended["status"] == "stopped"

            pair.left.signal(signal.SIGKILL)
            await pair.provider.let_go()
            await pair.finished(orphan)

            assert (await pair.store.run(stopped)).status == "stopped"
            assert pair.calls("begun", "right", "stopped") == []


@pytest.mark.parametrize("how", ["get_run", "cancel_run", "orchestrate"])
async def test_a_run_of_one_server_is_seen_stopped_and_attached_to_through_the_other(
    tmp_path: Path, how: str
) -> None:
    with anyio.fail_after(BOUND_S):
        async with open_pair(tmp_path) as pair:
            run_id = await pair.ask("q")
            await pair.told("begun", "left", "q")
            arguments: dict[str, JsonValue] = {"run_id": run_id}
            async with Client(pair.right.url) as client:
                if how == "cancel_run":
                    ended = data(await client.call_tool(how, arguments))
                    assert ended["status"] == "stopped"
                    await pair.told("gone", "left", "q")
                else:
                    await pair.provider.let_go()
                    if how == "get_run":
                        arguments["wait_s"] = 60
                    ended = data(await client.call_tool(how, arguments))
                    assert ended["status"] == "finished"
            assert pair.calls("begun", "right", "q") == []
            assert await pair.store.running() == ()
