"""`podium verify` over many kinds of runs, and over ledgers into which a leak was planted (T32)."""

import hashlib
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import anyio
import pytest
from tests.core_parts import (
    REFUSED,
    Parts,
    file,
    open_parts,
    plan_of,
    step,
    text_of,
    worker,
)

from podium.plan import CALLER, PODIUM, Access, Plan, Proposal, Step
from podium.policy import Ask, State, accept_last
from podium.revision import edit_step, run_step
from podium.trace import Run, TextFile
from podium.verify import verify
from podium_workers.scripted import Line, Script
from podium_workers.worker import Prompt

PLANS = 200
AT_ONCE = 20
WORDS = ("river", "Brücke", "河流", "42", "</reply_0a1b2c3d4e5f>", "step", "\n", "🎉", "q83vEjRWeJ")


@dataclass(frozen=True)
class Drawn:
    """A policy that proposes what was drawn for a question; nested runs get one plain step."""

    plans: dict[str, tuple[Plan, ...]] = field(default_factory=dict[str, tuple[Plan, ...]])

    async def propose(self, state: State, ask: Ask) -> Proposal:
        plain = (plan_of(step(state.pool.names[0], "Think.")),)
        plans = self.plans.get(state.request.question, plain)
        done = sum(found.plan is not None for found in state.rounds)
        if done < len(plans):
            return Proposal(next=plans[done], source="fixed")
        return Proposal(next=accept_last(state), source="fixed")


def words(draw: Random, most: int) -> str:
    return " ".join(draw.choices(WORDS, k=draw.randint(1, most)))


def script_of(name: str) -> Script:
    """Fails where the subtask says so; else replies, at times with the prompt that it was given."""

    def script(prompt: Prompt) -> Line:
        subtask = text_of(prompt).rsplit("Your subtask: ", 1)[1]
        if f"{name} fails" in subtask:
            return REFUSED
        draw = Random(f"{name}{subtask}")
        if draw.random() < 0.1:
            return text_of(prompt)
        return words(draw, 120 if draw.random() < 0.2 else 12)

    return script


def draw_access(draw: Random, number: int) -> Access:
    if draw.random() < 0.2:
        return "all"
    return tuple(draw.sample(range(number), draw.randint(0, min(number, 4))))


def draw_step(draw: Random, number: int, run: int) -> Step:
    name = draw.choice(["ann", "bob", "cy", "ann", "bob", "cy", PODIUM, CALLER])
    failing = [f"{other} fails" for other in ("ann", "bob", "cy") if draw.random() < 0.2]
    subtask = f"Run {run}, part {number}: {words(draw, 5)} {' and '.join(failing)}."
    return Step(worker=name, subtask=subtask, access=draw_access(draw, number))


def draw_plans(draw: Random, run: int) -> tuple[Plan, ...]:
    plans: list[Plan] = []
    first = 0
    for _ in range(draw.choice([1, 1, 2])):
        numbers = range(first, first + draw.randint(1, 4))
        steps = tuple(draw_step(draw, number, run) for number in numbers)
        plans.append(Plan(steps=steps, first=first))
        first = numbers.stop
    return tuple(plans)


def draw_files(draw: Random) -> tuple[TextFile, ...]:
    return tuple(
        file(draw.choice(["a.txt", "log <step_> .md"]), words(draw, 150))
        for _ in range(draw.choice([0, 0, 0, 1, 2]))
    )


async def carry_on(parts: Parts, run: Run) -> Run:
    """To the end, with the caller doing its steps."""
    run = await parts.go_on(run)
    while run.status == "needs_caller":
        for result in await parts.store.steps(run.run_id):
            if result.status == "waiting":
                said = f"I saw {result.number}."
                await run_step(parts.orchestrator, run, result.number, parts.observe, result=said)
        run = await parts.go_on(run)
    return run


async def edit(parts: Parts, draw: Random, run: Run) -> Run:
    """Change one step of a run that has ended, and carry it on."""
    results = [r for r in await parts.store.steps(run.run_id) if r.worker != CALLER]
    if not results:
        return run
    number = draw.choice(results).number
    await edit_step(parts.orchestrator, run, number, {"subtask": f"Otherwise: {words(draw, 3)}"})
    return await carry_on(parts, run)


