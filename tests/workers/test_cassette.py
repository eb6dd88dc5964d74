"""Cassettes: what is recorded of a pool, and what is given again."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from tests.provider_simulator import Provider, openai_reply
from tests.recorded_call import RecordedCall

from podium_workers.cassette import Cassette, Failed, Recorder, key_of, load_cassette, marks_of
from podium_workers.errors import (
    EmptyReplyError,
    ManifestError,
    NotRecordedError,
    OverloadedError,
    RateLimitedError,
    RefusedError,
    SlowReplyError,
    UnsupportedParameterError,
    WorkerError,
)
from podium_workers.manifest import load_manifest, parse_manifest
from podium_workers.opening import open_pool
from podium_workers.pool import Pool, health
from podium_workers.replay import RecordingWorker, ReplayWorker, replay_pool, taped
from podium_workers.scripted import Script, ScriptedWorker
from podium_workers.worker import ModelSettings, Price, Prompt, Reply, Worker

LED = """
asked.max_steps = 2
asked.team = ["hand", "boss"]
asked.form = "lists"

[[worker]]
name = "trained"
kind = "scripted"
steps = false
replies = ["a plan"]
"""
ONE, OTHER = "0123456789ab", "fedcba987654"
PLAIN = ModelSettings(max_output_tokens=100)
MANIFEST = """
conductor = "hand"
asked.form = "lists"

[[worker]]
name = "boss"
kind = "scripted"
good_at = "everything"
replies = ["first", "second"]

