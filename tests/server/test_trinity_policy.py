"""The strategy `trinity`: an evolved head plays turn by turn, by the rules of the three roles."""

import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from mcp import Client
from pydantic import JsonValue
from tests.command_line import CommandLine
from tests.core_parts import HANGING_S, NO_KEY, Parts, by_subtask, hanging, open_parts, worker

from podium.app import build_server
from podium.config import Settings
from podium.errors import SettingsError
from podium.plan import Plan
from podium.policy.head import ROLES, Head, Role, load_head
from podium.policy.trinity import Trinity
from podium.policy.turns import TURNS, Said, Standing, is_accepting, role_of, subtask, texts_hash
from podium.runs import open_runs
from podium.trace import Run, RunRequest
from podium_workers.scripted import Line, ScriptedWorker

THINK, WORK, CHECK = (subtask(role) for role in ROLES)
WORKERS = ("ann", "bob")
Chosen = tuple[str, Role]


@dataclass
class GivenStates:
    """States that say, by what stands in the transcript, what is to be chosen."""

    choose: Callable[[str], Chosen]
    seen: list[str] = field(default_factory=list[str])
    model: str = "given"

    async def __call__(self, text: str) -> list[float]:
        self.seen.append(text)
        name, role = self.choose(text)
        chosen = (WORKERS.index(name), len(WORKERS) + ROLES.index(role))
        return [float(place in chosen) for place in range(len(WORKERS) + len(ROLES))]


def head(**changes: object) -> Head:
    """A head whose logits are the state's own numbers."""
    size = len(WORKERS) + len(ROLES)
    rows = [[float(row == column) for column in range(size)] for row in range(size)]
    made: dict[str, object] = {
        "model": "given", "prompts": texts_hash(), "workers": WORKERS, "mean": [0.0] * size,
        "deviation": [1.0] * size, "weights": rows,
    }  # fmt: skip
    return Head.model_validate(made | changes)


def by_thoughts(*chosen: Chosen) -> Callable[[str], Chosen]:
    """What is chosen when so many thoughts stand in the transcript; the last one for ever."""
    return lambda text: chosen[min(text.count("</reference_thought_"), len(chosen) - 1)]


@asynccontextmanager
async def playing(
    folder: Path, choose: Callable[[str], Chosen], *workers: ScriptedWorker
) -> AsyncGenerator[tuple[Parts, GivenStates]]:
    states = GivenStates(choose)
    policies = {"trinity": Trinity(head(), states)}
    async with open_parts(folder, *workers, policies=policies) as parts:
        yield parts, states


def scripted(name: str, **replies: Line) -> ScriptedWorker:
    """A worker that has something to say in each role."""
    said = {"thinker": "Look closer.", "worker": f"It is {name}'s.", "verifier": "ACCEPT"}
    said |= replies
    return worker(name, by_subtask({subtask(role): said[role] for role in ROLES}))


async def turns(parts: Parts, run: Run) -> list[Chosen]:
    plans = [found.plan for found in await parts.store.rounds(run.run_id) if found.plan]
    return [(step.worker, role_of(step.subtask)) for plan in plans for step in plan.steps]


WORK_THEN_CHECK = by_thoughts(("ann", "worker"), ("bob", "verifier"))


async def test_the_accepted_workers_reply_is_the_answer_and_not_the_word_accept(tmp_path: Path):
    async with playing(tmp_path, WORK_THEN_CHECK, scripted("ann"), scripted("bob")) as (parts, _):
        run = await parts.ask(strategy="trinity")

        assert (run.status, run.answer, run.answer_step, run.notes) == (
            "finished", "It is ann's.", 0, (),
        )  # fmt: skip
        assert await turns(parts, run) == [("ann", "worker"), ("bob", "verifier")]
        assert "It is ann's." in await parts.prompt(run, 1)
        assert await parts.findings(run) == []


async def test_only_a_workers_reply_is_said_to_go_to_the_user(tmp_path: Path):
    choose = by_thoughts(("ann", "thinker"), ("bob", "verifier"))
    async with playing(tmp_path, choose, scripted("ann"), scripted("bob")) as (parts, _):
        run = await parts.ask(strategy="trinity")

        assert await turns(parts, run) == [
            ("ann", "thinker"), ("ann", "worker"), ("bob", "verifier"),
        ]  # fmt: skip
        says = [
            "the answer that the user gets" in await parts.prompt(run, step) for step in range(3)
        ]
        assert says == [False, True, False]


