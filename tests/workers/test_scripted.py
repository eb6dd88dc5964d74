import anyio
import pytest
from tests.recorded_call import RecordedCall

from podium_workers.errors import EmptyReplyError, OverloadedError, WorkerError
from podium_workers.scripted import Line, Rule, ScriptedWorker, by_rules
from podium_workers.worker import Message, ModelSettings, Prompt


async def ask(worker: ScriptedWorker, text: str = "?", call: RecordedCall | None = None) -> str:
    with anyio.fail_after(5):
        reply = await worker.reply(Prompt.of(text), ModelSettings(), call or RecordedCall())
    return reply.text


async def test_replies_come_in_order_and_the_last_one_repeats():
    worker = ScriptedWorker.named("a", ["one", "two"])
    assert [await ask(worker) for _ in range(4)] == ["one", "two", "two", "two"]


async def test_the_prompts_and_settings_that_it_saw_are_kept():
    worker = ScriptedWorker.named("a", ["one"])
    settings = ModelSettings(temperature=0.5)
    await worker.reply(Prompt.of("first"), settings, RecordedCall())
    await ask(worker, "second")
    assert worker.seen == [Prompt.of("first"), Prompt.of("second")]
    assert worker.asked == [settings, ModelSettings()]


async def test_a_script_may_be_a_function_of_the_prompt():
    def script(prompt: Prompt) -> Line:
        return OverloadedError("busy") if "hard" in prompt.messages[-1].text else "easy"

    worker = ScriptedWorker.named("a", script)
    assert await ask(worker, "simple") == "easy"
    with pytest.raises(OverloadedError):
        await ask(worker, "hard")


async def test_a_script_may_wait_so_that_two_workers_prove_that_they_overlap():
    first, second = anyio.Event(), anyio.Event()

    async def left(prompt: Prompt) -> Line:
        first.set()
        await second.wait()
        return "left"

    async def right(prompt: Prompt) -> Line:
        second.set()
        await first.wait()
        return "right"

    replies: list[str] = []

    async def one(worker: ScriptedWorker) -> None:
        replies.append(await ask(worker))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(one, ScriptedWorker.named("l", left))
            group.start_soon(one, ScriptedWorker.named("r", right))
    assert sorted(replies) == ["left", "right"]


async def test_a_gate_holds_the_reply_until_it_opens():
    gate = anyio.Event()
    worker = ScriptedWorker.named("a", ["one"], gate=gate)
    call = RecordedCall()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(ask, worker, "?", call)
            await anyio.wait_all_tasks_blocked()
            assert call.attempts[0].reply is None
            gate.set()
    assert call.attempts[0].reply is not None


async def test_an_attempt_is_recorded_from_its_request_to_its_reply():
    worker = ScriptedWorker.named("a", ["one", OverloadedError("busy")])
    call = RecordedCall()
    await worker.reply(Prompt.of("?"), ModelSettings(seed=1), call)
    with pytest.raises(WorkerError):
        await ask(worker, call=call)
    good, bad = call.attempts
    assert good.request == {"model": "scripted", "seed": 1}
    assert (good.request_id, bad.request_id) == ("a-0", "a-1")
    assert good.reply
    assert good.usages == [good.reply.usage]
    assert isinstance(bad.error, OverloadedError)


async def test_usage_is_plausible_and_costs_nothing():
    worker = ScriptedWorker.named("a", ["x" * 400])
    reply = await worker.reply(Prompt.of("y" * 4000), ModelSettings(), RecordedCall())
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (1001, 101)
    assert reply.usage.cost_usd == 0


async def test_an_empty_line_is_an_empty_reply_error():
    with pytest.raises(EmptyReplyError):
        await ask(ScriptedWorker.named("a", [" "]))


async def test_rules_come_before_replies_and_look_at_the_whole_prompt():
    rules = (Rule(when="weather", reply="sunny"), Rule(when="brief", reply="ok"))
    worker = ScriptedWorker.named("a", by_rules(rules, ["first", "last"]))
    assert await ask(worker, "The weather?") == "sunny"
    assert await ask(worker) == "first"
    prompt = Prompt(
        messages=(Message(role="system", text="Be brief."), Message(role="user", text="?"))
    )
    assert (await worker.reply(prompt, ModelSettings(), RecordedCall())).text == "ok"
    assert [await ask(worker), await ask(worker)] == ["last", "last"]


async def test_no_rule_that_fits_and_no_reply_is_an_error_that_says_so():
    worker = ScriptedWorker.named("a", by_rules([Rule(when="x", reply="y")], []))
    with pytest.raises(EmptyReplyError, match="No rule"):
        await ask(worker)
