"""Full-text search through the store: what is found, in which order, and that any text is safe."""

import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podium.database import connect
from podium.migrations import migrate
from podium.plan import Plan, Proposal, Step
from podium.search import find, put_question
from podium.store import Store, open_store
from podium.trace import Run, RunRequest, StepResult


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    async with open_store(":memory:") as store:
        yield store


async def ask(
    store: Store, run_id: str, question: str, *replies: str, principal: str = "me", at: float = 0.0
) -> Run:
    """A stored run with a finished step for each reply."""
    run = Run(
        run_id=run_id, principal=principal, request=RunRequest(question=question), pool=(),
        fence="f", seed=0, status="running", created_at=at,
    )  # fmt: skip
    await store.create_run(run)
    if replies:
        steps = tuple(Step(worker="a", subtask=f"subtask{n}") for n in range(len(replies)))
        await store.save_round(run_id, 0, Proposal(next=Plan(steps=steps), source="model"))
    for number, reply in enumerate(replies):
        await store.save_step(run_id, step(number, reply))
    return run


def step(number: int, reply: str, version: int = 0) -> StepResult:
    return StepResult(
        number=number, version=version, round=0, worker="a", planned_worker="a",
        subtask=f"subtask{number}", access=(), status="finished", reply=reply,
    )  # fmt: skip


async def found(store: Store, text: str) -> list[str]:
    return [hit.summary.run_id for hit in await store.search(text)]


CODE = "def parse_plan(text):\n    return PlanError != None  # see std::vector<int>, gpt-4o"
JAPANESE = "東京タワーは高いです。ガラスもある。"
CHINESE = "量子计算的基本原理𠮷"
KOREAN = "한국어를 배우고 있습니다"
THAI = "ภาษาไทยไม่เว้นวรรค"
ACCENTS = "Une leçon naïve à Zürich"
SIGNS = "a => b, 100% sure 🎉🦙 C++ \x00 end"
QUOTES = 'What\'s up? He said "stop it now" (twice) AND left; NOT me'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (CODE, "parse_plan"),
        (CODE, "plan"),
        (CODE, "PLANERR"),
        (CODE, "parse_plan(text)"),
        (CODE, "std::vector<int>"),
        (CODE, "gpt-4o"),
        (CODE, "gpt-4"),
        (CODE, "!="),
        (CODE, "return none"),
        (JAPANESE, "東京"),
        (JAPANESE, "タワー"),
        (JAPANESE, "京"),
        (JAPANESE, "高い です"),
        (JAPANESE, "高いです。"),
        (JAPANESE, "カ\u3099ラス"),
        (CHINESE, "量子"),
        (CHINESE, "基本原理"),
        (CHINESE, "𠮷"),
        (KOREAN, "한국"),
        (KOREAN, "국어"),
        (THAI, "ไทย"),
        (ACCENTS, "lecon naive"),
        (ACCENTS, "ZURICH"),
        (ACCENTS, "lec\u0327on"),
        (SIGNS, "=>"),
        (SIGNS, "🎉"),
        (SIGNS, "🦙 sure"),
        (SIGNS, "%"),
        (SIGNS, "100%"),
        (SIGNS, "C++"),
        (SIGNS, "\x00end"),
        (QUOTES, "what's up?"),
        (QUOTES, '"stop it"'),
        (QUOTES, '"stop'),
        (QUOTES, "(twice)"),
        (QUOTES, "AND"),
        (QUOTES, "NOT me"),
        (QUOTES, "left;"),
        (QUOTES, "said*"),
        (QUOTES, "-stop"),
        (QUOTES, "^what"),
        (QUOTES, ""),
        (QUOTES, " \t\n"),
    ],
)
async def test_words_of_any_script_and_code_are_found(store: Store, text: str, words: str) -> None:
    await ask(store, "in-question", text)
    await ask(store, "in-reply", "Something else?", text)

    assert await found(store, words) == ["in-reply", "in-question"]


@pytest.mark.parametrize(
    "words",
    [
        "missing", "parse_plans", "京東", "子量", "🎈", "<=", '"now it"', "what missing", "wha t",
        "NEAR(what up)", "question : what", "text:what", "{x y}: z", "'; DROP TABLE runs; --", "\\",
        '"', '""""', "((", "))((", "((((", "AND AND", "OR", "*", "^", "%_%", "x\ud800y", "\ud800",
        "\x00", "\x00x\x00missing",
    ],
)  # fmt: skip
async def test_what_looks_like_an_operator_is_only_text(store: Store, words: str) -> None:
    for number, text in enumerate((CODE, JAPANESE, CHINESE, SIGNS.replace("%", ""))):
        await ask(store, f"run{number}", text)

    hits = await found(store, words)

    everything = ["run3", "run2", "run1", "run0"]
    assert hits == (everything if not words.strip("\x00 ") else [])