async def test_the_coordinator_reads_the_question_and_what_workers_said(tmp_path: Path):
    choose = by_thoughts(("ann", "thinker"), ("bob", "worker"), ("bob", "verifier"))
    thinker = scripted("ann", thinker="Look.<suggested_role>worker</suggested_role>")
    async with playing(tmp_path, choose, thinker, scripted("bob")) as (parts, states):
        await parts.ask("Why?", strategy="trinity")

        thought = "\nassistant: <reference_thought_1>\nIt is ann's.\n</reference_thought_1>"
        other = "\nassistant: <reference_thought_2>\nIt is bob's.\n</reference_thought_2>"
        begin = "user: Why?"
        assert states.seen == [begin, begin, begin + thought, begin + thought + other]


async def test_what_the_thinker_suggests_decides_the_next_role(tmp_path: Path):
    choose = by_thoughts(("ann", "worker"), ("ann", "thinker"))
    told = "<suggestion>Check it.</suggestion><suggested_role>Verifier</suggested_role>"
    async with playing(tmp_path, choose, scripted("ann", thinker=told), scripted("bob")) as (
        parts,
        _,
    ):
        run = await parts.ask(strategy="trinity")

        assert await turns(parts, run) == [
            ("ann", "worker"), ("ann", "thinker"), ("ann", "verifier"),
        ]  # fmt: skip
        assert told in await parts.prompt(run, 2)
        assert run.answer == "It is ann's."


async def test_after_a_rejection_somebody_works_and_reads_why(tmp_path: Path):
    rejects = scripted("bob", verifier="REJECT: it is too short.")
    async with playing(tmp_path, WORK_THEN_CHECK, scripted("ann"), rejects) as (parts, _):
        run = await parts.ask(strategy="trinity")

        # Verifier and Worker in turn; with the roles' logits equal, a Thinker is first in line.
        roles = [role for _, role in await turns(parts, run)]
        assert roles == ["worker", "verifier", "thinker", "worker", "verifier"]
        assert "REJECT: it is too short." in await parts.prompt(run, 2)
        assert run.answer == "It is bob's."
        assert run.status == "finished"


async def test_a_verifier_before_any_answer_ends_the_episode_with_one_worker(tmp_path: Path):
    choose = by_thoughts(("bob", "verifier"))
    async with playing(tmp_path, choose, scripted("ann"), scripted("bob")) as (parts, _):
        run = await parts.ask(strategy="trinity")

        (only, accepted) = await parts.store.rounds(run.run_id)
        assert (run.answer, only.proposal.source) == ("It is bob's.", "fallback")
        assert accepted.plan is None
        assert "before there was an answer to verify" in only.proposal.refused[0]
        assert "one worker answered alone" in run.notes[0]


async def test_an_episode_has_five_turns_whatever_rounds_are_asked_for(tmp_path: Path):
    number = iter(range(100))
    ann = worker("ann", lambda prompt: f"Try {next(number)}.")
    choose = by_thoughts(("ann", "worker"))
    async with playing(tmp_path, choose, ann, scripted("bob")) as (parts, states):
        run = await parts.ask(strategy="trinity", rounds=1)

        assert (run.request.rounds, run.answer) == (TURNS, "Try 4.")
        assert len(await turns(parts, run)) == len(states.seen) == TURNS


async def test_what_is_said_again_word_for_word_stands_in_the_transcript_once(tmp_path: Path):
    choose = by_thoughts(("ann", "worker"))
    async with playing(tmp_path, choose, scripted("ann"), scripted("bob")) as (parts, states):
        run = await parts.ask(strategy="trinity")
        assert states.seen[-1].count("It is ann's.") == 1
        assert run.answer_step == TURNS - 1


@pytest.mark.parametrize("limit", [1, 2, 3])
async def test_the_last_step_of_a_limit_is_work_if_nothing_is_there_yet(tmp_path: Path, limit: int):
    choose = by_thoughts(("ann", "thinker"))
    thinks = scripted("ann", thinker="<suggested_role>thinker</suggested_role>")
    async with playing(tmp_path, choose, thinks, scripted("bob")) as (parts, _):
        run = await parts.ask(strategy="trinity", max_steps=limit)

        roles = [role for _, role in await turns(parts, run)]
        assert roles == ["thinker"] * (limit - 1) + ["worker"]
        assert run.answer == "It is ann's."


