import os
from collections.abc import Sequence

import anyio
import pytest
from tests.recorded_call import RecordedCall

from podium_workers.entries.named import PROGRAM_TOKENS
from podium_workers.errors import (
    NotInstalledError,
    OverloadedError,
    WorkerError,
)
from podium_workers.pool import health
from podium_workers.program import REPAIRS, ProgramWorker, programs_in
from podium_workers.programs.sandbox import Sandbox
from podium_workers.scripted import Line, ScriptedWorker
from podium_workers.worker import Call, Message, ModelSettings, Price, Prompt, Reply, Usage

PATH = os.environ.get("PATH", "")
WORKS = "Here it is.\n```python\nprint(6 * 7)\n```\n"
BREAKS = "```python\nprint(1 / 0)\n```"
SAYS_NOTHING = "```python\nanswer = 42\n```"
CHARACTERS_PER_TOKEN = 3
"""Of English and code, at the fewest."""


@pytest.fixture
async def sandbox() -> Sandbox:
    """A sandbox that works here."""
    found = Sandbox(PATH)
    try:
        await found.check()
    except NotInstalledError as error:
        pytest.skip(str(error))
    return found


def worker_of(
    replies: Sequence[Line], sandbox: Sandbox, *, seconds: int = 5
) -> tuple[ProgramWorker, ScriptedWorker]:
    """A worker for programs, and the one that writes them."""
    plain = ScriptedWorker.named("writer", replies)
    priced = plain.card.model_copy(update={"price": Price(input=1, output=1)})
    writer = ScriptedWorker(priced, replies)
    card = priced.model_copy(update={"name": "programs", "kind": "program"})
    return ProgramWorker(card, writer, sandbox, seconds), writer


async def ask(
    worker: ProgramWorker, call: RecordedCall | None = None, settings: ModelSettings | None = None
) -> Reply:
    with anyio.fail_after(60):
        return await worker.reply(
            Prompt.of("What is 6 times 7?", system="Be exact."),
            settings or ModelSettings(),
            call or RecordedCall(),
        )


async def test_the_reply_begins_with_what_the_program_printed_and_shows_the_program(
    sandbox: Sandbox,
):
    worker, writer = worker_of([WORKS], sandbox)
    reply = await ask(worker)
    assert reply.text == (
        "42\n\nThis was printed by the following program.\n\n```python\nprint(6 * 7)\n```"
    )
    assert (reply.finish_reason, reply.note) == ("stop", "")
    (asked,) = writer.seen
    assert asked.messages[0] == Message(role="system", text="Be exact.")
    assert asked.messages[1].text.startswith("What is 6 times 7?\n\nDo your subtask with a Python")


async def test_an_error_goes_back_with_the_program_that_made_it(sandbox: Sandbox):
    worker, writer = worker_of([BREAKS, WORKS], sandbox)
    call = RecordedCall()
    reply = await ask(worker, call)
    assert reply.text.startswith("42\n")
    first, second = writer.seen
    assert second.messages[:2] == first.messages
    assert second.messages[2] == Message(role="assistant", text=BREAKS)
    assert "ZeroDivisionError" in second.messages[3].text


async def test_what_is_added_to_a_prompt_stays_within_what_the_card_leaves_free(sandbox: Sandbox):
    breaks = f"```python\nraise ValueError({'why ' * 2000!r})\n```"
    worker, writer = worker_of([breaks, WORKS], sandbox)
    await ask(worker)
    asked, _, complaint = (message.text for message in writer.seen[1].messages[1:])
    added = len(asked) - len("What is 6 times 7?") + len(complaint)
    assert added / CHARACTERS_PER_TOKEN <= PROGRAM_TOKENS


async def test_the_usage_of_all_tries_adds_up_and_each_is_recorded_once(sandbox: Sandbox):
    worker, _ = worker_of([BREAKS, SAYS_NOTHING, WORKS], sandbox)
    call = RecordedCall()
    reply = await ask(worker, call)
    settled = [attempt.reply for attempt in call.attempts if attempt.reply]
    assert len(settled) == len(call.attempts) == 3
    assert reply.usage == sum((found.usage for found in settled), Usage())
    assert reply.usage.cost_usd


async def test_each_attempt_says_what_was_added_to_the_prompt(sandbox: Sandbox):
    worker, _ = worker_of([BREAKS, WORKS], sandbox)
    call = RecordedCall(resume_id="earlier")
    await ask(worker, call)
    first, second = (attempt.request for attempt in call.attempts)
    assert (first["trial"], second["trial"]) == (0, 1)
    assert str(first["added"]).startswith("Do your subtask with a Python program")
    assert "ZeroDivisionError" in str(second["added"])


@pytest.mark.parametrize(
    ("program", "complaint"),
    [
        ("while True: pass", "It had not ended after 1 seconds."),
        ("answer = 42", "It printed nothing."),
        ("print('   ')", "It printed nothing."),
        ("print('x' * 1_000_000)", "It printed more than 262144 bytes."),
        ("print(41", "SyntaxError"),
        ("import sys; sys.exit(3)", "It ended with an error."),
        ("import requests", "ModuleNotFoundError"),
    ],
)
async def test_whatever_gives_no_result_is_said_to_the_model(
    sandbox: Sandbox, program: str, complaint: str
):
    worker, writer = worker_of([f"```python\n{program}\n```", WORKS], sandbox, seconds=1)
    assert (await ask(worker)).text.startswith("42\n")
    assert complaint in writer.seen[1].messages[-1].text


