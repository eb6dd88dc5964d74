"""Podium called from another MCP server, which passes its tools on and delegates to it."""

import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from pydantic import JsonValue
from tests.command_line import CommandLine
from tests.flow.client import Era, Transport, data, http_server, rows, text

from podium_lab.bench.durable.asking import asking
from podium_lab.bench.durable.paying import Paid, open_provider
from podium_lab.bench.durable.served import POOL

BOUND_S = 90
AT_ONCE = 8
PATIENCE_S = 10.0
LONGEST = 65_536
"""Bytes of what a chain says before it listens."""
MODERN: Era = "2026-07-28"
Link = tuple[Transport, Era]
CHAINS: list[tuple[Link, Link]] = [
    (("stdio", "legacy"), ("http", MODERN)),
    (("stdio", MODERN), ("http", "legacy")),
    (("http", "legacy"), ("stdio", MODERN)),
    (("http", MODERN), ("stdio", "legacy")),
]
"""How the client reaches the chain, and how the chain reaches Podium."""
in_every_way = pytest.mark.parametrize(
    ("outer", "inner"), CHAINS, ids=[f"{'-'.join(a)}-then-{'-'.join(b)}" for a, b in CHAINS]
)


@dataclass(frozen=True)
class Chained:
    """A client of a server that rests on Podium, and who is paid for its answers."""

    client: Client
    provider: Paid
    podium: CommandLine

    async def begun(self, calls: int = 1) -> None:
        """Wait until the provider has been asked that often."""
        while len(self.provider.calls("begun")) < calls:  # noqa: ASYNC110
            await anyio.sleep(0.02)

    def statuses(self) -> list[object]:
        """What has become of the runs."""
        return [status for (status,) in rows(self.podium, "SELECT status FROM runs")]


@asynccontextmanager
async def open_chain(
    folder: Path, outer: Link, inner: Link, *, patience_s: float = PATIENCE_S, **settings: str
) -> AsyncGenerator[Chained]:
    """A client, a server that rests on Podium, Podium, and a provider that waits to be let go."""
    named = {f"PODIUM_{name.upper()}": value for name, value in settings.items()}
    podium = CommandLine(folder, {"PODIUM_STRATEGY": "single"} | named)
    async with open_provider(0.05, held=True) as provider:
        podium.pool.write_text(POOL.format(url=provider.url("podium"), parallel=AT_ONCE))
        async with reached(podium, inner[0]) as place:
            options = ["--era", inner[1], "--patience-s", str(patience_s), *place]
            async with client_of(podium, outer, options) as client:
                yield Chained(client, provider, podium)


@asynccontextmanager
async def reached(podium: CommandLine, transport: Transport) -> AsyncGenerator[list[str]]:
    """Where the chain finds Podium: a command to start, or the address of one that is served."""
    if transport == "stdio":
        yield podium.argv("serve")
        return
    async with http_server(podium) as url:
        yield [url]


@asynccontextmanager
async def client_of(podium: CommandLine, link: Link, options: list[str]) -> AsyncGenerator[Client]:
    """A client of the chain."""
    transport, era = link
    program = str(Path(__file__).parent / "chaining_server.py")
    if transport == "stdio":
        parameters = StdioServerParameters(
            command=sys.executable, args=[program, *options], env=podium.environ, cwd=podium.folder
        )
        async with Client(parameters, mode=era) as client:
            yield client
        return
    process = await anyio.open_process(
        [sys.executable, program, "--http", *options], stdin=None, stdout=None,
        stderr=subprocess.PIPE, cwd=podium.folder, env=podium.environ,
    )  # fmt: skip
    assert process.stderr is not None
    try:
        line = await BufferedByteReceiveStream(process.stderr).receive_until(b"/mcp\n", LONGEST)
        async with Client(f"{line.decode().split()[-1]}/mcp", mode=era) as client:
            yield client
    finally:
        process.terminate()
        with anyio.CancelScope(shield=True):
            await process.aclose()


def question(name: str) -> dict[str, JsonValue]:
    return {"question": f"Work on [{name}]."}


@in_every_way
async def test_calls_at_once_through_a_chain_each_get_their_own_answer(
    tmp_path: Path, outer: Link, inner: Link
) -> None:
    """Half of them passed on, half of them delegated; all are at work before one is answered."""
    answers: dict[str, str] = {}
    told: dict[str, list[float]] = {}

    async def ask(chained: Chained, name: str, tool: str) -> None:
        heard = told.setdefault(name, [])

        async def note(progress: float, total: float | None, message: str | None) -> None:
            heard.append(progress)

        result = await chained.client.call_tool(tool, question(name), progress_callback=note)
        assert not result.is_error, text(result)
        answers[name] = text(result)
        if tool == "orchestrate":
            answers[name] = str(data(result)["answer"])

    names = [f"q{number}" for number in range(AT_ONCE)]
    with anyio.fail_after(BOUND_S):
        async with open_chain(tmp_path, outer, inner) as chained:
            tools = [tool.name for tool in (await chained.client.list_tools()).tools]
            assert tools[-1] == "ask_team"
            assert "orchestrate" in tools
            async with anyio.create_task_group() as group:
                for number, name in enumerate(names):
                    tool = "orchestrate" if number % 2 else "ask_team"
                    group.start_soon(ask, chained, name, tool)
                await chained.begun(AT_ONCE)
                await chained.provider.let_go()
            assert chained.statuses() == ["finished"] * AT_ONCE

    for name in names:
        assert answers[name].startswith(f"Part 0 of {name} is done:")
        assert told[name] == sorted(set(told[name]))
        assert told[name]
    assert len(chained.provider.calls("begun")) == AT_ONCE


