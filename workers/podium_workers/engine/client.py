"""A Podium process's side of the engine: finds it, starts it, holds it, asks it."""

import json
import re
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import anyio
from pydantic import Field, JsonValue

from podium_workers.engine.state import (
    EngineAddress,
    EngineStatus,
    ModelSpec,
    VllmAddress,
    VllmOrder,
    log_file,
    read_address,
    start_file,
)
from podium_workers.errors import (
    ModelFileError,
    NotInstalledError,
    OverloadedError,
    SlowReplyError,
    UnreachableError,
    UnsupportedParameterError,
    WorkerError,
)
from podium_workers.lockfile import LockFile
from podium_workers.wire import entries, items
from podium_workers.worker import Frozen

if TYPE_CHECKING:
    from httpx2 import AsyncClient, Response

_POLL_S = 0.05
_ANSWER_WITHIN_S = 10.0
_START_AGAIN_S = 15.0
"""When an engine that was started has still not answered, it may have died: start another one."""
_STALE = frozenset({401, 503})
"""What an engine answers that is ending, or that is not the one whose address was published."""
_NOTHING: Mapping[str, str] = MappingProxyType({})
_PASSED_ON = re.compile(
    r"PATH|HOME|LANG|LC_\w+|TMPDIR|TEMP|TMP|SYSTEMROOT|(LD|DYLD)_LIBRARY_PATH|PYTHON(PATH|HOME)"
    r"|VIRTUAL_ENV|(OMP|GGML|LLAMA|VLLM|CUDA|NVIDIA|NCCL|HF|TORCH|TRITON)_\w+|XDG_CACHE_HOME"
    r"|SSL_CERT_(FILE|DIR)|REQUESTS_CA_BUNDLE"
)
_SECRET = re.compile("KEY|TOKEN|SECRET|PASSWORD")


class EngineSettings(Frozen):
    """How the engine is found and what it may take."""

    state_dir: Path
    """Where the engine publishes its address and keeps its logs; one engine for each folder."""
    memory_limit_bytes: int = Field(gt=0)
    """What all loaded models together may take; the smallest limit of the present users counts."""
    idle_s: float = Field(default=45.0, gt=0)
    """Seconds that the engine stays after its last user has left."""
    model_idle_s: float = Field(default=600.0, gt=0)
    """Seconds after its last call that a model is unloaded."""
    start_within_s: float = Field(default=60.0, gt=0)
    """Seconds that a start of the engine may take."""


@dataclass(frozen=True)
class _Hold:
    """An answer of the engine that never ends: while it is open, this process is a user."""

    address: EngineAddress
    response: "Response"


