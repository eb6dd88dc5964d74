"""Workers on vLLM: a server that runs already, or one that Podium's engine starts and shares.

Replies are held to schemas and grammars by vLLM's structured outputs. Calls are not queued here:
vLLM puts those that come together into one batch.
"""

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread
from pydantic import JsonValue, SecretStr

from podium_workers.entries.vllm_options import find_python
from podium_workers.errors import OverloadedError, SlowReplyError, UnreachableError
from podium_workers.hosted.schemas import spaced
from podium_workers.openai import OpenAIWorker
from podium_workers.wire import ApiKey, TimeLimits
from podium_workers.worker import Call, ModelSettings, Prompt, Reply, WorkerCard

if TYPE_CHECKING:
    from podium_workers.engine.client import Engine
    from podium_workers.engine.state import VllmAddress, VllmOrder, VllmStatus
    from podium_workers.entries.hosted import VllmEntry


class AttachedVllmWorker(OpenAIWorker):
    """A model of a vLLM server that runs already."""

    def parameters(self, settings: ModelSettings) -> dict[str, JsonValue]:
        free = settings.model_copy(update={"response_schema": None})
        wanted = super().parameters(free)
        if settings.grammar is not None:
            wanted["structured_outputs"] = {"grammar": settings.grammar}
        elif settings.response_schema is not None:
            wanted["structured_outputs"] = {"json": spaced(settings.response_schema)}
        return wanted

    def _wants_json(self, parameters: Mapping[str, JsonValue]) -> bool:
        form = parameters.get("structured_outputs")
        return isinstance(form, dict) and "json" in form


@dataclass(frozen=True)
class Found:
    """What is known of the machine when a server is wanted."""

    environments: Path
    """Folder of the environments that tools have of their own."""
    path: str | None
    """Where commands are looked for."""
    notify: Callable[[str], None]
    """Told in a sentence how a start comes along."""


class VllmWorker:
    """A model of a vLLM server that the engine of this machine starts when it is first asked."""

    def __init__(
        self, entry: "VllmEntry", lora: Mapping[str, str], engine: "Engine", found: Found
    ) -> None:
        self._entry = entry
        self._lora = lora
        self._engine = engine
        self._found = found
        self._in_doubt = False
        self._told = ""
        self._asked: tuple[VllmAddress, AttachedVllmWorker] | None = None

    @property
    def card(self) -> WorkerCard:
        return self._entry.card

    async def reply(self, prompt: Prompt, settings: ModelSettings, call: Call) -> Reply:
        """Answer *prompt*, by a server that is started first if need be.

        Raises:
            WorkerError: no usable reply; the class says at which boundary.
        """
        async with AsyncExitStack() as stack:
            worker = None
            with anyio.CancelScope(deadline=call.deadline):
                address = await stack.enter_async_context(
                    self._engine.vllm(await self._order(), self._tell)
                )
                worker = await self._at(address)
            if worker is None:
                raise SlowReplyError("vLLM was still starting when time was up.", limit="total")
            try:
                reply = await worker.reply(prompt, settings, call)
            except (UnreachableError, OverloadedError) as error:
                self._in_doubt = True
                raise type(error)(
                    f"vLLM with {self._entry.model} broke off; the next call looks after it, and "
                    f"starts it again if it has ended: {error.message}",
                    status=error.status,
                ) from error
            self._in_doubt = False
            return reply

    async def start(self) -> str:
        """Have the server started, and say where it is.

        Raises:
            WorkerError: it cannot be started.
        """
        async with self.served() as address:
            return f"{self._entry.model} is served at {address.url}/v1."

    @asynccontextmanager
    async def served(self) -> AsyncGenerator["VllmAddress"]:
        """The server's address; it stays while the block runs.

        Raises:
            WorkerError: it cannot be started.
        """
        async with self._engine.vllm(await self._order(), self._tell) as address:
            yield address

    async def status(self) -> "VllmStatus | None":
        """How its server is; None when it neither runs nor is starting."""
        seen = await self._engine.status()
        model = self._entry.model
        return next((it for it in (seen.servers if seen else ()) if it.model == model), None)

    async def check(self) -> str:
        """Whether vLLM is there, and whether the server runs; starts nothing.

        Raises:
            NotInstalledError: no interpreter of this machine has vLLM.
        """
        order = await self._order()
        if running := await self.status():
            return f"its server is {running.state}; its log is {running.log}"
        return f"its server is started when it is first asked, by {order.spec.python}"

    async def aclose(self) -> None:
        """Close the connections; the server stays for others."""
        asked, self._asked = self._asked, None
        if asked is not None:
            await asked[1].aclose()

    def _tell(self, news: str) -> None:
        """Pass news of a start on once, however many calls wait for it."""
        if news != self._told:
            self._told = news
            self._found.notify(news)

    async def _order(self) -> "VllmOrder":
        found, entry = self._found, self._entry
        python = await to_thread.run_sync(find_python, entry.python, found.environments, found.path)
        order = entry.order(
            entry.model, window=self.card.context_window, python=python, lora=self._lora
        )
        return order.model_copy(update={"in_doubt": self._in_doubt})

    async def _at(self, address: "VllmAddress") -> AttachedVllmWorker:
        """Who asks the server; another one when the server is another one."""
        if self._asked is None or self._asked[0] != address:
            await self.aclose()
            self._asked = address, self._asking(address)
        return self._asked[1]

    def _asking(self, address: "VllmAddress") -> AttachedVllmWorker:
        entry = self._entry
        name = entry.served_name or entry.model
        return AttachedVllmWorker(
            self.card.model_copy(update={"model": name}),
            key=ApiKey(secret=SecretStr(address.key)),
            base_url=f"{address.url}/v1",
            limits=TimeLimits(first_byte_s=entry.first_byte_s, idle_s=entry.idle_s),
            temperature=entry.temperature,
        )


def shared_adapters(entries: Iterable["VllmEntry"]) -> dict[str, dict[str, str]]:
    """The adapters that each worker's server needs, by the worker's name.

    Workers whose entries differ in their adapters alone share one server with all of them.
    """
    whole: dict[str, dict[str, str]] = {}
    keys: dict[str, str] = {}
    for entry in entries:
        own = entry.model_copy(update={"name": "", "lora": {}, "adapter": None, **_NOT_SERVED})
        keys[entry.name] = own.model_dump_json()
        whole.setdefault(keys[entry.name], {}).update(entry.lora)
    return {name: whole[key] for name, key in keys.items()}


_NOT_SERVED: Mapping[str, object] = {
    "good_at": "", "role": "", "max_output_tokens": None, "parallel": 1, "temperature": None,
    "price": None, "first_byte_s": 1.0, "idle_s": 1.0, "start_within_s": 1.0, "stop_idle_s": 1.0,
    "steps": True,
}  # fmt: skip
"""What an entry says of the worker and not of its server."""