async def test_after_the_last_repair_the_model_answers_in_words_and_a_note_says_so(
    sandbox: Sandbox,
):
    replies = [BREAKS] * (1 + REPAIRS) + ["In words: 42."]
    worker, writer = worker_of(replies, sandbox)
    reply = await ask(worker)
    assert reply.text == "In words: 42."
    assert "ZeroDivisionError" in reply.note
    assert len(writer.seen) == REPAIRS + 2
    assert writer.seen[-1] == Prompt.of("What is 6 times 7?", system="Be exact.")


async def test_a_reply_without_a_program_is_asked_for_one_and_then_taken(sandbox: Sandbox):
    worker, writer = worker_of(["It is 42.", "I said 42."], sandbox)
    reply = await ask(worker)
    assert (reply.text, len(writer.seen)) == ("I said 42.", 2)
    assert reply.note.startswith("No program gave a result")


async def test_a_program_that_was_cut_off_is_asked_for_again_shorter(sandbox: Sandbox):
    writer = CutOff("```python\nx = (1 +", WORKS)
    worker = ProgramWorker(writer.card, writer, sandbox)
    assert (await ask(worker)).text.startswith("42\n")
    assert "cut off" in writer.seen[1].messages[-1].text


class CutOff(ScriptedWorker):
    """Its first reply reaches the longest reply."""

    def __init__(self, *replies: str) -> None:
        super().__init__(ScriptedWorker.named("cut", replies).card, replies)

    async def reply(self, prompt: Prompt, settings: ModelSettings, call: Call) -> Reply:
        reply = await super().reply(prompt, settings, call)
        return reply.model_copy(
            update={"finish_reason": "length" if len(self.seen) == 1 else "stop"}
        )


async def test_a_long_output_is_cut_to_the_longest_reply_and_marked(sandbox: Sandbox):
    worker, _ = worker_of(["```python\nprint('x' * 5000)\n```"], sandbox)
    reply = await ask(worker, settings=ModelSettings(max_output_tokens=100))
    assert reply.text.startswith("x" * 300 + "\n[The program printed 5000 characters")
    assert "x" * 301 not in reply.text
    assert "5000" in reply.note


async def test_a_reply_that_is_held_to_a_schema_is_the_writers_own(sandbox: Sandbox):
    worker, writer = worker_of(['{"steps": []}'], sandbox)
    reply = await ask(worker, settings=ModelSettings(response_schema={"type": "object"}))
    assert reply.text == '{"steps": []}'
    assert writer.seen == [Prompt.of("What is 6 times 7?", system="Be exact.")]


async def test_an_error_of_the_writer_is_the_workers_error(sandbox: Sandbox):
    worker, _ = worker_of([OverloadedError("busy")], sandbox)
    with pytest.raises(OverloadedError):
        await ask(worker)


async def test_without_a_sandbox_no_model_is_asked_and_nothing_is_run():
    worker, writer = worker_of([WORKS], Sandbox("/nowhere"))
    with pytest.raises(WorkerError) as caught:
        await ask(worker)
    assert type(caught.value) is NotInstalledError
    assert writer.seen == []
    found = await health(worker)
    assert not found.ok
    assert "bubblewrap" in found.detail


async def test_a_health_check_names_sandbox_and_writer(sandbox: Sandbox):
    worker, _ = worker_of([WORKS], sandbox)
    found = await health(worker)
    assert found.ok
    assert "bubblewrap" in found.detail
    assert "writer writes them: answers from its script" in found.detail


@pytest.mark.parametrize(
    ("reply", "programs"),
    [
        ("```python\na\n```\ntext\n```py\nb\n```", ("b", "a\nb")),
        ("```\nprint(1)\n```\n```\n42\n```", ("print(1)",)),
        ("```python\nprint(1)\n```\nIt prints:\n```\n1\n```", ("print(1)",)),
        ("```Python\nprint(1)", ("print(1)",)),
        ("  ```python\n  print(1)\n  ```", ("print(1)",)),
        ("print(6 * 7)", ("print(6 * 7)",)),
        ("```json\n{}\n```", ()),
        ("The answer is 42.", ()),
        ("```python\n\n```", ()),
        ("```bash\nprint(1)\n```", ()),
    ],
)
def test_programs_are_found_in_replies(reply: str, programs: tuple[str, ...]):
    assert programs_in(reply) == programs


async def test_of_several_blocks_the_last_is_tried_and_then_all_together(sandbox: Sandbox):
    parts = (
        "```python\ndef double(x):\n    return 2 * x\n```\nand\n```python\nprint(double(21))\n```"
    )
    worker, writer = worker_of([parts], sandbox)
    assert (await ask(worker)).text.startswith("42\n")
    assert len(writer.seen) == 1
