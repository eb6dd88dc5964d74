"""Fixtures that more than one test file uses."""

import importlib.util
import os
from collections.abc import Generator
from pathlib import Path

import pytest
from tests.command_line import CommandLine
from tests.provider_simulator import Provider, run_provider

from podium.config import Settings
from podium_workers.errors import ModelFileError
from podium_workers.weights.catalogue import lookup
from podium_workers.weights.pulling import pull


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take minutes come first, so that nobody waits for one of them at the end."""
    items.sort(
        key=lambda item: not {"vllm", "outside"}.intersection(it.name for it in item.iter_markers())
    )


@pytest.fixture(scope="session")
def running_provider() -> Generator[Provider]:
    with run_provider() as provider:
        yield provider


@pytest.fixture
def provider(running_provider: Provider) -> Provider:
    """A simulated provider that no test has used yet."""
    running_provider.reset()
    return running_provider


@pytest.fixture
def podium(tmp_path: Path) -> CommandLine:
    """The command `podium` with a scripted pool, in a folder of its own."""
    return CommandLine.scripted(tmp_path)


@pytest.fixture(scope="session")
def local_models_dir() -> Path:
    """Where the weights lie, with SmolLM2 there; `PODIUM_MODELS_DIR` chooses another folder."""
    if importlib.util.find_spec("xllamacpp") is None:
        pytest.skip("the engine of local models (extra `local`) is not installed")
    named = os.environ.get("PODIUM_MODELS_DIR")
    folder = Path(named) if named else Settings().models_dir
    try:
        pull(lookup("smollm2"), folder)
    except ModelFileError as error:
        pytest.skip(f"SmolLM2 cannot be pulled: {error}")
    return folder
