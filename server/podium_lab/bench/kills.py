"""Kills servers with kill -9 at every step boundary and in the middle of calls; counts calls paid.

    python -m podium_lab.bench.kills --times 10 --table
    python -m podium_lab.bench.kills --times 10 --json

Two server processes share a ledger; a provider in a process of its own says what it is paid for.
"""

import argparse
import json
import random
import signal
import tempfile
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, cast

import anyio
from anyio.abc import TaskGroup
from mcp import Client
from pydantic import JsonValue

from podium.store import Store, open_store
from podium.verify import verify
from podium_lab.bench.durable.asking import asking, name_in
from podium_lab.bench.durable.paying import Paid, Told, open_provider
from podium_lab.bench.durable.served import Server, write_pool
from podium_workers.worker import Frozen

NAMES = ("left", "right")
AFTER_S = 0.03
"""A kill at a boundary comes within so many seconds of it: the reply is sent, then recorded."""
PATIENCE_S = 240.0
"""Seconds within which all runs have to have finished."""

Moment = Literal["boundary", "middle"]


class Amount(Frozen):
    """How much there is to do."""

    runs: int = 20
    parts: int = 4
    delay_s: float = 0.25
    """Seconds that the provider needs for a reply."""
    parallel: int = 2
    """Calls that a server makes at once."""
    lease_s: float = 2.0
    middles: bool = True
    """Whether servers are killed in the middle of calls too, not only at the end of each part."""

    @property
    def names(self) -> list[str]:
        return [f"q{number:03}" for number in range(self.runs)]


class Killed(Frozen):
    """A server process that was killed."""

    server: str
    moment: Moment
    part: int
    at: float


class Recorded(Frozen):
    """What the ledger has of a step."""

    calls: int
    """Calls, however they ended."""
    replies: tuple[int, ...]
    """Numbers of the calls whose reply it has."""


class Verdict(Frozen):
    """What became of all runs in one experiment."""

    seed: int
    runs: int
    finished: int
    kills_at_boundary: int
    kills_in_call: int
    wall_s: float
    paid: int
    """Calls that the provider was paid for."""
    needed: int
    """Steps: calls that had to be paid."""
    lost_in_window: int
    """Replies that were generated before the kill, but not on the disk yet: paid again."""
    lost_in_flight: int
    """Calls that were being answered at the kill: made again."""
    called_again: int
    """Calls for a step whose reply was in the ledger: there must be none."""
    unexplained: int
    """Calls made again without a kill: there must be none."""
    off_the_record: int
    """Calls of which the ledger knows nothing: there must be none."""
    findings: int
    """What `podium verify` found: nothing, it is hoped."""
    leases_left: int

    @property
    def holds(self) -> bool:
        """Whether nothing was lost but what has to be."""
        wrong = self.called_again + self.unexplained + self.off_the_record + self.findings
        return self.finished == self.runs and wrong + self.leases_left == 0


@dataclass
class _Target:
    """A moment at which a server is to be killed."""

    moment: Moment
    part: int
    skip: int
    """How many such moments are let pass first."""

    def strikes(self, told: Told) -> bool:
        kind = "paid" if self.moment == "boundary" else "begun"
        if (told.kind, told.part) != (kind, self.part):
            return False
        self.skip -= 1
        return self.skip < 0


@dataclass
class _Killer:
    """Kills the server that has just reached one of the moments, and starts it again."""

    servers: dict[str, Server]
    group: TaskGroup
    delay_s: float
    chance: random.Random
    targets: list[_Target]
    killed: list[Killed]
    _down: set[str] = field(default_factory=set[str])

    def heed(self, told: Told) -> None:
        if told.server in self._down:
            return
        for target in self.targets:
            if target.strikes(told):
                self.targets.remove(target)
                self._down.add(told.server)
                self.group.start_soon(self._kill, self.servers[told.server], target)
                return

    async def _kill(self, server: Server, target: _Target) -> None:
        share = self.chance.random()
        if target.moment == "boundary":
            await anyio.sleep(share * AFTER_S)
        else:
            await anyio.sleep((0.1 + 0.8 * share) * self.delay_s)
        at = time.time()
        server.signal(signal.SIGKILL)
        killed = Killed(server=server.name, moment=target.moment, part=target.part, at=at)
        self.killed.append(killed)
        await server.aclose()
        await server.start()
        self._down.discard(server.name)


