import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from tests.engine_processes import is_running
from tests.gguf_writer import write_gguf

from podium_workers.engine.child import open_child
from podium_workers.engine.llama import LlamaServer, memory_needed, open_llama
from podium_workers.engine.models import Models
from podium_workers.engine.state import ModelSpec
from podium_workers.errors import ModelFileError, UnreachableError

SERVER = (sys.executable, "-c", "import sys; sys.stdin.read()")


class Servers:
    """Opens processes that serve nothing, and remembers what for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.opened: list[str] = []
        self.fails: ModelFileError | None = None
        self.limit: int | None = None
        self.asked_for_limit = anyio.Event()
        self.loads = anyio.Event()
        """When set, models load to their end."""
        self.loads.set()

    def spec(self, name: str, *, context: int = 512) -> ModelSpec:
        path = self.folder / f"{name}.gguf"
        return ModelSpec(path=path if path.exists() else write_gguf(path), context=context)

    @asynccontextmanager
    async def open(self, spec: ModelSpec, logs: Path) -> AsyncGenerator[LlamaServer]:
        self.opened.append(spec.path.stem)
        if self.fails is not None:
            raise self.fails
        await self.loads.wait()
        async with open_child(SERVER, log=logs / "server.log", first_line=b"") as child:
            yield LlamaServer(child=child, url="", key="")

    @asynccontextmanager
    async def models(self) -> AsyncGenerator[Models]:
        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                yield Models(tasks, self.open, logs=self.folder, memory_limit=self.memory_limit)
                tasks.cancel_scope.cancel()

    def memory_limit(self) -> int | None:
        self.asked_for_limit.set()
        return self.limit

    def leave_room_for_one(self) -> None:
        """A limit that one model fits under, but no second one beside it."""
        self.limit = memory_needed(self.spec("a")) + 1_000_000


@pytest.fixture
def servers(tmp_path: Path) -> Servers:
    return Servers(tmp_path)


def names(models: Models) -> list[str]:
    return [status.spec.path.stem for status in models.statuses]


async def test_calls_of_one_model_share_its_server(servers: Servers) -> None:
    async with servers.models() as models:
        async with models.lease(servers.spec("a")) as one, models.lease(servers.spec("a")) as two:
            assert one is two
            assert [status.calls for status in models.statuses] == [2]
        async with models.lease(servers.spec("a")) as three:
            assert three is one

    assert servers.opened == ["a"]


async def test_calls_that_arrive_while_a_model_loads_wait_for_it(servers: Servers) -> None:
    seen: list[LlamaServer] = []

    async def call(models: Models) -> None:
        async with models.lease(servers.spec("a")) as server:
            seen.append(server)

    async with servers.models() as models, anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(call, models)

    assert len(seen) == 3
    assert servers.opened == ["a"]


async def test_another_window_means_another_server(servers: Servers) -> None:
    async with (
        servers.models() as models,
        models.lease(servers.spec("a")),
        models.lease(servers.spec("a", context=1024)),
    ):
        assert names(models) == ["a", "a"]


async def test_the_model_that_was_unused_for_longest_makes_room(servers: Servers) -> None:
    async with servers.models() as models:
        for name in ("a", "b", "a"):
            async with models.lease(servers.spec(name)):
                pass
        servers.limit = models.used_bytes + memory_needed(servers.spec("c")) - 1
        async with models.lease(servers.spec("c")):
            assert names(models) == ["a", "c"]


async def test_a_model_that_is_in_use_is_waited_for(servers: Servers) -> None:
    servers.leave_room_for_one()
    began, loaded = anyio.Event(), anyio.Event()

    async def call_b(models: Models) -> None:
        began.set()
        async with models.lease(servers.spec("b")):
            loaded.set()

    async with servers.models() as models, anyio.create_task_group() as tasks:
        async with models.lease(servers.spec("a")):
            tasks.start_soon(call_b, models)
            await began.wait()
            await anyio.wait_all_tasks_blocked()
            assert names(models) == ["a"]
        await loaded.wait()

    assert servers.opened == ["a", "b"]


async def test_a_call_that_waits_for_room_is_not_overtaken(servers: Servers) -> None:
    servers.leave_room_for_one()
    order: list[str] = []

    async def call(models: Models, name: str) -> None:
        async with models.lease(servers.spec(name)):
            order.append(name)

    async with (
        servers.models() as models,
        anyio.create_task_group() as tasks,
        models.lease(servers.spec("a")),
    ):
        for name in ("b", "a"):
            tasks.start_soon(call, models, name)
            await anyio.wait_all_tasks_blocked()

    assert order == ["b", "a"]


async def test_a_call_that_is_given_up_while_it_waits_blocks_nobody(servers: Servers) -> None:
    servers.leave_room_for_one()

    async def call_b(models: Models, scope: anyio.CancelScope) -> None:
        with scope:
            async with models.lease(servers.spec("b")):
                raise AssertionError("there was no room")

    async with (
        servers.models() as models,
        anyio.create_task_group() as tasks,
        models.lease(servers.spec("a")),
    ):
        scope = anyio.CancelScope()
        tasks.start_soon(call_b, models, scope)
        await anyio.wait_all_tasks_blocked()
        scope.cancel()
        async with models.lease(servers.spec("a")):
            assert names(models) == ["a"]


async def test_a_model_that_loads_for_nobody_makes_room_once_it_is_loaded(servers: Servers) -> None:
    servers.leave_room_for_one()
    servers.loads = anyio.Event()
    loaded = anyio.Event()

    async def call_a(models: Models, scope: anyio.CancelScope) -> None:
        with scope:
            async with models.lease(servers.spec("a")):
                raise AssertionError("it was given up before")

    async def call_b(models: Models) -> None:
        async with models.lease(servers.spec("b")):
            loaded.set()

    async with servers.models() as models, anyio.create_task_group() as tasks:
        scope = anyio.CancelScope()
        tasks.start_soon(call_a, models, scope)
        while servers.opened != ["a"]:
            await anyio.lowlevel.checkpoint()
        scope.cancel()
        servers.asked_for_limit = anyio.Event()
        tasks.start_soon(call_b, models)
        await servers.asked_for_limit.wait()
        await anyio.wait_all_tasks_blocked()
        assert names(models) == ["a"]
        servers.loads.set()
        with anyio.fail_after(10):
            await loaded.wait()


async def test_a_model_larger_than_the_limit_is_refused_with_both_figures(servers: Servers) -> None:
    servers.limit = 50_000_000
    async with servers.models() as models:
        with pytest.raises(ModelFileError, match=r"0\.39 GB .* 0\.05 GB.*local_memory_gb"):
            async with models.lease(servers.spec("a")):
                pass

    assert servers.opened == []


async def test_a_model_that_cannot_be_loaded_is_tried_again_next_time(servers: Servers) -> None:
    servers.fails = ModelFileError("a.gguf cannot be loaded.")
    async with servers.models() as models:
        with pytest.raises(ModelFileError, match="cannot be loaded"):
            async with models.lease(servers.spec("a")):
                pass
        servers.fails = None
        async with models.lease(servers.spec("a")):
            pass

    assert servers.opened == ["a", "a"]


async def test_a_process_that_cannot_be_started_fails_its_call_and_nothing_else(
    servers: Servers, tmp_path: Path
) -> None:
    absent = tmp_path / "absent"
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            models = Models(tasks, open_llama, logs=absent, memory_limit=lambda: None)
            for _ in range(2):
                with pytest.raises(UnreachableError, match=r"a\.gguf cannot be started.*absent"):
                    async with models.lease(servers.spec("a")):
                        pass
            assert models.statuses == ()


async def test_a_server_that_died_is_started_again(servers: Servers) -> None:
    async with servers.models() as models:
        async with models.lease(servers.spec("a")) as first:
            os.kill(first.child.pid, 9)
            await first.child.wait()
        async with models.lease(servers.spec("a")) as second:
            assert is_running(second.child.pid)

    assert servers.opened == ["a", "a"]


async def test_models_that_nobody_uses_are_unloaded(servers: Servers) -> None:
    async with servers.models() as models:
        async with models.lease(servers.spec("a")) as server:
            models.keep_house(0)
            assert names(models) == ["a"]
        models.keep_house(1000)
        assert names(models) == ["a"]
        models.keep_house(0)
        await server.child.wait()
        async with models.lease(servers.spec("a")):
            pass

    assert servers.opened == ["a", "a"]


async def test_models_that_have_grown_past_the_limit_are_unloaded(servers: Servers) -> None:
    async with servers.models() as models:
        async with models.lease(servers.spec("a")) as first:
            pass
        async with models.lease(servers.spec("b")):
            servers.limit = models.used_bytes - 1
            models.keep_house(1000)
            await first.child.wait()
            models.keep_house(1000)
            await anyio.wait_all_tasks_blocked()
            assert names(models) == ["b"]


async def test_servers_end_with_the_models(servers: Servers) -> None:
    async with servers.models() as models, models.lease(servers.spec("a")) as server:
        pass

    assert not is_running(server.child.pid)


async def test_a_damaged_file_is_told_before_a_process_is_started(servers: Servers) -> None:
    spec = servers.spec("a")
    spec.path.write_bytes(b"GGUF and nothing")
    async with servers.models() as models:
        with pytest.raises(ModelFileError, match=r"a\.gguf"):
            async with models.lease(spec):
                pass

    assert servers.opened == []
