"""The time limit of a run is one moment for all that it does, however many stages it has."""

from pathlib import Path

import anyio
import pytest
from tests.core_parts import conducting, hanging, open_parts, written

from podium_workers.scripted import Line, ScriptedWorker
from podium_workers.worker import Call, ModelSettings, Prompt, Reply

LIMIT_S = 60.0
SHORT_S = 2.0


class Noting(ScriptedWorker):
    """Notes by when each of its calls has to be answered, and whether it was to write a plan."""

    noted: list[tuple[bool, float]]

    async def reply(self, prompt: Prompt, settings: ModelSettings, call: Call) -> Reply:
        self.noted.append((conducting(prompt), call.deadline))
        return await super().reply(prompt, settings, call)

    @classmethod
    def made(cls, name: str, *plans: str, other: Line = "Done.") -> "Noting":
        """It writes these plans in turn, the last one for ever, and says *other* else."""
        left = list(plans)

        def script(prompt: Prompt) -> Line:
            if not conducting(prompt):
                return other
            return left.pop(0) if len(left) > 1 else left[0]

        made = cls(ScriptedWorker.named(name, script).card, script)
        made.noted = []
        return made


async def test_planning_steps_rounds_and_nested_runs_all_end_at_the_same_moment(
    tmp_path: Path,
) -> None:
    """Budgets of stages cannot add up to more than the whole, since a stage has none of its own."""
    outer = written(("ann", "First.", []), ("podium", "Ask a team.", [0]))
    inner = written(("ann", "Inner.", []))
    second = written(("ann", "Again.", "all"))
    ann = Noting.made("ann", outer, inner, second)
    async with open_parts(tmp_path, ann) as parts:
        began = anyio.current_time()
        run = await parts.ask(strategy="conductor", rounds=2, depth=1, max_seconds=LIMIT_S)
        assert run.status == "finished"
    assert [planned for planned, _ in ann.noted].count(True) >= 3
    assert [planned for planned, _ in ann.noted].count(False) >= 3
    moments = {deadline for _, deadline in ann.noted}
    assert max(moments) == pytest.approx(began + LIMIT_S, abs=5)
    assert max(moments) - min(moments) < 0.5


async def test_what_planning_took_is_not_given_to_the_steps_again(tmp_path: Path) -> None:
    """The limit strikes in the middle of the second stage, not a whole limit after the first."""
    hang = hanging()

    async def script(prompt: Prompt) -> Line:
        if conducting(prompt):
            await anyio.sleep(SHORT_S / 2)
            return written(("bob", "Quick.", []), ("ann", "Slow.", [0]))
        return await hang()

    ann = ScriptedWorker.named("ann", script)
    bob = ScriptedWorker.named("bob", ["Quickly done."])
    async with open_parts(tmp_path, ann, bob) as parts:
        run = await parts.ask(strategy="conductor", max_seconds=SHORT_S)
    assert (run.status, run.answer, run.limit) == ("partial", "Quickly done.", "seconds")
    assert run.worked_s < SHORT_S * 1.45
