"""What a client offers its user besides tools: prompts, completions, icons, lists that last."""

import json
from pathlib import Path

import pytest
from mcp.types import (
    PromptReference,
    ResourceTemplateReference,
    TextContent,
)
from tests.app_client import ERAS, Era, Surface, surface, text
from tests.core_parts import plan_of, step, worker

from podium.app.prompts import TEXTS
from podium.plan import Plan, Step
from podium.trace import RunRequest

RUN = "podium://runs/{run_id}"
STEP = "podium://runs/{run_id}/steps/{step}{?page}"


async def prompt(seen: Surface, name: str, **arguments: str) -> str:
    (message,) = (await seen.client.get_prompt(name, arguments)).messages
    assert message.role == "user"
    assert isinstance(message.content, TextContent)
    return message.content.text


async def completed(
    seen: Surface, where: str, name: str, value: str = "", **earlier: str
) -> list[str]:
    """What is offered for an argument of a prompt or a part of an address."""
    reference = (
        ResourceTemplateReference(uri=where) if ":" in where else PromptReference(name=where)
    )
    argument = {"name": name, "value": value}
    found = await seen.client.complete(reference, argument, context_arguments=earlier)
    return found.completion.values


@pytest.mark.parametrize("era", ERAS)
async def test_prompts_are_listed_with_what_they_take(tmp_path: Path, era: Era) -> None:
    async with surface(tmp_path, worker("solo"), era=era) as seen:
        listed = (await seen.client.list_prompts()).prompts
        assert [found.name for found in listed] == list(TEXTS)
        for found in listed:
            assert found.title
            assert found.description
            assert found.arguments
            assert found.arguments[0].required
            assert all(argument.description for argument in found.arguments)
        assert "$" not in await prompt(seen, "delegate", question="Why?")


async def test_delegate_says_what_was_chosen(tmp_path: Path) -> None:
    async with surface(tmp_path, worker("ann"), worker("bob")) as seen:
        told = await prompt(seen, "delegate", question="Why?", workers="ann, bob", strategy="chain")
        assert "Why?" in told
        assert 'the question and `strategy="chain"`, `workers=["ann", "bob"]`.' in told
        assert "the question." in await prompt(seen, "delegate", question="Why? costs $5")


async def test_a_second_opinion_is_asked_of_the_strongest_unless_named(tmp_path: Path) -> None:
    async with surface(tmp_path, worker("ann"), worker("bob")) as seen:
        told = await prompt(seen, "second_opinion", question="Why?", answer="So.")
        assert 'workers=["ann"]' in told
        assert told.endswith("So.")
        told = await prompt(seen, "second_opinion", question="Why?", worker="bob")
        assert 'workers=["bob"]' in told
        assert told.endswith("as it stands in this conversation.")


@pytest.mark.parametrize(
    ("names", "who"),
    [
        ("a", ["a", "a", "a"]),
        ("ab", ["a", "b", "a"]),
        ("abcd", ["b", "c", "a"]),
    ],
)
async def test_a_review_is_a_plan_of_two_blind_and_one_that_merges(
    tmp_path: Path, names: str, who: list[str]
) -> None:
    async with surface(tmp_path, *map(worker, names)) as seen:
        told = await prompt(seen, "review", subject="src/a.py", focus="$peed")
        written = told[told.index("plan=[") + 5 : told.index("\n]\n") + 2]
        steps = [Step.model_validate_json(json.dumps(it)) for it in json.loads(written)]
        plan = Plan(steps=tuple(steps))
        assert [it.worker for it in plan.steps] == who
        assert [plan.reads(number) for number in plan.numbers] == [(), (), (0, 1)]
        assert "looking for $peed" in plan.steps[0].subtask
        assert "src/a.py" in told
        asked = await seen.call("orchestrate", question="?", plan=json.loads(written))
        assert text(asked).startswith("Done.")


@pytest.mark.parametrize("era", ERAS)
async def test_runs_and_their_steps_are_completed_newest_first(tmp_path: Path, era: Era) -> None:
    plan = plan_of(*(step("solo", f"Part {number}.") for number in range(12)))
    async with surface(tmp_path, worker("solo"), plans=[plan], era=era) as seen:
        runs: list[str] = []
        for question in ("First?", "Second?"):
            done = await seen.call("orchestrate", question=question, strategy="given")
            assert done.structured_content is not None
            runs.insert(0, done.structured_content["run_id"])
        theirs = await seen.runs.orchestrator.create(
            RunRequest(question="Not mine?", strategy="given"), principal="somebody else"
        )

        assert await completed(seen, RUN, "run_id") == runs
        assert await completed(seen, RUN, "run_id", runs[1][:8]) == [runs[1]]
        assert await completed(seen, RUN, "run_id", theirs.run_id[:8]) == []
        assert await completed(seen, "delegate", "follow_up", runs[0]) == [runs[0]]
        numbers = await completed(seen, STEP, "step", "1", run_id=runs[0])
        assert numbers == ["1", "10", "11"]
        assert await completed(seen, STEP, "step", run_id=theirs.run_id) == []
        assert await completed(seen, STEP, "step") == []


async def test_names_are_completed_without_regard_to_case(tmp_path: Path) -> None:
    names = [f"w{number}" for number in range(150)]
    async with surface(tmp_path, worker("Ann"), worker("bob"), *map(worker, names)) as seen:
        assert await completed(seen, "second_opinion", "worker", "a") == ["Ann"]
        assert await completed(seen, "delegate", "workers", "bob,  A") == ["bob, Ann"]
        assert await completed(seen, "delegate", "strategy", "CH") == ["chain"]
        assert "security" in await completed(seen, "review", "focus")
        assert await completed(seen, "review", "subject") == []
        found = await seen.client.complete(
            PromptReference(name="second_opinion"), {"name": "worker", "value": "w"}
        )
        assert len(found.completion.values) == 100
        assert (found.completion.total, found.completion.has_more) == (150, True)


async def test_lists_last_and_runs_do_not(tmp_path: Path) -> None:
    async with surface(tmp_path, worker("solo")) as seen:
        client = seen.client
        for listed in (
            await client.list_tools(),
            await client.list_prompts(),
            await client.list_resources(),
            await client.list_resource_templates(),
        ):
            assert (listed.ttl_ms, listed.cache_scope) == (3_600_000, "private")
        read = await client.read_resource("podium://runs")
        assert (read.ttl_ms, read.cache_scope) == (2_000, "private")


@pytest.mark.parametrize("era", ERAS)
async def test_resources_and_the_server_introduce_themselves(tmp_path: Path, era: Era) -> None:
    async with surface(tmp_path, worker("solo"), era=era) as seen:
        listed = (await seen.client.list_resources()).resources
        assert [str(found.uri) for found in listed] == ["podium://pool", "podium://runs"]
        templates = (await seen.client.list_resource_templates()).resource_templates
        assert [found.name for found in templates] == ["run", "best answer", "step"]
        assert all(found.title and found.description for found in [*listed, *templates])
        session = seen.client.session
        if era == "legacy":
            assert session.initialize_result is not None
            begun = session.initialize_result.model_dump_json()
        else:
            begun = json.dumps(await session.send_discover(era))
        for kind in ("image/svg+xml", "image/png"):
            assert f"data:{kind};base64," in begun
        result = await seen.call("list_workers")
        assert "icons" not in json.dumps(result.meta)
