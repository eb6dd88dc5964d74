"""Command-line assistants: real programs, small scripts that print what the real ones print.

The outputs are those of Claude Code 2.1.197, Codex 0.171.0 and Gemini CLI 0.61.0 in front of a
simulated provider; the last tests run the real ones, where they are installed.
"""

import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import anyio
import pytest
from anyio import to_thread
from tests.provider_simulator import Provider, anthropic_reply
from tests.recorded_call import RecordedCall

from podium_workers.command import ERROR_BYTES, NESTED, CommandWorker, open_command
from podium_workers.entries.named import CommandEntry
from podium_workers.errors import (
    AuthenticationError,
    ContextTooLongError,
    EmptyReplyError,
    NotInstalledError,
    OutOfCreditError,
    OverloadedError,
    ProgramFailedError,
    RateLimitedError,
    RefusedError,
    SlowReplyError,
    UnknownModelError,
    UnreachableError,
    UnsupportedParameterError,
    WorkerError,
)
from podium_workers.pool import health
from podium_workers.retry import reply_with_retry
from podium_workers.worker import Message, ModelSettings, Prompt, Reply, Usage

QUESTION = "What is 2 + 2?"
CLAUDE_INIT = {"type": "system", "subtype": "init", "session_id": "s-1", "model": "claude-x[1m]"}
CLAUDE_SPOKE = {
    "type": "assistant",
    "message": {
        "model": "claude-x",
        "content": [{"type": "text", "text": "It is four."}],
        "usage": {"input_tokens": 10, "output_tokens": 1},
    },
    "session_id": "s-1",
}
CLAUDE_RESULT = {
    "type": "result",
    "subtype": "success",
    "is_error": False,
    "api_error_status": None,
    "result": "It is four.",
    "stop_reason": "end_turn",
    "session_id": "s-1",
    "total_cost_usd": 0.0004925,
    "usage": {
        "input_tokens": 10,
        "cache_creation_input_tokens": 3,
        "cache_read_input_tokens": 5,
        "output_tokens": 7,
    },
    "modelUsage": {
        "claude-x[1m]": {
            "inputTokens": 20,
            "outputTokens": 14,
            "cacheReadInputTokens": 10,
            "cacheCreationInputTokens": 6,
            "costUSD": 0.0004925,
        }
    },
}
CODEX_USAGE = {
    "input_tokens": 11,
    "cached_input_tokens": 4,
    "cache_write_input_tokens": 0,
    "output_tokens": 7,
    "reasoning_output_tokens": 2,
}
CODEX = (
    {"type": "thread.started", "thread_id": "t-1"},
    {"type": "item.completed", "item": {"id": "0", "type": "error", "message": "No metadata."}},
    {"type": "turn.started"},
    {"type": "item.completed", "item": {"id": "1", "type": "agent_message", "text": "Let me see."}},
    {"type": "item.completed", "item": {"id": "2", "type": "agent_message", "text": "It is four."}},
    {"type": "turn.completed", "usage": CODEX_USAGE},
)
GEMINI_TOKENS = {"prompt": 12, "candidates": 6, "total": 21, "cached": 5, "thoughts": 3, "tool": 0}
GEMINI = {
    "session_id": "g-1",
    "response": "It is four.",
    "stats": {
        "models": {
            "gemini-lite": {"tokens": {"prompt": 2, "candidates": 1, "total": 3}},
            "gemini-x": {"tokens": GEMINI_TOKENS},
        }
    },
}


def lines(*events: object) -> str:
    return "".join(json.dumps(event) + "\n" for event in events)


def program(folder: Path, name: str, body: str) -> Path:
    """An executable Python script; the variable `asked` holds what it was given."""
    path = folder / name
    head = f"#!{sys.executable} -IS\nimport os, sys, json, signal, subprocess, time\n"
    path.write_text(f"{head}asked = sys.stdin.read()\n{body}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def that_prints(
    folder: Path, name: str, output: str, *, errors: str = "", code: int = 0
) -> CommandWorker:
    """A worker whose preset *name* is a script that prints this and ends with that code."""
    body = (
        f"sys.stdout.write({output!r})\nsys.stdout.flush()\n"
        f"sys.stderr.write({errors!r})\nsys.exit({code})"
    )
    program(folder, name, body)
    return worker(folder, preset=name)


