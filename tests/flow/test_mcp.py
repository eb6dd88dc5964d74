"""A real MCP client walks the whole of Podium: over stdio and over HTTP, in both protocol eras."""

from typing import cast

import pytest
from mcp.types import ResourceLink
from pydantic import JsonValue
from tests.command_line import CommandLine
from tests.flow.client import Era, Transport, connected, data, steps, text

TOOLS = [
    "orchestrate",
    "plan_only",
    "run_step",
    "get_run",
    "cancel_run",
    "search_runs",
    "list_workers",
]


@pytest.mark.parametrize("era", ["legacy", "2026-07-28"])
@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_client_plans_walks_asks_looks_and_searches(
    podium: CommandLine, transport: Transport, era: Era
) -> None:
    async with connected(podium, transport, era) as client:
        listed = await client.list_tools()
        assert [tool.name for tool in listed.tools] == TOOLS

        planned = await client.call_tool("plan_only", {"question": "What is the answer?"})
        run_id = str(data(planned)["run_id"])
        assert [step["status"] for step in steps(planned)] == ["planned"] * 3
        assert [step["worker"] for step in steps(planned)] == ["hand", "boss", "boss"]
        assert data(planned)["estimate"] is not None

        for done in (1, 2, 3):
            walked = await client.call_tool("run_step", {"run_id": run_id})
            finished = [step["status"] for step in steps(walked)].count("finished")
            assert finished == done

        answered = await client.call_tool("orchestrate", {"run_id": run_id})
        assert data(answered)["status"] == "finished"
        assert data(answered)["answer"] == "The answer is 42."
        assert text(answered).startswith("The answer is 42.")
        links = [found for found in answered.content if isinstance(found, ResourceLink)]
        assert str(links[0].uri) == f"podium://runs/{run_id}"

        seen = await client.call_tool("get_run", {"run_id": run_id, "step": 2})
        assert "Weigh both." in text(seen)
        assert "The facts are these" in text(seen)

        found = await client.call_tool("search_runs", {"text": "doubts"})
        runs = cast("list[dict[str, JsonValue]]", data(found)["runs"])
        assert [run["run_id"] for run in runs] == [run_id]


async def test_every_step_gives_progress_that_only_rises(podium: CommandLine) -> None:
    told: list[tuple[float, str]] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, message or ""))

    async with connected(podium) as client:
        await client.call_tool("orchestrate", {"question": "And?"}, progress_callback=note)
    numbers = [number for number, _ in told]
    assert numbers == sorted(set(numbers))
    for step in range(3):
        assert any(f"step finished: step {step}" in message for _, message in told)


async def test_an_edited_plan_is_run_instead_of_the_conductors(podium: CommandLine) -> None:
    async with connected(podium) as client:
        planned = await client.call_tool("plan_only", {"question": "What?"})
        mine: list[dict[str, JsonValue]] = [
            {"worker": "hand", "subtask": "List the facts again.", "access": []}
        ]
        arguments: dict[str, JsonValue] = {"run_id": data(planned)["run_id"], "plan": [*mine]}
        answered = await client.call_tool("orchestrate", arguments)
        assert data(answered)["plan_source"] == "caller"
        assert [step["subtask"] for step in steps(answered)] == ["List the facts again."]


async def test_an_edited_finished_step_makes_what_rests_on_it_stale(podium: CommandLine) -> None:
    async with connected(podium) as client:
        answered = await client.call_tool("orchestrate", {"question": "What?"})
        run_id = data(answered)["run_id"]
        edit: dict[str, JsonValue] = {"run_id": run_id, "step": 0, "subtask": "List other facts."}
        edited = await client.call_tool("run_step", edit)
        assert [step["status"] for step in steps(edited)] == ["finished", "finished", "stale"]
        assert data(edited)["answer"] == ""
        again = await client.call_tool("orchestrate", {"run_id": run_id})
        assert data(again)["answer"] == "The answer is 42."


