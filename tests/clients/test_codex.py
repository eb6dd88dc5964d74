"""Codex, without an account, as a client: it calls, reads, and cuts off at its own time limit."""

import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import cast

import anyio
import pytest
from pydantic import JsonValue
from tests.clients.app_server import Codex, Means, Members, open_codex
from tests.command_line import CommandLine, add_hosted
from tests.flow.client import http_server, rows
from tests.provider_simulator import Answer, Asked, Provider, openai_reply

pytestmark = pytest.mark.clients

BOUND_S = 120
ITS_LIMIT_S = 2
MEANS: list[Means] = ["stdio", "http", "http 2026-07-28"]
PLAN: list[JsonValue] = [
    {"worker": "hand", "subtask": "List the facts.", "access": []},
    {"worker": "far", "subtask": "Think long.", "access": [0]},
    {"worker": "boss", "subtask": "Weigh both.", "access": [0, 1]},
]


@asynccontextmanager
async def codex_with(
    podium: CommandLine, means: Means, limit_s: float = 60
) -> AsyncGenerator[Codex]:
    """Codex with Podium reached in that way."""
    if means == "stdio":
        async with open_codex(podium, limit_s=limit_s) as codex:
            yield codex
        return
    modern = means == "http 2026-07-28"
    async with (
        http_server(podium) as url,
        open_codex(podium, url, modern=modern, limit_s=limit_s) as codex,
    ):
        yield codex


@pytest.mark.parametrize("means", MEANS)
async def test_codex_lists_the_tools_asks_the_team_and_reads_the_record(
    podium: CommandLine, means: Means
) -> None:
    with anyio.fail_after(BOUND_S):
        async with codex_with(podium, means) as codex:
            (server,) = await codex.servers()
            assert cast("Members", server["serverInfo"])["name"] == "podium"
            assert len(cast("Members", server["tools"])) == 7
            templates = cast("list[Members]", server["resourceTemplates"])
            assert "podium://runs/{run_id}" in [found["uriTemplate"] for found in templates]

            answered = await codex.call("orchestrate", {"question": "What is the answer?"})
            assert answered["isError"] is not True
            run = cast("Members", answered["structuredContent"])
            assert (run["status"], run["answer"]) == ("finished", "The answer is 42.")
            assert '"The answer is 42."' in await codex.read(f"podium://runs/{run['run_id']}")

            wrong = await codex.call("orchestrate", {"question": " "})
            assert wrong["isError"] is True
            assert "question: is empty" in str(wrong["content"])


class Gate:
    """A provider that replies once it is let."""

    def __init__(self) -> None:
        self.open = threading.Event()

    def __call__(self, asked: Asked) -> Answer:
        assert self.open.wait(BOUND_S)
        return openai_reply("Thought through.")


@pytest.mark.parametrize("means", MEANS)
async def test_codex_cuts_a_call_off_and_then_fetches_its_answer_with_nothing_paid_twice(
    podium: CommandLine, provider: Provider, means: Means
) -> None:
    gate = Gate()
    provider.answers(gate)
    add_hosted(podium, provider.url)
    asking: Members = {"question": "Which?", "plan": PLAN, "max_wait_s": 60}
    with anyio.fail_after(BOUND_S):
        async with codex_with(podium, means, ITS_LIMIT_S) as codex:
            try:
                cut = await codex.call("orchestrate", asking)
            finally:
                gate.open.set()
            assert "timed out" in str(cut["error"])
            run_id = await _finished(podium)

            again = await codex.call("orchestrate", asking)
            run = cast("Members", again["structuredContent"])
            assert (run["run_id"], run["status"]) == (run_id, "finished")
            assert run["answer"] == "The answer is 42."
            looked = await codex.call("get_run", {"run_id": run_id})
            assert cast("Members", looked["structuredContent"])["answer"] == run["answer"]

    assert len(provider.requests) == 1
    paid = rows(podium, "SELECT step, worker, status FROM calls ORDER BY step")
    assert paid == [(0, "hand", "finished"), (1, "far", "finished"), (2, "boss", "finished")]


async def _finished(podium: CommandLine) -> str:
    """The id of the one run once it has finished, as the ledger's file has it."""
    while True:
        match rows(podium, "SELECT run_id, status FROM runs"):
            case [(str(run_id), "finished")]:
                return run_id
            case _:
                await anyio.sleep(0.02)