class Engine:
    """The engine of this machine; nothing is started before something is asked."""

    def __init__(self, settings: EngineSettings, environment: Mapping[str, str] = _NOTHING) -> None:
        self.settings = settings
        self._environment = passed_on(environment)
        self._client: AsyncClient | None = None
        self._hold: _Hold | None = None
        # Protects `_hold` while the engine is looked for or started, so that it is done once.
        self._opening = anyio.Lock()

    @asynccontextmanager
    async def chat(
        self, spec: ModelSpec, request: Mapping[str, JsonValue]
    ) -> AsyncGenerator["Response"]:
        """The answer to a request on OpenAI's wire, its body still to be read.

        Leaving the block ends the call on the model's side too.

        Raises:
            UnreachableError: the engine cannot be started or does not answer.
            httpx2.TransportError: the connection broke off.
        """
        async with self.call("/v1/chat/completions", spec, request) as response:
            yield response

    @asynccontextmanager
    async def call(
        self, path: str, spec: ModelSpec, request: Mapping[str, JsonValue]
    ) -> AsyncGenerator["Response"]:
        """The answer of a model's server to a request at *path*, as `chat` gives one.

        Raises:
            UnreachableError: the engine cannot be started or does not answer.
            httpx2.TransportError: the connection broke off.
        """
        body = {**request, "podium_model": spec.model_dump(mode="json")}
        response = await self._post(path, body)
        try:
            yield response
        finally:
            with anyio.CancelScope(shield=True):
                await response.aclose()

    @asynccontextmanager
    async def vllm(
        self, order: VllmOrder, tell: Callable[[str], None]
    ) -> AsyncGenerator[VllmAddress]:
        """A vLLM server that stays while the block runs; *tell* hears how its start comes along.

        Raises:
            WorkerError: the engine or the server cannot be started.
        """
        response = await self._post("/vllm", order.model_dump(mode="json"))
        # Kept to the end: a reader that is dropped closes the connection, and with it the hold.
        lines = response.aiter_lines()
        try:
            yield await _address_in(lines, tell)
        finally:
            with anyio.CancelScope(shield=True):
                await response.aclose()

    async def stop_vllm(self, model: str = "") -> tuple[str, ...]:
        """Stop the vLLM servers of *model*, or all; which models they had. Starts no engine."""
        import httpx2

        address = read_address(self.settings.state_dir)
        if address is None:
            return ()
        try:
            response = await self._http.post(
                f"{address.url}/vllm/stop", headers=_headers(address), params={"model": model}
            )
        except httpx2.TransportError:
            return ()  # it is an old address, or the engine ended with its servers
        return tuple(str(name) for name in items(response.json()))

    async def status(self) -> EngineStatus | None:
        """How the engine is; None when none is running. Never starts one."""
        import httpx2

        address = read_address(self.settings.state_dir)
        if address is None:
            return None
        try:
            response = await self._http.get(
                f"{address.url}/status", headers=_headers(address), timeout=_ANSWER_WITHIN_S
            )
        except httpx2.TransportError:
            return None
        return EngineStatus.model_validate_json(response.content) if response.is_success else None

    async def aclose(self) -> None:
        """Let go of the engine; a later call holds it again."""
        await self._let_go()
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    @property
    def _http(self) -> "AsyncClient":
        if self._client is None:
            import httpx2

            # llama.cpp's and uvicorn's servers close connections when they like: none is used
            # twice. No proxy of the user's may come between, and no certificates are needed.
            limits = httpx2.Limits(max_connections=None, max_keepalive_connections=0)
            self._client = httpx2.AsyncClient(
                timeout=None, trust_env=False, verify=False, limits=limits
            )
        return self._client

    async def _post(self, path: str, body: Mapping[str, JsonValue]) -> "Response":
        import httpx2

        reason = "it was ending each time"
        for _ in range(2):
            address = await self._address()
            request = self._http.build_request(
                "POST", f"{address.url}{path}", headers=_headers(address), json=body
            )
            try:
                response = await self._http.send(request, stream=True)
            except httpx2.ConnectError as error:
                reason = str(error)
            else:
                if response.status_code not in _STALE:
                    return response
                await response.aclose()
            async with self._opening:
                if self._hold is not None and self._hold.address == address:
                    await self._let_go()
        raise UnreachableError(f"The engine of the local models cannot be reached: {reason}.")

    async def _address(self) -> EngineAddress:
        async with self._opening:
            if self._hold is None:
                self._hold = await self._find_or_start()
            return self._hold.address

    async def _let_go(self) -> None:
        hold, self._hold = self._hold, None
        if hold is not None:
            await hold.response.aclose()

    async def _find_or_start(self) -> _Hold:
        state_dir = self.settings.state_dir
        try:
            state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            with anyio.move_on_after(self.settings.start_within_s):
                return await self._wait_for_one(state_dir)
        except (OSError, subprocess.CalledProcessError) as error:
            raise UnreachableError(
                f"The engine of the local models cannot be started: {error} "
                "(state_dir in the settings chooses another folder)."
            ) from error
        raise UnreachableError(
            "The engine of the local models did not start within "
            f"{self.settings.start_within_s:g} s: see {log_file(state_dir)}."
        )

    async def _wait_for_one(self, state_dir: Path) -> _Hold:
        """Hold the engine that answers; of the processes that wait, one starts it."""
        with LockFile(start_file(state_dir)) as turn:
            mine, next_start = False, anyio.current_time()
            while True:
                address = read_address(state_dir)
                if address is not None and (response := await self._try_to_hold(address)):
                    return _Hold(address, response)
                if not mine:
                    mine = turn.acquire()
                    if mine:
                        continue  # it may have been started since that look
                elif anyio.current_time() >= next_start:
                    await _start(self.settings, self._environment)
                    next_start = anyio.current_time() + _START_AGAIN_S
                await anyio.sleep(_POLL_S)

    async def _try_to_hold(self, address: EngineAddress) -> "Response | None":
        import httpx2

        request = self._http.build_request(
            "GET",
            f"{address.url}/hold",
            headers=_headers(address),
            params={"memory_limit_bytes": self.settings.memory_limit_bytes},
        )
        try:
            with anyio.move_on_after(_ANSWER_WITHIN_S):
                response = await self._http.send(request, stream=True)
                if response.is_success:
                    return response
                await response.aclose()
        except httpx2.TransportError:
            pass  # nobody is there any more: the address is an old one
        return None


