"""What a client is told when it calls with something wrong: one clear sentence, in both eras."""

from pathlib import Path

import pytest
from mcp import MCPError
from pydantic import JsonValue
from tests.app_client import ERAS, Era, surface
from tests.core_parts import worker

from podium.app.errors import sentence, unknown

WRONG: list[tuple[str, dict[str, JsonValue], str]] = [
    ("orchestrate", {"question": "x", "max_usd": -1},
     "max_usd: write a number of 0 or more (found -1)."),
    ("orchestrate", {"question": "x", "max_usd": "NaN"},
     'max_usd: write a number of 0 or more (found "NaN").'),
    ("get_run", {"run_id": "\ud800abcdef"}, "There is no run '\ufffdabcdef'"),
    ("get_run", {"run_id": "abcdef", "\ud800": 1}, "\ufffd"),
    ("orchestrate", {"question": "x", "max_seconds": "Infinity"},
     'max_seconds: write a number of 0 or more (found "Infinity").'),
    ("orchestrate", {"question": "x", "rounds": 11},
     "rounds: write a whole number from 0 to 10 (found 11)."),
    ("orchestrate", {"question": "x", "rounds": 1.5},
     "rounds: write a whole number from 0 to 10 (found 1.5)."),
    ("orchestrate", {"question": 5}, "question: write a text (found 5)."),
    ("orchestrate", {"question": None}, "question: write a text (found null)."),
    ("orchestrate", {"question": "x", "workers": "solo"},
     'workers: write a list of texts (found "solo").'),
    ("orchestrate", {"question": "x", "workers": [1]}, "workers[0]: write a text (found 1)."),
    ("orchestrate", {"question": "x", "local_only": "perhaps"},
     'local_only: write true or false (found "perhaps").'),
    ("orchestrate", {"question": "x", "plan": [{"worker": 5, "subtask": "y"}]},
     "plan[0].worker: write a text that is not empty (found 5)."),
    ("orchestrate", {"question": "x", "plan": [{"worker": "solo"}]},
     "plan[0].subtask: is missing; write a text that is not empty."),
    ("orchestrate", {"question": "x", "plan": [{"worker": "solo", "subtask": "y", "acess": []}]},
     "plan[0].acess: there is no such field; did you mean 'access'?"),
    ("orchestrate", {"question": "x", "plan": ["do it"]},
     'plan[0]: write an object with worker, subtask, access (found "do it").'),
    ("orchestrate", {"question": "x", "plan": [{"worker": "solo", "subtask": "y", "access": [[]]}]},
     "plan[0].access[0]: write a whole number (found [])."),
    ("orchestrate", {"question": "x", "files": {"name": "a"}},
     'files: write a list of objects with name, text, path (found {"name": "a"}).'),
    ("plan_only", {}, "question: is missing; write a text."),
    ("run_step", {"run_id": "abcdef", "access": "all"},
     'access: write a list of whole numbers (found "all").'),
    ("run_step", {"run_id": "abcdef", "step": -2},
     "step: write a whole number of -1 or more (found -2)."),
    ("get_run", {"run_id": "abcdef", "wait_s": 4000},
     "wait_s: write a number from 0 to 3600 (found 4000)."),
    ("get_run", {"run_id": "x" * 200, "page": -1},
     "page: write a whole number of 0 or more (found -1)."),
    ("search_runs", {"limit": 0}, "limit: write a whole number from 1 to 100 (found 0)."),
    ("search_runs", {"limit": 10**400}, "limit: write a whole number from 1 to 100 (found 1000"),
    ("list_workers", {"all": True}, "all: list_workers has no such argument; it has none."),
    ("orchestrat", {}, "There is no tool 'orchestrat'; did you mean 'orchestrate'? There are: "),
    ("zzz", {}, "There is no tool 'zzz'. There are: orchestrate, plan_only, "),
]  # fmt: skip


