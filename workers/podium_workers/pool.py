"""The pool: workers in the order of their strength, opened from a manifest and chosen from."""

import difflib
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

import anyio
from pydantic import SecretStr

from podium_workers.errors import PoolSelectionError, WorkerError
from podium_workers.manifest import AnthropicEntry, Entry, LocalEntry, OpenAIEntry, ScriptedEntry
from podium_workers.scripted import ScriptedWorker, by_rules
from podium_workers.wire import ApiKey
from podium_workers.worker import Frozen, Worker, WorkerCard

if TYPE_CHECKING:
    from podium_workers.engine.client import Engine
    from podium_workers.manifest import PoolManifest

_CLOSING_S = 2.0


@dataclass(frozen=True)
class Pool:
    """Workers, the strongest first, and which of them writes plans in which form."""

    workers: tuple[Worker, ...]
    conductor: str
    """Name of the worker that writes plans."""
    conductor_form: Literal["json", "lists"] = "json"
    conductor_shows: Literal["cards", "ordinals"] = "cards"

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(worker.card.name for worker in self.workers)

    @property
    def cards(self) -> tuple[WorkerCard, ...]:
        return tuple(worker.card for worker in self.workers)

    def get(self, name: str) -> Worker:
        """The worker of that name.

        Raises:
            PoolSelectionError: there is none.
        """
        self._check((name,), "worker")
        return next(worker for worker in self.workers if worker.card.name == name)

    def allowed(
        self,
        *,
        workers: Collection[str] = (),
        exclude: Collection[str] = (),
        local_only: bool = False,
    ) -> "Pool":
        """The pool with only what a request allows, in the same order.

        A conductor that is not allowed is stood in for by the strongest worker left.

        Raises:
            PoolSelectionError: an unknown name, or nothing left.
        """
        self._check(workers, "workers")
        self._check(exclude, "exclude")
        left = tuple(
            worker
            for worker in self.workers
            if (not workers or worker.card.name in workers)
            and worker.card.name not in exclude
            and (not local_only or worker.card.where == "local")
        )
        if not left:
            asked = "local_only" if local_only and not (workers or exclude) else "this choice"
            raise PoolSelectionError(
                f"No worker of the pool is left by {asked}; the pool has {self._listing()}."
            )
        names = [worker.card.name for worker in left]
        conductor = self.conductor if self.conductor in names else names[0]
        return replace(self, workers=left, conductor=conductor)

    def _check(self, names: Collection[str], field: str) -> None:
        for name in names:
            if name not in self.names:
                near = difflib.get_close_matches(name, self.names, n=1)
                hint = f" did you mean {near[0]!r}?" if near else ""
                raise PoolSelectionError(
                    f"{field}: there is no worker {name!r};{hint} the pool has {self._listing()}."
                )

    def _listing(self) -> str:
        return ", ".join(f"{card.name} ({card.where})" for card in self.cards)


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
) -> AsyncGenerator[Pool]:
    """The workers of *manifest*, closed at the end.

    Opens no connection, starts no engine and imports no provider's library before a worker is
    first asked. A worker whose key is not in *env* is listed, and says so when it is asked. Local
    models share one engine, and take *threads* threads each unless the manifest says otherwise.
    """
    from podium_workers.engine.client import EngineSettings, open_engine

    async with AsyncExitStack() as stack:
        engine = EngineSettings(state_dir=state_dir, memory_limit_bytes=memory_limit_bytes)
        local = _Local(
            await stack.enter_async_context(open_engine(engine, env)), models_dir, threads, notify
        )
        workers: list[Worker] = []
        for entry in manifest.workers:
            worker = _open(entry, env, local)
            stack.push_async_callback(_close, worker)
            workers.append(worker)
        yield Pool(
            workers=tuple(workers),
            conductor=manifest.conductor or manifest.names[0],
            conductor_form=manifest.conductor_form,
            conductor_shows=manifest.conductor_shows,
        )


@dataclass(frozen=True)
class _Local:
    """What all local workers share."""

    engine: "Engine"
    models_dir: Path
    threads: int
    notify: Callable[[str], None]


def _open(entry: Entry, env: Mapping[str, str], local: _Local) -> Worker:
    match entry:
        case OpenAIEntry():
            from podium_workers.openai import OpenAIWorker

            return OpenAIWorker(
                entry.card,
                key=_key(entry.key_variable, env),
                base_url=entry.url,
                limits=entry.limits,
                temperature=entry.temperature,
            )
        case AnthropicEntry():
            from podium_workers.anthropic import AnthropicWorker

            return AnthropicWorker(
                entry.card,
                key=_key(entry.key_variable, env),
                base_url=entry.url,
                limits=entry.limits,
                temperature=entry.temperature,
            )
        case ScriptedEntry():
            return ScriptedWorker(entry.card, by_rules(entry.rules, entry.replies))
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


def _key(variable: str | None, env: Mapping[str, str]) -> ApiKey:
    value = env.get(variable, "").strip() if variable else ""
    return ApiKey(variable=variable, secret=SecretStr(value) if value else None)


@runtime_checkable
class Closable(Protocol):
    """A worker that holds something open."""

    async def aclose(self) -> None: ...


@runtime_checkable
class Checkable(Protocol):
    """A worker that can tell, at no cost, whether it is likely to answer."""

    async def check(self) -> str:
        """One line on what is there.

        Raises:
            WorkerError: it would not answer; the text says why.
        """
        ...


async def _close(worker: Worker) -> None:
    if isinstance(worker, Closable):
        with anyio.move_on_after(_CLOSING_S, shield=True):
            await worker.aclose()


class Health(Frozen):
    """Whether a worker is likely to answer."""

    name: str
    ok: bool
    detail: str


async def health(worker: Worker) -> Health:
    """A cheap look at *worker*: its key, its weights, its endpoint. Takes at most some seconds."""
    name = worker.card.name
    if not isinstance(worker, Checkable):
        return Health(name=name, ok=True, detail="not checked: it shows only when it is asked")
    try:
        return Health(name=name, ok=True, detail=await worker.check())
    except WorkerError as error:
        return Health(name=name, ok=False, detail=error.message)
