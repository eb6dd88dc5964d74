"""Several processes on one ledger: runs that must not be lost, and a day's budget that must be met.

    python -m podium_lab.bench.racing
    python -m podium_lab.bench.racing --processes 8 --runs 200 --requests 1600 --json

First every process carries its share of the runs to their answers. Then all of them ask a worker
at the same time, for twice as many replies as the budget of the day allows.
"""

import argparse
import json
import multiprocessing
import sqlite3
import tempfile
import time
from contextlib import closing
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.context import ForkContext
from multiprocessing.synchronize import Barrier
from pathlib import Path

import anyio
import anyio.to_thread

from podium.calls import Caller, Purpose
from podium.errors import LimitError, PodiumError
from podium.orchestrator import Orchestrator
from podium.plan import Step
from podium.policy.fixed import Single
from podium.runs import Runs, open_runs
from podium.store import Store, open_store
from podium.trace import RunRequest
from podium_workers.errors import WorkerError
from podium_workers.pool import Pool
from podium_workers.scripted import ScriptedWorker
from podium_workers.worker import Frozen, ModelSettings, Price, Prompt, WorkerCard

STEPS = 4
REPLY = "x" * 396
"""A text that a scripted worker counts as so many tokens:"""
REPLY_TOKENS = 100
USD_PER_MILLION = 10.0
NANO_PER_REPLY = 1_000_000
"""What that reply costs, in billionths of a dollar."""
PATIENCE_S = 120.0
"""Seconds that the processes wait for each other."""
SETTINGS = ModelSettings(max_output_tokens=REPLY_TOKENS)


class Amount(Frozen):
    """How much there is to do, over all processes."""

    processes: int = 8
    runs: int = 200
    requests: int = 1600

    @property
    def runs_each(self) -> int:
        return self.runs // self.processes

    @property
    def requests_each_run(self) -> int:
        return self.requests // self.runs

    @property
    def affordable(self) -> int:
        """Replies that the day's budget allows."""
        return self.requests // 2


class Share(Frozen):
    """What one process did."""

    runs: tuple[str, ...]
    """Those that it saw finish."""
    granted: int
    refused: int
    errors: tuple[str, ...]


class Found(Frozen):
    """What all of them did, and what the ledger says."""

    amount: Amount
    wall_s: float
    errors: tuple[str, ...]
    runs_lost: int
    """Runs that a process saw finish, and that are not so in the ledger."""
    runs_finished: int
    steps_finished: int
    granted: int
    refused: int
    calls_paid: int
    budget_nano_usd: int
    spent_nano_usd: int
    reservations_left: int
    leases_left: int

    @property
    def holds(self) -> bool:
        """Whether nothing was lost and the budget was met to the last billionth."""
        amount = self.amount
        return (
            not self.errors
            and (self.runs_lost, self.reservations_left, self.leases_left) == (0, 0, 0)
            and self.runs_finished == amount.runs
            and self.steps_finished == amount.runs * STEPS
            and self.granted == self.calls_paid == amount.affordable
            and self.refused == amount.requests - amount.affordable
            and self.spent_nano_usd == self.budget_nano_usd
        )


@dataclass
class _Racer:
    """The work of one process."""

    runs: Runs
    caller: Caller
    amount: Amount
    name: str
    priced: ScriptedWorker
    finished: list[str] = field(default_factory=list[str])
    granted: int = 0
    refused: int = 0
    errors: list[str] = field(default_factory=list[str])

    async def carry_out(self, number: int) -> None:
        """One run of several steps, to its answer."""
        request = RunRequest(question=f"Run {number} of {self.name}.", strategy="single")
        steps = [
            Step(worker="free", subtask=f"Do part {n}.", access=(n - 1,) if n else ())
            for n in range(STEPS)
        ]
        try:
            run = await self.runs.ask(request, principal="bench", steps=steps)
            run = await self.runs.wait(run.run_id)
        except PodiumError as error:
            self.errors.append(repr(error))
            return
        if run.status == "finished":
            self.finished.append(run.run_id)
        else:
            self.errors.append(f"{run.run_id} is {run.status}")

    async def race(self, run_id: str) -> None:
        """One request that may be one too many."""
        prompt, purpose = Prompt.of("Say it."), Purpose(run_id, 1)
        try:
            await self.caller.ask(self.priced, prompt, SETTINGS, purpose)
        except LimitError:
            self.refused += 1
        except (PodiumError, WorkerError) as error:
            self.errors.append(repr(error))
        else:
            self.granted += 1

    def share(self) -> Share:
        return Share(
            runs=tuple(self.finished),
            granted=self.granted,
            refused=self.refused,
            errors=tuple(self.errors),
        )


