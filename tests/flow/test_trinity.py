"""The strategy `trinity` through a real MCP client, with the real smallest model as coordinator.

The head is made here from the states of a few questions, so that the test shows the whole way from
a state to a worker.
"""

from pathlib import Path

import pytest
from pydantic import JsonValue
from tests.command_line import CommandLine
from tests.flow.client import connected, data, steps

from podium.policy.head import Head
from podium.policy.turns import texts_hash, view
from podium_workers.engine.client import EngineSettings, open_engine
from podium_workers.states import LocalStates
from podium_workers.weights.local_file import LocalFile

pytestmark = pytest.mark.local

SUMS = ("What is 17 times 23, plus 4?", "Calculate 90 times 12, minus 3.")
FACTS = ("What is the capital of Norway?", "Which city governs Peru?")
POOL = """
[[worker]]
name = "calc"
kind = "scripted"
replies = ["It is 7."]
[[worker.rule]]
when = "You are the Verifier of this turn"
reply = "ACCEPT"

[[worker]]
name = "know"
kind = "scripted"
replies = ["It is Rome."]
[[worker.rule]]
when = "You are the Verifier of this turn"
reply = "ACCEPT"
"""


async def head_by_states(states: LocalStates) -> Head:
    """Sums go to `calc`, facts to `know`; work first, and then a check."""
    sums = [await states(view(question, ())) for question in SUMS]
    facts = [await states(view(question, ())) for question in FACTS]
    done = [await states(view(question, ("It is so.",))) for question in (SUMS[0], FACTS[0])]
    begun = [(one + other) / 2 for one, other in zip(sums[0], facts[0], strict=True)]
    ended = [(one + other) / 2 for one, other in zip(*done, strict=True)]
    size = len(begun)
    apart = [sum(pair) / 2 for pair in zip(*sums, strict=True)]
    apart = [a - sum(pair) / 2 for a, pair in zip(apart, zip(*facts, strict=True), strict=True)]
    work = [before - after for before, after in zip(begun, ended, strict=True)]
    middle = [(before + after) / 2 for before, after in zip(begun, ended, strict=True)]
    # One mean for both choices: between begun and ended, and between sums and facts of either.
    return Head(
        model="smollm2", prompts=texts_hash(), workers=("calc", "know"), mean=tuple(middle),
        deviation=(1.0,) * size,
        weights=(
            tuple(apart), tuple(-value for value in apart),
            (0.0,) * size, tuple(work), tuple(-value for value in work),
        ),
    )  # fmt: skip


async def test_an_mcp_client_is_answered_turn_by_turn(
    tmp_path: Path, local_models_dir: Path
) -> None:
    engine_dir, file = tmp_path / "engine", tmp_path / "head.json"
    places = {
        "PODIUM_MODELS_DIR": str(local_models_dir), "PODIUM_STATE_DIR": str(engine_dir),
        "PODIUM_COORDINATOR": str(file),
    }  # fmt: skip
    podium = CommandLine(tmp_path, places)
    podium.pool.write_text(POOL)
    engine = EngineSettings(state_dir=engine_dir, memory_limit_bytes=8 << 30)
    async with open_engine(engine) as opened:
        head = await head_by_states(LocalStates(LocalFile("smollm2", local_models_dir), opened))
        file.write_text(head.model_dump_json())

        async with connected(podium) as client:
            found: list[tuple[JsonValue, JsonValue, str]] = []
            for question in ("What is 31 times 12, plus 9?", "What is the capital of Chile?"):
                asked = {"question": question, "strategy": "trinity", "max_wait_s": 600}
                answered = await client.call_tool("orchestrate", asked)
                assert data(answered)["status"] == "finished"
                first = steps(answered)[0]["worker"]
                found.append((data(answered)["answer"], first, str(data(answered)["run_id"])))
    assert [one[:2] for one in found] == [("It is 7.", "calc"), ("It is Rome.", "know")]
    assert podium("verify", found[-1][2]).code == 0
