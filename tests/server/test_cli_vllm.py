"""`podium vllm`, with a stand-in for vLLM that starts in a moment."""

import os
import signal
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import cast

import pytest
from anyio import to_thread
from pydantic import JsonValue
from tests.command_line import CommandLine, finish
from tests.engine_processes import is_running, processes_of, until
from tests.plain_vllm import make_plain_vllm

BOUND_S = 60
POOL = """
[[worker]]
name = "gpu"
kind = "vllm"
model = "some/model"
python = "{python}"

[[worker]]
name = "hand"
kind = "scripted"
replies = ["Yes."]
"""


@pytest.fixture
async def gpu(tmp_path: Path) -> AsyncGenerator[CommandLine]:
    state_dir = tmp_path / "state"
    made = CommandLine(tmp_path, {"PODIUM_STATE_DIR": str(state_dir)})
    made.pool.write_text(POOL.format(python=make_plain_vllm(tmp_path / "plain").python))
    yield made
    for pid in processes_of(state_dir):
        os.kill(pid, signal.SIGTERM)
    await until(lambda: not processes_of(state_dir))


async def test_a_server_is_started_shown_and_stopped(gpu: CommandLine) -> None:
    assert "No vLLM server is running." in gpu("vllm", "status").err

    up = gpu("vllm", "up")
    assert up.code == 0, up.err
    assert up.out.startswith("some/model is served at http://127.0.0.1:")
    assert "vLLM is starting with some/model; its log is" in up.err

    (shown,) = gpu("vllm", "status", "--json").rows
    assert (shown["model"], shown["state"], shown["calls"]) == ("some/model", "ready", 0)
    assert "some/model" in gpu("vllm", "status").out
    pid = cast("int", shown["pid"])
    assert is_running(pid)
    assert gpu("vllm", "up", "gpu").out == up.out
    assert _detail(gpu) == f"its server is ready; its log is {shown['log']}"

    assert gpu("vllm", "down").out.strip() == "some/model is stopped."
    await until(lambda: not is_running(pid))
    assert gpu("vllm", "down").out.strip() == "No such server is running."


def _detail(gpu: CommandLine) -> JsonValue:
    return next(row["detail"] for row in gpu("workers", "--json").rows if row["name"] == "gpu")


async def test_a_run_goes_on_when_its_engine_is_killed(gpu: CommandLine) -> None:
    log = gpu.folder / "state" / "vllm-some-model.log"
    asking = gpu.start("ask", "--strategy", "single", "Go on for ever.")
    await until(lambda: log.exists() and "asked for ever" in log.read_text(), within_s=BOUND_S)
    (shown,) = gpu("vllm", "status", "--json").rows
    os.kill(cast("int", shown["pid"]), signal.SIGKILL)
    done = await to_thread.run_sync(finish, asking)

    assert done.code == 0, done.err
    assert done.out.startswith("some/model [")
    assert "asked for ever" in log.with_suffix(".before.log").read_text()
    (run,) = gpu("runs", "--json").rows
    assert run["status"] == "finished"


async def test_a_worker_of_another_kind_has_no_server(gpu: CommandLine) -> None:
    failed = gpu("vllm", "up", "hand")

    assert failed.code == 1
    assert "'hand' is no worker of kind \"vllm\" without base_url" in failed.err
    assert gpu("vllm", "up", "nobody").code == 1


async def test_a_start_that_fails_is_told_in_a_sentence(gpu: CommandLine) -> None:
    crowded = 'model = "some/model"\nenv = { PLAIN_VLLM = "no room" }'
    gpu.pool.write_text(gpu.pool.read_text().replace('model = "some/model"', crowded))
    failed = gpu("vllm", "up")

    assert failed.code == 1
    assert "some/model does not fit into memory under vLLM" in failed.err
    assert "Traceback" not in failed.err
