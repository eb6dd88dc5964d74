"""A user is asked through a real client of a real server, which may die before the answer comes."""

import signal
from typing import cast

import pytest
from mcp import Client, MCPError
from mcp.client.context import ClientRequestContext
from mcp.types import (
    CallToolResult,
    ElicitRequestParams,
    ElicitResult,
    InputRequiredResult,
    InputResponses,
)
from pydantic import JsonValue
from tests.command_line import HOSTED, PLAN, POOL, CommandLine
from tests.elicited import YES, User, user
from tests.flow.client import (
    Era,
    Transport,
    address_of,
    connected,
    data,
    http_server,
    text,
)
from tests.provider_simulator import Provider, openai_reply

PLANNED: dict[str, JsonValue] = {
    "question": "What is the answer?",
    "approve": "plan",
    "max_wait_s": 300,
}
CROSSWISE = pytest.mark.parametrize(
    ("transport", "era"), [("stdio", "legacy"), ("http", "2026-07-28")]
)
UNPRICED = 'where = "hosted"\n'
PRICED = """
price = { input = 0.0, output = 1000.0 }
max_output_tokens = 300
"""
THEN_FAR = (
    '{"steps": [{"subtask": "List the facts.", "worker": "hand", "access": []}, '
    '{"subtask": "Say it well.", "worker": "far", "access": [0]}]}'
)


@pytest.mark.parametrize("era", ["legacy", "2026-07-28"])
@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_plan_is_shown_with_its_price_and_carried_out_when_the_user_says_yes(
    podium: CommandLine, transport: Transport, era: Era
) -> None:
    person = User([YES])
    async with connected(podium, transport, era, asks=person) as client:
        answered = await client.call_tool("orchestrate", PLANNED)
        assert data(answered)["status"] == "finished"
        assert data(answered)["answer"] == "The answer is 42."
        (asked,) = person.asked
        assert "0. hand: List the facts." in asked.message
        assert "Price: free" in asked.message
        assert asked.requested_schema["required"] == ["approve"]
        assert len(await runs(client)) == 1, "the call that was repeated began nothing anew"


@CROSSWISE
async def test_at_the_limit_the_user_may_raise_it_and_nothing_is_paid_twice(
    podium: CommandLine, provider: Provider, transport: Transport, era: Era
) -> None:
    far = HOSTED.format(url=provider.url)
    podium.pool.write_text(f"{POOL.replace(PLAN, THEN_FAR)}{far}{PRICED}")
    provider.answers(openai_reply("Said well."))
    person = user("accept", max_usd=1.5)
    arguments: dict[str, JsonValue] = {"question": "Why?", "max_usd": 0.01, "max_wait_s": 300}
    async with connected(podium, transport, era, asks=person) as client:
        result = await client.call_tool("orchestrate", arguments)
        assert data(result)["status"] == "finished"
        assert data(result)["answer"] == "Said well."
        (asked,) = person.asked
        assert "limit of $0.01" in asked.message
        assert "Best so far: The facts are these" in asked.message
        assert len(provider.bodies) == 1


@CROSSWISE
async def test_workers_of_unknown_price_work_under_a_limit_when_the_user_says_so(
    podium: CommandLine, provider: Provider, transport: Transport, era: Era
) -> None:
    podium.pool.write_text(HOSTED.format(url=provider.url) + UNPRICED)
    keyed = CommandLine(podium.folder, {"OPENAI_API_KEY": "some-key"})
    provider.answers(openai_reply("Done."))
    person = user("accept", allow_unpriced=True)
    arguments: dict[str, JsonValue] = {"question": "Why?", "max_usd": 1, "strategy": "single"}
    async with connected(keyed, transport, era, asks=person) as client:
        result = await client.call_tool("orchestrate", arguments | {"max_wait_s": 300})
        assert data(result)["answer"] == "Done."
        (asked,) = person.asked
        assert "price of far is unknown, so the limit of $1 cannot be kept" in asked.message


async def test_a_yes_that_comes_after_the_server_was_killed_counts_in_the_next_one(
    podium: CommandLine,
) -> None:
    first = podium.start("serve", "--http", "--port", "0")
    try:
        url = await address_of(first)
        async with Client(url, mode="2026-07-28", elicitation_callback=User([YES])) as client:
            asked = await client.session.call_tool(
                "orchestrate", PLANNED, allow_input_required=True
            )
            assert isinstance(asked, InputRequiredResult)
            first.send_signal(signal.SIGKILL)
            first.wait(10)
    finally:
        first.kill()
        first.communicate(timeout=10)
    async with (
        http_server(podium) as url,
        Client(url, mode="2026-07-28", elicitation_callback=User([YES])) as client,
    ):
        answered = await _repeat(client, asked)
        assert data(answered)["status"] == "finished"
        late = await _repeat(client, asked)
        assert late.is_error
        assert "does not wait for this answer any more" in text(late)
        forged = asked.model_copy(update={"request_state": f"{asked.request_state}x"})
        with pytest.raises(MCPError, match="requestState"):
            await _repeat(client, forged)
        assert [status for _, status in await runs(client)] == ["finished"]


async def test_of_two_windows_one_answers_and_the_other_is_told_so(podium: CommandLine) -> None:
    second: list[CallToolResult] = []

    async def other_window(
        context: ClientRequestContext, params: ElicitRequestParams
    ) -> ElicitResult:
        # Meanwhile the same question in another window is answered, and carried out.
        async with connected(podium, era="legacy", asks=User([YES])) as window:
            second.append(await window.call_tool("orchestrate", PLANNED))
        return ElicitResult(action="decline")

    async with connected(podium, era="legacy", asks=other_window) as client:
        late = await client.call_tool("orchestrate", PLANNED)
        assert data(second[0])["status"] == "finished"
        assert late.is_error
        assert "does not wait for this any more" in text(late)
        assert len(await runs(client)) == 1


async def runs(client: Client) -> list[tuple[str, str]]:
    """Id and status of every run."""
    found = cast("list[dict[str, str]]", data(await client.call_tool("search_runs", {}))["runs"])
    return [(run["run_id"], run["status"]) for run in found]


async def _repeat(client: Client, asked: InputRequiredResult) -> CallToolResult:
    """The call again, with a yes, as a client sends it."""
    answers: InputResponses = dict.fromkeys(asked.input_requests or {}, YES)
    return await client.session.call_tool(
        "orchestrate", PLANNED, input_responses=answers, request_state=asked.request_state
    )