def worker(
    place: Path, variables: Mapping[str, str] | None = None, /, **entry: object
) -> CommandWorker:
    """The worker of a manifest's entry, with *place* in front of the path of programs."""
    given: dict[str, object] = {"name": "helper", "kind": "command"} | entry
    path = f"{place}{os.pathsep}{os.environ['PATH']}"
    made = CommandEntry.model_validate(given)
    return open_command(made, {"PATH": path, "HOME": str(place)} | dict(variables or {}))


def scripted(place: Path, body: str, /, **entry: object) -> CommandWorker:
    """A worker for a program of any other kind."""
    command: Sequence[str] = (str(program(place, "any-program", body)),)
    return worker(place, command=command, **entry)


async def ask(
    asked: CommandWorker,
    call: RecordedCall | None = None,
    settings: ModelSettings | None = None,
    prompt: Prompt | None = None,
) -> Reply:
    with anyio.fail_after(30):
        return await asked.reply(
            prompt or Prompt.of(QUESTION), settings or ModelSettings(), call or RecordedCall()
        )


async def failure(asked: CommandWorker) -> WorkerError:
    with pytest.raises(WorkerError) as caught:
        await ask(asked)
    return caught.value


async def test_claude_codes_reply_has_text_model_tokens_of_all_models_and_cost(tmp_path: Path):
    claude = that_prints(tmp_path, "claude", lines(CLAUDE_INIT, CLAUDE_SPOKE, CLAUDE_RESULT))
    call = RecordedCall()
    reply = await ask(claude, call)
    usage = Usage(input_tokens=36, cached_tokens=10, output_tokens=14, cost_usd=0.0004925)
    assert reply == Reply(text="It is four.", usage=usage, model="claude-x")
    (attempt,) = call.attempts
    assert (attempt.request_id, attempt.usages, attempt.reply) == ("s-1", [usage], reply)


async def test_codex_reply_is_its_last_message_with_its_tokens_and_an_unknown_cost(tmp_path: Path):
    reply = await ask(that_prints(tmp_path, "codex", lines(*CODEX)))
    assert reply.text == "It is four."
    assert reply.usage == Usage(
        input_tokens=11, cached_tokens=4, output_tokens=7, reasoning_tokens=2, cost_usd=None
    )


async def test_gemini_clis_reply_has_the_tokens_of_all_its_models(tmp_path: Path):
    noisy = "Loaded cached credentials.\n" + json.dumps(GEMINI, indent=2)
    reply = await ask(that_prints(tmp_path, "gemini", noisy))
    assert (reply.text, reply.model) == ("It is four.", "gemini-x")
    assert reply.usage == Usage(
        input_tokens=14, cached_tokens=5, output_tokens=10, reasoning_tokens=3, cost_usd=None
    )


async def test_any_program_replies_with_what_it_prints_without_colours(tmp_path: Path):
    asked = scripted(tmp_path, "print('\\x1b[32mYou asked:\\x1b[0m', asked.strip())")
    reply = await ask(asked)
    assert reply.text == f"You asked: {QUESTION}"
    assert reply.usage.cost_usd is None


async def test_a_local_program_costs_nothing(tmp_path: Path):
    reply = await ask(scripted(tmp_path, "print(4)", where="local"))
    assert reply.usage == Usage(cost_usd=0.0)


async def test_tokens_without_a_cost_are_priced_by_the_manifest(tmp_path: Path):
    that_prints(tmp_path, "codex", lines(*CODEX))
    priced = worker(tmp_path, preset="codex", price={"input": 1.0, "output": 10.0})
    assert (await ask(priced)).usage.cost_usd == pytest.approx((11 + 70) / 1e6)


async def test_the_prompt_is_standard_input_with_the_role_in_front(tmp_path: Path):
    asked = scripted(tmp_path, "print(json.dumps(asked), len(sys.argv))", role="Be brief.")
    prompt = Prompt(
        messages=(
            Message(role="user", text="$(rm -rf ~); `true` 'quoted' \"twice\" \\ größer"),
            Message(role="assistant", text="Hm."),
        )
    )
    reply = await ask(asked, prompt=prompt)
    text, count = reply.text.rsplit(" ", 1)
    assert json.loads(text) == (
        "Be brief.\n\n$(rm -rf ~); `true` 'quoted' \"twice\" \\ größer\n\nHm."
    )
    assert count == "1"


