"""LangGraph at the work of the engine benchmark, with its own durable SQLite checkpoints.

Run by the Python of the peers' environment. The variant is LangGraph's durability mode: `sync`
(a checkpoint stands before the next step starts) or `async` (its default).
"""

import operator
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Annotated, TypedDict

import aiosqlite
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from measuring import Call, Setting, main


class Replies(TypedDict):
    """The state of a run: the question and the replies so far."""

    texts: Annotated[list[str], operator.add]


class LangGraph:
    """One compiled graph; a thread of it is a run."""

    def __init__(self, graph: CompiledStateGraph, durability: str, facts: dict[str, str]) -> None:
        self._graph = graph
        self._durability = durability
        self.facts = facts

    async def run(self, name: str) -> None:
        await self._invoke(name, {"texts": [f"Question of {name}?"]})

    async def resume(self, name: str) -> None:
        # In its default mode a run that was cut off may have left nothing behind: asked again.
        lost = self._durability == "async" and not await self._has_state(name)
        await (self.run(name) if lost else self._invoke(name, None))

    async def _has_state(self, name: str) -> bool:
        state = await self._graph.aget_state({"configurable": {"thread_id": name}})
        return bool(state.values)

    async def _invoke(self, name: str, given: Replies | None) -> None:
        config = {"configurable": {"thread_id": name}}
        await self._graph.ainvoke(given, config, durability=self._durability)


def node(call: Call, step: int) -> Callable[[Replies], Awaitable[Replies]]:
    """The node of one step."""

    async def do(state: Replies) -> Replies:
        return {"texts": [await call(step)]}

    return do


def chain(call: Call, steps: int) -> StateGraph:
    """A graph of steps one after another."""
    graph = StateGraph(Replies)
    for step in range(steps):
        graph.add_node(f"part-{step}", node(call, step))
        graph.add_edge(f"part-{step - 1}" if step else START, f"part-{step}")
    graph.add_edge(f"part-{steps - 1}", END)
    return graph


async def pragma(connection: aiosqlite.Connection, name: str) -> str:
    async with connection.execute(f"PRAGMA {name}") as cursor:
        return str((await cursor.fetchone())[0])


@asynccontextmanager
async def open_langgraph(setting: Setting, call: Call) -> AsyncGenerator[LangGraph]:
    """LangGraph over one SQLite file, at the fsync level of Podium's ledger."""
    async with aiosqlite.connect(setting.folder / "checkpoints.db") as connection:
        await connection.execute("PRAGMA synchronous = FULL")
        saver = AsyncSqliteSaver(connection)
        await saver.setup()
        facts = {
            "storage": "AsyncSqliteSaver",
            "durability": setting.variant,
            "journal": await pragma(connection, "journal_mode"),
            "synchronous": await pragma(connection, "synchronous"),
        }
        graph = chain(call, setting.steps).compile(checkpointer=saver)
        yield LangGraph(graph, setting.variant, facts)


if __name__ == "__main__":
    main(open_langgraph)
