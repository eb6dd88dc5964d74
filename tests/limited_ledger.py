"""A program for tests: answers questions while its files may not grow, and again when they may.

Arguments: path, bytes that a file may have. Prints what became of each question as a JSON object.
"""

import json
import resource
import sys
from pathlib import Path

import anyio
from tests.core_parts import pool_of, worker

from podium.calls import Caller
from podium.errors import PodiumError
from podium.orchestrator import Orchestrator
from podium.policy.fixed import Single
from podium.runs import Runs, open_runs
from podium.store import open_store
from podium.trace import RunRequest

ANSWER = "A long answer. " * 4000
QUESTIONS = 20


async def ask(runs: Runs, question: str) -> None:
    """Ask, and say what became of it."""
    told: dict[str, str] = {"question": question, "run_id": "", "error": ""}
    try:
        run = await runs.ask(RunRequest(question=question, strategy="single"), principal="me")
        told["run_id"] = run.run_id
        run = await runs.wait(run.run_id)
        told["status"] = run.status
        told["error"] = run.error.message if run.error else ""
    except PodiumError as error:
        told["status"], told["error"] = "raised", str(error)
    print(json.dumps(told), flush=True)


async def main(path: Path, most: int) -> None:
    async with open_store(path) as store:
        pool = pool_of(worker("ann", lambda prompt: ANSWER + prompt.messages[-1].text))
        parts = Orchestrator(store, pool, Caller(store), {"single": Single()})
        async with open_runs(parts) as runs:
            _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
            for number in range(QUESTIONS):
                await ask(runs, f"limited {number}")
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
            await ask(runs, "free again")


anyio.run(main, Path(sys.argv[1]), int(sys.argv[2]))