async def test_a_query_of_any_length_is_safe(store: Store) -> None:
    await ask(store, "long", "word " * 40)

    assert await found(store, "word " * 50_000) == ["long"]
    assert await found(store, "w" * 100_000) == []
    assert await found(store, '"' * 10_001) == []
    assert await found(store, "( " * 10_000) == []


@pytest.fixture(scope="module")
def connection() -> Iterator[sqlite3.Connection]:
    with closing(connect(":memory:", busy_timeout_s=1)) as connection:
        migrate(connection, ":memory:")
        yield connection


@given(words=st.text(st.characters(), max_size=40), text=st.text(st.characters(), max_size=80))
def test_any_text_can_be_stored_and_looked_for(
    connection: sqlite3.Connection, words: str, text: str
) -> None:
    put_question(connection, 1, text, words)

    assert list(find(connection, words, "TRUE", {})) == []


async def test_all_words_have_to_occur_in_one_place(store: Store) -> None:
    await ask(store, "apart", "apples", "pears", "plums")
    await ask(store, "together", "apples and pears")

    assert await found(store, "pears apples") == ["together"]


async def test_the_answer_is_found_until_it_is_taken_back(store: Store) -> None:
    run = await ask(store, "asked", "Which city?")
    answered = run.model_copy(update={"answer": "Lisbon", "status": "finished"})

    await store.save_run(answered)
    assert await found(store, "city lisbon") == ["asked"]

    await store.save_run(answered.model_copy(update={"answer": "Porto"}))
    assert await found(store, "lisbon") == []
    assert await found(store, "porto") == ["asked"]

    await store.save_run(run)
    assert await found(store, "porto") == []
    assert await found(store, "city") == ["asked"]


async def test_of_an_edited_step_the_newest_version_is_found(store: Store) -> None:
    await ask(store, "edited", "Which fruit?", "apple")

    await store.save_step("edited", step(0, "pear", version=1))
    await store.save_step("edited", step(0, "a late apple", version=0))

    assert await found(store, "pear") == ["edited"]
    assert await found(store, "apple") == []


async def test_subtasks_are_found_with_their_finished_step(store: Store) -> None:
    await ask(store, "done", "Question?", "one", "two")

    assert await found(store, "subtask1 two") == ["done"]


async def test_a_run_is_one_hit_however_often_it_has_the_word(store: Store) -> None:
    await ask(store, "often", "word", "word", "word", "word")

    assert await found(store, "word") == ["often"]


async def test_hits_are_newest_first_and_at_most_as_many_as_asked_for(store: Store) -> None:
    for number in range(5):
        await ask(store, f"run{number}", "same words", "same reply")

    hits = await store.search("same", limit=3)

    assert [hit.summary.run_id for hit in hits] == ["run4", "run3", "run2"]


async def test_hits_are_those_of_one_principal_and_of_a_time(store: Store) -> None:
    await ask(store, "mine-old", "secret plans", at=100.0)
    await ask(store, "mine-new", "secret plans", at=200.0)
    await ask(store, "theirs", "secret plans", principal="you", at=200.0)

    async def ids(since: float | None = None, until: float | None = None) -> list[str]:
        hits = await store.search("secret", principal="me", since=since, until=until)
        return [hit.summary.run_id for hit in hits]

    assert await ids() == ["mine-new", "mine-old"]
    assert await ids(since=150.0) == ["mine-new"]
    assert await ids(until=150.0) == ["mine-old"]
    assert await ids(since=100.0, until=200.0) == ["mine-new", "mine-old"]
    assert await store.search("secret", principal="nobody") == ()


async def test_a_snippet_shows_the_place_on_one_line(store: Store) -> None:
    long = "before " * 100 + "the needle\n\nin 東京 it " + "after " * 100
    await ask(store, "long", "Question?", long)

    for words in ("needle", "東京", '"NEEDLE'):
        (hit,) = await store.search(words)
        assert "needle in 東京 it" in hit.snippet
        assert hit.snippet.startswith("…")
        assert hit.snippet.endswith("…")
        assert len(hit.snippet) < 200

    (hit,) = await store.search("question")
    assert hit.snippet == "Question?"


async def test_a_removed_run_is_no_longer_found(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    async with open_store(path) as store:
        await ask(store, "kept", "the same words", "the same reply")
        await ask(store, "removed", "the same words", "the same reply")

        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("PRAGMA foreign_keys = ON")
            other.execute("DELETE FROM runs WHERE run_id = 'removed'")
            left = other.execute("SELECT count(*) FROM search").fetchone()

        assert await found(store, "same") == ["kept"]
    assert left == (2,)
