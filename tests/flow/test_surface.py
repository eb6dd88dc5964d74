"""Prompts, completions and paged resources over real wires."""

import anyio
import pytest
from mcp.types import PromptReference, ResourceTemplateReference, TextContent
from tests.command_line import CommandLine
from tests.flow.client import Era, Transport, connected, data


@pytest.mark.parametrize(("transport", "era"), [("stdio", "legacy"), ("http", "2026-07-28")])
async def test_a_user_is_offered_prompts_and_what_to_fill_them_with(
    podium: CommandLine, transport: Transport, era: Era
) -> None:
    with anyio.fail_after(60):
        async with connected(podium, transport, era) as client:
            reference = PromptReference(name="second_opinion")
            offered = await client.complete(reference, {"name": "worker", "value": "h"})
            assert offered.completion.values == ["hand"]
            arguments = {"question": "Is it so?", "worker": "hand"}
            (message,) = (await client.get_prompt("second_opinion", arguments)).messages
            assert isinstance(message.content, TextContent)
            assert 'workers=["hand"]' in message.content.text

            asked = {"question": "Is it so?", "strategy": "single", "workers": ["hand"]}
            run_id = str(data(await client.call_tool("orchestrate", asked))["run_id"])
            runs = ResourceTemplateReference(uri="podium://runs/{run_id}")
            offered = await client.complete(runs, {"name": "run_id", "value": run_id[:6]})
            assert offered.completion.values == [run_id]
            read = await client.read_resource(f"podium://runs/{run_id}/steps/0?page=0")
            assert "The facts are these" in read.contents[0].model_dump_json()
