"""The probe items, and how replies to them are judged."""

import json
from collections import Counter

import pytest

from podium_workers.probes import Item, probes, probes_hash
from podium_workers.profile import SKILLS


def item(judge: str, *answers: str, wrong: tuple[str, ...] = ()) -> Item:
    return Item.model_validate(
        {"skill": "facts", "ask": "?", "judge": judge, "answers": answers, "wrong": wrong}
    )


def test_there_are_thirty_items_five_for_each_skill():
    assert Counter(found.skill for found in probes()) == dict.fromkeys(SKILLS, 5)
    assert len({found.ask for found in probes()}) == 30


def test_the_items_have_an_identity():
    assert probes_hash() == probes_hash()
    assert len(probes_hash()) == 12


@pytest.mark.parametrize("found", probes(), ids=lambda found: str(found.ask)[:30])
def test_every_item_takes_its_own_answer_and_no_nonsense(found: Item):
    answer = {
        "1, ?2, ?3, ?4, ?5": "1, 2, 3, 4, 5",
        r"- ?\w[\w ]*\n- ?\w[\w ]*\n- ?\w[\w ]*": "- apple\n- sour cherry\n- pear",
    }.get(found.answers[0], found.answers[0])
    assert found.is_right(answer)
    assert found.is_right(f"  {answer}\n")
    assert not found.is_right("")
    assert not found.is_right("I am not sure about that one.")
    for word in found.wrong:
        assert not found.is_right(word)
        assert not found.is_right(f"{answer} or {word}")


def test_items_do_not_give_their_answer_away():
    for found in probes():
        if found.judge in ("number", "output"):
            assert not found.is_right(found.ask)


@pytest.mark.parametrize(
    ("judge", "answer", "replies"),
    [
        (
            "number",
            "1250",
            ["1250", "1,250", "It is 1,250.0.", "12 + 1238 = **1250**"],
        ),
        ("number", "-3", ["-3", "the result is -3."]),
        (
            "letter",
            "B",
            ["B", "B)", "**B**", "(B) bat", "The answer is B.", "Answer: (B)", "B. A bat"],
        ),
        ("words", "Fe", ["Fe", "The symbol is fe.", "**Fe** (iron)"]),
        ("words", "a@b.org", ["a@b.org", "To a@b.org."]),
        ("output", "['a', 'b']", ["['a', 'b']", "```\n['a', 'b']\n```", "It prints `['a', 'b']`."]),
        (
            "output",
            "elmfir",
            ["elmfir", "elmfir.", '"elmfir"', "It is:\n\nelmfir", "```python\nelmfir```"],
        ),
        ("form", "yes", ["yes", "\nyes "]),
        ("json", '{"a": 1}', ['{"a":1}', '```json\n{"a": 1}\n```']),
    ],
)
def test_an_answer_counts_however_it_is_dressed(judge: str, answer: str, replies: list[str]):
    for reply in replies:
        assert item(judge, answer).is_right(reply), reply


@pytest.mark.parametrize(
    ("judge", "answer", "replies"),
    [
        ("number", "125", ["1250", "125 or 130", "one hundred", ""]),
        ("letter", "A", ["B", "A bat is a mammal", "All of them", "", "The answer is C, not A"]),
        ("words", "Fe", ["Iron", "Fermium", "coffee"]),
        ("words", "a@b.org", ["ba@b.org", "a@b.orgs"]),
        ("output", "elmfir", ["elm fir", "firelm", "It prints elmfir, I think"]),
        ("form", "yes", ["Yes", "yes.", "yes, of course", "'yes'"]),
        ("json", '{"a": 1}', ['{"a": 2}', '{"a": 1, "b": 2}', "a: 1", '{"a": 1} is it']),
    ],
)
def test_what_is_not_the_answer_does_not_count(judge: str, answer: str, replies: list[str]):
    for reply in replies:
        assert not item(judge, answer).is_right(reply), reply


def test_a_word_that_only_a_wrong_reply_has_spoils_it():
    asked = item("words", "Ottawa", wrong=("Toronto",))
    assert asked.is_right("Ottawa, in Ontario")
    assert not asked.is_right("Toronto or Ottawa")


def test_the_shipped_json_answers_are_json():
    for found in probes():
        if found.judge == "json":
            assert all(json.loads(answer) for answer in found.answers)
