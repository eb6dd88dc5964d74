"""How much a client is sent: lists of tools, results, resources; what is cut says where it is."""

import json
import re
from pathlib import Path
from typing import cast

import anyio
import pytest
from mcp.types import CallToolResult, ResourceLink
from pydantic import JsonValue
from tests.app_client import ERAS, Era, surface, text
from tests.core_parts import REFUSED, plan_of, step, worker

from podium.app.bounding import STRUCTURED, bounded
from podium.app.schemas import brief, brief_arguments
from podium_workers.scripted import ScriptedWorker

MEGABYTE = "§§§ " * 250_000
LONG = "word " * 10_000
TEXT = 21_000
"""Characters of text in a result, with the line about the next page."""
RESOURCE = 60_000
"""Bytes of one resource."""


def size(result: CallToolResult) -> int:
    return len(json.dumps(result.structured_content, ensure_ascii=False).encode())


def check(result: CallToolResult) -> dict[str, JsonValue]:
    """A result is small, and links to what it is about."""
    assert not result.is_error, text(result)
    assert len(text(result)) < TEXT
    assert size(result) < STRUCTURED + 500
    assert any(isinstance(block, ResourceLink) for block in result.content)
    return cast("dict[str, JsonValue]", result.structured_content)


@pytest.mark.parametrize("era", ERAS)
async def test_the_list_of_tools_is_small_and_plain(tmp_path: Path, era: Era) -> None:
    async with surface(tmp_path, worker("solo"), era=era) as seen:
        listed = (await seen.client.list_tools()).tools
    whole = json.dumps([tool.model_dump(by_alias=True, exclude_none=True) for tool in listed])
    assert len(whole) / 4 < 3_000
    for noise in ("$ref", "$defs", "anyOf", "oneOf", "allOf", '"title": "Run_Id"', "icons"):
        assert noise not in whole
    assert '"default": ""' not in whole
    assert "additionalProperties" not in whole
    for tool in listed:
        assert tool.title
        assert tool.description
        assert "  " not in tool.description
        assert tool.annotations is not None
        check_described(tool.input_schema)


def check_described(schema: dict[str, JsonValue]) -> None:
    """Every argument, nested ones too, has a plain type and a description; lists have items."""
    properties = cast("dict[str, dict[str, JsonValue]]", schema["properties"])
    for name, described in properties.items():
        assert described.get("description"), name
        assert isinstance(described.get("type"), str), name
        if described["type"] == "array":
            items = cast("dict[str, JsonValue]", described["items"])
            if items["type"] == "object":
                check_described(items)


async def test_long_results_are_announced(tmp_path: Path) -> None:
    async with surface(tmp_path, worker("solo")) as seen:
        for tool in (await seen.client.list_tools()).tools:
            assert tool.meta is not None
            assert tool.meta["anthropic/maxResultSizeChars"] > TEXT + STRUCTURED


async def test_a_run_of_twenty_long_steps_is_sent_in_parts(tmp_path: Path) -> None:
    last = "The end. " * 5_000

    async def script(prompt: object) -> str:
        return LONG if "Subtask 19" not in str(prompt) else last

    steps = [step("solo", f"Subtask {number} " + "to be done " * 1_000) for number in range(20)]
    solo = worker("solo", script, card={"context_window": 100_000})
    async with surface(tmp_path, solo, plans=[plan_of(*steps)]) as seen:
        planned = await seen.call("plan_only", question="Long? " * 2_000, strategy="given")
        assert "cut" in check(planned)
        run_id = check(planned)["run_id"]
        whole = await seen.call("get_run", run_id=run_id, step=3)
        assert text(whole).startswith("Step 3, solo, planned, reads nothing\n\nSUBTASK\nSubtask 3 ")
        assert len(text(whole)) > 11_000

        done = check(await seen.call("orchestrate", run_id=run_id))
        assert done["answer_characters"] == len(last)
        assert len(str(done["answer"])) >= 5_000
        assert len(cast("list[object]", done["steps"])) == 20
        assert f"get_run(run_id='{run_id}', step=…) has each step whole" in str(done["cut"])
        check(await seen.call("get_run", run_id=run_id))

        run = json.loads(await seen.read(f"podium://runs/{run_id}"))
        assert len(json.dumps(run)) < RESOURCE
        assert "/steps/N" in run["cut"]


