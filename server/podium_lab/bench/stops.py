"""Stops runs and cuts clients off at random moments, and counts what is left behind.

    python -m podium_lab.bench.stops --table
    python -m podium_lab.bench.stops --stops 200 --cuts 200 --json

One Podium serves HTTP and in memory; a provider in a process of its own says when its connections
are closed. At the end there must be no task, socket, lease, reservation or file that was not there
before.
"""

import argparse
import json
import os
import random
import sqlite3
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path
from socket import create_server

import anyio
import uvicorn
from mcp import Client

from podium.app import build_server
from podium.config import OnDisconnect, Settings
from podium.runs import LEASE_S, Runs
from podium.store import Store
from podium.trace import RunSummary
from podium_lab.bench.durable.asking import asking, name_in
from podium_lab.bench.durable.paying import Paid, Told, open_provider
from podium_lab.bench.durable.served import http_server, open_parts, settings_in, write_pool
from podium_workers.worker import Frozen

PARTS = 3
PARALLEL = 64
SETTLE_S = 20.0
"""Seconds within which everything has to have ended when nothing is asked any more."""
CLOSED_WITHIN_S = 1.0
"""What is promised for the provider's connections of a run that is stopped."""


class Amount(Frozen):
    """How much there is to do."""

    stops: int = 200
    cuts: int = 200
    """Clients that are cut off; every other one at a server that stops the runs of such."""
    at_once: int = 10
    delay_s: float = 0.15


class Left(Frozen):
    """What a process and its ledger hold."""

    tasks: int
    descriptors: int
    """Sockets and open files."""
    leases: int
    reservations: int
    files: tuple[str, ...]
    """Names of the files beside the ledger's own."""

    def beyond(self, before: "Left") -> dict[str, int]:
        """What there is more than before."""
        return {
            "tasks_left": max(0, self.tasks - before.tasks),
            "descriptors_left": max(0, self.descriptors - before.descriptors),
            "leases_left": self.leases,
            "reservations_left": self.reservations,
            "files_left": len(set(self.files) - set(before.files)),
        }


class Found(Frozen):
    """What became of all runs and clients."""

    amount: Amount
    wall_s: float
    stopped: int
    """Runs that were stopped before they had finished by themselves."""
    cut_off: int
    """Clients that were gone before they had their answer."""
    statuses: dict[str, int]
    closed: int
    """Calls that were being answered when their run was stopped."""
    closed_median_s: float
    closed_worst_s: float
    """From `cancel_run` to the end of the connection, as the provider saw it."""
    cut_worst_s: float
    """From the end of a client to the end of the connection, where runs of such are stopped."""
    never_closed: int
    late_calls: int
    """Calls that were begun after their run had been stopped: there must be none."""
    unheeded: int
    """Calls begun a second after a client was gone, where that is to stop its run: none."""
    left: dict[str, int]

    @property
    def holds(self) -> bool:
        """Whether nothing is left, and every connection was closed in time."""
        wrong = self.never_closed + self.late_calls + self.unheeded + sum(self.left.values())
        return wrong == 0 and max(self.closed_worst_s, self.cut_worst_s) <= CLOSED_WITHIN_S


class Ended(Frozen):
    """A run that somebody ended, or that lost its client."""

    question: str
    how: OnDisconnect
    asked_at: float
    """Unix time at which that was asked for, or at which the client went."""
    done_at: float
    """When it was said to be done."""


