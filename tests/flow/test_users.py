"""Two users of one HTTP server: neither sees, changes, stops or even learns of the other's runs."""

import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import cast

import anyio
import anyio.to_thread
import httpx2
import pytest
from mcp import Client, MCPError
from mcp.types import PromptReference, ResourceTemplateReference
from pydantic import JsonValue
from tests.command_line import HOSTED, CommandLine, finish, use_hosted
from tests.flow.callers import HEADERS, INITIALIZE, begin, calling, new_token
from tests.flow.client import Era, data, http_server, text
from tests.provider_simulator import Answer, Asked, Provider, openai_reply
from tests.task_client import DECLARED, about, call, look, never_asked, raw, task_of

BOUND_S = 90
ERAS: tuple[Era, Era] = ("legacy", "2026-07-28")
SECRET = "What is the colour of the crown jewels?"


@dataclass(frozen=True)
class Two:
    """Anna, who has asked, and Bob, who would like to know."""

    url: str
    anna: Client
    bob: Client
    run_id: str
    """Of a run of Anna's that has its answer."""


@asynccontextmanager
async def two(podium: CommandLine, era: Era) -> AsyncGenerator[Two]:
    tokens = [new_token(podium, name) for name in ("anna", "bob")]
    with anyio.fail_after(BOUND_S):
        async with (
            http_server(podium) as url,
            calling(url, tokens[0], era) as anna,
            calling(url, tokens[1], era) as bob,
        ):
            run_id = str(data(await anna.call_tool("orchestrate", {"question": SECRET}))["run_id"])
            yield Two(url, anna, bob, run_id)


UNKNOWN = "0123456789abcdef"
CALLS: list[tuple[str, dict[str, JsonValue]]] = [
    ("orchestrate", {}),
    ("orchestrate", {"max_steps": 20}),
    ("orchestrate", {"plan": [{"worker": "boss", "subtask": "Tell all."}]}),
    ("run_step", {}),
    ("run_step", {"step": 0, "subtask": "Tell all."}),
    ("run_step", {"step": 0, "result": "Nothing."}),
    ("get_run", {}),
    ("get_run", {"step": 0}),
    ("get_run", {"wait_s": 1}),
    ("cancel_run", {}),
]


@pytest.mark.parametrize("era", ERAS)
async def test_a_run_of_somebody_else_is_a_run_that_is_not_there(
    podium: CommandLine, era: Era
) -> None:
    async with two(podium, era) as it:
        for tool, arguments in CALLS:
            for named in (it.run_id, it.run_id[:8], it.run_id[:6]):
                hidden = await it.bob.call_tool(tool, {"run_id": named, **arguments})
                unknown = await it.bob.call_tool(tool, {"run_id": UNKNOWN, **arguments})
                assert hidden.is_error, tool
                assert text(hidden).replace(named, UNKNOWN) == text(unknown), tool
        for named in (it.run_id, it.run_id[:6]):
            asked: dict[str, JsonValue] = {"question": "Why?", "follow_up": named}
            for tool in ("orchestrate", "plan_only"):
                hidden = await it.bob.call_tool(tool, asked)
                unknown = await it.bob.call_tool(tool, {**asked, "follow_up": UNKNOWN})
                assert hidden.is_error
                assert text(hidden).replace(named, UNKNOWN) == text(unknown)
        # And nothing of it has touched the run.
        run = data(await it.anna.call_tool("get_run", {"run_id": it.run_id[:6]}))
        assert (run["status"], run["answer"], run["rounds"]) == ("finished", "The answer is 42.", 1)


@pytest.mark.parametrize("era", ERAS)
async def test_lists_searches_and_completions_hold_ones_own_runs_only(
    podium: CommandLine, era: Era
) -> None:
    async with two(podium, era) as it:
        mine = str(data(await it.bob.call_tool("orchestrate", {"question": "Mine?"}))["run_id"])
        for client, own in ((it.anna, it.run_id), (it.bob, mine)):
            for search in ({}, {"text": "crown"}, {"text": "facts"}, {"text": '"crown jewels"'}):
                found = await client.call_tool("search_runs", search)
                shown = cast("list[dict[str, JsonValue]]", data(found)["runs"])
                expected = [] if "crown" in str(search) and client is it.bob else [own]
                assert [run["run_id"] for run in shown] == expected
                assert client is it.anna or "crown" not in found.model_dump_json()
            listed = (await client.read_resource("podium://runs")).model_dump_json()
            assert own in listed
            assert ({it.run_id, mine} - {own}).isdisjoint(listed.split('\\"'))
            assert await completed(client, "run_id", "") == [own]
            assert await completed(client, "run_id", own[:4]) == [own]
        assert await completed(it.bob, "run_id", it.run_id[:6]) == []
        assert await completed(it.bob, "step", "", run_id=it.run_id) == []
        assert await completed(it.anna, "step", "", run_id=it.run_id) == ["0", "1", "2"]
        follow_up = await it.bob.complete(
            PromptReference(type="ref/prompt", name="delegate"),
            {"name": "follow_up", "value": ""},
        )
        assert follow_up.completion.values == [mine]


