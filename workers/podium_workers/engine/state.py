"""What the engine's processes tell each other: where it listens, what it shall load, how it is."""

import os
import secrets
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from podium_workers.worker import Frozen

PROTOCOL = 3
"""Part of the names of the files below, so that versions which would not understand each other
keep apart, each with an engine of its own."""


class EngineAddress(Frozen):
    """Where the running engine listens. Readable by its user alone, since it holds the key."""

    protocol: int = PROTOCOL
    version: str
    pid: int
    port: int
    key: str = Field(repr=False)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


class ModelSpec(Frozen):
    """A model as a caller wants it served; equal specifications share one server."""

    path: Path
    """The GGUF file; absolute."""
    context: int = Field(ge=256)
    """Tokens of prompt and reply together, for each call."""
    slots: int = Field(default=2, ge=1)
    """Calls at the same time; more of them wait."""
    threads: int = Field(default=1, ge=1)
    gives: Literal["replies", "states"] = "replies"
    """What it is asked for: replies, or what the model makes of a text before it says anything."""


class ModelStatus(Frozen):
    """One model that the engine has."""

    spec: ModelSpec
    state: Literal["loading", "ready"]
    pid: int | None
    resident_bytes: int
    """Measured; an estimate while the model loads, and where it cannot be measured."""
    calls: int
    """Calls that are running or waiting for it."""
    unused_s: float
    """Seconds since its last call."""


class VllmSpec(Frozen):
    """A vLLM server as a caller wants it; equal specifications share one server."""

    model: str = Field(min_length=1)
    """Name on a hub, or the path of a folder."""
    python: Path
    """The interpreter that has vLLM."""
    arguments: tuple[str, ...]
    """Of `vllm serve`, without address and key."""
    environment: tuple[tuple[str, str], ...] = ()
    """Variables beside the engine's own."""


class VllmOrder(Frozen):
    """A wish for a vLLM server."""

    spec: VllmSpec
    start_within_s: float = Field(gt=0)
    """Seconds that its start may take."""
    stop_idle_s: float = Field(ge=0)
    """Seconds after its last call that it is stopped; 0 for never."""
    in_doubt: bool = False
    """Whether a call has just failed, so that the server is to be looked at before it is used."""


class VllmAddress(Frozen):
    """Where a vLLM server answers."""

    url: str
    key: str = Field(repr=False)


class VllmStatus(Frozen):
    """One vLLM server of the engine."""

    model: str
    state: Literal["starting", "ready"]
    news: str
    """How its start came along."""
    pid: int | None
    url: str
    log: Path
    calls: int
    """Calls that are running or waiting for it."""
    unused_s: float
    """Seconds since its last call."""
    stop_idle_s: float


class EngineStatus(Frozen):
    """How the engine is."""

    pid: int
    clients: int
    """Processes that hold the engine."""
    memory_limit_bytes: int | None
    """The smallest limit among the clients' ones."""
    warning: str
    """Empty, or what the user should know."""
    models: tuple[ModelStatus, ...]
    servers: tuple[VllmStatus, ...] = ()


def address_file(state_dir: Path) -> Path:
    return state_dir / f"engine-{PROTOCOL}.json"


def lock_file(state_dir: Path) -> Path:
    """Held by the engine for as long as it runs."""
    return state_dir / f"engine-{PROTOCOL}.lock"


def start_file(state_dir: Path) -> Path:
    """Held by the one client that is starting the engine."""
    return state_dir / f"start-{PROTOCOL}.lock"


def log_file(state_dir: Path) -> Path:
    return state_dir / "engine.log"


def write_address(state_dir: Path, address: EngineAddress) -> None:
    """Publish *address*: whole or not at all, and for this user only."""
    target = address_file(state_dir)
    part = target.with_suffix(f".{secrets.token_hex(4)}")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(address.model_dump_json())
    part.replace(target)


def read_address(state_dir: Path) -> EngineAddress | None:
    """The published address; whether somebody listens there shows only when it is tried."""
    try:
        return EngineAddress.model_validate_json(address_file(state_dir).read_bytes())
    except (FileNotFoundError, ValidationError):
        return None


def remove_address(state_dir: Path, pid: int) -> None:
    """Withdraw the address that process *pid* published, if it still stands there."""
    address = read_address(state_dir)
    if address is not None and address.pid == pid:
        address_file(state_dir).unlink(missing_ok=True)