async def test_a_schema_is_asked_for_in_the_prompt(tmp_path: Path):
    asked = scripted(tmp_path, "print(asked)")
    reply = await ask(asked, settings=ModelSettings(response_schema={"type": "object"}))
    assert reply.text.endswith('satisfy this JSON Schema:\n{"type": "object"}')


async def test_the_environment_is_exactly_what_is_allowed(tmp_path: Path):
    env = {
        "OPENAI_API_KEY": "sk-secret-0",
        "ANTHROPIC_API_KEY": "sk-secret-1",
        "PODIUM_STORE": "/x",
        "LD_PRELOAD": "",
        "LANG": "C.UTF-8",
        "HTTPS_PROXY": "http://proxy:3128",
        "MY_TOKEN": "tok-0123456789",
        "CLAUDE_CONFIG_DIR": "/elsewhere",
    }
    body = "print(json.dumps({'result': json.dumps(dict(os.environ)), 'type': 'result', "
    program(tmp_path, "claude", body + "'subtype': 'success'}))")
    asked = worker(tmp_path, env, preset="claude", env=("MY_TOKEN",))
    seen = json.loads((await ask(asked)).text)
    seen.pop("LC_CTYPE", None)  # Python's own
    assert set(seen) == {
        "PATH", "HOME", "LANG", "HTTPS_PROXY", "MY_TOKEN", "CLAUDE_CONFIG_DIR",
        "CLAUDE_CODE_SAFE_MODE", "DISABLE_AUTOUPDATER", NESTED,
    }  # fmt: skip
    assert seen[NESTED] == "1"
    assert seen["MY_TOKEN"] == "[key]", "a secret that is passed on is struck from replies"


async def test_it_works_in_an_empty_folder_that_is_removed(tmp_path: Path):
    asked = scripted(tmp_path, "open('left', 'w').close()\nprint(os.getcwd(), os.listdir())")
    folder, _, listing = (await ask(asked)).text.partition(" ")
    assert listing == "['left']"
    assert not await anyio.Path(folder).exists()


async def test_it_works_in_the_folder_that_the_manifest_names(tmp_path: Path):
    named = tmp_path / "project"
    named.mkdir()
    reply = await ask(scripted(tmp_path, "print(os.getcwd())", folder=str(named)))
    assert reply.text == str(named)


async def test_an_assistant_without_a_folder_gets_no_tools(tmp_path: Path):
    body = "print(json.dumps({'type': 'result', 'subtype': 'success', 'result': str(sys.argv)}))"
    program(tmp_path, "claude", body)
    pure = (
        await ask(worker(tmp_path, preset="claude", model="opus", args=["--effort", "low"]))
    ).text
    assert "'--tools', ''" in pure
    assert "'--strict-mcp-config'" in pure
    assert pure.endswith("'--model', 'opus', '--effort', 'low']")
    assert "--tools" not in (await ask(worker(tmp_path, preset="claude", folder="."))).text


async def test_finished_work_whose_form_is_unknown_is_kept_as_it_was_printed(tmp_path: Path):
    for name in ("claude", "codex", "gemini"):
        reply = await ask(that_prints(tmp_path, name, "It is four, \x1b[1mof course\x1b[0m.\n"))
        assert reply.text == "It is four, of course."
        assert "could not be read" in reply.note
        assert reply.usage.cost_usd is None


async def test_words_before_a_missing_result_are_kept(tmp_path: Path):
    broken = lines(CLAUDE_INIT, CLAUDE_SPOKE) + '{"type":"result","subtype":"succ'
    reply = await ask(that_prints(tmp_path, "claude", broken))
    assert reply.text == "It is four."
    assert "could not be read to its end" in reply.note


async def test_a_bad_exit_after_a_whole_reply_loses_nothing(tmp_path: Path):
    whole = lines(CLAUDE_INIT, CLAUDE_SPOKE, CLAUDE_RESULT)
    reply = await ask(that_prints(tmp_path, "claude", whole, errors="hook failed", code=1))
    assert reply.text == "It is four."
    assert "exit code 1" in reply.note


async def test_a_reply_that_reached_the_models_limit_says_so(tmp_path: Path):
    cut = CLAUDE_RESULT | {"stop_reason": "max_tokens"}
    assert (await ask(that_prints(tmp_path, "claude", lines(cut)))).finish_reason == "length"


