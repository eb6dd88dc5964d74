"""The engine benchmark at a tiny size: its counts, never its times."""

import json
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest

from podium_lab.bench.engine import search
from podium_lab.bench.engine.figures import Amount, Figures, Result, ratios
from podium_lab.bench.engine.table import table

RUNS, STEPS, CHAINS, SEARCHED = 5, 4, 2, 200
HEADLINE = {
    "runs200_wall_over_floor", "cpu_ms_per_run", "chain_wall_over_critical_path",
    "search_p95_ms", "memory_kb_per_idle_run", "memory_kb_per_run_at_rest",
    "resume200_wall_over_floor", "podium_over", "machine", "engines", "left_out", "search",
}  # fmt: skip
AMOUNTS = {
    "runs": RUNS, "rounds": 1, "chains": CHAINS, "idle-runs": 10, "search-runs": SEARCHED,
    "queries": 4,
}  # fmt: skip


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """What the command printed, without the other engines."""
    folder = tmp_path_factory.mktemp("bench")
    sizes = [f"--{name}={amount}" for name, amount in AMOUNTS.items()]
    command = [sys.executable, "-m", "podium_lab.bench.engine", "--json", *sizes]
    done = subprocess.run(
        [*command, f"--peers={folder / 'none'}", f"--place={folder}"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not any(folder.iterdir()), "it left files behind"
    return cast("dict[str, object]", json.loads(done.stdout))


def engines(measured: dict[str, object]) -> dict[str, Figures]:
    found = cast("list[object]", measured["engines"])
    return {it.name: it for it in map(Figures.model_validate, found)}


def test_the_command_prints_one_object_with_the_figures_of_the_goals(
    measured: dict[str, object],
) -> None:
    assert measured.keys() >= HEADLINE
    assert cast("dict[str, object]", measured["search"])["runs"] == SEARCHED


def test_every_step_is_done_once_by_count_of_the_work_and_of_the_provider(
    measured: dict[str, object],
) -> None:
    found = engines(measured)
    assert {name: it.calls_exact for name, it in found.items()} == {"bare": True, "podium": True}
    assert found["podium"].resume_calls == RUNS * STEPS // 2


def test_the_ledger_flushes_every_commit_to_the_disk(measured: dict[str, object]) -> None:
    podium = engines(measured)["podium"]
    durable = {"storage": "ledger", "journal": "wal", "synchronous": "2"}
    assert podium.facts.items() >= durable.items()
    assert int(podium.facts["commits"]) > 1
    assert podium.syncs_per_run is None or podium.syncs_per_run > 1


def test_engines_that_are_not_installed_are_said_to_be_left_out(
    measured: dict[str, object],
) -> None:
    left_out = cast("dict[str, str]", measured["left_out"])
    assert "podium_lab.bench.peers.install" in left_out["the other engines"]


def test_the_table_has_a_row_for_every_engine_and_says_who_was_left_out(
    measured: dict[str, object],
) -> None:
    fields = {name: measured[name] for name in Result.model_fields}
    result = Result.model_validate(fields)
    text = "\n".join(table(result))
    assert text.count("| **Podium** |") == 2
    assert "Left out: the other engines." in text
    assert f"{SEARCHED} runs" in text


def test_a_ratio_below_one_means_that_podium_is_better(measured: dict[str, object]) -> None:
    podium = engines(measured)["podium"]
    slower = podium.model_copy(update={"runs_wall_s": podium.runs_wall_s * 2})
    assert ratios(podium, slower)["runs_wall_s"] == 0.5
    assert ratios(podium, podium)["chain_wall_s"] == 1.0


async def test_what_is_searched_was_stored_as_runs_are(tmp_path: Path) -> None:
    found = await search.measure(30, 4, tmp_path / "podium.db")
    assert found["runs"] == 30
    assert Amount().search_runs == 100_000