async def measure(amount: Amount, seed: int, folder: Path) -> Verdict:
    """One experiment over a ledger in *folder*."""
    chance, started = random.Random(seed), time.monotonic()
    async with (
        open_provider(amount.delay_s, held=True) as provider,
        _open_servers(provider, amount, folder) as servers,
        open_store(folder / "podium.db") as store,
    ):
        await _ask_all(servers, amount)
        killed = await _kill(servers, provider, store, amount, chance)
        verdict = await judge(store, amount, provider.told, killed)
        wall_s = round(time.monotonic() - started, 1)
        return verdict.model_copy(update={"seed": seed, "wall_s": wall_s})


async def _kill(
    servers: Sequence[Server],
    provider: Paid,
    store: Store,
    amount: Amount,
    chance: random.Random,
) -> list[Killed]:
    """Kill servers until all runs have finished."""
    named, targets = {it.name: it for it in servers}, list(_targets(amount, chance))
    killed: list[Killed] = []
    async with anyio.create_task_group() as group:
        killer = _Killer(named, group, amount.delay_s, chance, targets, killed)
        provider.watchers.append(killer.heed)
        await provider.let_go()
        await _finish(store, amount.runs)
        group.cancel_scope.cancel()
    return killed


@asynccontextmanager
async def _open_servers(
    provider: Paid, amount: Amount, folder: Path
) -> AsyncGenerator[list[Server]]:
    servers = [
        Server(name, folder, _pool(provider, amount, folder, name), amount.lease_s)
        for name in NAMES
    ]
    try:
        async with anyio.create_task_group() as group:
            for server in servers:
                group.start_soon(server.start)
        yield servers
    finally:
        for server in servers:
            await server.aclose()


def _pool(provider: Paid, amount: Amount, folder: Path, name: str) -> Path:
    return write_pool(folder, name, provider.url(name), amount.parallel)


async def _ask_all(servers: Sequence[Server], amount: Amount) -> None:
    """Ask all questions, half of them at each server, and do not wait for answers."""
    async with anyio.create_task_group() as group:
        for at, server in enumerate(servers):
            group.start_soon(ask, server, amount.names[at :: len(servers)], amount.parts)


async def ask(server: Server, names: Sequence[str], parts: int) -> None:
    """Ask a server to work on these questions, each in that many parts."""
    async with Client(server.url) as client, anyio.create_task_group() as group:
        for name in names:
            group.start_soon(_ask, client, name, parts)


async def _ask(client: Client, name: str, parts: int) -> None:
    result = await client.call_tool("orchestrate", asking(name, parts) | {"max_wait_s": 0.05})
    assert not result.is_error, result.content