async def test_a_step_for_the_caller_waits_for_its_result(podium: CommandLine) -> None:
    plan: list[JsonValue] = [
        {"worker": "caller", "subtask": "Run the tests and say what fails.", "access": []},
        {"worker": "boss", "subtask": "Judge it.", "access": [0]},
    ]
    async with connected(podium) as client:
        asked = await client.call_tool("orchestrate", {"question": "Is it good?", "plan": plan})
        assert data(asked)["status"] == "needs_caller"
        assert "Run the tests and say what fails." in text(asked)
        run_id = data(asked)["run_id"]
        result: dict[str, JsonValue] = {"run_id": run_id, "step": 0, "result": "All tests pass."}
        await client.call_tool("run_step", result)
        answered = await client.call_tool("orchestrate", {"run_id": run_id})
        assert data(answered)["status"] == "finished"
        judged = await client.call_tool("get_run", {"run_id": run_id, "step": 1})
        assert "All tests pass." in text(judged)


@pytest.mark.parametrize(
    ("tool", "arguments", "words"),
    [
        ("orchestrate", {"question": "   "}, "question: is empty"),
        ("orchestrate", {"question": "x", "workers": ["bos"]}, "did you mean 'boss'"),
        ("orchestrate", {"question": "x", "strategy": "swarm"}, "strategy: 'swarm' is unknown"),
        ("orchestrate", {"question": "word " * 60_000}, "question: has about"),
        ("orchestrate", {"question": "x", "files": [{"name": "a", "text": ""}]}, "a"),
        (
            "orchestrate",
            {"question": "x", "files": [{"name": "a"}]},
            "'a' has neither text nor path",
        ),
        ("orchestrate", {"question": "x", "files": [{"path": "/etc/passwd"}]}, "/etc/passwd"),
        ("orchestrate", {"run_id": "ffffffff"}, "podium runs"),
        (
            "orchestrate",
            {"question": "x", "plan": [{"worker": "boss", "subtask": "y", "access": [3]}]},
            "Step 0 reads step 3",
        ),
        (
            "orchestrate",
            {"question": "x", "plan": [{"worker": "hnad", "subtask": "y"}]},
            "did you mean 'hand'",
        ),
        ("orchestrate", {"question": "x", "follow_up": "ffffffff"}, "ffffffff"),
        ("orchestrate", {"question": "x", "local_onlyy": True}, "did you mean 'local_only'?"),
        ("get_run", {"run_id": "ffffffff", "verbose": True}, "get_run has no such argument"),
        ("run_step", {"run_id": "ffffffff"}, "ffffffff"),
        ("search_runs", {"since": "last week"}, "since: 'last week' is not a date"),
        ("search_runs", {"since": "9999-12-31", "until": "1d"}, "since: is later than until"),
    ],
)
async def test_bad_input_gets_one_clear_sentence(
    podium: CommandLine, tool: str, arguments: dict[str, JsonValue], words: str
) -> None:
    async with connected(podium) as client:
        result = await client.call_tool(tool, arguments)
        assert result.is_error
        assert words in text(result)
        assert "Traceback" not in text(result)
        assert not (await client.call_tool("list_workers", {})).is_error


async def test_resources_show_runs_steps_and_pool(podium: CommandLine) -> None:
    async with connected(podium) as client:
        answered = await client.call_tool("orchestrate", {"question": "What?"})
        run_id = data(answered)["run_id"]
        for uri, words in (
            ("podium://runs", str(run_id)),
            (f"podium://runs/{run_id}", '"receipt"'),
            (f"podium://runs/{run_id}/steps/2", "Weigh both."),
            ("podium://pool", '"boss"'),
        ):
            read = await client.read_resource(uri)
            assert words in read.contents[0].model_dump_json().replace('\\"', '"')


async def test_a_follow_up_sees_the_earlier_answer(podium: CommandLine) -> None:
    async with connected(podium) as client:
        first = await client.call_tool("orchestrate", {"question": "What is the answer?"})
        arguments: dict[str, JsonValue] = {
            "question": "Why?", "follow_up": data(first)["run_id"], "strategy": "single",
        }  # fmt: skip
        second = await client.call_tool("orchestrate", arguments)
        seen = await client.call_tool("get_run", {"run_id": data(second)["run_id"], "step": 0})
        assert "What is the answer?" in text(seen)
        assert "The answer is 42." in text(seen)


async def test_the_list_of_tools_stays_small(podium: CommandLine) -> None:
    async with connected(podium) as client:
        listed = await client.list_tools()
    whole = "".join(tool.model_dump_json(exclude_none=True, by_alias=True) for tool in listed.tools)
    assert len(whole) / 4 < 3000
    for tool in listed.tools:
        assert tool.title
        assert tool.description
        properties = cast("dict[str, dict[str, JsonValue]]", tool.input_schema["properties"])
        assert all(described.get("description") for described in properties.values())