async def test_a_program_that_prints_nothing_is_an_empty_reply(tmp_path: Path):
    assert type(await failure(scripted(tmp_path, "print()"))) is EmptyReplyError


def claude_error(words: str, status: int | None = None) -> str:
    changes: dict[str, object] = {
        "is_error": True,
        "result": words,
        "api_error_status": status,
        "modelUsage": {},
    }
    return lines(CLAUDE_INIT, CLAUDE_RESULT | changes)


def codex_error(words: str) -> str:
    return lines(
        CODEX[0],
        {"type": "error", "message": words},
        {"type": "turn.failed", "error": {"message": words}},
    )


def gemini_error(words: str) -> str:
    error = {"type": "Error", "message": words, "code": 41}
    return json.dumps({"session_id": "g-1", "error": error}, indent=2)


GEMINI_LOGIN = "Please set an Auth method in your settings.json or specify GEMINI_API_KEY"
CODEX_LIMIT = "You've hit your usage limit. Upgrade to Pro or try again in 2 hours 5 minutes."


@pytest.mark.parametrize(
    ("name", "output", "kind"),
    [
        ("claude", claude_error("Not logged in · Please run /login"), AuthenticationError),
        ("claude", claude_error("Invalid API key · Please run /login"), AuthenticationError),
        ("claude", claude_error("API Error: 401 ...", 401), AuthenticationError),
        ("claude", claude_error("Credit balance is too low"), OutOfCreditError),
        ("claude", claude_error("Claude AI usage limit reached|4102444800"), RateLimitedError),
        ("claude", claude_error("You've hit your session limit · resets 3pm"), RateLimitedError),
        ("claude", claude_error("You've hit your weekly limit"), OutOfCreditError),
        ("claude", claude_error("API Error: Request rejected (429)", 429), RateLimitedError),
        ("claude", claude_error("API Error: Overloaded", 529), OverloadedError),
        ("claude", claude_error("Prompt is too long"), ContextTooLongError),
        ("claude", claude_error("Unable to connect to API (ECONNREFUSED)"), UnreachableError),
        ("claude", claude_error("An issue with the selected model (x)."), UnknownModelError),
        ("claude", lines(CLAUDE_RESULT | {"stop_reason": "refusal"}), RefusedError),
        ("claude", lines({"type": "result", "subtype": "error_max_turns"}), ProgramFailedError),
        ("codex", codex_error("unexpected status 401 Unauthorized"), AuthenticationError),
        ("codex", codex_error("last status: 429 Too Many Requests"), RateLimitedError),
        ("codex", codex_error(CODEX_LIMIT), RateLimitedError),
        ("codex", codex_error("stream disconnected: failed to lookup address"), UnreachableError),
        ("codex", codex_error("Quota exceeded. Check your plan and billing."), OutOfCreditError),
        ("codex", codex_error("The model 'x' is not supported here"), UnknownModelError),
        ("gemini", gemini_error(GEMINI_LOGIN), AuthenticationError),
        ("gemini", gemini_error("Resource exhausted: try again later"), RateLimitedError),
        ("gemini", "", ProgramFailedError),
    ],
)  # fmt: skip
async def test_what_an_assistant_says_of_a_failure_is_understood(
    tmp_path: Path, name: str, output: str, kind: type[WorkerError]
):
    error = await failure(that_prints(tmp_path, name, output, errors="a crash", code=1))
    assert type(error) is kind
    assert error.message.count("\n") == 0


async def test_a_failure_by_exit_code_0_is_a_failure_all_the_same(tmp_path: Path):
    claude = that_prints(tmp_path, "claude", claude_error("Not logged in · Please run /login"))
    error = await failure(claude)
    assert type(error) is AuthenticationError
    assert "type /login" in error.message


async def test_a_limit_that_is_reached_says_when_to_come_back(tmp_path: Path):
    error = await failure(that_prints(tmp_path, "codex", codex_error(CODEX_LIMIT), code=1))
    assert error.retry_after_s == 2 * 3600 + 5 * 60


async def test_usage_of_a_failure_is_recorded(tmp_path: Path):
    failed = CLAUDE_RESULT | {"subtype": "error_during_execution", "result": ""}
    call = RecordedCall()
    with pytest.raises(ProgramFailedError):
        await ask(that_prints(tmp_path, "claude", lines(failed), code=1), call)
    (attempt,) = call.attempts
    assert [usage.output_tokens for usage in attempt.usages] == [14]


