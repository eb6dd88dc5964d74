import json
import os
import signal
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import anyio
import pytest
from pydantic import JsonValue
from tests.engine_processes import processes_of
from tests.recorded_call import RecordedAttempt, RecordedCall

from podium_workers.engine.client import Engine, EngineSettings, open_engine
from podium_workers.errors import (
    ContextTooLongError,
    EmptyReplyError,
    ModelFileError,
    SlowReplyError,
    UnreachableError,
    UnsupportedParameterError,
)
from podium_workers.local import LocalWorker
from podium_workers.weights.catalogue import lookup
from podium_workers.weights.pulling import path_of
from podium_workers.weights.sources import FileSource
from podium_workers.wire import TimeLimits
from podium_workers.worker import ModelSettings, Price, Prompt, Reply, WorkerCard

pytestmark = pytest.mark.local

WITHIN_S = 60
COLOURS = Prompt.of("Name three colours.")
LONG = Prompt.of("word " * 1900)
SCHEMA: dict[str, JsonValue] = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 20},
        "size": {"enum": ["small", "large"]},
    },
    "required": ["city", "size"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Generator[EngineSettings]:
    """One engine for all tests of this file, so that the model is loaded once."""
    state_dir = tmp_path_factory.mktemp("engine")
    yield EngineSettings(state_dir=state_dir, memory_limit_bytes=4_000_000_000, idle_s=10)
    for pid in processes_of(state_dir):
        os.kill(pid, signal.SIGTERM)


@pytest.fixture
async def engine(settings: EngineSettings) -> AsyncGenerator[Engine]:
    async with open_engine(settings) as opened:
        yield opened


@pytest.fixture
def worker(engine: Engine, local_models_dir: Path) -> LocalWorker:
    card = WorkerCard(
        name="tiny",
        kind="local",
        model="smollm2",
        where="local",
        context_window=2048,
        max_output_tokens=64,
        price=Price(input=0, output=0),
        parallel=2,
    )
    return LocalWorker(card, "smollm2", engine, local_models_dir)


@dataclass
class Meeting(RecordedAttempt):
    """An attempt that, once it has begun, waits until another one has."""

    begun: anyio.Event = field(default_factory=anyio.Event)
    other: anyio.Event = field(default_factory=anyio.Event)

    async def sent(self, request_id: str) -> None:
        await super().sent(request_id)
        self.begun.set()
        await self.other.wait()


@dataclass
class MeetingCall(RecordedCall):
    meeting: Meeting = field(default_factory=lambda: Meeting({}))

    @asynccontextmanager
    async def attempt(self, request: Mapping[str, JsonValue]) -> AsyncGenerator[RecordedAttempt]:
        try:
            yield self.meeting
        finally:
            self.meeting.ended = True


async def ask(
    worker: LocalWorker,
    prompt: Prompt = COLOURS,
    call: RecordedCall | None = None,
    **settings: object,
) -> Reply:
    with anyio.fail_after(WITHIN_S):
        return await worker.reply(
            prompt, ModelSettings.model_validate(settings), call or RecordedCall()
        )


async def test_a_reply_comes_with_its_record(worker: LocalWorker) -> None:
    call = RecordedCall()

    reply = await ask(worker, call=call, temperature=0, max_output_tokens=12)

    assert reply.text
    assert reply.model == "smollm2"
    assert reply.finish_reason == "length"
    assert reply.usage.output_tokens == 12
    assert reply.usage.input_tokens > 10
    assert reply.usage.cost_usd == 0
    (attempt,) = call.attempts
    assert attempt.reply == reply
    assert attempt.request_id
    assert attempt.usages == [reply.usage]
    assert attempt.request["model"] == "smollm2"
    assert "messages" not in attempt.request


async def test_an_unknown_price_is_unknown_and_not_zero(worker: LocalWorker) -> None:
    card = worker.card.model_copy(update={"price": None})
    call = RecordedCall()

    reply = await ask(replace(worker, card=card), call=call, max_output_tokens=1)

    assert reply.usage.cost_usd is None
    assert call.attempts[0].usages[-1].cost_usd is None


async def test_a_reply_that_comes_to_its_end_says_so(worker: LocalWorker) -> None:
    reply = await ask(worker, Prompt.of("Is snow white? Answer yes or no."), temperature=0)

    assert reply.finish_reason == "stop"


async def test_a_schema_holds_the_reply(worker: LocalWorker) -> None:
    prompt = Prompt.of("Describe the city of Paris.")

    reply = await ask(worker, prompt, temperature=0, response_schema=SCHEMA)

    value = json.loads(reply.text)
    assert set(value) == {"city", "size"}
    assert value["size"] in {"small", "large"}


async def test_a_limit_that_was_used_up_without_a_word_is_told_with_its_remedy(
    worker: LocalWorker,
) -> None:
    blank = 'root ::= " "+'

    with pytest.raises(EmptyReplyError, match="raise max_output_tokens") as caught:
        await ask(worker, grammar=blank, max_output_tokens=4)

    assert caught.value.used_up


async def test_an_empty_reply_that_came_to_its_end_has_used_up_nothing(
    worker: LocalWorker,
) -> None:
    with pytest.raises(EmptyReplyError) as caught:
        await ask(worker, grammar='root ::= " "', max_output_tokens=4)

    assert not caught.value.used_up


async def test_seed_and_temperature_reach_the_model(worker: LocalWorker) -> None:
    await ask(worker, max_output_tokens=1)  # so that all three find the prompt read already
    first = await ask(worker, temperature=1.5, seed=1, max_output_tokens=16)
    again = await ask(worker, temperature=1.5, seed=1, max_output_tokens=16)
    other = await ask(worker, temperature=1.5, seed=2, max_output_tokens=16)

    assert first.text == again.text
    assert first.text != other.text


async def test_a_workers_own_temperature_counts_where_a_call_asks_for_none(
    worker: LocalWorker,
) -> None:
    warm, call = replace(worker, temperature=0.2), RecordedCall()

    await ask(worker, call=call, max_output_tokens=1)
    await ask(warm, call=call, max_output_tokens=1)
    await ask(warm, call=call, max_output_tokens=1, temperature=0)

    assert [attempt.request["temperature"] for attempt in call.attempts] == [0, 0.2, 0]


async def test_a_prefix_that_was_read_before_is_not_read_again(worker: LocalWorker) -> None:
    system = "You plan. " + " ".join(f"Rule {n}: think of {n * 7}." for n in range(20))
    await ask(worker, Prompt.of("Begin.", system=system), max_output_tokens=1)

    reply = await ask(worker, Prompt.of("Go on.", system=system), max_output_tokens=1)

    assert reply.usage.cached_tokens > 0.8 * reply.usage.input_tokens


async def test_standing_instructions_are_part_of_the_prompt(worker: LocalWorker) -> None:
    role = "You name only colours that are in a sunset. " * 8
    card = worker.card.model_copy(update={"role": role})

    plain = await ask(worker, max_output_tokens=1)
    with_role = await ask(replace(worker, card=card), max_output_tokens=1)

    assert with_role.usage.input_tokens > plain.usage.input_tokens


async def test_a_prompt_larger_than_the_window_is_told_with_both_figures(
    worker: LocalWorker,
) -> None:
    with pytest.raises(ContextTooLongError, match=r"[2-9]\d\d\d tokens .* 2048") as caught:
        await ask(worker, Prompt.of("word " * 3000))

    assert caught.value.status == 400


async def test_a_schema_that_is_none_is_refused(worker: LocalWorker) -> None:
    with pytest.raises(UnsupportedParameterError, match="nonsense"):
        await ask(worker, response_schema={"type": "nonsense"})


@pytest.mark.parametrize(
    "reference",
    ["#/$defs/absent", "#absent", "https://schemas.example/a", "#/required/a", "#/title"],
)
async def test_a_schema_that_refers_to_what_it_does_not_hold_is_refused_before_the_call(
    worker: LocalWorker, reference: str
) -> None:
    inner: dict[str, JsonValue] = {"city": {"items": {"$ref": reference}}}
    call = RecordedCall()

    with pytest.raises(UnsupportedParameterError, match=reference.replace("$", r"\$")):
        await ask(worker, call=call, response_schema={**SCHEMA, "title": "a", "properties": inner})

    assert call.attempts == []


async def test_a_schema_may_refer_to_its_own_parts(worker: LocalWorker) -> None:
    schema: dict[str, JsonValue] = {
        "$ref": "#/$defs/yes",
        "$defs": {"yes": {"enum": ["yes"]}},
    }

    assert json.loads((await ask(worker, response_schema=schema)).text) == "yes"


async def test_the_deadline_ends_a_call_and_what_was_used_is_kept(worker: LocalWorker) -> None:
    await ask(worker, max_output_tokens=1)
    call = RecordedCall(deadline=anyio.current_time() + 6)

    with pytest.raises(SlowReplyError) as caught:
        await ask(worker, LONG, call)

    assert caught.value.limit == "total"
    (attempt,) = call.attempts
    assert attempt.error is caught.value
    assert attempt.usages[-1].input_tokens > 0


async def test_silence_before_the_first_word_has_a_limit(worker: LocalWorker) -> None:
    hasty = replace(worker, limits=TimeLimits(first_byte_s=0.001))

    with pytest.raises(SlowReplyError) as caught:
        await ask(hasty)

    assert caught.value.limit == "first_byte"


async def test_a_cancelled_call_keeps_what_was_used(worker: LocalWorker) -> None:
    call = MeetingCall()

    with anyio.fail_after(WITHIN_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.reply, LONG, ModelSettings(), call)
            await call.meeting.begun.wait()
            tasks.cancel_scope.cancel()

    assert call.meeting.ended
    assert call.meeting.reply is None
    assert 0 < call.meeting.usages[-1].input_tokens < 1000


async def test_a_model_that_dies_is_an_error_and_the_next_call_loads_it(
    worker: LocalWorker, engine: Engine
) -> None:
    await ask(worker, max_output_tokens=1)
    pid = await process_of_the_model(engine)
    errors: list[UnreachableError] = []

    async def call() -> None:
        try:
            await ask(worker, LONG)
        except UnreachableError as error:
            errors.append(error)

    with anyio.fail_after(WITHIN_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            while (await has_calls(engine)) == 0:
                pass  # each look is a request of its own
            os.kill(pid, signal.SIGKILL)

    assert len(errors) == 1
    assert errors[0].transient
    while pid in await processes_of_models(engine):
        pass  # each look is a request of its own
    assert (await ask(worker, max_output_tokens=1)).text
    assert await process_of_the_model(engine) != pid


async def process_of_the_model(engine: Engine) -> int:
    status = await engine.status()
    assert status is not None
    (pid,) = [model.pid for model in status.models if model.spec.context == 2048]
    assert pid is not None
    return pid


async def processes_of_models(engine: Engine) -> list[int | None]:
    status = await engine.status()
    assert status is not None
    return [model.pid for model in status.models]


async def has_calls(engine: Engine) -> int:
    status = await engine.status()
    assert status is not None
    return sum(model.calls for model in status.models)


async def test_a_missing_file_is_told(worker: LocalWorker, tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"absent\.gguf"):
        await ask(replace(worker, gguf=str(tmp_path / "absent.gguf")))


async def test_a_file_that_was_cut_off_is_told_with_the_engines_reason(
    worker: LocalWorker, local_models_dir: Path, tmp_path: Path
) -> None:
    whole = path_of(lookup("smollm2"), local_models_dir)
    cut = tmp_path / "cut.gguf"
    with whole.open("rb") as file:
        cut.write_bytes(file.read(40_000_000))

    with pytest.raises(ModelFileError, match=r"cut\.gguf cannot be loaded: .*corrupted"):
        await ask(replace(worker, gguf=str(cut)))


async def test_any_gguf_file_serves_by_its_path(
    worker: LocalWorker, local_models_dir: Path
) -> None:
    path = path_of(lookup("smollm2"), local_models_dir)

    assert (await ask(replace(worker, gguf=str(path)), max_output_tokens=1)).text


async def test_missing_weights_are_pulled_at_first_use(
    worker: LocalWorker, local_models_dir: Path, tmp_path: Path
) -> None:
    notes: list[str] = []
    source = FileSource(path_of(lookup("smollm2"), local_models_dir))
    fresh = replace(worker, models_dir=tmp_path, notify=notes.append, sources=[source])
    assert "98 MB" in await fresh.check()

    await ask(fresh, max_output_tokens=1)

    assert "98 MB" in notes[0]
    assert "Apache-2.0" in notes[0]
    assert any("% of 98 MB from file" in note for note in notes)
    assert str(tmp_path) in notes[-1]
    assert path_of(lookup("smollm2"), tmp_path).exists()
    assert str(tmp_path) in await fresh.check()


async def test_weights_that_cannot_be_pulled_are_an_error(
    worker: LocalWorker, tmp_path: Path
) -> None:
    source = FileSource(tmp_path / "absent.gguf")

    with pytest.raises(ModelFileError, match=r"absent\.gguf"):
        await ask(replace(worker, models_dir=tmp_path, sources=[source]))


async def test_two_calls_of_a_worker_run_side_by_side(worker: LocalWorker) -> None:
    first, second = anyio.Event(), anyio.Event()
    calls = [
        MeetingCall(meeting=Meeting({}, begun=first, other=second)),
        MeetingCall(meeting=Meeting({}, begun=second, other=first)),
    ]

    async with anyio.create_task_group() as tasks:
        for call in calls:
            tasks.start_soon(ask, worker, COLOURS, call)

    assert all(call.meeting.reply for call in calls)