async def test_a_megabyte_is_read_in_pages_to_its_end(tmp_path: Path) -> None:
    async with surface(tmp_path, worker("solo", [MEGABYTE])) as seen:
        done = check(await seen.call("orchestrate", question="?", strategy="single"))
        for place in ("best", "steps/0"):
            uri = f"podium://runs/{done['run_id']}/{place}"
            signs, pages = 0, 0
            while uri:
                page = await seen.read(uri)
                assert len(page) < RESOURCE
                signs, pages = signs + page.count("§"), pages + 1
                found = re.search(r"; the next: (podium://\S+)\]$", page)
                uri = found[1] if found else ""
            assert (signs, pages) == (750_000, 26 if place != "best" else 25)


async def test_failures_and_notes_are_bounded_too(tmp_path: Path) -> None:
    loud = REFUSED.__class__("It will not answer this: " + "because " * 5_000)
    workers = [worker(f"w{number}", [loud]) for number in range(6)]
    steps = [step("w0", f"Step {number}.") for number in range(20)]
    async with surface(tmp_path, *workers, plans=[plan_of(*steps)]) as seen:
        failed = await seen.call("orchestrate", question="?", strategy="given")
        assert "cut" in check(failed)
        check(await seen.call("get_run", run_id=check(failed)["run_id"]))


async def test_lists_of_workers_and_runs_are_bounded(tmp_path: Path) -> None:
    card = {"good_at": "this and that " * 100, "role": "You are a careful reader. " * 40}
    workers: list[ScriptedWorker] = [worker(f"w{number}", card=card) for number in range(200)]
    async with surface(tmp_path, *workers) as seen:
        pool = await seen.call("list_workers")
        assert "podium://pool has more" in str(check(pool)["cut"])
        assert text(pool).startswith("Plans are written by w0.")
        assert "[cut here, of " in text(pool)
        assert len(await seen.read("podium://pool")) < RESOURCE

        async with anyio.create_task_group() as group:
            for number in range(12):
                question = f"Question {number}\nis long. " * 250
                asked = {"question": question, "strategy": "single", "workers": ["w1"]}
                group.start_soon(seen.client.call_tool, "orchestrate", asked)
        found = await seen.call("search_runs", limit=10)
        check(found)
        assert len(text(found).splitlines()) == 11
        assert "raise limit" in text(found)
        check(await seen.call("search_runs", text="long", limit=100))
        assert len(await seen.read("podium://runs")) < RESOURCE


def test_what_is_asked_for_is_cut_last() -> None:
    data: dict[str, JsonValue] = {
        "answer": "a" * 18_000,
        "steps": [{"reply": "r" * 2_000, "n": number} for number in range(20)],
    }
    left = bounded(data, "it is there")
    assert left["answer"] == data["answer"]
    assert len(cast("list[object]", left["steps"])) == 20
    assert left["cut"] == "Long texts end with … and long lists early; it is there."
    many: list[JsonValue] = ["word " * 100] * 2_000
    assert len(json.dumps(bounded({"many": many}, "x"), ensure_ascii=False)) < STRUCTURED
    assert bounded({"few": [1.5, None, True]}, "x") == {"few": [1.5, None, True]}


def test_a_brief_schema_keeps_what_results_may_be() -> None:
    schema: dict[str, JsonValue] = {
        "$defs": {"Inner": {"title": "Inner", "type": "object", "additionalProperties": True}},
        "type": "object",
        "properties": {
            "title": {"title": "Title", "type": "string", "default": ""},
            "score": {"anyOf": [{"type": "number"}, {"type": "null"}], "default": None},
            "inner": {"$ref": "#/$defs/Inner", "description": "What."},
        },
    }
    inner = {"type": "object", "description": "What."}
    number = {"type": "number"}
    assert brief(schema)["properties"] == {
        "title": {"type": "string"},
        "score": {"anyOf": [number, {"type": "null"}]},
        "inner": inner,
    }
    assert brief_arguments(schema)["properties"] == {
        "title": {"type": "string"},
        "score": number,
        "inner": inner,
    }
