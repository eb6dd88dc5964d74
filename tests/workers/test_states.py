"""Hidden states by the engine, with the real smallest model."""

from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import pytest

from podium_workers.engine.client import EngineSettings, open_engine
from podium_workers.errors import ContextTooLongError, MalformedReplyError, ModelFileError
from podium_workers.states import CONTEXT, LocalStates
from podium_workers.weights.gguf import read_gguf
from podium_workers.weights.local_file import LocalFile

pytestmark = pytest.mark.local
PATIENCE_S = 240
SIZE = 576
"""Of a state of SmolLM2 135M."""


@pytest.fixture
async def states(local_models_dir: Path, tmp_path: Path) -> AsyncGenerator[LocalStates]:
    settings = EngineSettings(state_dir=tmp_path, memory_limit_bytes=2 << 30, idle_s=1)
    async with open_engine(settings) as engine:
        yield LocalStates(LocalFile("smollm2", local_models_dir), engine)


async def test_a_state_is_that_of_the_penultimate_token(states: LocalStates) -> None:
    with anyio.fail_after(PATIENCE_S):
        asks, tells, other = [
            await states(text)
            for text in ("user: Why is it so?", "user: Why is it so!", "user: No.")
        ]
        again = await states("user: Why is it so?")
    assert len(asks) == SIZE
    # The last token alone differs, and a model does not look ahead.
    assert asks == tells == again
    assert asks != other
    # As it is in the model: its length was not set to one.
    assert sum(value * value for value in asks) > 100


async def test_a_long_text_is_read_in_pieces_and_one_too_long_is_refused(
    states: LocalStates,
) -> None:
    with anyio.fail_after(PATIENCE_S):
        assert len(await states("user: " + "more " * 300)) == SIZE
        with pytest.raises(ContextTooLongError, match=f"smollm2 is given {CONTEXT}"):
            await states("word " * (CONTEXT + 1))
        with pytest.raises(MalformedReplyError, match="no penultimate"):
            await states("a")


async def test_a_model_that_is_not_there_is_named(states: LocalStates, tmp_path: Path) -> None:
    missing = LocalStates(LocalFile("nothing.gguf", tmp_path), states.engine)
    with pytest.raises(ModelFileError, match="is neither a model of Podium"):
        await missing("user: Why?")


async def test_states_keep_no_cache_of_prompts(states: LocalStates) -> None:
    with anyio.fail_after(PATIENCE_S):
        await states("user: Why?")
        status = await states.engine.status()
    assert status is not None
    (model,) = status.models
    assert (model.spec.gives, model.spec.slots) == ("states", 1)
    assert read_gguf(model.spec.path).size < model.resident_bytes < 900_000_000
