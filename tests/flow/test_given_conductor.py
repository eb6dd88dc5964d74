"""A real small model given by its path writes the plan, and does no step of it."""

from pathlib import Path
from typing import cast

import pytest
from pydantic import JsonValue
from tests.command_line import CommandLine, Done

from podium_workers.asked import Asked
from podium_workers.trained import TRAINING, Training
from podium_workers.weights.catalogue import lookup
from podium_workers.weights.pulling import path_of

pytestmark = pytest.mark.local

QUESTION = "Which is the largest ocean on Earth?"
TEAM = ("second", "first")
POOL = """
[[worker]]
name = "first"
kind = "scripted"
replies = ["The Pacific, says the first."]
[[worker]]
name = "second"
kind = "scripted"
replies = ["The Pacific, says the second."]
"""
HOW = Training(
    asked=Asked(form="lists", shows="ordinals", prompt="brief", max_steps=2, team=TEAM),
    context_window=2048,
    max_tokens=400,
)


@pytest.fixture
def at_home(tmp_path: Path, local_models_dir: Path) -> CommandLine:
    """Podium with two scripted workers, and SmolLM2 as `trained/model.gguf`."""
    podium = CommandLine(tmp_path)
    podium.pool.write_text(POOL)
    (tmp_path / "trained").mkdir()
    weights = path_of(lookup("smollm2"), local_models_dir)
    (tmp_path / "trained" / "model.gguf").symlink_to(weights)
    return podium


def planned_by(podium: CommandLine, done: Done) -> tuple[JsonValue, list[JsonValue]]:
    """Who wrote the plan of a run that was just asked for, and who then did its steps."""
    assert done.code == 0, done.err
    shown = podium("show", str(done.data["run_id"]), "--json").data
    proposals = cast("list[dict[str, JsonValue]]", shown["proposals"])
    assert proposals[0]["source"] == "model", proposals[0]["refused"]
    assert proposals[0]["raw_text"]
    calls = cast("list[dict[str, JsonValue]]", shown["calls"])
    (planning,) = [call for call in calls if call["step"] is None]
    request = cast("dict[str, JsonValue]", planning["request"])
    assert request["grammar"], "its decoding was held"
    assert str(planning["model"]).endswith("model.gguf")
    steps = cast("list[dict[str, JsonValue]]", shown["steps"])
    return proposals[0]["worker"], [step["worker"] for step in steps]


@pytest.mark.parametrize("given", ["trained", "trained/model.gguf"])
def test_a_trained_model_plans_by_number_for_the_team_of_its_training(
    at_home: CommandLine, given: str
) -> None:
    (at_home.folder / "trained" / TRAINING).write_text(HOW.model_dump_json())
    done = at_home("ask", QUESTION, "--conductor", given, "--json", within_s=600)
    writer, doers = planned_by(at_home, done)
    assert writer == "trained"
    assert 1 <= len(doers) <= 2
    assert set(doers) <= set(TEAM)
    assert cast("list[str]", done.data["notes"]) == []
    assert "The Pacific" in str(done.data["answer"])


def test_any_model_is_prompted_for_plans(at_home: CommandLine) -> None:
    given = "trained/model.gguf"
    done = at_home("ask", QUESTION, "--conductor", given, "--json", within_s=600)
    assert "prompted, since no conductor.json lies beside it" in done.err
    writer, doers = planned_by(at_home, done)
    assert writer == "model"
    assert set(doers) <= set(TEAM)