def _targets(amount: Amount, chance: random.Random) -> Iterator[_Target]:
    for part in range(amount.parts):
        yield _Target("boundary", part, chance.randrange(max(1, amount.runs // 2)))
        if amount.middles:
            yield _Target("middle", part, chance.randrange(max(1, amount.runs // 2)))


async def _finish(store: Store, runs: int) -> None:
    """Wait until that many runs have finished, or too long."""
    with anyio.move_on_after(PATIENCE_S):
        # Other processes' work gives no event to wait for.
        while len(await store.summaries(status="finished", limit=runs)) < runs:  # noqa: ASYNC110
            await anyio.sleep(0.1)


# What it comes to.


async def judge(
    store: Store, amount: Amount, told: Sequence[Told], killed: Sequence[Killed]
) -> Verdict:
    """What the ledger and the provider say about all runs together."""
    record = await _record(store)
    begun = [it for it in told if it.kind == "begun"]
    lost = [it for it in begun if it.call not in _replies(record)]
    reasons = [_reason(it, told, killed) for it in lost]
    runs = await store.summaries(limit=amount.runs)
    findings = [len((await verify(store, run.run_id)).findings) for run in runs]
    moments = [it.moment for it in killed]
    return Verdict(
        seed=0,
        runs=amount.runs,
        finished=sum(run.status == "finished" for run in runs),
        kills_at_boundary=moments.count("boundary"),
        kills_in_call=moments.count("middle"),
        wall_s=0.0,
        paid=sum(it.kind == "paid" for it in told),
        needed=amount.runs * amount.parts,
        lost_in_window=reasons.count("window"),
        lost_in_flight=reasons.count("flight"),
        called_again=sum(_called_again(it, record) for it in begun),
        unexplained=reasons.count(""),
        off_the_record=_off_the_record(begun, record),
        findings=sum(findings),
        leases_left=len(await store.running()),
    )


async def _record(store: Store) -> dict[tuple[str, int], Recorded]:
    """What the ledger has of each part of each question."""
    found: dict[tuple[str, int], Recorded] = {}
    for run in await store.summaries(limit=1000):
        calls = await store.calls(run.run_id)
        for part in {call.step for call in calls if call.step is not None}:
            mine = [call for call in calls if call.step == part]
            texts = [await store.text(call.reply) for call in mine if call.reply]
            replies = tuple(int(text.rstrip(".").rsplit(" ", 1)[1]) for text in texts)
            found[name_in(run.question), part] = Recorded(calls=len(mine), replies=replies)
    return found


def _replies(record: dict[tuple[str, int], Recorded]) -> set[int]:
    return {reply for step in record.values() for reply in step.replies}


def _reason(lost: Told, told: Sequence[Told], killed: Sequence[Killed]) -> str:
    """Why a call's reply never reached the ledger; nothing if there is no reason."""
    ends = [it.at for it in killed if it.server == lost.server and it.at >= lost.at]
    if not ends:
        return ""
    paid = [it.at for it in told if (it.kind, it.call) == ("paid", lost.call)]
    return "window" if paid and paid[0] <= min(ends) else "flight"


def _called_again(begun: Told, record: dict[tuple[str, int], Recorded]) -> bool:
    """Whether the reply to an earlier call for the same step was in the ledger."""
    step = record.get((begun.question, begun.part))
    return step is not None and any(reply < begun.call for reply in step.replies)


def _off_the_record(begun: Sequence[Told], record: dict[tuple[str, int], Recorded]) -> int:
    steps = [(it.question, it.part) for it in begun]
    nothing = Recorded(calls=0, replies=())
    return sum(max(0, steps.count(step) - record.get(step, nothing).calls) for step in set(steps))


def table(verdicts: Sequence[Verdict]) -> Iterator[str]:
    """The figures as Markdown."""
    yield (
        "| time | kills at a boundary | in a call | finished | calls paid | needed "
        "| paid again: window | paid again: in flight | called again | unexplained "
        "| off the record | findings | leases left | wall |"
    )
    yield "|" + "---|" * 14
    for at, it in enumerate(verdicts, 1):
        yield (
            f"| {at} | {it.kills_at_boundary} | {it.kills_in_call} | {it.finished} of {it.runs} "
            f"| {it.paid} | {it.needed} | {it.lost_in_window} | {it.lost_in_flight} "
            f"| {it.called_again} | {it.unexplained} | {it.off_the_record} | {it.findings} "
            f"| {it.leases_left} | {it.wall_s:.0f} s |"
        )


def document(verdicts: Sequence[Verdict]) -> dict[str, JsonValue]:
    """The figures as JSON."""
    each: list[JsonValue] = [cast("JsonValue", it.model_dump(mode="json")) for it in verdicts]
    return {"holds": all(it.holds for it in verdicts), "times": each}


async def measure_all(amount: Amount, seeds: Sequence[int]) -> list[Verdict]:
    """One experiment for each seed, each over a fresh ledger."""
    verdicts: list[Verdict] = []
    for seed in seeds:
        with tempfile.TemporaryDirectory() as folder:
            verdicts.append(await measure(amount, seed, Path(folder)))
    return verdicts


def main() -> None:
    """Kill, count, and print the figures; fail if anything was lost that need not be."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="one JSON object")
    form.add_argument("--table", action="store_true", help="Markdown, as without an option")
    parser.add_argument("--times", type=int, default=1, help="experiments; 1 when not given")
    parser.add_argument("--seed", type=int, help="of the first one; random when not given")
    parser.add_argument("--runs", type=int, default=Amount().runs, help="20 when not given")
    given = parser.parse_args()
    first = random.SystemRandom().randrange(10**6) if given.seed is None else given.seed
    seeds = range(first, first + given.times)
    verdicts = anyio.run(measure_all, Amount(runs=given.runs), seeds)
    print(json.dumps(document(verdicts), indent=2) if given.json else "\n".join(table(verdicts)))
    if not all(it.holds for it in verdicts):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
