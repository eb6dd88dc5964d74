"""The MCP Inspector on the command line: both eras, stdio and HTTP.

In the newer era it declares the extension for tasks and polls; a plain call it cuts after 60 s.
The run that lasts longer takes long to prove: PODIUM_SLOW_S=75 pytest -m outside -k inspector
"""

import json
import os
import sqlite3
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

import anyio
import pytest
from pydantic import JsonValue
from tests.command_line import CommandLine
from tests.outside.programs import Program, program
from tests.outside.serving import served

pytestmark = pytest.mark.outside
Era = Literal["legacy", "modern"]
Transport = Literal["stdio", "http"]
Data = dict[str, JsonValue]
BOTH = pytest.mark.parametrize("era", ["legacy", "modern"])
TOOLS = (
    "orchestrate", "plan_only", "run_step", "get_run", "cancel_run", "search_runs", "list_workers",
)  # fmt: skip
SLOW_S = float(os.environ.get("PODIUM_SLOW_S", "6"))
"""How long the slow worker of these tests takes."""
CUTS_S = 60
"""When the Inspector gives up on a plain call."""
SLOW = """
[[worker]]
name = "slow"
kind = "command"
command = ["sh", "-c", "cat >/dev/null; sleep {seconds:g}; echo The slow answer."]
"""
ASKS_SLOW = {"question": "How slow?", "strategy": "single", "workers": ["slow"]}


@dataclass(frozen=True)
class Inspector:
    """The Inspector, pointed at a Podium."""

    program: Program
    target: tuple[str, ...]

    async def __call__(self, method: str, *options: str, within_s: float = 120) -> Data:
        """What the server gives; the Inspector thinks that nothing is wrong with it."""
        ended = await self.program(
            "--cli", *self.target, "--method", method, "--format", "json",
            "--connect-timeout", "60000", *options, within_s=within_s,
        )  # fmt: skip
        assert ended.code == 0, ended
        return cast("Data", json.loads(ended.out)["result"])

    async def call(self, tool: str, within_s: float = 120, **arguments: object) -> Data:
        """What a tool gives as data."""
        result = await self(*calling(tool, **arguments), within_s=within_s)
        assert not result.get("isError"), result
        return cast("Data", result["structuredContent"])

    async def at_once(self, **asked: Sequence[str]) -> dict[str, Data]:
        """What the server gives for each of these; each is a process of its own."""
        given: dict[str, Data] = {}
        processes = anyio.CapacityLimiter(2)

        async def ask(name: str, words: Sequence[str]) -> None:
            async with processes:
                given[name] = await self(*words)

        async with anyio.create_task_group() as group:
            for name, words in asked.items():
                group.start_soon(ask, name, words)
        return given


def calling(tool: str, **arguments: object) -> tuple[str, ...]:
    return ("tools/call", "--tool-name", tool, "--tool-args-json", json.dumps(arguments))


def names(listed: Data, key: str, name: str = "name") -> list[str]:
    return [str(found[name]) for found in cast("list[Data]", listed[key])]


@asynccontextmanager
async def inspecting(
    podium: CommandLine, transport: Transport, era: Era
) -> AsyncGenerator[Inspector]:
    """The Inspector before a Podium; on stdio it starts one for each command."""
    inspector = program("inspector", podium.folder)
    if transport == "http":
        async with served(podium) as address:
            yield Inspector(inspector, (address, "--protocol-era", era))
        return
    command = podium.argv("serve")
    entry = {"command": command[0], "args": command[1:], "env": podium.environ}
    config = podium.folder / "inspector.json"
    config.write_text(json.dumps({"mcpServers": {"podium": entry}}))
    named = ("--config", str(config), "--server", "podium")
    yield Inspector(inspector, (*named, "--protocol-era", era))


@BOTH
@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_it_walks_the_whole_of_podium(
    podium: CommandLine, transport: Transport, era: Era
) -> None:
    async with inspecting(podium, transport, era) as inspector:
        planned = await inspector.call("plan_only", question="What is the answer?")
        run_id = planned["run_id"]
        walked = await inspector.call("run_step", run_id=run_id)
        answered = await inspector.call("orchestrate", run_id=run_id)
        given = await inspector.at_once(
            tools=("tools/list", "--strict"),
            looked=calling("get_run", run_id=run_id),
            stopped=calling("cancel_run", run_id=run_id),
            found=calling("search_runs", text="answer"),
            pool=calling("list_workers"),
            resources=("resources/list",),
            templates=("resources/templates/list",),
            read=("resources/read", "--uri", f"podium://runs/{run_id}/steps/0"),
            prompts=("prompts/list",),
            prompt=("prompts/get", "--prompt-name", "delegate", "--prompt-args", "question=Why?"),
        )
    assert sorted(names(given["tools"], "tools")) == sorted(TOOLS)
    assert [step["status"] for step in cast("list[Data]", walked["steps"])].count("finished") == 1
    assert answered["answer"] == "The answer is 42."
    for tool in ("looked", "stopped"):
        assert cast("Data", given[tool]["structuredContent"])["answer"] == "The answer is 42."
    found = cast("Data", given["found"]["structuredContent"])
    assert names(found, "runs", "run_id") == [run_id]
    assert names(cast("Data", given["pool"]["structuredContent"]), "workers") == ["boss", "hand"]
    assert {"podium://runs", "podium://pool"} <= set(names(given["resources"], "resources", "uri"))
    templates = names(given["templates"], "resourceTemplates", "uriTemplate")
    assert "podium://runs/{run_id}" in templates
    assert "The facts are these" in json.dumps(given["read"]["contents"])
    assert {"delegate", "second_opinion", "review"} == set(names(given["prompts"], "prompts"))
    assert "Why?" in json.dumps(given["prompt"]["messages"])


@BOTH
async def test_two_hundred_calls_at_once_and_none_fails(podium: CommandLine, era: Era) -> None:
    async with inspecting(podium, "http", era) as inspector:
        load = ("--load", "--load-requests", "200", "--load-concurrency", "20")
        loaded = await inspector(*calling("plan_only", question="What?"), *load, within_s=400)
    assert (loaded["requests"], loaded["ok"], loaded["errors"]) == (200, 200, 0)


async def test_a_slow_run_is_waited_for_as_a_task(podium: CommandLine) -> None:
    podium.pool.write_text(podium.pool.read_text() + SLOW.format(seconds=SLOW_S))
    async with inspecting(podium, "http", "modern") as inspector:
        answered = await inspector.call("orchestrate", within_s=SLOW_S + 120, **ASKS_SLOW)
    assert answered["answer"] == "The slow answer."
    assert tasks_of(podium.ledger) == ["orchestrate"]


async def test_a_plain_call_hands_over_before_it_is_cut(podium: CommandLine) -> None:
    podium.pool.write_text(podium.pool.read_text() + SLOW.format(seconds=SLOW_S))
    # The usual waiting time is what a run of more than a minute is handed over by.
    waits = {} if SLOW_S > CUTS_S else {"max_wait_s": 1}
    async with inspecting(podium, "http", "legacy") as inspector:
        handed = await inspector.call("orchestrate", **ASKS_SLOW, **waits)
        looked = await inspector.call("get_run", run_id=handed["run_id"], wait_s=CUTS_S - 10)
    assert handed["status"] == "running"
    assert looked["answer"] == "The slow answer."
    assert tasks_of(podium.ledger) == []


def tasks_of(ledger: Path) -> list[str]:
    """The tools that clients were given tasks for."""
    with sqlite3.connect(ledger) as connection:
        found = [str(row[0]) for row in connection.execute("SELECT tool FROM tasks")]
    connection.close()
    return found
