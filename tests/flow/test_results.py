"""What clients are given holds what was promised: schemas, their results, and sizes.

Strict clients throw a whole list of tools away for one loose schema, and an answer for one field.
"""

import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import anyio
import jsonschema
import pytest
from mcp import Client
from mcp.types import CallToolResult, TextContent
from pydantic import JsonValue
from tests.command_line import CommandLine, add_hosted
from tests.flow.client import Era, connected, data, text
from tests.provider_simulator import Answer, Provider, openai_error, openai_reply

BOUND_S = 90
MEGABYTE = 1_000_000
LONGEST_RESULT = 80_000
"""Characters of a whole result: 20,000 tokens, below what any known client cuts at."""
Schema = dict[str, JsonValue]


def parts(schema: JsonValue) -> Iterator[Schema]:
    """Every schema within a schema."""
    if isinstance(schema, dict):
        yield schema
        for name, inner in schema.items():
            if name in ("properties", "$defs") and isinstance(inner, dict):
                for each in inner.values():
                    yield from parts(each)
            else:
                yield from parts(inner)
    if isinstance(schema, list):
        for each in schema:
            yield from parts(each)


@pytest.mark.parametrize("era", ["legacy", "2026-07-28"])
async def test_no_schema_has_what_a_strict_client_refuses(podium: CommandLine, era: Era) -> None:
    async with connected(podium, era=era) as client:
        listed = (await client.list_tools()).tools
    for tool in listed:
        assert tool.title
        assert tool.description
        assert len(f"mcp__podium__{tool.name}") < 64
        for schema in (tool.input_schema, cast("Schema", tool.output_schema)):
            jsonschema.Draft202012Validator.check_schema(schema)
            assert schema["type"] == "object"
            for refused in ("anyOf", "oneOf", "allOf", "not", "$ref", "enum"):
                assert refused not in schema, (tool.name, refused)
            for part in parts(schema):
                assert part.get("type") != "array" or "items" in part, (tool.name, part)
                assert not isinstance(part.get("type"), list), (tool.name, part)
        for part in parts(tool.input_schema):
            assert not {"$ref", "anyOf", "oneOf", "allOf"} & part.keys(), (tool.name, part)


@asynccontextmanager
async def judging(podium: CommandLine, era: Era = "2026-07-28") -> AsyncGenerator["Judging"]:
    async with connected(podium, era=era) as client:
        tools = (await client.list_tools()).tools
        yield Judging(client, {tool.name: cast("Schema", tool.output_schema) for tool in tools})


class Judging:
    """A client that holds every result against its tool's published schema."""

    def __init__(self, client: Client, schemas: dict[str, Schema]) -> None:
        self.client = client
        self._schemas = schemas

    async def call(self, tool: str, **arguments: JsonValue) -> CallToolResult:
        result = await self.client.call_tool(tool, arguments)
        if result.structured_content is None:
            assert result.is_error
            assert text(result).strip()
        else:
            jsonschema.validate(result.structured_content, self._schemas[tool])
            json.dumps(result.structured_content, allow_nan=False)
        return result


def status(result: CallToolResult) -> JsonValue:
    return data(result)["status"]


async def test_every_kind_of_result_holds_its_published_schema(
    podium: CommandLine, provider: Provider
) -> None:
    """Finished, running, planned, waiting, partial, failed, stopped, edited, and plain errors."""
    provider.answers(openai_error(401, "The key is wrong."))
    add_hosted(podium, provider.url)
    failing: JsonValue = {"worker": "far", "subtask": "Try.", "access": []}
    good: JsonValue = {"worker": "hand", "subtask": "List the facts.", "access": []}
    mine: JsonValue = {"worker": "caller", "subtask": "Look.", "access": []}
    with anyio.fail_after(BOUND_S):
        async with judging(podium) as judged:
            done = await judged.call("orchestrate", question="Which?")
            assert status(done) == "finished"
            run_id = data(done)["run_id"]
            for step in (-1, 0):
                await judged.call("get_run", run_id=run_id, step=step)
            assert status(await judged.call("plan_only", question="Which plan?")) == "planned"
            assert (await judged.call("plan_only", question=" ")).is_error
            edited = await judged.call("run_step", run_id=run_id, step=0, subtask="Other facts.")
            assert "stale" in str(data(edited)["steps"])

            asked = await judged.call("orchestrate", question="Mine?", plan=[mine, good])
            assert status(asked) == "needs_caller"
            given = data(asked)["run_id"]
            await judged.call("run_step", run_id=given, step=0, result="Looked.")
            assert status(await judged.call("orchestrate", run_id=given)) == "finished"

            failed = await judged.call(
                "orchestrate", question="No?", plan=[failing], workers=["far"]
            )
            assert status(failed) == "failed"
            await judged.call("get_run", run_id=data(failed)["run_id"])
            lower = await judged.call("orchestrate", question="Limit?", max_tokens=1)
            assert status(lower) in ("failed", "partial") or lower.is_error

            assert (await judged.call("get_run", run_id="ffffffff")).is_error
            assert (await judged.call("orchestrate", question="x", rounds=99)).is_error
            assert (await judged.call("orchestrate", question="x", nothing=1)).is_error
            await judged.call("cancel_run", run_id=run_id)
            await judged.call("search_runs")
            await judged.call("search_runs", text="facts")
            assert (await judged.call("search_runs", since="some day")).is_error
            await judged.call("list_workers")


