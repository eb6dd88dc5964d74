"""The composition root: settings and environment in, a running Podium out."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from podium.calls import Caller
from podium.cli.saying import say
from podium.config import Settings, config_file
from podium.errors import SettingsError, StoreError
from podium.orchestrator import Orchestrator
from podium.policy import Policy
from podium.policy.conductor import Conductor
from podium.policy.fixed import Chain, Single
from podium.runs import Runs, open_runs
from podium.store import Store, open_store
from podium_workers.entries.hosted import VllmEntry
from podium_workers.manifest import PoolManifest, default_manifest, load_manifest
from podium_workers.opening import open_pool
from podium_workers.pool import Pool
from podium_workers.prices import all_prices, own_prices
from podium_workers.trained import need_vllm, with_conductor


@dataclass(frozen=True)
class Podium:
    """The parts of a running Podium."""

    settings: Settings
    store: Store
    pool: Pool
    runs: Runs

    @property
    def orchestrator(self) -> Orchestrator:
        return self.runs.orchestrator


def policies(settings: Settings) -> dict[str, Policy]:
    """The strategies by name; `trinity` is another one, where a coordinator is set."""
    conductor = Conductor(max_steps=settings.plan_steps, tries=settings.plan_tries)
    return {"conductor": conductor, "single": Single(), "chain": Chain()}


@asynccontextmanager
async def open_coordinator(
    settings: Settings, environment: Mapping[str, str], pool: Pool
) -> AsyncGenerator[dict[str, Policy]]:
    """The strategy `trinity`, if a coordinator is set; its model is loaded when it is first asked.

    Raises:
        SettingsError: its head cannot be read, or knows other workers than the pool has.
    """
    if settings.coordinator is None:
        yield {}
        return
    from podium.policy.head import load_head
    from podium.policy.trinity import Trinity
    from podium.policy.turns import texts_hash
    from podium_workers.engine.client import EngineSettings, open_engine
    from podium_workers.states import LocalStates
    from podium_workers.weights.local_file import LocalFile

    head = load_head(settings.coordinator)
    if missing := [name for name in head.workers if name not in pool.names]:
        raise SettingsError(
            f"coordinator: {settings.coordinator} was made for the workers "
            f"{', '.join(head.workers)}, and the pool lacks {', '.join(missing)}: set its pool, "
            "or evolve a head for this one."
        )
    file = LocalFile(head.model, settings.models_dir, say)
    if file.weights and head.sha256 not in ("", file.weights.sha256):
        raise SettingsError(
            f"coordinator: {settings.coordinator} was made with other weights of {head.model} "
            "than this Podium has; evolve it again."
        )
    if head.prompts != texts_hash():
        say(
            f"The coordinator {settings.coordinator} was made with other role prompts than this "
            "Podium's: it may choose worse than it did."
        )
    engine = EngineSettings(
        state_dir=settings.state_dir, memory_limit_bytes=int(settings.local_memory_gb * 2**30)
    )
    async with open_engine(engine, environment) as opened:
        states = LocalStates(file, opened, threads=settings.local_threads)
        yield {"trinity": Trinity(head, states)}


def find_manifest(settings: Settings, environment: Mapping[str, str]) -> tuple[PoolManifest, str]:
    """The pool to use, with the conductor that is set, and one line that says which and why.

    Raises:
        ManifestError: a file that the settings name cannot be used.
    """
    if settings.pool is not None:
        manifest, why = load_manifest(settings.pool), f"Pool: {settings.pool}"
    else:
        manifest, why = default_manifest(environment)
    if settings.conductor is None:
        return manifest, why
    manifest, told = with_conductor(manifest, settings.conductor)
    return manifest, f"{why.removesuffix('.')}; conductor: {told}."


def _see_vllm(settings: Settings, environment: Mapping[str, str], manifest: PoolManifest) -> str:
    """Make sure that a conductor that was chosen can be served, if that takes vLLM; a remark."""
    planner = manifest.planner
    if settings.conductor is None or not isinstance(planner, VllmEntry) or not planner.is_own:
        return ""
    path = Path(settings.conductor)
    return need_vllm(path, settings.environments_dir, environment.get("PATH"))


@asynccontextmanager
async def open_workers(
    settings: Settings, environment: Mapping[str, str], *, quiet: bool = False
) -> AsyncGenerator[Pool]:
    """Open the pool; nothing is sent to a model until a worker is first asked.

    Raises:
        ManifestError, SettingsError: the pool or a cassette cannot be used as it is set.
    """
    if settings.replay is not None and settings.replay_misses == "error":
        yield _replayed(settings, settings.replay, quiet=quiet)
        return
    manifest, why = find_manifest(settings, environment)
    told = (why, _see_vllm(settings, environment, manifest))
    for line in filter(None, () if quiet else told):
        say(line)
    async with open_pool(
        manifest,
        env=environment,
        models_dir=settings.models_dir,
        state_dir=settings.state_dir,
        memory_limit_bytes=int(settings.local_memory_gb * 2**30),
        threads=settings.local_threads,
        notify=say,
        record=settings.record,
        replay=settings.replay,
        profiles=settings.profiles_dir,
        prices=all_prices(own_prices(config_file(environment).parent, settings.prices)),
    ) as pool:
        yield pool


def _replayed(settings: Settings, cassette: Path, *, quiet: bool) -> Pool:
    from podium_workers.replay import replay_pool

    if settings.record is not None:
        raise SettingsError(
            "record: nothing is asked and so nothing recorded while all is replayed; leave it out, "
            "or set `replay_misses` to live."
        )
    pool = _chosen(replay_pool(cassette), settings.conductor)
    if not quiet:
        say(f"Pool: {', '.join(pool.names)} (replayed from {cassette}; no model is asked).")
    return pool


def _chosen(pool: Pool, conductor: str | None) -> Pool:
    """A replayed pool with the conductor that is set."""
    if conductor is None:
        return pool
    names = [worker.card.name for worker in pool.everyone]
    if conductor not in names:
        raise SettingsError(
            f"conductor: {conductor!r} is not in the cassette, and no model is asked while all is "
            f"replayed; choose one of {', '.join(names)}, or leave it out."
        )
    return pool.led_by(conductor)


@asynccontextmanager
async def open_ledger(settings: Settings) -> AsyncGenerator[Store]:
    """Open the ledger alone, for commands that only look at it; it is not made by looking.

    Raises:
        StoreError: there is none, or it cannot be used.
    """
    if not settings.store.exists():
        raise StoreError(f"There is no ledger {settings.store} yet; `podium ask` makes it.")
    async with open_store(settings.store) as store:
        yield store


@asynccontextmanager
async def open_podium(
    settings: Settings,
    environment: Mapping[str, str],
    *,
    quiet: bool = False,
    takes_over: bool = False,
) -> AsyncGenerator[Podium]:
    """Open ledger and pool, and what answers questions with them.

    With *takes_over*, runs that other processes have left behind are carried on.
    """
    async with (
        open_store(settings.store) as store,
        open_workers(settings, environment, quiet=quiet) as pool,
        open_coordinator(settings, environment, pool) as coordinator,
    ):
        caller = Caller(store, day_usd=settings.day_usd)
        known = policies(settings) | coordinator
        orchestrator = Orchestrator(store, pool, caller, known)
        async with open_runs(orchestrator, takes_over=takes_over) as runs:
            yield Podium(settings, store, pool, runs)
