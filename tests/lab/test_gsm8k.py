"""The GSM8K benchmark on a scripted pool: its judging, its table, and going on after a stop."""

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from podium.cli.compose import Podium, open_podium
from podium.config import load_settings
from podium_lab.bench.answered import compared, either, read, table
from podium_lab.bench.gsm8k import (
    WAYS,
    Problem,
    Result,
    measure,
    problems_in,
)
from podium_lab.bench.scoring import last_number, median, plain_number, sign_test, wilson

PLAN = '{"steps": [{"subtask": "Work it out.", "worker": "program", "access": []}]}'
POOL = f"""
[[worker]]
name = "qwen-1.5b"
kind = "scripted"
replies = ["She has 17 left."]

[[worker.rule]]
when = "You lead a team"
reply = '{PLAN}'

[[worker]]
name = "program"
kind = "scripted"
replies = ["18\\n\\nThis was printed by the following program.\\n\\n```python\\nprint(9 * 2)\\n```"]
"""
DUCKS = Problem(id="0", question="How much does she make?", answer="18")
ROBES = Problem(id="1", question="How many bolts?", answer="17")


@asynccontextmanager
async def opened(folder: Path) -> AsyncGenerator[Mapping[str, Podium]]:
    """One scripted Podium under the names of all pools that the ways use."""
    (folder / "pool.toml").write_text(POOL)
    environment = {
        "PODIUM_POOL": str(folder / "pool.toml"),
        "PODIUM_STORE": str(folder / "podium.db"),
        "PODIUM_CONFIG": str(folder / "none.toml"),
    }
    settings = load_settings(environment).settings
    async with open_podium(settings, environment, quiet=True) as podium:
        yield dict.fromkeys((way.pool for way in WAYS.values()), podium)


async def test_every_way_is_asked_once_and_judged(tmp_path: Path):
    out = tmp_path / "results.jsonl"
    async with opened(tmp_path) as podiums:
        await measure(podiums, list(WAYS), [DUCKS], out)
    results = {result.way: result for result in read(out, Result)}
    assert {way: (result.right, result.found) for way, result in results.items()} == {
        "single": (False, "17"),
        "program": (True, "18"),
        "chain": (False, "17"),
        "conductor": (True, "18"),
        "conductor+program": (True, "18"),
    }
    assert results["chain"].workers == ("qwen-1.5b",) * 3
    assert results["program"].workers == ("program",)
    assert results["conductor"].plan_source == "model"
    assert not any(result.in_words for result in results.values())


async def test_a_command_that_was_stopped_goes_on_with_what_is_missing(tmp_path: Path):
    out = tmp_path / "results.jsonl"
    async with opened(tmp_path) as podiums:
        await measure(podiums, ["single"], [DUCKS], out)
        first = out.read_text()
        out.write_text(f'{first}{{"item": "1", "wa')
        await measure(podiums, ["single", "program"], [DUCKS, ROBES], out)
    assert out.read_text().startswith(first)
    assert [(result.item, result.way) for result in read(out, Result)] == [
        ("0", "single"), ("0", "program"), ("1", "single"), ("1", "program"),
    ]  # fmt: skip


def test_problems_are_taken_by_their_place(tmp_path: Path):
    data = tmp_path / "data.jsonl"
    rows = [{"id": str(n), "question": "?", "answer": "1", "solution": "s"} for n in range(9)]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert [problem.id for problem in problems_in(data, first=3, count=2)] == ["3", "4"]


def result(item: str, way: str, right: bool) -> Result:
    return Result(
        item=item, way=way, right=right, expected="1", found="1" if right else "2",
        status="finished", plan_source="fixed", workers=("qwen-1.5b",), seconds=10,
        input_tokens=100, output_tokens=20, run_id="r",
    )  # fmt: skip


def test_the_table_has_intervals_and_pairs():
    rights = {"single": (1, 0, 0, 0), "program": (0, 1, 1, 1)}
    results = [
        result(str(item), way, bool(right))
        for way, all_of in rights.items()
        for item, right in enumerate(all_of)
    ]
    assert [*table(results, tuple(WAYS)), either(results, ("single", "program"))] == [
        "| way | right | 95 % | seconds, median | tokens in | tokens out | steps |",
        "|---|---|---|---|---|---|---|",
        "| single | 1 of 4 | 5% to 70% | 10 | 400 | 80 | 4 qwen-1.5b |",
        "| program | 3 of 4 | 30% to 95% | 10 | 400 | 80 | 4 qwen-1.5b |",
        "",
        "- program against single, on 4 problems: right where single is wrong 3 times, wrong where "
        "it is right 1 times (sign test: p = 0.62).",
        "- single or program is right on 4 of 4.",
    ]


def test_only_problems_that_were_answered_in_every_way_are_compared():
    asked = [("0", "single"), ("0", "program"), ("1", "single"), ("2", "single"), ("2", "program")]
    left = compared([result(item, way, True) for item, way in asked])
    assert [(one.item, one.way) for one in left] == [asked[0], asked[1], *asked[3:]]
    assert compared([]) == ()


@pytest.mark.parametrize(
    ("answer", "number"),
    [
        ("It is 18.", "18"),
        ("First 3, then 4: $1,234.50 in all.", "1234.5"),
        ("#### 72\nSo 71 was wrong, and 3 more.", "72"),
        ("#### $1,200\nThat is 2 times 600.", "1200"),
        ("#### 1. Check\nIt is 366 in all.\n#### Step 2: answer\n366", "366"),
        ("Of -5 and - 3, it is -5.", "-5"),
        (r"\boxed{28.00}", "28"),
        ("42\n\nThis was printed by:\n```python\nprint(6 * 7)\n```", "42"),
        ("```python\nprint(7)\n```", "7"),
        ("Between 5-3", "3"),
        ("qwen2 says nothing", ""),
        ("", ""),
    ],
)
def test_the_number_that_an_answer_comes_to_is_found(answer: str, number: str):
    assert last_number(answer) == number


def test_numbers_have_one_form():
    assert [plain_number(text) for text in ("1,000", "3.0", "0.50", "-2", "-0.0", "007")] == [
        "1000", "3", "0.5", "-2", "0", "7",
    ]  # fmt: skip


def test_a_number_may_be_of_any_length():
    assert last_number(f"It is {'9' * 5000}.0") == "9" * 5000


def test_wilsons_interval_is_the_known_one_and_stays_within_bounds():
    assert [round(bound, 3) for bound in wilson(27, 40)] == [0.52, 0.799]
    assert wilson(0, 0) == (0.0, 1.0)
    assert wilson(0, 10)[0] == 0.0
    assert wilson(10, 10)[1] == 1.0


def test_the_sign_test_counts_both_tails():
    assert sign_test(0, 0) == 1.0
    assert sign_test(8, 1) == pytest.approx(20 / 512)
    assert sign_test(1, 8) == sign_test(8, 1)


def test_the_middle_of_an_even_count_is_between_two():
    assert (median([3, 1, 2]), median([4, 1, 2, 3]), median([])) == (2, 2.5, 0.0)
