"""Real parts that tests of the core are built from: a ledger, scripted workers, a run in one line.

Workers are scripted; the ledger is a file; a plan is written as a model would write it.
"""

import json
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import anyio

from podium.calls import Caller
from podium.orchestrator import Orchestrator
from podium.plan import Plan, Proposal, Step
from podium.policy import Ask, Policy, State, accept_last
from podium.policy.conductor import Conductor
from podium.policy.fixed import Chain, Single
from podium.store import Store, open_store
from podium.trace import Event, EventKind, Run, RunRequest, StepResult, TextFile
from podium.verify import verify
from podium_workers.asked import Asked
from podium_workers.errors import AuthenticationError, RefusedError
from podium_workers.pool import Pool
from podium_workers.scripted import Line, Script, ScriptedWorker
from podium_workers.worker import ModelSettings, Prompt

REFUSED = RefusedError("It will not answer this.")
"""A failure of one call; it is not tried again with the same worker."""
NO_KEY = AuthenticationError("The key is wrong.", status=401)
"""A failure that lasts."""
HANGING_S = 0.8
"""A time limit that a worker which never replies meets, and quick ones do not."""
BOUND_S = 20
"""What no test of the core may take, so that a deadlock is a failure."""


def text_of(prompt: Prompt) -> str:
    """What the user message of a prompt says."""
    return prompt.messages[-1].text


def conducting(prompt: Prompt) -> bool:
    """Whether a prompt asks for a plan."""
    start = text_of(prompt)[:100]
    return start.startswith("You lead a team") or "by leading a team" in start


def asks_for(subtask: str) -> Callable[[Prompt], bool]:
    """Whether a step's prompt is the one with that subtask."""
    return lambda prompt: text_of(prompt).endswith(f"Your subtask: {subtask}")


def worker(
    name: str, script: Script = ("Done.",), *, card: Mapping[str, object] | None = None
) -> ScriptedWorker:
    """A scripted worker; *card* changes fields of its card."""
    plain = ScriptedWorker.named(name, script).card
    return ScriptedWorker(plain.model_copy(update=card), script)


def by_subtask(
    replies: Mapping[str, Line | Callable[[], Awaitable[Line]]], other: Line = "Done."
) -> Script:
    """A script that knows what to say, or to do and then say, to each subtask."""

    async def script(prompt: Prompt) -> Line:
        for subtask, reply in replies.items():
            if asks_for(subtask)(prompt):
                return await reply() if callable(reply) else reply
        return other

    return script


def subtasks_of(worker: ScriptedWorker) -> list[str]:
    """What a worker was asked to do, in order."""
    return [text_of(prompt).rsplit("Your subtask: ", 1)[1] for prompt in worker.seen]


def hanging(began: anyio.Event | None = None) -> Callable[[], Awaitable[Line]]:
    """A reply that never comes."""

    async def hang() -> Line:
        if began:
            began.set()
        await anyio.sleep_forever()
        return ""

    return hang


def step(worker: str, subtask: str, *reads: int) -> Step:
    return Step(worker=worker, subtask=subtask, access=reads)


def reading_all(worker: str, subtask: str) -> Step:
    return Step(worker=worker, subtask=subtask, access="all")


def plan_of(*steps: Step, first: int = 0) -> Plan:
    return Plan(steps=steps, first=first)


def written(*steps: tuple[str, str, Sequence[int] | Literal["all"]]) -> str:
    """A plan as a conductor writes it: worker, subtask and access of each step."""
    return json.dumps(
        {"steps": [{"subtask": s, "worker": w, "access": a} for w, s, a in steps]},
        ensure_ascii=False,
    )


@dataclass(frozen=True)
class Given:
    """A policy that proposes the given plans, one a round, and then accepts the last step."""

    plans: tuple[Plan, ...]

    async def propose(self, state: State, ask: Ask) -> Proposal:
        done = sum(found.plan is not None for found in state.rounds)
        if done < len(self.plans):
            return Proposal(next=self.plans[done], source="fixed")
        return Proposal(next=accept_last(state), source="fixed")


@dataclass(frozen=True)
class ByDepth:
    """A policy with a plan for each depth, so that a run and those nested in it differ."""

    plans: Mapping[int, Plan]

    async def propose(self, state: State, ask: Ask) -> Proposal:
        if state.rounds:
            return Proposal(next=accept_last(state), source="fixed")
        return Proposal(next=self.plans[state.request.depth], source="fixed")


def nesting(*plans: Plan) -> dict[str, Policy]:
    """The strategy `given` with a plan for each depth, from 0 up."""
    return {"given": ByDepth(dict(enumerate(plans)))}


