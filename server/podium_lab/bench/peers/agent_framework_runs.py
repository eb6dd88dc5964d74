"""Microsoft Agent Framework at the work of the engine benchmark, with its own checkpoints.

Run by the Python of the peers' environment. Its core ships one durable storage, a JSON file for
each checkpoint, which it never flushes to the disk: the variant `shipped`. The variant `fsync` adds
that flush, of the file and of its folder, to be at the level of the others.
"""

import logging
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Never

import anyio.to_thread
from agent_framework import (
    Executor,
    FileCheckpointStorage,
    Workflow,
    WorkflowBuilder,
    WorkflowCheckpoint,
    WorkflowContext,
    handler,
)
from measuring import Call, Setting, main


class Part(Executor):
    """A step that hands its reply on."""

    def __init__(self, call: Call, step: int) -> None:
        super().__init__(id=f"part-{step}")
        self._call = call
        self._step = step

    @handler
    async def do(self, text: str, context: WorkflowContext[str]) -> None:
        await context.send_message(await self._call(self._step))


class LastPart(Executor):
    """The step whose reply is the answer."""

    def __init__(self, call: Call, step: int) -> None:
        super().__init__(id=f"part-{step}")
        self._call = call
        self._step = step

    @handler
    async def do(self, text: str, context: WorkflowContext[Never, str]) -> None:
        await context.yield_output(await self._call(self._step))


class FlushedStorage(FileCheckpointStorage):
    """The shipped storage, with every checkpoint on the disk before it counts as saved."""

    async def save(self, checkpoint: WorkflowCheckpoint) -> str:
        saved = await super().save(checkpoint)
        await anyio.to_thread.run_sync(self._flush, saved)
        return saved

    def _flush(self, checkpoint_id: str) -> None:
        for path in (self.storage_path / f"{checkpoint_id}.json", self.storage_path):
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


class AgentFramework:
    """A workflow for each run: an instance carries out one at a time."""

    def __init__(self, setting: Setting, call: Call) -> None:
        self._setting = setting
        self._call = call
        self._storage = FlushedStorage if setting.variant == "fsync" else FileCheckpointStorage
        flushed = "fsync added" if setting.variant == "fsync" else "never flushed"
        self.facts = {"storage": "FileCheckpointStorage", "synchronous": flushed}

    async def run(self, name: str) -> None:
        result = await self._workflow(name).run(f"Question of {name}?")
        assert result.get_outputs(), f"{name} gave nothing"

    async def resume(self, name: str) -> None:
        checkpoint = await self._storage(self._folder(name)).get_latest(workflow_name="bench")
        assert checkpoint is not None, f"{name} has no checkpoint"
        result = await self._workflow(name).run(checkpoint_id=checkpoint.checkpoint_id)
        assert result.get_outputs(), f"{name} gave nothing"

    def _folder(self, name: str) -> Path:
        # One for each run: looking for the newest checkpoint reads every file of the folder.
        return self._setting.folder / name

    def _workflow(self, name: str) -> Workflow:
        last = self._setting.steps - 1
        parts = [Part(self._call, step) for step in range(last)]
        storage = self._storage(self._folder(name))
        builder = WorkflowBuilder(
            name="bench",
            start_executor=parts[0],
            checkpoint_storage=storage,
        )
        return builder.add_chain([*parts, LastPart(self._call, last)]).build()


@asynccontextmanager
async def open_agent_framework(setting: Setting, call: Call) -> AsyncGenerator[AgentFramework]:
    """Agent Framework over a folder of checkpoints."""
    logging.disable(logging.WARNING)
    yield AgentFramework(setting, call)


if __name__ == "__main__":
    main(open_agent_framework)