async def completed(client: Client, name: str, typed: str, **earlier: str) -> list[str]:
    place = "podium://runs/{run_id}/steps/{step}{?page}"
    ref = ResourceTemplateReference(type="ref/resource", uri=place)
    argument = {"name": name, "value": typed}
    found = await client.complete(ref, argument, context_arguments=earlier or None)
    return found.completion.values


@pytest.mark.parametrize("era", ERAS)
async def test_a_resource_of_somebody_else_is_one_that_is_not_there(
    podium: CommandLine, era: Era
) -> None:
    async with two(podium, era) as it:
        for place in ("", "/best", "/best?page=0", "/steps/0", "/steps/2?page=0"):
            assert (await it.anna.read_resource(f"podium://runs/{it.run_id}{place}")).contents
            for named in (it.run_id, it.run_id[:6]):
                hidden = await refused(it.bob, f"podium://runs/{named}{place}")
                unknown = await refused(it.bob, f"podium://runs/{UNKNOWN}{place}")
                assert hidden.replace(named, UNKNOWN) == unknown


async def refused(client: Client, uri: str) -> str:
    with pytest.raises(MCPError) as error:
        await client.read_resource(uri)
    return str(error.value.error)


async def test_a_task_of_somebody_else_is_a_task_that_is_not_there(
    podium: CommandLine, provider: Provider
) -> None:
    provider.answers(Answer(before="STALL"))
    use_hosted(podium, provider.url)
    tokens = [new_token(podium, name) for name in ("anna", "bob")]
    with anyio.fail_after(BOUND_S):
        async with (
            http_server(podium) as url,
            calling(url, tokens[0], extensions=[DECLARED]) as anna,
            calling(url, tokens[1], extensions=[DECLARED]) as bob,
        ):
            task_id = await task_of(anna, "orchestrate", question=SECRET, strategy="single")
            for method in ("tasks/get", "tasks/cancel", "tasks/update"):
                more: dict[str, JsonValue] = {"inputResponses": {}}
                told: list[str] = []
                for named in (task_id, UNKNOWN):
                    with pytest.raises(MCPError) as error:
                        await about(bob, method, named, **(more if "update" in method else {}))
                    told.append(str(error.value.error).replace(named, UNKNOWN))
                assert told[0] == told[1]
            assert (await look(anna, task_id))["status"] == "working"


async def test_a_question_to_ones_own_user_cannot_be_answered_by_another(
    podium: CommandLine,
) -> None:
    tokens = [new_token(podium, name) for name in ("anna", "bob")]
    asked: dict[str, JsonValue] = {"question": SECRET, "approve": "plan"}
    with anyio.fail_after(BOUND_S):
        async with (
            http_server(podium) as url,
            calling(url, tokens[0], asks=never_asked) as anna,
            calling(url, tokens[1], asks=never_asked) as bob,
        ):
            open_ = await call(anna, "orchestrate", **asked)
            assert open_["resultType"] == "input_required"
            (key,) = cast("dict[str, JsonValue]", open_["inputRequests"])
            yes: JsonValue = {"action": "accept", "content": {"approve": True}}
            again: dict[str, JsonValue] = {
                "name": "orchestrate",
                "arguments": asked,
                "requestState": open_["requestState"],
                "inputResponses": {key: yes},
            }
            with pytest.raises(MCPError):
                await raw(bob, "tools/call", again)
            found = cast("list[JsonValue]", data(await bob.call_tool("search_runs", {}))["runs"])
            assert found == []
            answered = await raw(anna, "tools/call", again)
            assert not answered.get("isError")


async def test_the_same_question_attaches_to_ones_own_run_only(
    podium: CommandLine, provider: Provider
) -> None:
    let = threading.Event()

    def reply(asked: Asked) -> Answer:
        assert let.wait(BOUND_S)
        return openai_reply("That one.")

    provider.answers(reply)
    use_hosted(podium, provider.url)
    tokens = [new_token(podium, name) for name in ("anna", "bob")]
    asked: dict[str, JsonValue] = {"question": "Which?", "strategy": "single", "max_wait_s": 0.3}
    with anyio.fail_after(BOUND_S):
        async with (
            http_server(podium) as url,
            calling(url, tokens[0]) as anna,
            calling(url, tokens[0]) as anna_again,
            calling(url, tokens[1]) as bob,
        ):
            runs: list[JsonValue] = []
            try:
                runs += [
                    data(await client.call_tool("orchestrate", asked))["run_id"]
                    for client in (anna, anna_again, bob)
                ]
                stopped = await bob.call_tool("cancel_run", {"run_id": runs[0]})
                assert stopped.is_error
            finally:
                let.set()
            ended = await anna.call_tool("get_run", {"run_id": runs[0], "wait_s": 60})
            assert data(ended)["status"] == "finished"
    assert runs[0] == runs[1] != runs[2]
    assert len(provider.requests) == 2