def conductor(*plans: Line, name: str = "boss", **card: object) -> ScriptedWorker:
    """A worker that writes these plans in turn, the last one for ever, and else just replies."""
    left = list(plans)

    def script(prompt: Prompt) -> Line:
        if not conducting(prompt):
            return f"Reply of {name}."
        return left.pop(0) if len(left) > 1 else left[0]

    return worker(name, script, card=card)


def plans_asked(worker: ScriptedWorker) -> list[tuple[str, ModelSettings]]:
    """The prompts for plans that a worker was given, and the settings that came with them."""
    pairs = zip(worker.seen, worker.asked, strict=True)
    return [(text_of(prompt), settings) for prompt, settings in pairs if conducting(prompt)]


@dataclass
class Parts:
    """A Podium without its surfaces."""

    orchestrator: Orchestrator
    events: list[Event] = field(default_factory=list[Event])

    @property
    def store(self) -> Store:
        return self.orchestrator.store

    async def observe(self, event: Event) -> None:
        self.events.append(event)

    def told(self, kind: EventKind) -> list[Event]:
        return [event for event in self.events if event.kind == kind]

    async def create(self, question: str = "Why?", **request: object) -> Run:
        asked = RunRequest.model_validate({"question": question, "strategy": "given"} | request)
        return await self.orchestrator.create(asked, principal="me")

    async def ask(self, question: str = "Why?", **request: object) -> Run:
        """A new run, carried on as far as it goes."""
        return await self.go_on(await self.create(question, **request))

    async def go_on(self, run: Run) -> Run:
        """The run as it stands in the ledger, carried on."""
        with anyio.fail_after(BOUND_S):
            run = await self.store.run(run.run_id)
            return await self.orchestrator.answer(run, self.observe)

    async def stop_when(self, run: Run, reached: anyio.Event) -> Run:
        """Carry a run on until the event, then cancel it as a server that ends does."""
        with anyio.fail_after(BOUND_S):
            async with anyio.create_task_group() as group:
                group.start_soon(self.orchestrator.answer, run, self.observe)
                await reached.wait()
                group.cancel_scope.cancel()
        return await self.store.run(run.run_id)

    async def step(self, run: Run, number: int) -> StepResult:
        """The newest version of one step."""
        results = {result.number: result for result in await self.store.steps(run.run_id)}
        return results[number]

    async def prompt(self, run: Run, number: int) -> str:
        """What the worker of a step was given, from the ledger."""
        stored = await self.store.text((await self.step(run, number)).prompt)
        return text_of(Prompt.model_validate_json(stored))

    async def findings(self, run: Run) -> list[str]:
        """What `podium verify` says about a run and the runs nested in it."""
        found = [finding.problem for finding in (await verify(self.store, run.run_id)).findings]
        for child in await self.store.children(run.run_id):
            found += await self.findings(child)
        return found


@asynccontextmanager
async def open_parts(
    folder: Path,
    *workers: ScriptedWorker,
    plans: Sequence[Plan] = (),
    policies: Mapping[str, Policy] | None = None,
    conductor: str = "",
    form: Literal["json", "lists"] = "json",
    shows: Literal["cards", "ordinals"] = "cards",
    pool: Pool | None = None,
) -> AsyncGenerator[Parts]:
    """Parts over the ledger in *folder*; the strategy `given` proposes *plans*.

    Opened again over the same folder they are a Podium that was started again. With *pool* it is
    that one instead of one of *workers*.
    """
    known: dict[str, Policy] = {
        "conductor": Conductor(),
        "single": Single(),
        "chain": Chain(),
        "given": Given(tuple(plans)),
    }
    async with open_store(folder / "podium.db") as store:
        made = pool or pool_of(*workers, conductor=conductor, form=form, shows=shows)
        yield Parts(Orchestrator(store, made, Caller(store), known | dict(policies or {})))


def pool_of(
    *workers: ScriptedWorker,
    conductor: str = "",
    form: Literal["json", "lists"] = "json",
    shows: Literal["cards", "ordinals"] = "cards",
) -> Pool:
    """A pool of these workers; the first one writes plans unless another is named."""
    first = conductor or workers[0].card.name
    return Pool(workers=workers, conductor=first, asked=Asked(form=form, shows=shows))


def file(name: str, text: str) -> TextFile:
    return TextFile(name=name, text=text, bytes=len(text.encode()))


def tags(prompt: str, fence: str) -> list[tuple[str, str]]:
    """The real fence tags of a prompt in order: (name with a slash if it closes, attributes)."""
    pattern = rf"<(/?[a-z_]+)_{re.escape(fence)}([^\n>]*)>"
    return [(found[1], found[2].strip()) for found in re.finditer(pattern, prompt)]