@in_every_way
async def test_a_call_that_is_cancelled_through_a_chain_leaves_its_run_at_work(
    tmp_path: Path, outer: Link, inner: Link
) -> None:
    with anyio.fail_after(BOUND_S):
        async with open_chain(tmp_path, outer, inner) as chained:
            await cut_off(chained)
            assert not (await chained.client.call_tool("list_workers", {})).is_error
            assert chained.statuses() == ["running"]
            await chained.provider.let_go()
            again = await chained.client.call_tool("ask_team", question("q"))
            assert text(again) == "Part 0 of q is done: reply 1."
            assert chained.statuses() == ["finished"]
            assert len(chained.provider.calls("begun")) == 1


@in_every_way
async def test_a_call_that_is_cancelled_through_a_chain_stops_its_run_where_that_is_set(
    tmp_path: Path, outer: Link, inner: Link
) -> None:
    """The cancel comes through to Podium, and from there to the provider."""
    with anyio.fail_after(BOUND_S):
        async with open_chain(tmp_path, outer, inner, on_disconnect="stop") as chained:
            await cut_off(chained)
            while chained.statuses() != ["stopped"]:  # noqa: ASYNC110
                await anyio.sleep(0.02)
            while not chained.provider.calls("gone"):  # noqa: ASYNC110
                await anyio.sleep(0.02)


async def cut_off(chained: Chained) -> None:
    """Ask, and give up once the provider is at work."""
    async with anyio.create_task_group() as group:
        group.start_soon(chained.client.call_tool, "ask_team", question("q"))
        await chained.begun()
        group.cancel_scope.cancel()


@pytest.mark.parametrize(("outer", "inner"), CHAINS[::3], ids=["from-stdio", "from-http"])
async def test_a_chain_hears_of_errors_as_its_own_callers_would(
    tmp_path: Path, outer: Link, inner: Link
) -> None:
    with anyio.fail_after(BOUND_S):
        async with open_chain(tmp_path, outer, inner) as chained:
            for tool, arguments, words in (
                ("ask_team", {"question": " "}, "question: is empty"),
                ("orchestrate", question("q") | {"workers": ["nobody"]}, "'nobody'"),
                ("get_run", {"run_id": "ffffffff"}, "ffffffff"),
                ("ask_team", question("q") | {"max_tokens": 1}, "max_tokens"),
            ):
                failed = await chained.client.call_tool(tool, arguments)
                assert failed.is_error
                assert words in text(failed)
            assert chained.provider.calls("begun") == set()


async def test_a_chain_that_asks_the_same_twice_is_answered_twice_and_pays_once(
    tmp_path: Path,
) -> None:
    """One call waits for what the other asked; neither may wait for the other for ever."""
    answers: list[str] = []

    async def ask(chained: Chained) -> None:
        answers.append(text(await chained.client.call_tool("ask_team", question("q"))))

    with anyio.fail_after(BOUND_S):
        async with (
            open_chain(tmp_path, ("stdio", MODERN), ("stdio", MODERN)) as chained,
            anyio.create_task_group() as group,
        ):
            for _ in range(2):
                group.start_soon(ask, chained)
            await chained.begun()
            await chained.provider.let_go()
    assert answers == ["Part 0 of q is done: reply 1."] * 2
    assert len(chained.provider.calls("begun")) == 1


async def test_a_chain_asks_again_for_as_long_as_the_work_goes_on(tmp_path: Path) -> None:
    still = anyio.Event()

    async def note(progress: float, total: float | None, message: str | None) -> None:
        if message == "still working":
            still.set()

    links: tuple[Link, Link] = (("stdio", MODERN), ("stdio", MODERN))
    with anyio.fail_after(BOUND_S):
        async with (
            open_chain(tmp_path, *links, patience_s=0.1) as chained,
            anyio.create_task_group() as group,
        ):

            async def ask() -> None:
                result = await chained.client.call_tool(
                    "ask_team", asking("q", 3), progress_callback=note
                )
                assert text(result).startswith("Part 2 of q is done:")

            group.start_soon(ask)
            await still.wait()
            await chained.provider.let_go()
    assert len(chained.provider.calls("begun")) == 3
