"""What would break a connection never gets on a wire: stdio and HTTP, both eras."""

import json
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from mcp import Client, MCPError
from mcp.client.stdio import StdioServerParameters
from mcp.types import PromptReference, TextContent, TextResourceContents
from pydantic import JsonValue
from tests.command_line import CommandLine, finish, use_hosted
from tests.flow.client import Era, Transport, connected, data, text
from tests.provider_simulator import Provider, openai_reply

BOUND_S = 60
MENDED = "half \ufffd emoji"
PROGRAM = str(Path(__file__).with_name("breaking_server.py"))
WIRES = pytest.mark.parametrize(
    ("transport", "era"),
    [(transport, era) for transport in ("stdio", "http") for era in ("legacy", "2026-07-28")],
)


@asynccontextmanager
async def breaking(transport: Transport, era: Era) -> AsyncGenerator[Client]:
    """A client of the server whose handlers give what breaks a connection."""
    if transport == "stdio":
        parameters = StdioServerParameters(command=sys.executable, args=[PROGRAM])
        async with Client(parameters, mode=era) as client:
            yield client
        return
    server = _http_server()
    try:
        assert server.stdout is not None
        url = (await anyio.to_thread.run_sync(server.stdout.readline)).decode().strip()
        async with Client(url, mode=era) as client:
            yield client
    finally:
        server.terminate()
        server.communicate(timeout=10)


def _http_server() -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, PROGRAM, "--http"], stdout=subprocess.PIPE)


@WIRES
async def test_half_an_emoji_and_numbers_without_json_break_nothing(
    transport: Transport, era: Era
) -> None:
    told: list[tuple[float, str | None]] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, message))

    with anyio.fail_after(BOUND_S):
        async with breaking(transport, era) as client:
            result = await client.call_tool("result", progress_callback=note)
            assert text(result) == MENDED
            assert data(result) == {
                "score": None,
                "texts": [MENDED],
                "deep": {"\ufffd": [None, None, {"more": MENDED}]},
            }
            assert told == [(1.0, MENDED), (2.0, MENDED), (3.0, MENDED)]

            (read,) = (await client.read_resource("breaking://resource")).contents
            assert isinstance(read, TextResourceContents)
            assert read.text == MENDED
            (message,) = (await client.get_prompt("prompt")).messages
            assert isinstance(message.content, TextContent)
            assert message.content.text == MENDED
            reference = PromptReference(name="prompt")
            completed = await client.complete(reference, {"name": "x", "value": ""})
            assert completed.completion.values == [MENDED]


@WIRES
async def test_errors_are_clean_short_and_never_blank(transport: Transport, era: Era) -> None:
    with anyio.fail_after(BOUND_S):
        async with breaking(transport, era) as client:
            failed = await client.call_tool("failure")
            assert (failed.is_error, text(failed)) == (True, MENDED)
            silent = await client.call_tool("silent")
            assert silent.is_error
            assert text(silent).startswith("silent failed by a fault in Podium")
            long = await client.call_tool("long_failure")
            assert len(text(long)) < 8_100
            assert text(long).endswith("[cut: 49999 characters]")
            with pytest.raises(MCPError, match=MENDED):
                await client.read_resource("breaking://missing/x")
            assert text(await client.call_tool("failure")) == MENDED


def test_a_client_that_sends_half_an_emoji_is_not_cut_off(podium: CommandLine) -> None:
    """Its line is no JSON, so nobody can answer it; the next one is answered."""
    hello: dict[str, JsonValue] = {"protocolVersion": "2025-06-18", "capabilities": {}}
    hello["clientInfo"] = {"name": "tests", "version": "1"}
    lines: list[dict[str, JsonValue]] = [
        {"id": 0, "method": "initialize", "params": hello},
        {"method": "notifications/initialized"},
        {"id": "\ud83d", "method": "tools/list"},
        {"id": 1, "method": "tools/call", "params": {"name": "\ud83d"}},
        {"id": 2, "method": "tools/list"},
    ]
    server = podium.start("serve", piped=True)
    assert server.stdin is not None
    assert server.stdout is not None
    for line in lines:
        server.stdin.write(json.dumps({"jsonrpc": "2.0", **line}).encode() + b"\n")
    server.stdin.flush()
    answers = [json.loads(server.stdout.readline()) for _ in range(2)]
    assert [answer["id"] for answer in answers] == [0, 2]
    assert finish(server).code == 0


@WIRES
async def test_half_an_emoji_of_a_provider_reaches_the_client_mended(
    podium: CommandLine, provider: Provider, transport: Transport, era: Era
) -> None:
    provider.answers(openai_reply("half \ud83d emoji"))
    use_hosted(podium, provider.url)
    arguments: dict[str, JsonValue] = {"question": "Which half?", "strategy": "single"}
    with anyio.fail_after(BOUND_S):
        async with connected(podium, transport, era) as client:
            answered = await client.call_tool("orchestrate", arguments)
            assert data(answered)["answer"] == MENDED
            assert text(answered).startswith(MENDED)
            run_id = str(data(answered)["run_id"])
            (read,) = (await client.read_resource(f"podium://runs/{run_id}/steps/0")).contents
            assert MENDED in read.model_dump_json()
            found = await client.call_tool("search_runs", {"text": "emoji"})
            assert run_id in text(found)
