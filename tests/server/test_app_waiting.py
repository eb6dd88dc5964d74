"""When a run at work is handed over, what a model is told then, and how progress rises."""

from datetime import date
from pathlib import Path

import anyio
import pytest
from mcp import Client
from mcp.types import CallToolResult
from pydantic import JsonValue
from tests.app_client import ERAS, Era, surface, text
from tests.core_parts import BOUND_S, by_subtask, hanging, plan_of, step, worker

from podium.app import waiting
from podium.app.clients import PATIENCE_S, known_clients, patience
from podium.app.waiting import Progress
from podium_workers.scripted import Line

EARLY: dict[str, JsonValue] = {"question": "Long?", "strategy": "given", "max_wait_s": 0.05}


@pytest.mark.parametrize(
    ("name", "seconds"),
    [
        ("claude-code", 110),
        ("Claude-Code", 110),
        ("codex-mcp-client", 280),
        ("gemini-cli-mcp-client-podium", 280),
        ("Visual Studio Code - Insiders", 110),
        ("claude-ai", PATIENCE_S),
        ("cursor-vscode", PATIENCE_S),
        ("jan", 22),
        ("", PATIENCE_S),
        ("[", PATIENCE_S),
    ],
)
def test_known_clients_are_waited_for_as_long_as_they_wait(name: str, seconds: float) -> None:
    assert patience(name) == seconds


def test_every_known_client_has_a_source_and_a_date() -> None:
    for client in known_clients():
        assert client.source
        assert client.note
        assert client.checked >= date(2026, 11, 30)
        assert 10 <= client.seconds < 300


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(("name", "wait_s"), [("codex-mcp-client", 280), ("unheard-of", 45)])
async def test_the_text_of_a_run_at_work_fits_the_client(
    tmp_path: Path, era: Era, name: str, wait_s: int
) -> None:
    async with surface(tmp_path, worker("solo", by_subtask({"Do it.": hanging()})), era=era,
                       client_name=name) as seen:  # fmt: skip
        early = await seen.call("orchestrate", **EARLY)
        assert early.structured_content is not None
        run_id = early.structured_content["run_id"]
        assert f"get_run(run_id='{run_id}', wait_s={wait_s})" in text(early)
        looked = await seen.call("get_run", run_id=run_id)
        assert f"wait_s={wait_s})" in text(looked)
        assert "0 s so far; the whole plan takes about 29 s by the estimate" in text(looked)


async def test_a_model_is_told_what_is_going_on_and_that_asking_is_free(tmp_path: Path) -> None:
    second = anyio.Event()
    script = by_subtask({"List them.": "One.", "Weigh them.": hanging(second)})
    plan = plan_of(step("solo", "List them."), step("solo", "Weigh them.", 0))
    async with surface(tmp_path, worker("solo", script), plans=[plan]) as seen:
        with anyio.fail_after(BOUND_S):
            early = await seen.call("orchestrate", **EARLY)
            await second.wait()
            assert early.structured_content is not None
            looked = await seen.call("get_run", run_id=early.structured_content["run_id"])
    told = text(looked)
    assert "1 of 2 planned steps are done; solo is at step 1: Weigh them." in told
    assert "0 s so far. The work goes on without you." in told
    assert "that is free, starts nothing twice and loses nothing" in told
    assert "Best so far (step 0):\nOne." in told


async def test_the_setting_beats_the_table_and_the_argument_beats_both(tmp_path: Path) -> None:
    hangs = worker("solo", by_subtask({"Do it.": hanging()}))
    asked: dict[str, JsonValue] = {"question": "Long?", "strategy": "given"}
    async with surface(tmp_path, hangs, settings={"max_wait_s": 0.1}) as seen:
        with anyio.fail_after(BOUND_S):
            early = await seen.call("orchestrate", **asked)
            assert "Still working" in text(early)
        with anyio.move_on_after(0.5) as waiting:
            await seen.call("orchestrate", **asked, max_wait_s=60)
        assert waiting.cancelled_caught


@pytest.mark.parametrize("era", ERAS)
async def test_progress_of_parallel_steps_rises_and_begins_with_the_run(
    tmp_path: Path, era: Era
) -> None:
    everyone = anyio.Event()
    met: list[str] = []

    async def meet() -> Line:
        met.append("here")
        if len(met) == 4:
            everyone.set()
        await everyone.wait()
        return "Done."

    script = by_subtask({f"Part {number}.": meet for number in range(4)})
    parts = [step("solo", f"Part {number}.") for number in range(4)]
    plan = plan_of(*parts, step("solo", "Sum up.", 0, 1, 2, 3))
    told: list[tuple[float, str]] = []
    async with surface(tmp_path, worker("solo", script), plans=[plan], era=era) as seen:
        with anyio.fail_after(BOUND_S):
            done = await _asked(seen.client, told)
        before = len(told)
        assert not (await seen.call("list_workers")).is_error
    assert text(done).startswith("Done.")
    numbers = [number for number, _ in told]
    assert numbers == [float(number) for number in range(1, len(told) + 1)]
    assert len(told) == before
    assert done.structured_content is not None
    assert told[0][1].startswith(f"run {done.structured_content['run_id']}: ")
    for number in range(5):
        assert any(f"step finished: step {number}" in line for _, line in told)


async def test_a_slow_connection_hears_of_every_step_before_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once = Progress.tell

    async def slowly(progress: Progress, line: str) -> None:
        await anyio.sleep(0.03)
        await at_once(progress, line)

    monkeypatch.setattr(Progress, "tell", slowly)
    told: list[tuple[float, str]] = []
    plan = plan_of(*(step("solo", f"Part {number}.") for number in range(4)))
    async with surface(tmp_path, worker("solo"), plans=[plan]) as seen:
        with anyio.fail_after(BOUND_S):
            await _asked(seen.client, told)
    for number in range(4):
        assert any(f"step finished: step {number}" in line for _, line in told)


async def test_an_answer_does_not_wait_for_long_for_a_connection_that_takes_no_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(progress: Progress, line: str) -> None:
        if "waiting for it" not in line:
            await anyio.sleep_forever()

    monkeypatch.setattr(Progress, "tell", never)
    monkeypatch.setattr(waiting, "LAST_WORDS_S", 0.05)
    async with surface(tmp_path, worker("solo")) as seen:
        with anyio.fail_after(BOUND_S):
            assert text(await _asked(seen.client, [])).startswith("Done.")


async def test_a_run_of_another_process_gives_signs_of_life_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "PROGRESS_S", 0.05)
    told: list[tuple[float, str]] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, message or ""))

    hangs = worker("solo", by_subtask({"Do it.": hanging()}))
    async with surface(tmp_path, hangs) as works, surface(tmp_path, hangs) as waits:
        with anyio.fail_after(BOUND_S):
            early = await works.call("orchestrate", **EARLY)
            assert early.structured_content is not None
            arguments = {"run_id": early.structured_content["run_id"], "wait_s": 0.6}
            await waits.client.call_tool("get_run", arguments, progress_callback=note)
    assert len(told) >= 3
    assert all(line.startswith("working (") for _, line in told[1:])


async def _asked(client: Client, told: list[tuple[float, str]]) -> CallToolResult:
    async def note(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, message or ""))

    arguments: dict[str, JsonValue] = {"question": "?", "strategy": "given"}
    return await client.call_tool("orchestrate", arguments, progress_callback=note)
