"""An answer that rests on less than was planned says so, in text and as data."""

from pathlib import Path

from tests.command_line import CommandLine, use_hosted
from tests.core_parts import NO_KEY, REFUSED, Parts, by_subtask, open_parts, plan_of, step, worker
from tests.provider_simulator import Provider, openai_reply

from podium.trace import Run
from podium.views import RunView, told, view

PLAN = plan_of(step("ann", "Bad."), step("ann", "Good."), step("ann", "Both.", 0, 1))


async def seen(parts: Parts, run: Run) -> RunView:
    return await view(parts.store, run)


async def test_an_answer_without_one_of_its_advisers_is_not_told_like_a_full_one(
    tmp_path: Path,
) -> None:
    """The others' work is kept, and the error of the one that failed is there with its name."""
    ann = worker("ann", by_subtask({"Bad.": REFUSED}))
    async with open_parts(tmp_path, ann, plans=[PLAN]) as parts:
        run = await parts.ask()
        shown = await seen(parts, run)
    assert (shown.status, shown.degraded) == ("finished", True)
    assert [line.step for line in shown.steps if line.status == "failed"] == [0]
    assert [failed.worker for failed in shown.steps[0].failures] == ["ann"]
    assert "Step 0 failed. ann: " in told(shown)
    assert "finished (degraded)" in told(shown)


async def test_an_answer_for_which_somebody_stood_in_is_degraded_and_a_full_one_is_not(
    tmp_path: Path,
) -> None:
    ann, bob = worker("ann", by_subtask({"Bad.": NO_KEY})), worker("bob")
    async with open_parts(tmp_path, ann, bob, plans=[PLAN]) as parts:
        assert (await seen(parts, await parts.ask())).degraded
    async with open_parts(tmp_path, worker("ann"), plans=[PLAN]) as parts:
        full = await seen(parts, await parts.ask("Another?"))
    assert (full.status, full.degraded, full.notes) == ("finished", False, [])
    assert "degraded" not in told(full)


async def test_an_answer_without_a_plan_is_degraded(tmp_path: Path) -> None:
    async with open_parts(tmp_path, worker("ann", ["No plan."] * 9)) as parts:
        shown = await seen(parts, await parts.ask(strategy="conductor"))
    assert (shown.plan_source, shown.degraded) == ("fallback", True)


def test_the_receipt_names_the_model_that_was_asked_for_and_the_one_that_replied(
    podium: CommandLine, provider: Provider
) -> None:
    provider.answers(openai_reply("Done."))
    use_hosted(podium, provider.url)
    assert podium.inside("ask", "--strategy", "single", "Which?").code == 0
    shown = podium.inside("show", podium.newest_run(), "--json").data
    receipt = shown["receipt"]
    assert isinstance(receipt, dict)
    (line,) = receipt["steps"] if isinstance(receipt["steps"], list) else []
    assert isinstance(line, dict)
    assert (line["model"], line["served_by"]) == ("some-model", "model-as-served")