async def test_a_worker_that_is_not_allowed_is_not_chosen(tmp_path: Path):
    async with playing(tmp_path, WORK_THEN_CHECK, scripted("ann"), scripted("bob")) as (parts, _):
        run = await parts.ask(strategy="trinity", exclude=("ann",))
        assert await turns(parts, run) == [("bob", "worker"), ("bob", "verifier")]


async def test_a_pool_without_any_worker_of_the_head_is_named(tmp_path: Path):
    workers = (scripted("ann"), scripted("cy"))
    async with playing(tmp_path, WORK_THEN_CHECK, *workers) as (parts, _):
        run = await parts.ask(strategy="trinity", workers=("cy",))
        assert run.status == "failed"
        assert run.error is not None
        assert "The coordinator knows ann, bob, and this run's pool has cy" in run.error.message


async def test_a_step_that_nobody_can_do_ends_the_episode_with_what_is_there(tmp_path: Path):
    fails = scripted("bob", verifier=NO_KEY)
    ann = scripted("ann", verifier=NO_KEY)
    async with playing(tmp_path, WORK_THEN_CHECK, ann, fails) as (parts, _):
        run = await parts.ask(strategy="trinity")
        assert (run.status, run.answer) == ("finished", "It is ann's.")
        assert any("Step 1 failed" in note for note in run.notes)


async def test_the_best_answer_so_far_is_a_workers(tmp_path: Path):
    told = "Once more.<suggested_role>verifier</suggested_role>"
    hangs = worker("bob", by_subtask({THINK: told, CHECK: hanging()}))
    choose = by_thoughts(("ann", "worker"), ("bob", "thinker"))
    async with playing(tmp_path, choose, scripted("ann"), hangs) as (parts, _):
        run = await parts.ask(strategy="trinity", max_seconds=HANGING_S)
        assert len(await turns(parts, run)) == 3
        assert (run.status, run.answer, run.limit) == ("partial", "It is ann's.", "seconds")


async def test_what_the_coordinator_could_not_read_whole_is_said(tmp_path: Path):
    question = "Why is it so? " * 2000
    roomy = {"context_window": 32_000}
    workers = (worker("ann", ("It is so.",), card=roomy), worker("bob", ("ACCEPT",), card=roomy))
    async with playing(tmp_path, WORK_THEN_CHECK, *workers) as (parts, states):
        run = await parts.ask(question, strategy="trinity")
        assert any(note.startswith("The conductor could not read") for note in run.notes)
        assert len(states.seen[0]) < 8000


async def test_a_follow_up_is_read_after_what_it_follows(tmp_path: Path):
    async with playing(tmp_path, WORK_THEN_CHECK, scripted("ann"), scripted("bob")) as (
        parts,
        states,
    ):
        before = await parts.ask("Who?", strategy="trinity")
        await parts.ask("And why?", strategy="trinity", follow_up=before.run_id)
        assert states.seen[-2] == "user: Question: Who?\n\nAnswer: It is ann's.\n\nAnd why?"


async def test_a_state_of_another_model_is_an_error_that_says_so(tmp_path: Path):
    @dataclass
    class Short:
        model: str = "small"

        async def __call__(self, text: str) -> list[float]:
            return [1.0]

    policies = {"trinity": Trinity(head(model="small"), Short())}
    async with open_parts(tmp_path, scripted("ann"), policies=policies) as parts:
        run = await parts.ask(strategy="trinity")
        assert run.error is not None
        assert "reads states of 5 numbers, and small gives 1" in run.error.message


def test_a_plan_says_whether_its_reply_is_for_the_user(tmp_path: Path):
    assert Plan.model_validate_json('{"steps": [{"worker": "a", "subtask": "b"}]}').inner is False


@pytest.mark.parametrize(
    ("reply", "accepts"),
    [
        ("ACCEPT", True), ("accept: all right.", True), ("**ACCEPTED**", True), ("ACCEPT\n", True),
        ("REJECT", False), ("REVISE: ACCEPT is too much", False), ("I ACCEPT", False),
        ("ACCEPTABLE", False), ("42", False),
    ],
)  # fmt: skip
def test_a_verdict_is_the_first_word(reply: str, accepts: bool):
    assert is_accepting(reply) is accepts