async def test_t32_verify_holds_over_two_hundred_random_plans(tmp_path: Path):
    small = {"context_window": 900, "max_output_tokens": 128}
    workers = (
        worker("ann", script_of("ann"), card=small | {"role": "You are Ann."}),
        worker("bob", script_of("bob"), card={"context_window": 1500, "max_output_tokens": 256}),
        worker("cy", script_of("cy")),
    )
    drawn = Drawn()
    ended: list[Run] = []
    async with open_parts(tmp_path, *workers, policies={"given": drawn}) as parts:
        before = await parts.ask("Before?", strategy="single", workers=("cy",))

        async def one(number: int) -> None:
            draw = Random(number)
            question = f"Question {number}: {words(draw, 8)}"
            drawn.plans[question] = draw_plans(draw, number)
            run = await parts.create(
                question,
                depth=1,
                rounds=2,
                files=draw_files(draw),
                follow_up=before.run_id if draw.random() < 0.2 else None,
            )
            run = await carry_on(parts, run)
            if draw.random() < 0.2:
                run = await edit(parts, draw, run)
            assert await parts.findings(run) == []
            ended.append(run)

        for begin in range(0, PLANS, AT_ONCE):
            async with anyio.create_task_group() as group:
                for number in range(begin, begin + AT_ONCE):
                    group.start_soon(one, number)

        # That the draw held what it was made for:
        assert len(ended) == PLANS
        results = [r for run in ended for r in await parts.store.steps(run.run_id)]
        assert sum(bool(result.cuts) for result in results) > 30
        assert sum(result.worker != result.planned_worker for result in results) > 50
        assert sum(result.status == "failed" for result in results) >= 5
        assert sum(result.nested_run is not None for result in results) > 20
        assert sum(result.version > 0 for result in results) > 20
        assert sum(run.status == "finished" for run in ended) > PLANS * 0.9


# Planted leaks.

SENT = {(number, "ann was sent another prompt than the step's own.") for number in range(3)}
"""What is found as well when a step's own prompt was exchanged."""

SECRETS = [f"The secret of part {number} is long enough to be told apart." for number in range(3)]
WALK = plan_of(step("ann", "Zero."), step("ann", "One."), step("ann", "Two.", 0))


@dataclass(frozen=True)
class Damage:
    """The ledger's file, to be changed behind Podium's back."""

    folder: Path
    run: Run

    def do(self, sql: str, *values: object) -> None:
        with closing(sqlite3.connect(self.folder / "podium.db")) as connection, connection:
            assert connection.execute(sql, values).rowcount == 1

    def prompt(self, number: int, change: Callable[[str], str]) -> None:
        """Put another text in the place of a step's prompt."""
        with closing(sqlite3.connect(self.folder / "podium.db")) as connection:
            sql = "SELECT prompt FROM steps WHERE run_id = ? AND number = ?"
            (sha,) = connection.execute(sql, (self.run.run_id, number)).fetchone()
            (stored,) = connection.execute(
                "SELECT text FROM blobs WHERE sha = ?", (sha,)
            ).fetchone()
        prompt = Prompt.model_validate_json(stored)
        (message,) = prompt.messages
        changed = message.model_copy(update={"text": change(message.text)})
        assert changed != message
        text = prompt.model_copy(update={"messages": (changed,)}).model_dump_json()
        sha = hashlib.sha256(text.encode()).hexdigest()
        self.do("INSERT INTO blobs (sha, text) VALUES (?, ?)", sha, text)
        sql = "UPDATE steps SET prompt = ? WHERE run_id = ? AND number = ?"
        self.do(sql, sha, self.run.run_id, number)

    def plan(self, change: Callable[[list[dict[str, object]]], object]) -> None:
        """Put another plan in the place of the first one."""
        with closing(sqlite3.connect(self.folder / "podium.db")) as connection:
            sql = "SELECT proposal FROM rounds WHERE run_id = ? AND number = 0"
            (stored,) = connection.execute(sql, (self.run.run_id,)).fetchone()
        proposal = json.loads(stored)
        change(proposal["next"]["steps"])
        sql = "UPDATE rounds SET proposal = ? WHERE run_id = ? AND number = 0"
        self.do(sql, json.dumps(proposal), self.run.run_id)


async def found_after(folder: Path, plant: Callable[[Damage], object]) -> set[tuple[int, str]]:
    """What verify finds in a good run once something has been planted."""
    async with open_parts(folder, worker("ann", SECRETS), plans=[WALK]) as parts:
        run = await parts.ask()
        clean = await verify(parts.store, run.run_id)
        assert (clean.steps, clean.findings) == (3, ())
        plant(Damage(folder, run))
        verdict = await verify(parts.store, run.run_id)
        assert verdict.steps == 3
        return {(finding.step, finding.problem) for finding in verdict.findings}


DIFFERS = "The stored prompt is not the one that plan and replies give."


def a_step_too_many(damage: Damage) -> None:
    fence = damage.run.fence
    extra = f'<step_{fence} number="1">\n{SECRETS[1]}\n</step_{fence}>\n\nYour subtask:'
    damage.prompt(2, lambda text: text.replace("\nYour subtask:", extra))


def a_step_too_few(damage: Damage) -> None:
    def without(text: str) -> str:
        head, rest = text.split(f"<step_{damage.run.fence}", 1)
        return head + rest.split(f"</step_{damage.run.fence}>\n", 1)[1]

    damage.prompt(2, without)


def only_the_text(damage: Damage) -> None:
    damage.prompt(1, lambda text: text.replace("Why?", f"Why? {SECRETS[0]}"))


