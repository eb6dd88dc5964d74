"""Measures every engine at every job, and makes figures of what came out."""

import statistics
from dataclasses import dataclass
from pathlib import Path

from pydantic import JsonValue

from podium_lab.bench.engine import machine
from podium_lab.bench.engine.sides import (
    BARE,
    PODIUM,
    Ask,
    Measured,
    Side,
    count_syncs,
    measure_fresh,
    measure_http,
    measure_resume,
)
from podium_lab.bench.engine.simulator import Simulator
from podium_workers.worker import Frozen

CHAIN_STEPS = 3


class Amount(Frozen):
    """How much is measured."""

    runs: int = 200
    rounds: int = 5
    steps: int = 4
    delay_s: float = 0.05
    chains: int = 30
    """Chains of three steps, one after another."""
    idle_runs: int = 1000
    search_runs: int = 100_000
    queries: int = 200

    @property
    def floor_s(self) -> float:
        """Seconds that runs take of which nothing but the steps costs time."""
        return self.steps * self.delay_s

    @property
    def critical_path_s(self) -> float:
        return CHAIN_STEPS * self.delay_s

    @property
    def steps_left(self) -> int:
        """Steps that a run which was stopped in the middle still has to do."""
        return self.steps - self.steps // 2


class Figures(Frozen):
    """One engine's figures; None where a job does not apply or could not be measured."""

    name: str
    facts: dict[str, str]
    runs_wall_s: float
    runs_wall_over_floor: float
    runs_cpu_ms: float
    """Per run, all of it."""
    runs_cpu_net_ms: float
    """Per run, less what the steps alone cost."""
    syncs_per_run: float | None
    """Flushes to the disk."""
    chain_wall_s: float
    chain_wall_over_critical_path: float
    chain_cpu_ms: float
    first_step_ms: float
    http_wall_s: float
    http_cpu_ms: float
    http_cpu_net_ms: float
    """Per run, less what the calls alone cost."""
    kb_per_run_at_work: float
    """Memory of a run that waits for a reply, with somebody who waits for the run."""
    resume_wall_s: float
    resume_wall_over_floor: float
    resume_calls: int
    calls_exact: bool
    """Whether every step was done once, by count of the work and of the provider."""
    load: float
    """Of the machine when this engine was done."""


@dataclass(frozen=True)
class Bench:
    """Measures one engine after another at the same work."""

    amount: Amount
    place: Path
    """Folder in which every job gets a fresh one."""
    provider: Simulator

    def of(self, side: Side, bare: "Figures | None") -> Figures:
        """All figures of one side, less what the bare side took.

        Raises:
            SideError: it failed.
        """
        amount = self.amount
        many = self._many()
        runs = measure_fresh(side, many, self.place)
        chain = measure_fresh(side, self._chain(), self.place)
        http, asked = measure_http(side, many, self.place, self.provider)
        idle = self._ask(job="idle", runs=amount.idle_runs)
        held = measure_fresh(side, idle, self.place)
        resumed = measure_resume(side, self._ask(), self.place)
        syncs = count_syncs(side, self._ask(), self.place)
        runs_cpu, http_cpu = (_cpu_ms(found, amount.runs) for found in (runs, http))
        wall, chain_wall = statistics.median(runs.walls_s), statistics.median(chain.walls_s)
        resumed_s = resumed.wall_s or 0.0
        expected = amount.runs * amount.steps * (amount.rounds + 1)
        return Figures(
            name=side.name,
            facts=runs.facts,
            runs_wall_s=wall,
            runs_wall_over_floor=wall / amount.floor_s,
            runs_cpu_ms=runs_cpu,
            runs_cpu_net_ms=runs_cpu - (bare.runs_cpu_ms if bare else 0.0),
            syncs_per_run=None if syncs is None else syncs / amount.runs,
            chain_wall_s=chain_wall,
            chain_wall_over_critical_path=chain_wall / amount.critical_path_s,
            chain_cpu_ms=_cpu_ms(chain, 1),
            first_step_ms=statistics.median(chain.firsts_s) * 1000,
            http_wall_s=statistics.median(http.walls_s),
            http_cpu_ms=http_cpu,
            http_cpu_net_ms=http_cpu - (bare.http_cpu_ms if bare else 0.0),
            kb_per_run_at_work=held.kb_per_run or 0.0,
            resume_wall_s=resumed_s,
            resume_wall_over_floor=resumed_s / (amount.steps_left * amount.delay_s),
            resume_calls=resumed.calls,
            calls_exact=runs.calls == asked == expected
            and resumed.calls == amount.runs * amount.steps_left,
            load=machine.load(),
        )

    def kb_per_run_at_rest(self) -> float:
        """Memory that a run of Podium keeps while it waits for its caller to do a step."""
        ask = self._ask(job="rest", runs=self.amount.idle_runs, variant="caller")
        return measure_fresh(PODIUM, ask, self.place).kb_per_run or 0.0

    def _many(self) -> Ask:
        return self._ask(rounds=self.amount.rounds, warm=1)

    def _chain(self) -> Ask:
        return self._ask(runs=1, rounds=self.amount.chains, warm=1, steps=CHAIN_STEPS)

    def _ask(self, **given: object) -> Ask:
        amount = self.amount
        usual = {"runs": amount.runs, "steps": amount.steps, "delay_s": amount.delay_s}
        return Ask.model_validate(usual | given)


def _cpu_ms(found: Measured, runs: int) -> float:
    return statistics.median(found.cpus_s) / runs * 1000


class Result(Frozen):
    """All that was measured."""

    amount: Amount
    machine: machine.Facts
    engines: tuple[Figures, ...]
    left_out: dict[str, str]
    """Engines without figures, and why."""
    kb_per_run_at_rest: float
    search: dict[str, float | int]

    def engine(self, name: str) -> Figures | None:
        return next((engine for engine in self.engines if engine.name == name), None)

    @property
    def podium(self) -> Figures:
        """Podium's own figures, without which there is no result."""
        return next(engine for engine in self.engines if engine.name == PODIUM.name)

    def document(self) -> dict[str, JsonValue]:
        """As JSON: first what the goals are about, then all of it."""
        podium = self.podium
        headline: dict[str, JsonValue] = {
            "runs200_wall_over_floor": podium.runs_wall_over_floor,
            "cpu_ms_per_run": podium.runs_cpu_net_ms,
            "chain_wall_over_critical_path": podium.chain_wall_over_critical_path,
            "search_p95_ms": max(self.search["one_word_p95_ms"], self.search["two_words_p95_ms"]),
            "memory_kb_per_idle_run": podium.kb_per_run_at_work,
            "memory_kb_per_run_at_rest": self.kb_per_run_at_rest,
            "resume200_wall_over_floor": podium.resume_wall_over_floor,
            "podium_over": {
                peer.name: ratios(podium, peer)
                for peer in self.engines
                if peer.name not in (PODIUM.name, BARE.name)
            },
        }
        return headline | self.model_dump(mode="json")


def ratios(podium: Figures, peer: Figures) -> dict[str, JsonValue]:
    """Podium's figures over another engine's: below 1 where Podium is better."""
    fields = (
        "runs_wall_s", "runs_cpu_net_ms", "chain_wall_s", "first_step_ms", "http_wall_s",
        "kb_per_run_at_work", "resume_wall_s",
    )  # fmt: skip
    pairs = {name: (getattr(podium, name), getattr(peer, name)) for name in fields}
    return {name: own / other for name, (own, other) in pairs.items() if other}
