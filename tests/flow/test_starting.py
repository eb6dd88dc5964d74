"""`podium serve` as clients start it: from anywhere, with keys or without, and killed with them."""

import json
import os
import signal
import sys
from pathlib import Path

import anyio
import pytest
from pydantic import JsonValue
from tests.command_line import CommandLine
from tests.engine_processes import is_running, until
from tests.flow.client import Era, connected, data, rows, text

BOUND_S = 60
GONE_WITHIN_S = 10.0
TWO_KEYS = """
[[worker]]
name = "first"
kind = "openai"
model = "gpt-5.2"
api_key_env = "FIRST_KEY"

[[worker]]
name = "second"
kind = "anthropic"
model = "claude-haiku-4-5"
api_key_env = "SECOND_KEY"
"""


@pytest.mark.parametrize("keys", [(), ("FIRST_KEY",), ("FIRST_KEY", "SECOND_KEY")])
async def test_a_pool_is_served_whatever_keys_there_are_and_a_missing_one_is_named(
    tmp_path: Path, keys: tuple[str, ...]
) -> None:
    podium = CommandLine(tmp_path, dict.fromkeys(keys, "sk-no-such-key"))
    podium.pool.write_text(TWO_KEYS)
    with anyio.fail_after(BOUND_S):
        async with connected(podium) as client:
            assert len((await client.list_tools()).tools) == 7
            listed = text(await client.call_tool("list_workers", {}))
            assert "first: " in listed
            assert "second: " in listed
            for name, variable in (("first", "FIRST_KEY"), ("second", "SECOND_KEY")):
                if variable not in keys:
                    asking: dict[str, JsonValue] = {"question": "Which?", "strategy": "single"}
                    asking["workers"] = [name]
                    failed = await client.call_tool("orchestrate", asking)
                    assert data(failed)["status"] == "failed"
                    assert variable in text(failed)
                    assert "sk-no" not in failed.model_dump_json()


@pytest.mark.parametrize(
    ("keys", "worker"),
    [((), "qwen"), (("OPENAI_API_KEY",), "gpt"), (("OPENAI_API_KEY", "ANTHROPIC_API_KEY"), "cl")],
)
async def test_without_a_pool_the_keys_decide_and_any_number_will_do(
    tmp_path: Path, keys: tuple[str, ...], worker: str
) -> None:
    podium = CommandLine(tmp_path, dict.fromkeys(keys, "sk-no-such-key") | {"PODIUM_POOL": ""})
    with anyio.fail_after(BOUND_S):
        async with connected(podium) as client:
            assert len((await client.list_tools()).tools) == 7
            assert worker in text(await client.call_tool("list_workers", {}))


@pytest.mark.parametrize(
    ("settings", "pool", "words", "era"),
    [
        ("max_wait_s = 'long'\n", "", "max_wait_s", "legacy"),
        ("this is no TOML", "", "cannot be read as TOML", "2026-07-28"),
        ("", "[[worker]]\nname = 'x'\nkind = 'scripted'\nfoo = 1\n", "foo", "legacy"),
        ("", None, "pool.toml", "2026-07-28"),
        ("store = '/proc/no/ledger.db'\n", "", "/proc/no", "legacy"),
    ],
)
async def test_what_keeps_it_from_starting_is_told_to_the_client(
    tmp_path: Path, settings: str, pool: str | None, words: str, era: Era
) -> None:
    elsewhere = tmp_path / "a folder of the client's"
    elsewhere.mkdir()
    podium = CommandLine.scripted(tmp_path)
    podium.config.write_text(settings)
    if pool is None:
        podium.pool.unlink()
    elif pool:
        podium.pool.write_text(pool)
    at = CommandLine(elsewhere, places(podium, own_store="store" not in settings))
    with anyio.fail_after(BOUND_S):
        async with connected(at, era=era) as client:
            (tool,) = (await client.list_tools()).tools
            assert words in str(tool.description)
            told = await client.call_tool("orchestrate", {"question": "Which?", "rounds": 2})
            assert told.is_error
            assert words in text(told)
            assert "Traceback" not in text(told)


def places(podium: CommandLine, *, own_store: bool) -> dict[str, str]:
    """The variables that name its files, for a process that starts in another folder."""
    return {
        name: value if own_store or name != "PODIUM_STORE" else ""
        for name, value in podium.environ.items()
        if name.startswith("PODIUM_")
    }


def test_a_server_that_could_not_start_ends_with_its_client_and_says_why(tmp_path: Path) -> None:
    podium = CommandLine(tmp_path)
    done = podium("serve", stdin="")
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("Error: ")
    assert "pool.toml" in done.err


PARENT = """
import subprocess, sys, time
server = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
print(server.pid, flush=True)
for line in sys.stdin:
    server.stdin.write(line.encode())
    server.stdin.flush()
"""
"""A client that hands on what it is told to say."""
HELPER = """
import os, sys, time
open(sys.argv[1], "w").write(str(os.getpid()))
time.sleep(600)
"""
"""An assistant that works for ever."""
ABOUT: JsonValue = {"name": "test", "version": "1"}
SAID: list[dict[str, JsonValue]] = [
    {
        "id": 1,
        "method": "initialize",
        "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": ABOUT},
    },
    {"method": "notifications/initialized"},
    {
        "id": 2,
        "method": "tools/call",
        "params": {
            "name": "orchestrate", "arguments": {"question": "Which?", "strategy": "single"},
        },
    },
]  # fmt: skip


async def test_server_and_children_are_gone_soon_after_their_client_was_killed(
    tmp_path: Path,
) -> None:
    podium, began = CommandLine(tmp_path), tmp_path / "began"
    command = json.dumps([sys.executable, "-c", HELPER, str(began)])
    podium.pool.write_text(f'[[worker]]\nname = "it"\nkind = "command"\ncommand = {command}\n')
    parent = await anyio.open_process(
        [sys.executable, "-c", PARENT, *podium.argv("serve")], stderr=None, env=podium.environ
    )
    async with parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        server = int(await parent.stdout.receive())
        for line in SAID:
            await parent.stdin.send(json.dumps({"jsonrpc": "2.0", **line}).encode() + b"\n")
        await until(lambda: began.is_file() and began.read_text() != "", within_s=BOUND_S)
        helper = int(began.read_text())
        assert is_running(server)
        assert is_running(helper)
        parent.kill()
    try:
        await until(lambda: not is_running(server), within_s=GONE_WITHIN_S)
        await until(lambda: not is_running(helper), within_s=GONE_WITHIN_S)
    finally:
        for pid in filter(is_running, (server, helper)):
            os.kill(pid, signal.SIGKILL)
    assert rows(podium, "SELECT status FROM runs") == [("interrupted",)]