[[worker]]
name = "hand"
kind = "scripted"
replies = ["hand's"]
"""


def marked(mark: str, subtask: str = "Do it.") -> Prompt:
    return Prompt.of(
        f"<overall_task_{mark}>\nWhy?\n</overall_task_{mark}>\n"
        f"What stands between tags with the mark {mark} is material. Your subtask: {subtask}"
    )


async def say(worker: Worker, prompt: str | Prompt, settings: ModelSettings = PLAIN) -> Reply:
    asked = Prompt.of(prompt) if isinstance(prompt, str) else prompt
    return await worker.reply(asked, settings, RecordedCall())


async def failing(worker: Worker, prompt: str | Prompt) -> WorkerError:
    with pytest.raises(WorkerError) as caught:
        await say(worker, prompt)
    return caught.value


@asynccontextmanager
async def opened(
    folder: Path, *, record: str | None = None, replay: str | None = None, text: str = MANIFEST
) -> AsyncGenerator[Pool]:
    async with open_pool(
        parse_manifest(text, "the test"),
        env={},
        models_dir=folder,
        state_dir=folder / "engine",
        memory_limit_bytes=2**30,
        notify=lambda text: None,
        record=folder / record if record else None,
        replay=folder / replay if replay else None,
    ) as pool:
        yield pool


async def record(path: Path, script: Script, *prompts: str) -> Cassette:
    """A cassette of one worker `ann` that was asked these prompts."""
    ann = ScriptedWorker.named("ann", script)
    pool = Pool(workers=(ann,), conductor="ann")
    recorded = await taped(pool, recorder=Recorder(path, lambda text: None), cassette=None)
    for prompt in prompts:
        try:
            await say(recorded.workers[0], prompt)
        except WorkerError:
            continue
    return load_cassette(path)


async def test_a_pool_is_recorded_and_given_again_without_its_manifest(tmp_path: Path):
    async with opened(tmp_path, record="tape.jsonl") as pool:
        assert (await say(pool.get("boss"), "What?")).text == "first"
        assert (await say(pool.get("hand"), "What?")).text == "hand's"
    again = replay_pool(tmp_path / "tape.jsonl")
    assert (again.names, again.conductor) == (("boss", "hand"), "hand")
    assert (again.asked.form, again.asked.shows) == ("lists", "cards")
    assert again.get("boss").card.good_at == "everything"
    assert (await say(again.get("boss"), "What?")).text == "first"
    assert (await say(again.get("hand"), "What?")).text == "hand's"


async def test_a_conductor_that_does_no_steps_is_recorded_and_given_again(tmp_path: Path):
    text = LED + MANIFEST.partition('asked.form = "lists"\n')[2]
    async with opened(tmp_path, record="tape.jsonl", text=text) as pool:
        assert (await say(pool.get("trained"), "Plan!")).text == "a plan"
    again = replay_pool(tmp_path / "tape.jsonl")
    assert (again.names, again.conductor) == (("boss", "hand"), "trained")
    assert (again.asked.max_steps, again.asked.team) == (2, ("hand", "boss"))
    assert (await say(again.get("trained"), "Plan!")).text == "a plan"
    async with opened(tmp_path, replay="tape.jsonl", text=text) as pool:
        assert (await say(pool.get("trained"), "Plan!")).text == "a plan"
        assert "answers from" in (await health(pool.get("trained"))).detail


async def test_a_replayed_call_costs_nothing_and_says_that_it_is_replayed(tmp_path: Path):
    priced = ScriptedWorker.named("ann", ["Yes."])
    card = priced.card.model_copy(update={"price": Price(input=5, output=9), "where": "hosted"})
    paid = ScriptedWorker(card, ["Yes."])
    tape = tmp_path / "tape.jsonl"
    pool = Pool(workers=(paid,), conductor="ann")
    recorded = await taped(pool, recorder=Recorder(tape, lambda text: None), cassette=None)
    first = await say(recorded.workers[0], "Is it so?")
    assert first.usage.cost_usd

    worker = replay_pool(tape).workers[0]
    call = RecordedCall()
    reply = await worker.reply(Prompt.of("Is it so?"), PLAIN, call)
    assert reply.usage == first.usage.model_copy(update={"cost_usd": 0.0})
    assert worker.card.price == Price(input=0, output=0)
    assert worker.card.where == "hosted", "what shapes plans stays as it was"
    attempt = call.attempts[0]
    assert (attempt.request["replayed"], attempt.request["max_output_tokens"]) == (True, 100)
    assert attempt.reply == reply


async def test_who_only_replays_holds_no_key_to_go_on_with_what_was_begun_live(tmp_path: Path):
    async with opened(tmp_path, record="t") as pool:
        assert pool.has_keys(pool.names)
    async with opened(tmp_path, replay="t") as pool:
        assert pool.has_keys(pool.names)
    assert not replay_pool(tmp_path / "t").has_keys(("boss",))


async def test_the_same_prompt_gets_its_replies_in_order_and_then_the_last_one(tmp_path: Path):
    tape = await record(tmp_path / "t", ["one", "two", "three"], "q", "q", "other")
    worker = ReplayWorker(tape.card("ann"), tape)
    assert [(await say(worker, "q")).text for _ in range(4)] == ["one", "two", "two", "two"]
    assert (await say(worker, "other")).text == "three"


async def test_a_miss_names_the_worker_and_the_prompt_and_what_to_do(tmp_path: Path):
    tape = await record(tmp_path / "t", ["one"], "q")
    call = RecordedCall()
    prompt = Prompt.of("You are one of several assistants. " * 9 + "Your subtask: Weigh it.")
    with pytest.raises(NotRecordedError) as caught:
        await ReplayWorker(tape.card("ann"), tape).reply(prompt, PLAIN, call)
    told = caught.value.message
    for words in ("'ann'", "You are one of", "Weigh it.", "record it again", "replay_misses"):
        assert words in told
    assert not call.attempts, "nothing was asked of anybody"


async def test_other_settings_are_another_call_but_another_seed_is_not(tmp_path: Path):
    tape = await record(tmp_path / "t", ["one"], "q")
    worker = ReplayWorker(tape.card("ann"), tape)
    seeded = PLAIN.model_copy(update={"seed": 99})
    assert (await say(worker, "q", seeded)).text == "one"
    for other in (
        PLAIN.model_copy(update={"temperature": 0.5}),
        PLAIN.model_copy(update={"max_output_tokens": 7}),
        PLAIN.model_copy(update={"response_schema": {"type": "object"}}),
    ):
        with pytest.raises(NotRecordedError):
            await say(worker, "q", other)


HOSTED = """
[[worker]]
name = "far"
kind = "openai"
model = "any"
base_url = "URL/v1"
temperature = 0.3
effort = "low"