def _worker(name: str, price: float) -> ScriptedWorker:
    card = WorkerCard(
        name=name,
        kind="scripted",
        model="scripted",
        where="local",
        context_window=8192,
        price=Price(input=0.0, output=price),
        parallel=64,
    )
    return ScriptedWorker(card, [REPLY])


async def _work(path: Path, name: str, amount: Amount, barrier: Barrier) -> Share:
    free, priced = _worker("free", 0.0), _worker("priced", USD_PER_MILLION)
    day_usd = amount.affordable * NANO_PER_REPLY / 1e9
    async with open_store(path) as store:
        caller = Caller(store, day_usd=day_usd)
        pool = Pool(workers=(free, priced), conductor="free")
        orchestrator = Orchestrator(store, pool, caller, {"single": Single()})
        async with open_runs(orchestrator) as runs:
            racer = _Racer(runs, caller, amount, name, priced)
            await anyio.to_thread.run_sync(barrier.wait, PATIENCE_S)
            async with anyio.create_task_group() as group:
                for number in range(amount.runs_each):
                    group.start_soon(racer.carry_out, number)
            await anyio.to_thread.run_sync(barrier.wait, PATIENCE_S)
            async with anyio.create_task_group() as group:
                for run_id in racer.finished * amount.requests_each_run:
                    group.start_soon(racer.race, run_id)
    return racer.share()


def _process(path: Path, name: str, amount: Amount, barrier: Barrier, told: Connection) -> None:
    told.send(anyio.run(_work, path, name, amount, barrier).model_dump_json())


def race(amount: Amount, path: Path) -> Found:
    """Let the processes race for a ledger at *path*, and look at what is in it then."""
    context = multiprocessing.get_context("fork")  # what is imported here need not be again
    barrier = context.Barrier(amount.processes)
    started = time.monotonic()
    ends = [_start(context, path, f"p{n}", amount, barrier) for n in range(amount.processes)]
    shares = [Share.model_validate_json(end.recv()) for end in ends]
    return anyio.run(_look, path, amount, shares, time.monotonic() - started)


def _start(
    context: ForkContext, path: Path, name: str, amount: Amount, barrier: Barrier
) -> Connection:
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_process, args=(path, name, amount, barrier, theirs))
    process.start()
    theirs.close()  # so that a process that dies is an end of what can be read
    return ours


async def _look(path: Path, amount: Amount, shares: list[Share], wall_s: float) -> Found:
    async with open_store(path) as store:
        runs = await store.summaries(limit=amount.runs + 1, status="finished")
        seen = {run_id for share in shares for run_id in share.runs}
        return Found(
            amount=amount,
            wall_s=round(wall_s, 2),
            errors=tuple(error for share in shares for error in share.errors),
            runs_lost=len(seen - {run.run_id for run in runs}),
            runs_finished=len(runs),
            steps_finished=await _finished_steps(store, [run.run_id for run in runs]),
            granted=sum(share.granted for share in shares),
            refused=sum(share.refused for share in shares),
            calls_paid=_number(path, "SELECT count(*) FROM calls WHERE cost_usd > 0"),
            budget_nano_usd=amount.affordable * NANO_PER_REPLY,
            spent_nano_usd=_number(path, "SELECT sum(nano_usd) FROM budgets"),
            reservations_left=_number(path, "SELECT count(*) FROM reservations"),
            leases_left=_number(path, "SELECT count(*) FROM runs WHERE owner IS NOT NULL"),
        )


async def _finished_steps(store: Store, run_ids: list[str]) -> int:
    steps = [step for run_id in run_ids for step in await store.steps(run_id)]
    return sum(step.finished and step.reply == REPLY for step in steps)


def _number(path: Path, sql: str) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute(sql).fetchone()[0] or 0)


def main() -> None:
    """Race, and print the figures; fail if anything was lost or overspent."""
    usual = Amount()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    for name, value in usual.model_dump().items():
        parser.add_argument(f"--{name}", type=int, default=value, help=f"{value} when not given")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    given = vars(parser.parse_args())
    amount = Amount.model_validate({name: given[name] for name in Amount.model_fields})
    with tempfile.TemporaryDirectory() as folder:
        found = race(amount, Path(folder) / "podium.db")
    figures = {"holds": found.holds} | found.model_dump(mode="json")
    lines = [f"{name}: {value}" for name, value in figures.items()]
    print(json.dumps(figures, indent=2) if given["json"] else "\n".join(lines))
    if not found.holds:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