@pytest.mark.parametrize(
    ("complaint", "runs"),
    [("boom", 1), ("Error: fetch failed (ENOTFOUND)", 3), ("429 Too Many Requests", 3)],
)
async def test_work_that_failed_for_a_reason_nobody_knows_is_not_done_again(
    tmp_path: Path, complaint: str, runs: int
):
    log = tmp_path / "log"
    body = f"open({str(log)!r}, 'a').write('ran\\n')\nsys.exit({complaint!r})"
    asked = scripted(tmp_path, body)
    with anyio.fail_after(30), pytest.raises(WorkerError):
        await reply_with_retry(
            asked, Prompt.of(QUESTION), ModelSettings(), RecordedCall(), first_wait_s=0
        )
    assert log.read_text() == "ran\n" * runs


async def test_an_old_program_that_does_not_know_an_argument_is_named(tmp_path: Path):
    claude = that_prints(tmp_path, "claude", "", errors="error: unknown option '--tools'", code=1)
    assert type(await failure(claude)) is UnsupportedParameterError


async def test_an_error_holds_the_end_of_what_was_complained_of_without_secrets(tmp_path: Path):
    said = "'x' * 100_000 + ' key ' + os.environ['MY_TOKEN'] + ' sk-abc123456789 end'"
    body = f"sys.stderr.write({said})"
    asked = worker(
        tmp_path,
        {"MY_TOKEN": "tok-0123456789"},
        command=(str(program(tmp_path, "any-program", f"{body}\nsys.exit(7)")),),
        env=("MY_TOKEN",),
    )
    error = await failure(asked)
    assert error.message.endswith("key [key] [key] end")
    assert "exit code 7" in error.message
    assert len(error.message) < ERROR_BYTES


async def test_a_program_that_is_not_there_says_what_to_install(tmp_path: Path):
    asked = worker(tmp_path, {"PATH": str(tmp_path)}, preset="codex")
    error = await failure(asked)
    assert type(error) is NotInstalledError
    assert not error.transient
    assert "npm install -g @openai/codex" in error.message
    assert not (await health(asked)).ok


async def test_a_folder_that_is_not_there_is_an_error_before_anything_runs(tmp_path: Path):
    error = await failure(scripted(tmp_path, "print(4)", folder=str(tmp_path / "gone")))
    assert type(error) is NotInstalledError
    assert "gone" in error.message


async def test_a_podium_started_by_an_assistant_starts_none_itself(tmp_path: Path):
    that_prints(tmp_path, "claude", lines(CLAUDE_RESULT))
    call = RecordedCall()
    with pytest.raises(RefusedError) as caught:
        await ask(worker(tmp_path, {NESTED: "1"}, preset="claude"), call)
    assert NESTED in caught.value.message
    assert call.attempts == []


WITH_CHILDREN = (
    "code = 'import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)'\n"
    "children = [subprocess.Popen([sys.executable, '-IS', '-c', code]) for _ in range(2)]\n"
    "open({pids!r}, 'w').write(' '.join(str(child.pid) for child in children))\n"
)


def alive(pids: Path) -> bool:
    """Whether any of the processes whose numbers stand in *pids* still runs."""
    return any(runs(pid) for pid in pids.read_text().split())


def runs(pid: str) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


async def until_gone(pids: Path) -> None:
    with anyio.fail_after(10):
        while await to_thread.run_sync(alive, pids):
            await anyio.lowlevel.checkpoint()


linux = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


@linux
async def test_a_cancelled_call_leaves_no_child_behind(tmp_path: Path):
    pids, ready = tmp_path / "pids", tmp_path / "ready"
    os.mkfifo(ready)
    body = WITH_CHILDREN.format(pids=str(pids))
    body += f"signal.signal(signal.SIGTERM, signal.SIG_IGN)\nopen({str(ready)!r}, 'w').write('x')\n"
    asked = scripted(tmp_path, f"{body}time.sleep(600)")
    call = RecordedCall()
    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            group.start_soon(ask, asked, call)
            await to_thread.run_sync(ready.read_text)
            group.cancel_scope.cancel()
    await until_gone(pids)
    assert call.attempts[0].ended


@linux
async def test_what_a_program_leaves_running_neither_holds_the_reply_nor_stays(tmp_path: Path):
    pids = tmp_path / "pids"
    asked = scripted(tmp_path, WITH_CHILDREN.format(pids=str(pids)) + "print('done')")
    assert (await ask(asked)).text == "done"
    await until_gone(pids)


