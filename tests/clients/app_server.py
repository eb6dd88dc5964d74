"""`codex app-server`: Codex without a model, which really calls tools and reads resources."""

import json
import subprocess
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Literal, cast

import anyio
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream
from pydantic import JsonValue
from tests.clients.programs import Client
from tests.command_line import CommandLine

Means = Literal["stdio", "http", "http 2026-07-28"]
Members = dict[str, JsonValue]
SERVER = "podium"
LONGEST = 10_000_000
"""Bytes at most in one line of its."""


@dataclass
class Codex:
    """A running `codex app-server` in which a thread was started."""

    process: Process
    lines: BufferedByteReceiveStream
    thread: str = ""
    _asked: int = field(default=0)

    async def ask(self, method: str, parameters: Members) -> Members:
        """What it answers, whether a result or an error."""
        self._asked += 1
        await self.say({"id": self._asked, "method": method, "params": parameters})
        while True:
            line = cast("Members", json.loads(await self.lines.receive_until(b"\n", LONGEST)))
            if line.get("id") == self._asked and "method" not in line:
                return line

    async def say(self, line: Members) -> None:
        assert self.process.stdin is not None
        await self.process.stdin.send(json.dumps(line).encode() + b"\n")

    async def result(self, method: str, parameters: Members) -> Members:
        answer = await self.ask(method, parameters)
        assert "error" not in answer, answer["error"]
        return cast("Members", answer["result"])

    async def call(self, tool: str, arguments: Mapping[str, JsonValue]) -> Members:
        """What a tool of Podium's gave, or `error` in it when Codex gave up on the call."""
        parameters: Members = {"tool": tool, "arguments": dict(arguments), **self._there}
        answer = await self.ask("mcpServer/tool/call", parameters)
        return cast("Members", answer.get("result", {"error": answer.get("error")}))

    async def read(self, uri: str) -> str:
        """The text of a resource of Podium's."""
        read = await self.result("mcpServer/resource/read", {"uri": uri, **self._there})
        (content,) = cast("list[dict[str, str]]", read["contents"])
        return content["text"]

    async def servers(self) -> list[Members]:
        """The servers that it knows, with their tools."""
        listed = await self.result("mcpServerStatus/list", {"detail": "full"})
        return cast("list[Members]", listed["data"])

    @property
    def _there(self) -> Members:
        return {"server": SERVER, "threadId": self.thread}


def _toml(value: JsonValue) -> str:
    """A text, number, switch or table of texts as TOML."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {_toml(each)}" for name, each in value.items()) + "}"
    return json.dumps(value)


def settings(podium: CommandLine, url: str, limit_s: float) -> str:
    """Codex's settings for Podium at *url*, or on stdio when there is none."""
    command, *arguments = podium.argv("serve")
    at: Members = {"url": url} if url else {
        "command": command, "args": [*arguments], "env": {**podium.environ},
    }  # fmt: skip
    lines = [f"{name} = {_toml(value)}" for name, value in at.items()]
    limit = f"tool_timeout_sec = {limit_s}"
    return "\n".join([f"[mcp_servers.{SERVER}]", *lines, limit, ""])


@asynccontextmanager
async def open_codex(
    podium: CommandLine, url: str = "", *, modern: bool = False, limit_s: float = 60
) -> AsyncGenerator[Codex]:
    """Codex with Podium at *url*, or with a Podium of its own on stdio.

    *modern* switches on what it speaks of the newest protocol; *limit_s* is its limit for one call.
    """
    client = Client.of("codex", podium)
    features = "[features]\nmcp_2026_07_28 = true\n" if modern else ""
    (client.home / "config.toml").write_text(features + settings(podium, url, limit_s))
    process = await anyio.open_process(
        [client.program, "app-server"],
        stderr=subprocess.DEVNULL,
        cwd=client.home,
        env=client.environ | {"CODEX_HOME": str(client.home)},
    )
    async with process:
        assert process.stdout is not None
        codex = Codex(process, BufferedByteReceiveStream(process.stdout))
        about: Members = {"name": "test", "version": "1", "title": None}
        can: Members = {"experimentalApi": True}
        await codex.result("initialize", {"clientInfo": about, "capabilities": can})
        await codex.say({"method": "initialized"})
        started = await codex.result("thread/start", {"cwd": str(client.home), "ephemeral": True})
        codex.thread = str(cast("Members", started["thread"])["id"])
        yield codex