async def test_each_user_has_a_day_of_his_own(podium: CommandLine, provider: Provider) -> None:
    provider.answers(openai_reply("That one."))
    priced = "price = { input = 1000, output = 1000 }\nmax_output_tokens = 300\n"
    podium.pool.write_text(HOSTED.format(url=provider.url) + priced)
    tokens = [new_token(podium, name) for name in ("anna", "bob")]
    limited = CommandLine(podium.folder, {"PODIUM_DAY_USD": "1.5"})
    with anyio.fail_after(BOUND_S):
        async with (
            http_server(limited) as url,
            calling(url, tokens[0]) as anna,
            calling(url, tokens[1]) as bob,
        ):
            asked: dict[str, JsonValue] = {"strategy": "single", "fresh": True}
            ended: list[JsonValue] = []
            for client in (*[anna] * 20, bob):
                asked |= {"question": f"Which, for the {len(ended)}th time?"}
                ended.append(data(await client.call_tool("orchestrate", asked))["limit"])
                if client is anna and ended[-1]:
                    break
            assert ended[-1] == "day_usd"
            assert data(await bob.call_tool("orchestrate", asked))["limit"] == ""


async def test_a_connection_of_somebody_else_cannot_be_used(podium: CommandLine) -> None:
    anna, bob = (new_token(podium, name) for name in ("anna", "bob"))
    with anyio.fail_after(BOUND_S):
        async with http_server(podium) as url:
            opened = await begin(url, anna)
            session = opened.headers["mcp-session-id"]
            body = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
            async with httpx2.AsyncClient(timeout=60) as http:
                for token, status in ((bob, 404), (anna, 200)):
                    headers = HEADERS | {
                        "authorization": f"Bearer {token}",
                        "mcp-session-id": session,
                        "mcp-protocol-version": "2025-06-18",
                    }
                    answered = await http.post(url, json=body, headers=headers)
                    assert answered.status_code == status


@pytest.mark.parametrize("era", ERAS)
async def test_a_token_that_is_taken_back_opens_nothing_from_then_on(
    podium: CommandLine, era: Era
) -> None:
    anna, bob = (new_token(podium, name) for name in ("anna", "bob"))
    with anyio.fail_after(BOUND_S):
        async with http_server(podium) as url, calling(url, bob, era) as client:
            async with calling(url, anna, era) as going:
                assert not (await going.call_tool("list_workers", {})).is_error
                assert podium.inside("token", "remove", "anna").code == 0
                with pytest.raises(MCPError):
                    await going.call_tool("list_workers", {})
                assert (await begin(url, anna)).status_code == 401
            new = new_token(podium, "anna")
            assert (await begin(url, new)).status_code == 200
            assert not (await client.call_tool("list_workers", {})).is_error


async def test_who_shows_no_token_is_told_what_is_missing(podium: CommandLine) -> None:
    new_token(podium, "anna")
    with anyio.fail_after(BOUND_S):
        async with http_server(podium) as url:
            for token in ("", "podium_wrong", "a.b.c", "podium_" + 5000 * "x"):
                refused = await begin(url, token)
                assert refused.status_code == 401
                assert refused.headers["www-authenticate"].startswith("Bearer ")
                assert not token or token not in refused.text
            async with httpx2.AsyncClient(timeout=60) as http:
                for shown in (b"Basic YTpi", b"Bearer", b"Bearer \xe9", b"Bearer podium_\xff"):
                    headers = [(b"authorization", shown)]
                    refused = await http.post(url, json=INITIALIZE, headers=headers)
                    assert refused.status_code == 401
                listening = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/list"}
                assert (await http.post(url, json={}, headers=listening)).status_code == 401


async def test_nothing_about_tokens_reaches_the_log(podium: CommandLine) -> None:
    token = new_token(podium, "anna")
    server = podium.start("-v", "serve", "--http", "--port", "0")
    assert server.stderr is not None
    try:
        with anyio.fail_after(BOUND_S):
            line = b""
            while b"serves http" not in line:
                line = await anyio.to_thread.run_sync(server.stderr.readline)
            url = line.decode().split()[-1]
            assert (await begin(url, token)).status_code == 200
            assert (await begin(url, token[:-1])).status_code == 401
            assert (await begin(url, token, host="evil.example")).status_code == 421
    finally:
        server.terminate()
    ended = finish(server)
    assert "was refused" in ended.err
    assert token[:-1] not in ended.err + ended.out


async def test_the_user_of_this_machine_is_one_of_them_by_his_name(podium: CommandLine) -> None:
    token = new_token(podium, "local")
    assert podium("ask", "What was asked here?").code == 0
    with anyio.fail_after(BOUND_S):
        async with http_server(podium) as url, calling(url, token) as client:
            found = data(await client.call_tool("search_runs", {"text": "asked"}))["runs"]
            assert len(cast("list[JsonValue]", found)) == 1
