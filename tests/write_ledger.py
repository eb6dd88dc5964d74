"""A program for tests: writes runs with one finished step each into a ledger.

Arguments: path, name, how many runs. Prints a run's id as soon as its writes have returned.
"""

import sys
import time

import anyio

from podium.plan import Plan, Proposal, Step
from podium.store import Store, open_store
from podium.trace import Run, RunRequest, StepResult

AT_ONCE = 10


async def write(store: Store, run_id: str) -> None:
    request = RunRequest(question=f"What is {run_id}?")
    plan = Plan(steps=(Step(worker="solver", subtask="Answer."),))
    result = StepResult(
        number=0, round=0, worker="solver", planned_worker="solver", subtask="Answer.",
        access=(), status="finished", reply=f"It is {run_id}.",
    )  # fmt: skip
    run = Run(
        run_id=run_id, principal="me", request=request, pool=(), fence="f", seed=0,
        status="running", created_at=time.time(),
    )  # fmt: skip
    await store.create_run(run)
    await store.save_round(run_id, 0, Proposal(next=plan, source="model"))
    await store.save_step(run_id, result)
    print(run_id, flush=True)


async def write_some(store: Store, name: str, numbers: range) -> None:
    for number in numbers:
        await write(store, f"{name}-{number:06}")


async def main(path: str, name: str, count: int) -> None:
    async with open_store(path) as store, anyio.create_task_group() as group:
        for first in range(AT_ONCE):
            group.start_soon(write_some, store, name, range(first, count, AT_ONCE))


anyio.run(main, sys.argv[1], sys.argv[2], int(sys.argv[3]))