@pytest.mark.parametrize("era", ERAS)
async def test_wrong_arguments_are_named_with_what_to_write(tmp_path: Path, era: Era) -> None:
    async with surface(tmp_path, worker("solo"), era=era) as seen:
        for tool, arguments, words in WRONG:
            told = await seen.refused(tool, **arguments)
            assert told.startswith(words), (tool, arguments)
            assert "pydantic" not in told
            assert len(told) < 500
        assert not (await seen.call("list_workers")).is_error


async def test_several_wrong_arguments_are_told_at_once(tmp_path: Path) -> None:
    async with surface(tmp_path, worker("solo")) as seen:
        told = await seen.refused("orchestrate", question=5, max_usd=-1, rounds=11, max_steps=-3)
        assert told == (
            "question: write a text (found 5). "
            "rounds: write a whole number from 0 to 10 (found 11). "
            "max_usd: write a number of 0 or more (found -1)."
        )


@pytest.mark.parametrize("era", ERAS)
async def test_unknown_prompts_and_resources_say_which_there_are(tmp_path: Path, era: Era) -> None:
    async with surface(tmp_path, worker("solo"), era=era) as seen:
        client = seen.client
        with pytest.raises(MCPError, match=r"no prompt 'reviw'; did you mean 'review'.*delegate"):
            await client.get_prompt("reviw")
        with pytest.raises(MCPError, match=r"question: is missing\. Write what you want to know"):
            await client.get_prompt("delegate", {"question": " "})
        with pytest.raises(MCPError, match="quest: delegate has no such argument; did you mean"):
            await client.get_prompt("delegate", {"quest": "?"})
        with pytest.raises(MCPError, match=r"no resource 'podium://pol'; did you mean .*/pool"):
            await client.read_resource("podium://pol")


@pytest.mark.parametrize(
    "uri",
    [
        "podium://runs/..",
        "podium://runs/..%2F..%2Fetc%2Fpasswd",
        "podium://runs/%2Fetc%2Fpasswd",
        "podium://runs/%00",
        "podium://runs/C%3A%5Cboot.ini",
        "podium://runs/abcdef/steps/..",
        "podium://runs/abcdef/steps/%00",
        "podium://runs/~",
        "podium://runs/%25",
        "podium://runs/*",
        "podium://runs/abcdef/steps/0?page=%00",
        "file:///etc/passwd",
    ],
)
async def test_an_address_that_is_none_of_ours_reads_nothing(tmp_path: Path, uri: str) -> None:
    async with surface(tmp_path, worker("solo")) as seen:
        with pytest.raises(MCPError, match="There is no r"):
            await seen.client.read_resource(uri)
        assert "solo" in await seen.read("podium://pool")


@pytest.mark.parametrize(
    ("tail", "words"),
    [
        ("steps/one", "step: write a whole number"),
        ("steps/-1", "step: write a whole number"),
        ("steps/7", "has no step 7; it has steps 0 to 0"),
        ("steps/0?page=9", "page: there are pages 0 to 0 only"),
        ("steps/0?page=last", "page: write a whole number"),
    ],
)
async def test_a_step_that_is_not_there_is_told(tmp_path: Path, tail: str, words: str) -> None:
    async with surface(tmp_path, worker("solo")) as seen:
        done = await seen.call("orchestrate", question="?", strategy="single")
        assert done.structured_content is not None
        with pytest.raises(MCPError, match=words):
            await seen.client.read_resource(
                f"podium://runs/{done.structured_content['run_id']}/{tail}"
            )


def test_no_error_is_blank() -> None:
    assert sentence(TimeoutError()) == "It took too long and was given up; ask again."
    assert sentence(OSError()).startswith("It failed (OSError)")
    assert sentence(TimeoutError("The key file is locked.")) == "The key file is locked."
    assert unknown("tool", "x", ["a", "b"]) == "There is no tool 'x'. There are: a, b."