@dataclass
class _Bench:
    """A Podium under test, and what was done to it."""

    amount: Amount
    folder: Path
    runs: Runs
    provider: Paid
    chance: random.Random
    urls: dict[OnDisconnect, str] = field(default_factory=dict[OnDisconnect, str])
    ended: list[Ended] = field(default_factory=list[Ended])
    cut: list[Ended] = field(default_factory=list[Ended])
    _awaited: dict[tuple[str, str, int], anyio.Event] = field(
        default_factory=dict[tuple[str, str, int], anyio.Event]
    )

    def heed(self, told: Told) -> None:
        """Set the event that waits for what is told."""
        if reached := self._awaited.get((told.question, told.kind, told.part)):
            reached.set()

    def moment(self, name: str) -> Callable[[], Awaitable[None]]:
        """Something to wait for: a random moment of a run that is about to be asked for.

        It is found by what the run does, so that it is as random on a busy machine.
        """
        offset_s = self.chance.random() * self.amount.delay_s
        kind, part = self.chance.choice(("", "begun", "paid")), self.chance.randrange(PARTS)
        reached = self._awaited[name, kind, part] = anyio.Event()

        async def wait() -> None:
            with anyio.move_on_after(SETTLE_S if kind else 0):
                await reached.wait()
            await anyio.sleep(offset_s)

        return wait

    async def stop_one(self, client: Client, name: str) -> None:
        """Begin a run, wait, and stop it."""
        moment = self.moment(name)
        asked = await client.call_tool("orchestrate", asking(name, PARTS) | {"max_wait_s": 0.01})
        await moment()
        asked_at = time.time()
        content = asked.structured_content
        assert content is not None, asked.content
        stopped = await client.call_tool("cancel_run", {"run_id": content["run_id"]})
        assert not stopped.is_error, stopped.content
        self.ended.append(Ended(question=name, how="stop", asked_at=asked_at, done_at=time.time()))

    async def cut_one(self, name: str, how: OnDisconnect) -> None:
        """Ask over a connection that is dropped in the middle of the call."""
        answered = anyio.Event()

        async def ask(client: Client) -> None:
            result = await client.call_tool("orchestrate", asking(name, PARTS))
            assert not result.is_error, result.content
            answered.set()

        moment, asked_at = self.moment(name), time.time()
        async with Client(self.urls[how]) as client, anyio.create_task_group() as group:
            group.start_soon(ask, client)
            await moment()
            asked_at = time.time()
            group.cancel_scope.cancel()
        if not answered.is_set():
            gone = Ended(question=name, how=how, asked_at=asked_at, done_at=time.time())
            self.cut.append(gone)

    async def left(self) -> Left:
        """What there is now."""
        tasks = [it for it in anyio.get_running_tasks() if it.id != anyio.get_current_task().id]
        known = {"podium.db", "podium.db-wal", "podium.db-shm", "pool.toml"}
        found = (it for it in self.folder.rglob("*") if it.is_file() and it.name not in known)
        return Left(
            tasks=len(tasks),
            descriptors=len(os.listdir("/dev/fd")),
            leases=self._count("runs WHERE owner IS NOT NULL"),
            reservations=self._count("reservations WHERE NOT kept"),
            files=tuple(str(it.relative_to(self.folder)) for it in found),
        )

    def _count(self, rows: str) -> int:
        with closing(sqlite3.connect(self.folder / "podium.db")) as connection:
            return int(connection.execute(f"SELECT count(*) FROM {rows}").fetchone()[0])

    async def settled(self, before: Left) -> dict[str, int]:
        """What is left beyond that, once there is nothing or it has had time enough."""
        with anyio.move_on_after(SETTLE_S):
            # Nobody tells when the last connection has been closed.
            while any((await self.left()).beyond(before).values()):  # noqa: ASYNC110
                await anyio.sleep(0.05)
        return (await self.left()).beyond(before)


async def measure(amount: Amount, seed: int, folder: Path) -> Found:
    """Stop and cut off, over a ledger in *folder*."""
    tempfile.tempdir = str(folder)  # whatever this process leaves there is seen
    started = time.monotonic()
    async with _open_bench(amount, seed, folder) as bench, _memory_client(bench) as client:
        await bench.stop_one(client, "warm0")  # what is made once must not be counted
        await bench.cut_one("warm1", "stop")
        bench.ended.clear()
        bench.cut.clear()
        await _quiet(bench)
        await bench.left()  # SQLite keeps the descriptor of a file that is looked at beside it
        before = await bench.left()
        limiter = anyio.CapacityLimiter(amount.at_once)
        async with anyio.create_task_group() as group:
            for number in range(amount.stops):
                group.start_soon(_within, limiter, bench, client, f"s{number}", None)
            for number in range(amount.cuts):
                how: OnDisconnect = "stop" if number % 2 else "continue"
                group.start_soon(_within, limiter, bench, client, f"c{number}", how)
        await _quiet(bench)
        left = await bench.settled(before)
        return await _found(bench, left, time.monotonic() - started)


async def _within(
    limiter: anyio.CapacityLimiter,
    bench: _Bench,
    client: Client,
    name: str,
    how: OnDisconnect | None,
) -> None:
    async with limiter:
        if how is None:
            await bench.stop_one(client, name)
        else:
            await bench.cut_one(name, how)


async def _quiet(bench: _Bench) -> None:
    """Wait until no run is at work."""
    with anyio.fail_after(SETTLE_S):
        while await bench.runs.store.running():  # noqa: ASYNC110 - as many runs as there are
            await anyio.sleep(0.02)


@asynccontextmanager
async def _open_bench(amount: Amount, seed: int, folder: Path) -> AsyncGenerator[_Bench]:
    async with open_provider(amount.delay_s) as provider:
        pool = write_pool(folder, "pool", provider.url("one"), PARALLEL)
        settings = settings_in(folder, pool)
        async with open_parts(settings, LEASE_S) as runs, anyio.create_task_group() as group:
            bench = _Bench(amount, folder, runs, provider, random.Random(seed))
            ways: tuple[OnDisconnect, ...] = ("continue", "stop")
            servers = [
                http_server(runs, settings.model_copy(update={"on_disconnect": how}))
                for how in ways
            ]
            provider.watchers.append(bench.heed)
            for how, server in zip(ways, servers, strict=True):
                bench.urls[how] = await group.start(_serve, server)
            yield bench
            for server in servers:
                server.should_exit = True