[[worker]]
name = "programs"
kind = "program"
by = "far"
"""


@pytest.mark.parametrize("name", ["far", "programs"])
@pytest.mark.parametrize(
    "change", [('"low"', '"high"'), ("0.3", "0.7"), ('/v1"', '/v2"'), ('effort = "low"', "")]
)
async def test_a_reply_is_not_given_for_one_of_a_worker_that_is_set_otherwise(
    tmp_path: Path, provider: Provider, name: str, change: tuple[str, str]
):
    provider.answers(openai_reply("Yes."))
    schema = PLAIN.model_copy(update={"response_schema": {"type": "object"}})  # no program either
    text = HOSTED.replace("URL", provider.url)
    assert text.replace(*change) != text
    async with opened(tmp_path, record="t", text=text) as pool:
        await say(pool.get(name), "Weigh it.", schema)
    assert (await say(replay_pool(tmp_path / "t").get(name), "Weigh it.", schema)).text == "Yes."
    alone = ReplayWorker.of(str(tmp_path / "t"), name, name="other")
    assert (await say(alone, "Weigh it.", schema)).text == "Yes."
    for manifest, asked in ((text, 1), (text.replace(*change), 2)):
        async with opened(tmp_path, replay="t", text=manifest) as pool:
            await say(pool.get(name), "Weigh it.", schema)
        assert len(provider.requests) == asked


FIRST_FORM = """\
{"cassette":1}
{"pool":{"workers":[{"name":"ann","kind":"scripted","model":"scripted","where":"local",\
"context_window":8192}],"conductor":"ann"}}
{"call":{"key":"9c164a75345b868022b8f9b0ce2ddc9a775ed5033f51cc57db7d7a8891691ce9",\
"worker":"ann","model":"scripted","prompt":{"messages":[{"role":"user","text":"q"}]},\
"settings":{"max_output_tokens":100},"reply":{"text":"one","usage":{},"model":"scripted"},\
"seconds":0.1,"at":1.0}}
"""


async def test_a_cassette_of_the_first_form_is_read_and_gone_on_with(tmp_path: Path):
    path = tmp_path / "t"
    path.write_text(FIRST_FORM)
    assert (await say(replay_pool(path).workers[0], "q")).text == "one"
    await record(path, ["two"], "r")
    await record(path, ["three"], "s")
    versions = [json.loads(line).get("cassette") for line in path.read_text().splitlines()]
    assert versions == [1, None, None, 2, None, None, None]
    ann = replay_pool(path).workers[0]
    assert [(await say(ann, prompt)).text for prompt in "qrs"] == ["one", "two", "three"]


def test_a_key_is_made_without_the_random_marks_of_a_run():
    card = ScriptedWorker.named("ann", ["x"]).card
    assert marks_of(marked(ONE)) == (ONE,)
    assert key_of(card, marked(ONE), PLAIN) == key_of(card, marked(OTHER), PLAIN)
    assert key_of(card, marked(ONE), PLAIN) != key_of(card, marked(ONE, "Undo it."), PLAIN)
    named = card.model_copy(update={"name": "bob"})
    assert key_of(named, marked(ONE), PLAIN) != key_of(card, marked(ONE), PLAIN)


def test_marks_that_were_made_harmless_in_a_nested_prompt_are_marks_too():
    card = ScriptedWorker.named("ann", ["x"]).card
    keys = {
        key_of(card, Prompt.of(f'<step_{a} number="1">‹file_{b} name>{b}'), PLAIN)
        for a, b in ((ONE, OTHER), (OTHER, ONE))
    }
    assert len(keys) == 1
    swapped = Prompt.of(f'<step_{ONE} number="1">‹file_{ONE} name>{ONE}')
    assert key_of(card, swapped, PLAIN) not in keys


async def test_a_reply_that_repeats_its_prompts_mark_is_given_with_the_new_one(tmp_path: Path):
    ann = ScriptedWorker.named("ann", [f"<reply_{ONE}>\nIt is so.\n</reply_{ONE}>"])
    path = tmp_path / "t"
    recorder = Recorder(path, lambda text: None)
    await recorder.begin(Pool(workers=(ann,), conductor="ann"))
    await say(RecordingWorker(ann, recorder), marked(ONE))
    reply = await say(replay_pool(path).workers[0], marked(OTHER))
    assert reply.text == f"<reply_{OTHER}>\nIt is so.\n</reply_{OTHER}>"


async def test_a_failure_is_given_again_as_what_it_was(tmp_path: Path):
    refused = RefusedError("It will not.", status=403)
    tape = await record(tmp_path / "t", [refused, "Well."], "q", "r")
    worker = ReplayWorker(tape.card("ann"), tape)
    error = await failing(worker, "q")
    assert (type(error), str(error), error.status) == (RefusedError, "It will not.", 403)
    assert (await say(worker, "r")).text == "Well."


async def test_a_passing_failure_that_was_tried_again_is_left_out(tmp_path: Path):
    busy = OverloadedError("Busy.")
    tape = await record(tmp_path / "t", [busy, busy, "Well."], "q", "q", "q")
    worker = ReplayWorker(tape.card("ann"), tape)
    assert (await say(worker, "q")).text == "Well."


async def test_the_last_failure_of_a_call_stays(tmp_path: Path):
    tape = await record(tmp_path / "t", [OverloadedError("Busy.")], "q", "q", "q")
    worker = ReplayWorker(tape.card("ann"), tape)
    assert isinstance(await failing(worker, "q"), OverloadedError)


def every_kind(base: type[WorkerError] = WorkerError) -> list[type[WorkerError]]:
    return [kind for inner in base.__subclasses__() for kind in (inner, *every_kind(inner))]


@pytest.mark.parametrize("kind", every_kind())
def test_every_kind_of_failure_comes_back_as_it_was(kind: type[WorkerError]):
    errors: dict[type[WorkerError], WorkerError] = {
        SlowReplyError: SlowReplyError("No.", limit="idle"),
        UnsupportedParameterError: UnsupportedParameterError("No.", status=400, parameter="top_p"),
        EmptyReplyError: EmptyReplyError("No.", used_up=True),
        RateLimitedError: RateLimitedError("No.", status=429, retry_after_s=30.0),
    }
    error = errors.get(kind) or kind("No.")
    kept = Failed.model_validate_json(Failed.of(error).model_dump_json())
    again = kept.error
    assert type(again) is kind
    assert str(again) == "No."
    assert vars(again) == vars(error) | {"retry_after_s": None}


async def test_what_a_cassette_lacks_is_asked_of_the_live_worker_and_recorded(tmp_path: Path):
    async with opened(tmp_path, record="t") as pool:
        await say(pool.get("boss"), "old")
    async with opened(tmp_path, record="t", replay="t") as pool:
        boss = pool.get("boss")
        assert (await say(boss, "old")).text == "first"
        assert (await say(boss, "new")).text == "first", "the live worker begins its own script"
        assert (await health(boss)).ok
    again = replay_pool(tmp_path / "t")
    assert (await say(again.get("boss"), "new")).text == "first"
    assert len((tmp_path / "t").read_text().splitlines()) == 4


async def test_a_cassette_is_readable_json_lines_and_nobody_elses(tmp_path: Path):
    await record(tmp_path / "deep" / "t", ["one"], "q")
    path = tmp_path / "deep" / "t"
    version, pool, call = map(json.loads, path.read_text().splitlines())
    assert version == {"cassette": 2}
    assert pool["pool"]["workers"][0]["name"] == "ann"
    assert call["call"]["reply"]["text"] == "one"
    assert path.stat().st_mode & 0o077 == 0


async def test_a_second_recording_is_added_and_a_changed_pool_is_noted(tmp_path: Path):
    path = tmp_path / "t"
    await record(path, ["one"], "q")
    await record(path, ["two"], "q")
    assert len(path.read_text().splitlines()) == 4
    async with opened(tmp_path, record="t"):
        pass
    assert load_cassette(path).pool.conductor == "hand"
    assert len(path.read_text().splitlines()) == 5


async def test_parallel_replies_each_get_a_line_of_their_own(tmp_path: Path):
    ann = ScriptedWorker.named("ann", lambda prompt: prompt.messages[-1].text * 1000)
    recorder = Recorder(tmp_path / "t", lambda text: None)
    await recorder.begin(Pool(workers=(ann,), conductor="ann"))
    worker = RecordingWorker(ann, recorder)
    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            for number in range(50):
                group.start_soon(say, worker, f"{number} ")
    again = replay_pool(tmp_path / "t").workers[0]
    assert (await say(again, "7 ")).text == "7 " * 1000


async def test_a_line_that_a_crash_tore_off_is_left_out_and_cut_off(tmp_path: Path):
    path = tmp_path / "t"
    await record(path, ["one"], "q")
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"call":{"key":"ab')
    assert (await say(replay_pool(path).workers[0], "q")).text == "one"
    await record(path, ["two"], "r")
    assert path.read_bytes().startswith(whole)
    assert (await say(replay_pool(path).workers[0], "r")).text == "two"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "no cassette"),
        ("{}\n", "no cassette"),
        ('{"cassette": 1}\n', "record again"),
        ('{"cassette": 3}\n', "newer Podium"),
        ('{"cassette": 1}\nnonsense\n', "line 2"),
        ('{"cassette": 1, "extra": 2}\n', "line 1"),
    ],
)
def test_what_is_no_cassette_is_an_error_that_names_the_file(
    tmp_path: Path, content: str, words: str
):
    path = tmp_path / "tape.jsonl"
    path.write_text(content)
    with pytest.raises(ManifestError, match=words) as caught:
        load_cassette(path)
    assert str(path) in str(caught.value)


def test_a_cassette_that_is_missing_is_an_error(tmp_path: Path):
    with pytest.raises(ManifestError, match="no such cassette"):
        replay_pool(tmp_path / "none")


async def test_a_file_that_is_something_else_is_not_written_over(tmp_path: Path):
    (tmp_path / "notes.txt").write_text("Buy milk.\n")
    with pytest.raises(ManifestError):
        async with opened(tmp_path, record="notes.txt"):
            pass
    assert (tmp_path / "notes.txt").read_text() == "Buy milk.\n"


async def test_a_place_where_nothing_can_be_written_is_told_at_once(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ManifestError, match="cannot be written"):
        async with opened(tmp_path, record="file/tape"):
            pass


async def test_a_reply_that_cannot_be_recorded_is_kept_and_told_once(tmp_path: Path):
    told: list[str] = []
    ann = ScriptedWorker.named("ann", ["one"])
    recorder = Recorder(tmp_path / "folder" / "t", told.append)
    await recorder.begin(Pool(workers=(ann,), conductor="ann"))
    (tmp_path / "folder" / "t").unlink()
    (tmp_path / "folder").rmdir()
    worker = RecordingWorker(ann, recorder)
    assert (await say(worker, "q")).text == "one"
    assert (await say(worker, "q")).text == "one"
    assert len(told) == 1
    assert "not recorded" in told[0]


async def test_a_manifest_can_name_a_recorded_worker(tmp_path: Path):
    await record(tmp_path / "tape.jsonl", ["one"], "q")
    (tmp_path / "pool.toml").write_text(
        '[[worker]]\nname = "ann"\nkind = "cassette"\nfile = "tape.jsonl"\n'
        '[[worker]]\nname = "again"\nkind = "cassette"\nfile = "tape.jsonl"\nworker = "ann"\n'
    )
    manifest = load_manifest(tmp_path / "pool.toml")
    assert manifest.workers[0].card.model == "scripted"
    async with open_pool(
        manifest,
        env={},
        models_dir=tmp_path,
        state_dir=tmp_path,
        memory_limit_bytes=2**30,
        notify=lambda text: None,
    ) as pool:
        assert [(await say(pool.get(name), "q")).text for name in ("ann", "again")] == ["one"] * 2
        assert str(tmp_path / "tape.jsonl") in (await health(pool.get("ann"))).detail


async def test_a_manifest_that_names_a_worker_nobody_recorded_says_who_was(tmp_path: Path):
    await record(tmp_path / "tape.jsonl", ["one"], "q")
    text = f'[[worker]]\nname = "bob"\nkind = "cassette"\nfile = "{tmp_path / "tape.jsonl"}"\n'
    with pytest.raises(ManifestError, match=r"no worker 'bob'; it was recorded of ann"):
        async with opened(tmp_path, text=text):
            pass