@pytest.mark.parametrize(
    ("reply", "role"),
    [
        ("<suggested_role>verifier</suggested_role>", "verifier"),
        ("<SUGGESTED_ROLE>\nThinker</SUGGESTED_ROLE>", "thinker"),
        ("<suggested_role>boss</suggested_role>", "worker"),
        ("Nothing of the kind.", "worker"),
    ],
)
def test_a_thinker_that_suggests_no_role_wants_a_worker(reply: str, role: Role):
    following = Standing().after(Said(number=0, role="thinker", text=reply))
    assert isinstance(following, Standing)
    assert following.next_role == role


def test_a_step_that_somebody_wrote_is_work():
    assert [role_of(told) for told in (THINK, WORK, CHECK, "Do it.")] == [*ROLES, "worker"]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"weights": [[1.0]]}, "weights: has to have a row for each worker"),
        ({"deviation": [0.0] * 5}, "deviation: has to be above 0"),
        ({"mean": [0.0]}, "every row has to be as long"),
        ({"workers": ["ann", "ann"]}, "a name comes twice"),
        ({"roles": ["worker", "thinker", "verifier"]}, "roles: has to be thinker, worker"),
        ({"weigths": []}, "Extra inputs"),
        ({"version": 2}, "version"),
    ],
)
def test_a_file_that_is_no_head_says_what_is_wrong(
    tmp_path: Path, change: Mapping[str, JsonValue], why: str
):
    path = tmp_path / "head.json"
    path.write_text(json.dumps(json.loads(head().model_dump_json()) | change))
    with pytest.raises(SettingsError, match=f"head.json is no coordinator's head: .*{why}"):
        load_head(path)


def test_a_head_comes_back_from_its_file_as_it_was(tmp_path: Path):
    path = tmp_path / "head.json"
    path.write_text(head().model_dump_json())
    assert load_head(path) == head()


def _with_head(podium: CommandLine, **changes: object) -> CommandLine:
    path = podium.folder / "head.json"
    path.write_text(head(**changes).model_dump_json())
    return CommandLine(podium.folder, {"PODIUM_COORDINATOR": str(path)})


def test_a_head_of_another_pool_is_refused_at_the_start(podium: CommandLine):
    done = _with_head(podium).inside("ask", "Why?", "--strategy", "trinity")
    assert done.code != 0
    assert "was made for the workers ann, bob, and the pool lacks ann, bob" in done.err


def test_a_head_that_is_not_there_is_named(podium: CommandLine):
    nowhere = CommandLine(podium.folder, {"PODIUM_COORDINATOR": "nowhere.json"})
    assert "coordinator: there is no file nowhere.json" in nowhere.inside("ask", "Why?").err


def test_a_model_that_is_not_there_fails_the_run_with_its_name(podium: CommandLine):
    mine = _with_head(podium, workers=("boss", "hand"), model="nothing.gguf")
    done = mine.inside("ask", "Why?", "--strategy", "trinity")
    assert done.code != 0
    assert "'nothing.gguf' is neither a model of Podium" in done.err


def test_other_weights_of_the_model_are_refused(podium: CommandLine):
    mine = _with_head(podium, workers=("boss", "hand"), model="smollm2", sha256="0" * 64)
    assert "was made with other weights of smollm2" in mine.inside("ask", "Why?").err


def test_trinity_without_a_coordinator_says_what_to_set(podium: CommandLine):
    done = podium.inside("ask", "Why?", "--strategy", "trinity")
    assert "'trinity' needs the setting coordinator" in done.err


@pytest.mark.parametrize("is_set", [True, False])
async def test_it_is_offered_only_where_a_coordinator_is_set(tmp_path: Path, is_set: bool):
    policies = {"trinity": Trinity(head(), GivenStates(WORK_THEN_CHECK))} if is_set else None
    async with (
        open_parts(tmp_path, scripted("ann"), scripted("bob"), policies=policies) as parts,
        open_runs(parts.orchestrator) as runs,
        Client(build_server(runs, Settings(), reads_paths=False), mode="2026-07-28") as client,
    ):
        described = [
            str(tool.input_schema["properties"]["strategy"])
            for tool in (await client.list_tools()).tools
            if tool.name in ("orchestrate", "plan_only")
        ]
        assert ["trinity" in told for told in described] == [is_set, is_set]
        asked = {"question": "Why?", "strategy": "trinity"}
        answered = await client.call_tool("orchestrate", asked)
        assert answered.is_error is not is_set


def test_rounds_of_a_request_hold_what_an_episode_needs():
    assert RunRequest(question="Why?", rounds=TURNS).rounds == TURNS