@linux
async def test_a_process_that_escaped_its_group_does_not_hold_the_reply(tmp_path: Path):
    body = "subprocess.Popen(['sleep', '15'], start_new_session=True)\nprint('done')"
    with anyio.fail_after(10):
        assert (await ask(scripted(tmp_path, body))).text == "done"


async def test_silence_before_the_first_words_is_limited(tmp_path: Path):
    error = await failure(scripted(tmp_path, "time.sleep(600)", first_byte_s=0.5))
    assert isinstance(error, SlowReplyError)
    assert error.limit == "first_byte"


async def test_silence_after_them_is_limited(tmp_path: Path):
    body = "print('It', flush=True)\ntime.sleep(600)"
    error = await failure(scripted(tmp_path, body, idle_s=0.5))
    assert isinstance(error, SlowReplyError)
    assert error.limit == "idle"


def that_lingers(folder: Path, name: str, output: str, /, **entry: object) -> CommandWorker:
    """A worker whose preset *name* prints this, and then does not end by itself."""
    body = f"open({str(folder / 'pid')!r}, 'w').write(str(os.getpid()))\n"
    body += f"sys.stdout.write({output!r})\nsys.stdout.flush()\ntime.sleep(600)"
    program(folder, name, body)
    return worker(folder, preset=name, **entry)


CLAUDE = lines(CLAUDE_INIT, CLAUDE_SPOKE, CLAUDE_RESULT)
CLAUDE_BEGAN = json.dumps(CLAUDE_SPOKE, separators=(",", ":")) + "\n"
CLAUDE_HOOK = {"type": "system", "subtype": "hook_started"}


@linux
@pytest.mark.parametrize(
    ("name", "output"),
    [("claude", CLAUDE), ("codex", lines(*CODEX)), ("gemini", json.dumps(GEMINI, indent=2))],
)
async def test_an_assistant_that_has_replied_and_lingers_is_not_waited_for(
    tmp_path: Path, name: str, output: str
):
    call = RecordedCall()
    reply = await ask(that_lingers(tmp_path, name, output), call)
    assert (reply.text, reply.note) == ("It is four.", "")
    assert call.attempts[0].usages == [reply.usage]
    assert reply.usage.output_tokens > 0
    await until_gone(tmp_path / "pid")


async def test_an_assistant_that_goes_on_after_an_end_is_heard_to_the_next(tmp_path: Path):
    first = lines(CLAUDE_RESULT | {"result": "Let me see."}, CLAUDE_SPOKE)
    body = f"sys.stdout.write({first!r})\nsys.stdout.flush()\ntime.sleep(1.5)\n"
    program(tmp_path, "claude", f"{body}print({lines(CLAUDE_RESULT)!r})")
    assert (await ask(worker(tmp_path, preset="claude"))).text == "It is four."


async def test_a_reply_is_used_although_a_time_limit_struck_after_it(tmp_path: Path):
    call = RecordedCall()
    said = CLAUDE_BEGAN + lines(CLAUDE_RESULT, CLAUDE_HOOK)
    reply = await ask(that_lingers(tmp_path, "claude", said, idle_s=0.3), call)
    assert reply.text == "It is four."
    assert "time limit" in reply.note
    assert call.attempts[0].usages == [reply.usage]
    assert reply.usage.cost_usd == CLAUDE_RESULT["total_cost_usd"]


async def test_a_failure_is_told_although_a_time_limit_struck_after_it(tmp_path: Path):
    failed = CLAUDE_RESULT | {"subtype": "error_max_turns", "is_error": True, "result": ""}
    call = RecordedCall()
    said = CLAUDE_BEGAN + lines(failed, CLAUDE_HOOK)
    with pytest.raises(ProgramFailedError):
        await ask(that_lingers(tmp_path, "claude", said, idle_s=0.3), call)
    assert [usage.output_tokens for usage in call.attempts[0].usages] == [14]


async def test_a_call_given_up_after_the_reply_keeps_what_was_used(tmp_path: Path):
    call = RecordedCall()
    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            group.start_soon(ask, that_lingers(tmp_path, "claude", lines(CLAUDE_RESULT)), call)
            while not call.attempts or not call.attempts[0].request_id:
                await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()
    assert [usage.output_tokens for usage in call.attempts[0].usages] == [14]


