"""The whole of Podium with real local models: the 1.5B plans, the pool answers."""

from importlib.resources import files
from pathlib import Path
from typing import cast

import pytest
from pydantic import JsonValue
from tests.command_line import CommandLine
from tests.flow.client import Transport, connected, data, steps

from podium_workers.errors import ModelFileError
from podium_workers.weights.catalogue import CATALOGUE
from podium_workers.weights.pulling import pull

pytestmark = pytest.mark.local

QUESTION = "Which is the largest ocean on Earth?"
PATIENCE = {"max_wait_s": 900}


@pytest.fixture(scope="module")
def all_weights(local_models_dir: Path) -> Path:
    """Where the weights of all three models lie."""
    try:
        for weights in CATALOGUE:
            pull(weights, local_models_dir)
    except ModelFileError as error:
        pytest.skip(f"the local models cannot be pulled: {error}")
    return local_models_dir


@pytest.fixture(scope="module")
def engine_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One engine for the whole file, so that models are loaded once."""
    return tmp_path_factory.mktemp("engine")


@pytest.fixture
def at_home(tmp_path: Path, all_weights: Path, engine_dir: Path) -> CommandLine:
    """Podium with the local pool as it is shipped."""
    places = {"PODIUM_MODELS_DIR": str(all_weights), "PODIUM_STATE_DIR": str(engine_dir)}
    podium = CommandLine(tmp_path, places)
    podium.pool.write_text((files("podium_workers") / "pools" / "local.toml").read_text("utf-8"))
    return podium


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_client_plans_walks_asks_looks_and_searches(
    at_home: CommandLine, transport: Transport
) -> None:
    async with connected(at_home, transport) as client:
        assert len((await client.list_tools()).tools) == 7

        planned = await client.call_tool("plan_only", {"question": QUESTION, **PATIENCE})
        run_id = data(planned)["run_id"]
        assert data(planned)["plan_source"] == "model"
        assert 1 <= len(steps(planned)) <= 5

        walked = planned
        for _ in steps(planned):
            walked = await client.call_tool("run_step", {"run_id": run_id, **PATIENCE})
        assert all(step["status"] == "finished" for step in steps(walked))

        answered = await client.call_tool("orchestrate", {"run_id": run_id, **PATIENCE})
        assert data(answered)["status"] == "finished"
        assert data(answered)["answer"]

        seen = data(await client.call_tool("get_run", {"run_id": run_id}))
        usage = cast("dict[str, JsonValue]", seen["usage"])
        assert usage["cost_usd"] == 0
        assert isinstance(usage["output_tokens"], int)
        assert usage["output_tokens"] > 0

        found = data(await client.call_tool("search_runs", {"text": "ocean"}))
        runs = cast("list[dict[str, JsonValue]]", found["runs"])
        assert [run["run_id"] for run in runs] == [run_id]
    assert at_home("verify", str(run_id)).code == 0


def test_the_command_line_answers_a_question_with_a_plan_of_the_models_own(
    at_home: CommandLine,
) -> None:
    done = at_home("ask", QUESTION, within_s=900)
    assert done.code == 0, done.err
    assert done.out.strip()
    row = at_home("runs", "--json").rows[0]
    assert row["status"] == "finished"
    assert row["plan_source"] == "model"