async def _serve(server: uvicorn.Server, *, task_status: anyio.abc.TaskStatus[str]) -> None:
    with create_server(("127.0.0.1", 0)) as listening:
        task_status.started(f"http://127.0.0.1:{listening.getsockname()[1]}/mcp")
        await server.serve(sockets=[listening])


@asynccontextmanager
async def _memory_client(bench: _Bench) -> AsyncGenerator[Client]:
    settings = Settings(store=bench.folder / "podium.db", strategy="single")
    async with Client(build_server(bench.runs, settings, reads_paths=False)) as client:
        yield client


# What it comes to.


async def _found(bench: _Bench, left: dict[str, int], wall_s: float) -> Found:
    runs = await _runs(bench)
    statuses = {name: run.status for name, run in runs.items()}
    stopped = [it for it in bench.ended if statuses.get(it.question) == "stopped"]
    heeded = [it for it in bench.cut if it.how == "stop" and it.question in runs]
    store = bench.runs.store
    told = bench.provider.told
    closed = [s for it in stopped for s in closing_times(it, told)]
    cut = [s for it in heeded for s in closing_times(it, told)]
    named = [str(status) for name, status in statuses.items() if not name.startswith("warm")]
    finite = sorted(s for s in closed if s is not None)
    return Found(
        amount=bench.amount,
        wall_s=round(wall_s, 1),
        stopped=len(stopped),
        cut_off=len(bench.cut),
        statuses={status: named.count(status) for status in sorted(set(named))},
        closed=len(closed),
        closed_median_s=round(finite[len(finite) // 2], 3) if finite else 0.0,
        closed_worst_s=round(max(finite, default=0.0), 3),
        cut_worst_s=round(max((s for s in cut if s is not None), default=0.0), 3),
        never_closed=[*closed, *cut].count(None),
        late_calls=sum(
            [await _calls_after(it.done_at, runs[it.question], store) for it in stopped]
        ),
        unheeded=sum(
            [await _calls_after(it.asked_at + 1, runs[it.question], store) for it in heeded]
        ),
        left=left,
    )


async def _runs(bench: _Bench) -> dict[str, RunSummary]:
    """The runs by the names of their questions."""
    amount = bench.amount
    found = await bench.runs.store.summaries(limit=amount.stops + amount.cuts + 2)
    return {name_in(it.question): it for it in found}


async def _calls_after(moment: float, run: RunSummary, store: Store) -> int:
    """Calls of a run that were begun after that moment."""
    return sum(call.started_at > moment for call in await store.calls(run.run_id))


def closing_times(ended: Ended, told: Sequence[Told]) -> list[float | None]:
    """For each call that was being answered then: seconds until its connection ended, or None."""
    mine = [it for it in told if it.question == ended.question]
    begun = {it.call for it in mine if it.kind == "begun" and it.at <= ended.asked_at}
    over = {it.call: it.at for it in mine if it.kind in ("gone", "taken")}
    open_then = {call for call in begun if over.get(call, ended.asked_at) >= ended.asked_at}
    return [over[call] - ended.asked_at if call in over else None for call in sorted(open_then)]


def table(found: Found) -> Iterator[str]:
    """The figures as Markdown."""
    yield "| | |"
    yield "|---|---|"
    yield f"| runs stopped before their end | {found.stopped} of {found.amount.stops} |"
    yield f"| clients cut off before their answer | {found.cut_off} of {found.amount.cuts} |"
    for status, count in found.statuses.items():
        yield f"| runs {status} at the end | {count} |"
    yield f"| calls being answered at a stop | {found.closed} |"
    yield (
        f"| their connections closed after | median {found.closed_median_s * 1000:.0f} ms, "
        f"worst {found.closed_worst_s * 1000:.0f} ms |"
    )
    yield f"| the same after a client was cut off | worst {found.cut_worst_s * 1000:.0f} ms |"
    yield f"| never closed | {found.never_closed} |"
    yield f"| calls begun after a stop | {found.late_calls} |"
    yield f"| calls begun a second after a client was cut off | {found.unheeded} |"
    for name, count in found.left.items():
        yield f"| {name.replace('_', ' ')} | {count} |"
    yield f"| wall | {found.wall_s:.0f} s |"


def main() -> None:
    """Stop, cut off, count, and print the figures; fail if anything is left."""
    usual = Amount()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="one JSON object")
    form.add_argument("--table", action="store_true", help="Markdown, as without an option")
    for name in ("stops", "cuts"):
        value: int = getattr(usual, name)
        parser.add_argument(f"--{name}", type=int, default=value, help=f"{value} when not given")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    amount = Amount(stops=given.stops, cuts=given.cuts)
    with tempfile.TemporaryDirectory() as folder:
        found = anyio.run(measure, amount, given.seed, Path(folder))
    document = {"holds": found.holds} | found.model_dump(mode="json")
    print(json.dumps(document, indent=2) if given.json else "\n".join(table(found)))
    if not found.holds:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
