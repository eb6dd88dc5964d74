"""A Podium process's side of the engine: finds it, starts it, holds it, asks it."""

import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskGroup, TaskStatus
from pydantic import Field, JsonValue

from podium_workers.engine.state import (
    EngineAddress,
    EngineStatus,
    ModelSpec,
    log_file,
    read_address,
    start_file,
)
from podium_workers.errors import UnreachableError
from podium_workers.lockfile import LockFile
from podium_workers.worker import Frozen

if TYPE_CHECKING:
    from httpx2 import AsyncClient, Response

_POLL_S = 0.05
_CONNECT_S = 5.0
_FIRST_WORD_S = 10.0


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


class Engine:
    """The engine of this machine; nothing is started before something is asked."""

    def __init__(self, settings: EngineSettings, tasks: TaskGroup) -> None:
        self._settings = settings
        self._tasks = tasks
        self._http: AsyncClient | None = None
        self._held: EngineAddress | None = None
        # Held while the engine is looked for or started, so that this process does it once.
        self._opening = anyio.Lock()