@asynccontextmanager
async def open_engine(
    settings: EngineSettings, environment: Mapping[str, str] = _NOTHING
) -> AsyncGenerator[Engine]:
    """The engine, to be shared by all local workers of this process; let go of at the end.

    If it has to be started, it gets what `passed_on` leaves of *environment*.
    """
    engine = Engine(settings, environment)
    try:
        yield engine
    finally:
        with anyio.CancelScope(shield=True):
            await engine.aclose()


def passed_on(environment: Mapping[str, str]) -> dict[str, str]:
    """What the engine and its model processes may see of *environment*: nobody's keys."""
    return {
        name: value
        for name, value in environment.items()
        if _PASSED_ON.fullmatch(name) and not _SECRET.search(name)
    }


async def _start(settings: EngineSettings, environment: Mapping[str, str]) -> None:
    """Start an engine that outlives this process, without waiting until it serves."""
    # -P: nothing in the working folder may stand in for a module.
    command = [sys.executable, "-P", "-m", "podium_workers.engine"]
    command += ["--state-dir", str(await anyio.Path(settings.state_dir).absolute())]
    command += ["--idle-s", str(settings.idle_s), "--model-idle-s", str(settings.model_idle_s)]
    with log_file(settings.state_dir).open("ab") as log:
        if sys.platform == "win32":
            flags = subprocess.DETACHED_PROCESS | subprocess.CREATE_NEW_PROCESS_GROUP
            await anyio.open_process(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                env=environment,
                creationflags=flags,
            )
        else:
            # It leaves a copy of itself behind and ends, so there is nothing to clean up later.
            await anyio.run_process(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                env=environment,
                start_new_session=True,
            )


_ERRORS: dict[str, type[WorkerError]] = {
    error.code: error for error in (ModelFileError, UnsupportedParameterError, OverloadedError)
}


async def _address_in(lines: AsyncIterator[str], tell: Callable[[str], None]) -> VllmAddress:
    """The address that the engine names at last, after news of the start.

    Raises:
        WorkerError: it names an error, or breaks off.
    """
    import httpx2

    try:
        async for line in lines:
            said = entries(json.loads(line))
            if "address" in said:
                return VllmAddress.model_validate(said["address"])
            if "error" in said:
                raise _meaning(entries(said["error"]))
            tell(str(said.get("news", "")))
    except httpx2.TransportError as error:
        raise UnreachableError(f"The engine broke off: {error}.") from error
    raise UnreachableError("The engine ended before vLLM served.")


def _meaning(said: Mapping[str, object]) -> WorkerError:
    code, text = str(said.get("type", "")), str(said.get("message", ""))
    if code == SlowReplyError.code:
        return SlowReplyError(text, limit="first_byte")
    if code == NotInstalledError.code and not said.get("transient"):
        return NotInstalledError(text)
    return _ERRORS.get(code, UnreachableError)(text)


def _headers(address: EngineAddress) -> dict[str, str]:
    return {"Authorization": f"Bearer {address.key}"}
