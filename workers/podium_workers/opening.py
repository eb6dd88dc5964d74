"""Opens the workers that a manifest describes, and closes them at the end."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import anyio
from pydantic import SecretStr

from podium_workers.entries.hosted import AnthropicEntry, OpenAIEntry, VllmEntry
from podium_workers.entries.named import (
    CassetteEntry,
    CommandEntry,
    Direct,
    LocalEntry,
    ProgramEntry,
    ScriptedEntry,
    card_of,
    shapes_of,
)
from podium_workers.hosted.learned import Learned
from podium_workers.scripted import ScriptedWorker, by_rules
from podium_workers.wire import ApiKey
from podium_workers.worker import Worker, WorkerCard

if TYPE_CHECKING:
    from podium_workers.engine.client import Engine
    from podium_workers.manifest import PoolManifest
    from podium_workers.prices import PriceTable

from podium_workers.pool import Pool, strongest

_CLOSING_S = 2.0


@runtime_checkable
class Closable(Protocol):
    """A worker that holds something open."""

    async def aclose(self) -> None: ...


@asynccontextmanager
async def open_pool(
    manifest: "PoolManifest",
    *,
    env: Mapping[str, str],
    models_dir: Path,
    state_dir: Path,
    memory_limit_bytes: int,
    notify: Callable[[str], None],
    threads: int = 1,
    prices: "PriceTable | None" = None,
    record: Path | None = None,
    replay: Path | None = None,
    profiles: Path | None = None,
) -> AsyncGenerator[Pool]:
    """The workers of *manifest*, closed at the end.

    Opens no connection, starts no engine and imports no provider's library before a worker is
    first asked. A worker whose key is not in *env* is listed, and says so when it is asked. Local
    models share one engine, and take *threads* threads each unless the manifest says otherwise.
    *prices* has what the manifest does not say; the shipped table unless given. What endpoints are
    seen to refuse is kept in `quirks.json` in *state_dir*, and said through *notify*.

    What the workers reply is recorded in the cassette *record*. What the cassette *replay* holds
    is given from it, and only the rest is asked of the workers. A worker whose manifest says not
    what it is good at is described by its newest profile in the folder *profiles*, if there is one.

    Raises:
        ManifestError: a cassette or a profile cannot be used.
    """
    from podium_workers.engine.client import EngineSettings, open_engine

    manifest = _described(manifest, profiles, prices) if profiles else manifest
    async with AsyncExitStack() as stack:
        engine = EngineSettings(state_dir=state_dir, memory_limit_bytes=memory_limit_bytes)
        local = _Local(
            await stack.enter_async_context(open_engine(engine, env)),
            models_dir,
            threads,
            notify,
            Learned(state_dir, notify),
            tuple(entry for entry in manifest.workers if isinstance(entry, VllmEntry)),
        )
        opened: dict[str, Worker] = {}
        programs = [entry for entry in manifest.workers if isinstance(entry, ProgramEntry)]
        asks = {entry.name: entry.by for entry in programs}
        for entry in manifest.workers:
            if not isinstance(entry, ProgramEntry):
                opened[entry.name] = _open(entry, env, local, prices)
                stack.push_async_callback(_close, opened[entry.name])
        for entry in programs:
            opened[entry.name] = _open_program(entry, opened[entry.by], env)
        pool = _pool(manifest, opened, asks)
        yield await _taped(pool, record, replay, notify) if record or replay else pool


def _pool(manifest: "PoolManifest", opened: Mapping[str, Worker], asks: Mapping[str, str]) -> Pool:
    doers = [entry.name for entry in manifest.doers]
    planner = manifest.planner and manifest.planner.name
    return Pool(
        workers=tuple(opened[name] for name in doers),
        asks=asks,
        conductor=manifest.conductor or planner or strongest(doers, asks),
        asked=manifest.asked,
        planner=opened[planner] if planner else None,
        shapes=shapes_of(manifest.workers),
    )


def _described(
    manifest: "PoolManifest", profiles: Path, prices: "PriceTable | None"
) -> "PoolManifest":
    """*manifest* with what was measured in the place of what it does not say of its workers."""
    if not profiles.is_dir():
        return manifest
    from podium_workers.profile import find_profile

    described = list(manifest.workers)
    for place, entry in enumerate(manifest.workers):
        own = isinstance(entry, ProgramEntry | CassetteEntry) or entry.good_at
        card = None if own else card_of(entry, prices)
        profile = find_profile(profiles, card) if card else None
        line = {"good_at": profile.good_at(card.price)} if card and profile else {}
        described[place] = entry.model_copy(update=line)
    return manifest.model_copy(update={"workers": tuple(described)})


async def _taped(
    pool: Pool, record: Path | None, replay: Path | None, notify: Callable[[str], None]
) -> Pool:
    from podium_workers.cassette import Recorder, load_cassette
    from podium_workers.replay import taped

    cassette = load_cassette(replay) if replay else None
    recorder = Recorder(record, notify) if record else None
    return await taped(pool, recorder=recorder, cassette=cassette)


@dataclass(frozen=True)
class _Local:
    """What the workers share: the engine of this machine, and what was learned on it."""

    engine: "Engine"
    models_dir: Path
    threads: int
    notify: Callable[[str], None]
    learned: Learned
    vllm: tuple[VllmEntry, ...]
    """All workers on vLLM: some of them share a server."""


def _open_program(entry: ProgramEntry, writer: Worker, env: Mapping[str, str]) -> Worker:
    from podium_workers.program import ProgramWorker
    from podium_workers.programs.sandbox import Sandbox

    return ProgramWorker(
        card=entry.card_over(writer.card),
        writer=writer,
        sandbox=Sandbox(env.get("PATH")),
        seconds=entry.seconds,
    )


def _open(
    entry: Direct, env: Mapping[str, str], local: _Local, prices: "PriceTable | None"
) -> Worker:
    match entry:
        case OpenAIEntry():
            return _open_openai(entry, card_of(entry, prices), env, local)
        case AnthropicEntry():
            from podium_workers.anthropic import AnthropicWorker

            return AnthropicWorker(
                card_of(entry, prices),
                key=_key(entry.key_variable, env),
                base_url=entry.url,
                limits=entry.limits,
                temperature=entry.temperature,
                thinking=entry.thinking,
                effort=entry.effort,
                learned=local.learned,
            )
        case CassetteEntry():
            from podium_workers.replay import ReplayWorker

            return ReplayWorker.of(entry.file, entry.worker or entry.name, name=entry.name)
        case CommandEntry():
            from podium_workers.command import open_command

            return open_command(entry, env)
        case ScriptedEntry():
            return ScriptedWorker(entry.card, by_rules(entry.rules, entry.replies))
        case VllmEntry():
            return _open_vllm(entry, env, local)
        case LocalEntry():
            from podium_workers.local import LocalWorker

            return LocalWorker(
                card=entry.card,
                gguf=entry.gguf,
                engine=local.engine,
                models_dir=local.models_dir,
                threads=entry.threads or local.threads,
                temperature=entry.temperature or 0.0,
                notify=local.notify,
            )


def _open_vllm(entry: VllmEntry, env: Mapping[str, str], local: _Local) -> Worker:
    from podium_workers.vllm import AttachedVllmWorker, Found, VllmWorker, shared_adapters

    if entry.base_url is not None:
        return AttachedVllmWorker(
            entry.card,
            key=_key(entry.api_key_env, env),
            base_url=entry.base_url,
            limits=entry.limits,
            temperature=entry.temperature,
            learned=local.learned,
        )
    lora = shared_adapters(other for other in local.vllm if other.is_own)[entry.name]
    found = Found(local.models_dir.parent / "environments", env.get("PATH"), local.notify)
    return VllmWorker(entry, lora, local.engine, found)


def _open_openai(
    entry: OpenAIEntry, card: WorkerCard, env: Mapping[str, str], local: _Local
) -> Worker:
    key = _key(entry.key_variable, env)
    if entry.interface == "responses":
        from podium_workers.responses import ResponsesWorker

        return ResponsesWorker(
            card,
            key=key,
            base_url=entry.url,
            limits=entry.limits,
            temperature=entry.temperature,
            effort=entry.effort,
            learned=local.learned,
            background=entry.background,
        )
    from podium_workers.openai import OpenAIWorker

    return OpenAIWorker(
        card,
        key=key,
        base_url=entry.url,
        limits=entry.limits,
        temperature=entry.temperature,
        effort=entry.effort,
        learned=local.learned,
    )


def _key(variable: str | None, env: Mapping[str, str]) -> ApiKey:
    value = env.get(variable, "").strip() if variable else ""
    return ApiKey(variable=variable, secret=SecretStr(value) if value else None)


async def _close(worker: Worker) -> None:
    if isinstance(worker, Closable):
        with anyio.move_on_after(_CLOSING_S, shield=True):
            await worker.aclose()