async def test_the_deadline_of_a_call_holds(tmp_path: Path):
    body = "while True:\n    print('on', flush=True)\n    time.sleep(0.01)"
    with pytest.raises(SlowReplyError) as caught:
        await ask(scripted(tmp_path, body), RecordedCall(deadline=anyio.current_time() + 1))
    assert caught.value.limit == "total"


async def test_an_assistant_that_only_tries_to_connect_is_silent(tmp_path: Path):
    again = json.dumps({"type": "error", "message": "Reconnecting..."}, separators=(",", ":"))
    body = f"while True:\n    print({again!r}, flush=True)\n    time.sleep(0.01)"
    program(tmp_path, "codex", body)
    error = await failure(worker(tmp_path, preset="codex", first_byte_s=1.0))
    assert isinstance(error, SlowReplyError)
    assert error.limit == "first_byte"


async def test_a_program_that_never_reads_its_prompt_may_reply_all_the_same(tmp_path: Path):
    path = tmp_path / "deaf"
    path.write_text("#!/bin/sh\nexec 0<&-\necho done\n")
    path.chmod(0o755)
    asked = worker(tmp_path, command=(str(path),))
    assert (await ask(asked, prompt=Prompt.of("x" * 1_000_000))).text == "done"


async def test_an_endless_reply_is_cut_and_says_so(tmp_path: Path):
    asked = scripted(tmp_path, "sys.stdout.write('four ' * 1_200_000)")
    reply = await ask(asked)
    assert len(reply.text) <= 4 << 20
    assert reply.finish_reason == "length"
    assert "left out" in reply.note


async def test_of_endless_json_the_end_counts(tmp_path: Path):
    body = (
        "for _ in range(5000): print(json.dumps({'type': 'user', 'content': 'x' * 1000}))\n"
        f"print(json.dumps({json.loads(json.dumps(CLAUDE_RESULT))!r}))"
    )
    program(tmp_path, "claude", body)
    assert (await ask(worker(tmp_path, preset="claude"))).text == "It is four."


@pytest.mark.parametrize(("code", "ok"), [(0, True), (1, False)])
async def test_a_health_check_asks_whether_it_is_logged_in(tmp_path: Path, code: int, ok: bool):
    found = await health(that_prints(tmp_path, "codex", "Logged in using ChatGPT", code=code))
    assert found.ok is ok
    assert ("Logged in" in found.detail) is ok
    assert ("codex login" in found.detail) is not ok


async def test_of_any_other_program_a_health_check_only_knows_that_it_is_there(tmp_path: Path):
    found = await health(scripted(tmp_path, "print(4)"))
    assert (found.ok, found.detail) == (True, f"{tmp_path / 'any-program'} is here")


@pytest.mark.parametrize("name", ["claude", "codex", "gemini"])
async def test_the_real_assistant_without_a_login_says_so(name: str, tmp_path: Path):
    """Codex is asked by its health check only: in front of no network it tries for ever."""
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")
    real = worker(tmp_path / "nowhere", {"HOME": str(tmp_path)}, preset=name)
    if name != "gemini":
        found = await health(real)
        assert (found.ok, "not logged in" in found.detail) == (False, True)
    if name != "codex":
        assert type(await failure(real)) is AuthenticationError


async def test_the_real_claude_code_answers_and_starts_no_server_of_the_users(
    provider: Provider, tmp_path: Path
):
    if shutil.which("claude") is None:
        pytest.skip("claude is not installed")
    started = anyio.Path(tmp_path / "started")
    server = {"command": "/usr/bin/touch", "args": [str(started)]}
    (tmp_path / ".claude.json").write_text(json.dumps({"mcpServers": {"podium": server}}))
    provider.answers(anthropic_reply("It is ", "four."))
    names = ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY")
    variables = dict(zip(names, (provider.url, "sk-0123456789abc"), strict=True))
    real = worker(tmp_path, {"HOME": str(tmp_path)} | variables, preset="claude", env=names)
    call = RecordedCall()

    reply = await ask(real, call)

    assert (reply.text, reply.note) == ("It is four.", "")
    assert reply.usage.output_tokens > 0
    assert call.attempts[0].request_id
    assert any(QUESTION in json.dumps(body) for body in provider.bodies)
    assert not await started.exists()