async def test_a_running_and_a_stopped_run_hold_the_schema_too(
    podium: CommandLine, provider: Provider
) -> None:
    provider.answers(Answer(before="STALL"))
    add_hosted(podium, provider.url)
    plan: list[JsonValue] = [
        {"worker": "hand", "subtask": "List the facts.", "access": []},
        {"worker": "far", "subtask": "Weigh.", "access": [0]},
    ]
    with anyio.fail_after(BOUND_S):
        async with judging(podium) as judged:
            early = await judged.call("orchestrate", question="W?", plan=plan, max_wait_s=0.1)
            assert status(early) == "running"
            run_id = data(early)["run_id"]
            await judged.call("get_run", run_id=run_id)
            assert status(await judged.call("cancel_run", run_id=run_id)) == "stopped"
            partial = await judged.call(
                "orchestrate", question="Soon?", plan=plan, max_seconds=1, max_wait_s=60
            )
            assert status(partial) in ("partial", "failed")


async def test_a_reply_of_a_megabyte_comes_in_pieces_wherever_it_is_shown(
    podium: CommandLine, provider: Provider
) -> None:
    word = "wörd 💡 "
    provider.answers(openai_reply(*[word * 1000] * (MEGABYTE // len(word) // 1000 + 1)))
    add_hosted(podium, provider.url)
    plan: list[JsonValue] = [
        {"worker": "far", "subtask": f"Say much, {number}.", "access": []} for number in range(3)
    ]
    with anyio.fail_after(BOUND_S):
        async with judging(podium) as judged:
            planned = await judged.call("orchestrate", question="Much?", plan=plan)
            run_id = data(planned)["run_id"]
            results = [
                planned,
                await judged.call("get_run", run_id=run_id),
                await judged.call("get_run", run_id=run_id, step=1),
                await judged.call("get_run", run_id=run_id, page=3),
                await judged.call("search_runs", text="wörd"),
                await judged.call("run_step", run_id=run_id, step=0, subtask="Say much again."),
            ]
            for result in results:
                assert len(result.model_dump_json()) < LONGEST_RESULT
                assert isinstance(result.content[0], TextContent)
                assert len(result.content[0].text) < 25_000
            assert int(str(data(planned)["answer_characters"])) >= MEGABYTE
            links = [found.type for found in planned.content]
            assert links == ["text", "resource_link"]
            assert "page=" in text(results[1])
            for uri in (f"podium://runs/{run_id}", f"podium://runs/{run_id}/steps/1"):
                read = await judged.client.read_resource(uri)
                assert len(read.model_dump_json()) < LONGEST_RESULT


async def test_a_long_text_can_be_read_to_its_end(tmp_path: Path, provider: Provider) -> None:
    podium = CommandLine.scripted(tmp_path)
    provider.answers(openai_reply(*["word " * 1000] * 40, "The end."))
    add_hosted(podium, provider.url)
    plan: list[JsonValue] = [{"worker": "far", "subtask": "Say much.", "access": []}]
    with anyio.fail_after(BOUND_S):
        async with judging(podium) as judged:
            asked = await judged.call("orchestrate", question="Much?", plan=plan)
            run_id = data(asked)["run_id"]
            page = 0
            while "The end." not in (shown := text(await judged.call(
                "get_run", run_id=run_id, step=0, page=page
            ))):  # fmt: skip
                page += 1
                assert f"page={page})" in shown
            assert page >= 9
