"""Fixtures that more than one test file uses."""

from collections.abc import Generator
from pathlib import Path

import pytest
from tests.command_line import CommandLine
from tests.provider_simulator import Provider, run_provider


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