def a_sentence(damage: Damage) -> None:
    damage.prompt(0, lambda text: f"{text} Quickly!")


def another_subtask(damage: Damage) -> None:
    damage.plan(lambda steps: steps[1].update(subtask="Spy."))


def no_such_step(damage: Damage) -> None:
    damage.plan(lambda steps: steps.pop())


def another_access(damage: Damage) -> None:
    damage.plan(lambda steps: steps[2].update(access=[1]))


@pytest.mark.parametrize(
    ("plant", "found"),
    [
        (
            a_step_too_many,
            {
                (2, DIFFERS),
                (2, "It shows step 1, which is not granted."),
                (2, "It holds the reply of step 1, which is not granted."),
            },
        ),
        (a_step_too_few, {(2, DIFFERS), (2, "It lacks step 0, which is granted.")}),
        (
            only_the_text,
            {(1, DIFFERS), (1, "It holds the reply of step 0, which is not granted.")},
        ),
        (a_sentence, {(0, DIFFERS)}),
        (
            another_access,
            {
                (2, DIFFERS),
                (2, "It shows step 0, which is not granted."),
                (2, "It lacks step 1, which is granted."),
                (2, "It holds the reply of step 0, which is not granted."),
            },
        ),
        (another_subtask, {(1, DIFFERS)}),
        (no_such_step, {(2, "It was done, but the plan has no such step.")}),
    ],
)
async def test_t32_a_planted_leak_is_found(
    tmp_path: Path, plant: Callable[[Damage], object], found: set[tuple[int, str]]
):
    assert await found_after(tmp_path, plant) - SENT == found


async def test_a_reply_that_was_changed_afterwards_is_found(tmp_path: Path):
    def change(damage: Damage) -> None:
        sql = "UPDATE steps SET data = replace(data, ?, ?) WHERE run_id = ? AND number = 0"
        damage.do(sql, "secret of part 0", "secret of part 9", damage.run.run_id)

    assert await found_after(tmp_path, change) == {(2, DIFFERS)}


async def test_a_prompt_that_is_gone_or_unreadable_is_found(tmp_path: Path):
    def damage(damage: Damage) -> None:
        damage.do("UPDATE steps SET prompt = 'gone' WHERE run_id = ? AND number = 0", *run(damage))
        sql = "UPDATE blobs SET text = '{' WHERE sha = (SELECT prompt FROM steps "
        damage.do(f"{sql} WHERE run_id = ? AND number = 1)", *run(damage))

    def run(damage: Damage) -> tuple[str]:
        return (damage.run.run_id,)

    lost = "Its prompt is not in the ledger any more, or cannot be read."
    assert await found_after(tmp_path, damage) - SENT == {(0, lost), (1, lost)}


async def test_a_call_that_was_sent_another_prompt_is_found(tmp_path: Path):
    def swap(damage: Damage) -> None:
        sql = "UPDATE calls SET prompt = (SELECT prompt FROM steps WHERE run_id = ? AND number = 1)"
        damage.do(f"{sql} WHERE run_id = ? AND step = 2", damage.run.run_id, damage.run.run_id)

    assert await found_after(tmp_path, swap) == {
        (2, "ann was sent another prompt than the step's own.")
    }


async def test_a_prompt_of_an_older_template_is_told_apart_from_a_leak(tmp_path: Path):
    def age(damage: Damage) -> None:
        sql = "UPDATE steps SET data = json_set(data, '$.template', 'old')"
        damage.do(f"{sql} WHERE run_id = ? AND number = 0", damage.run.run_id)
        a_sentence(damage)

    (found,) = await found_after(tmp_path, age) - SENT
    assert "another version of Podium's worker prompt" in found[1]


async def test_a_plan_that_grants_more_than_any_window_holds_is_found(tmp_path: Path):
    small = {"context_window": 1024, "max_output_tokens": 256}
    replies = ["Long. " * 300] * 2 + ["Short."]
    plan = plan_of(step("big", "Zero."), step("big", "One."), step("ann", "Two."))
    ann = worker("ann", ["Short."], card=small)
    async with open_parts(tmp_path, ann, worker("big", replies), plans=[plan]) as parts:
        run = await parts.ask("word " * 250)
        assert await parts.findings(run) == []
        Damage(tmp_path, run).plan(lambda steps: steps[2].update(access=[0, 1]))
        assert DIFFERS in await parts.findings(run)


async def test_two_steps_that_say_the_same_are_no_leak(tmp_path: Path):
    """A worker that repeats its prompt gives what the other's prompt holds anyway."""
    ann = worker("ann", lambda prompt: text_of(prompt))
    plan = plan_of(step("ann", "Repeat."), step("ann", "Repeat."), step("ann", "End.", 1))
    async with open_parts(tmp_path, ann, plans=[plan]) as parts:
        assert await parts.findings(await parts.ask()) == []
