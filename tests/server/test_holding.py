"""Who may take whose run when clocks jump, owners die, and work is cut off before it begins."""

import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from tests.core_parts import BOUND_S, pool_of, worker

from podium.calls import Caller
from podium.holding import Holding
from podium.orchestrator import Orchestrator
from podium.owner import new_owner
from podium.policy.fixed import Single
from podium.runs import Runs, open_runs
from podium.store import open_store
from podium.trace import Run, RunRequest
from podium_workers.scripted import Line, ScriptedWorker

HOUR = 3600.0
LEASE_S = 1.0


@asynccontextmanager
async def server(
    folder: Path, ann: ScriptedWorker, *, shift_s: float = 0.0, takes_over: bool = True
) -> AsyncGenerator[Runs]:
    """What a server does, on a machine whose clock is wrong by so much."""

    def clock() -> float:
        return time.time() + shift_s

    async with open_store(folder / "podium.db", clock=clock) as store:
        parts = Orchestrator(store, pool_of(ann), Caller(store), {"single": Single()})
        async with open_runs(parts, lease_s=LEASE_S, takes_over=takes_over) as runs:
            runs.holding.clock = clock
            yield runs


async def ask(runs: Runs, question: str) -> Run:
    request = RunRequest(question=question, strategy="single")
    return await runs.ask(request, principal="me", fresh=True)


async def has_ended(runs: Runs, run_id: str) -> None:
    """Wait until a run has finished, wherever that is."""
    while (await runs.store.run(run_id)).status != "finished":  # noqa: ASYNC110
        await anyio.sleep(0.02)


class Held:
    """A worker that replies once it is let."""

    def __init__(self) -> None:
        self.began, self.go = anyio.Event(), anyio.Event()
        self.worker = worker("ann", self._hold)

    async def _hold(self, prompt: object) -> Line:
        self.began.set()
        await self.go.wait()
        return "At last."


def dead_owner() -> str:
    """The name of a process of this machine that has ended."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    machine, _, _, unique = new_owner().split("/")
    return f"{machine}/{ended.pid}/-/{unique}"


def unknown_owner() -> str:
    """The name of a process of which nothing can be known here."""
    return f"elsewhere/{new_owner().split('/', 1)[1]}"


@pytest.mark.parametrize("shift_s", [HOUR, -HOUR, 0.0])
@pytest.mark.parametrize("gone", [dead_owner, unknown_owner])
async def test_a_jump_of_the_clock_takes_no_run_from_the_living_and_every_one_from_the_dead(
    tmp_path: Path, shift_s: float, gone: Callable[[], str]
) -> None:
    """The clock of the living owner, and that of the dead one, differ from the looker's own."""
    held, other = Held(), worker("ann", ["Taken over."])
    with anyio.fail_after(BOUND_S):
        async with server(tmp_path, held.worker, shift_s=shift_s, takes_over=False) as owning:
            living = await ask(owning, "living")
            await held.began.wait()
            async with server(tmp_path, other) as looking:
                orphan = await looking.orchestrator.prepare(
                    RunRequest(question="orphan", strategy="single"), principal="me"
                )
                orphan = orphan.model_copy(update={"status": "running"})
                lease_s = LEASE_S + shift_s
                await looking.store.begin_run(orphan, None, gone(), lease_s)

                await has_ended(looking, orphan.run_id)

                assert not looking.is_mine(living.run_id)
                assert owning.is_mine(living.run_id)
                held.go.set()
                await has_ended(looking, living.run_id)
                assert len(await looking.store.calls(living.run_id)) == 1


async def test_a_lease_that_has_ended_is_not_enough_while_its_owner_lives(tmp_path: Path) -> None:
    """A server that slept, or was busy, wakes up as the owner unless another one has seen it."""
    with anyio.fail_after(BOUND_S):
        async with server(tmp_path, worker("ann"), takes_over=False) as runs:
            run = await runs.orchestrator.prepare(
                RunRequest(question="?", strategy="single"), principal="me"
            )
            await runs.store.begin_run(run, None, new_owner(), -HOUR)

            assert await Holding(runs.store, LEASE_S).left_behind() == ()
            assert await runs.holding.claim(run.run_id) is None


async def test_nobody_is_said_to_work_on_the_run_of_a_dead_process(tmp_path: Path) -> None:
    async with server(tmp_path, worker("ann"), takes_over=False) as runs:
        for owner, at_work in ((dead_owner(), False), (new_owner(), True)):
            request = RunRequest(question=owner, strategy="single")
            run = await runs.orchestrator.prepare(request, principal="me")
            await runs.store.begin_run(run, None, owner, HOUR)
            assert await runs.at_work(run.run_id) is at_work


async def test_work_that_is_cut_off_before_its_first_turn_is_interrupted_and_not_lost(
    tmp_path: Path,
) -> None:
    with anyio.fail_after(BOUND_S):
        async with server(tmp_path, worker("ann"), takes_over=False) as runs:
            run = await ask(runs, "?")
        async with server(tmp_path, worker("ann"), takes_over=False) as runs:
            assert (await runs.store.run(run.run_id)).status == "interrupted"
            await runs.start(run)
            assert (await runs.wait(run.run_id)).status == "finished"


async def test_many_runs_left_behind_are_all_taken_and_finished(tmp_path: Path) -> None:
    """Leases are renewed while others are still being claimed."""
    with anyio.fail_after(BOUND_S):
        async with server(tmp_path, worker("ann"), takes_over=False) as runs:
            owner = dead_owner()
            for number in range(40):
                asked = RunRequest(question=f"{number}?", strategy="single")
                run = await runs.orchestrator.prepare(asked, principal="me")
                left = run.model_copy(update={"status": "running"})
                await runs.store.begin_run(left, None, owner, 0.0)
        async with server(tmp_path, worker("ann")) as runs:
            for summary in await runs.store.summaries(limit=100):
                await has_ended(runs, summary.run_id)
