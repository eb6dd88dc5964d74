"""Items and their parts: what is trained on, what is held out, and that it stays so."""

import random
from collections import Counter

from podium_lab.train.generated import KINDS, generate
from podium_lab.train.items import Item, balanced, fingerprint, in_part, part_of


def _item(name: str) -> Item:
    return Item(id=name, taskset="some", question=name, judge="text", answer="x")


def test_an_items_part_follows_from_its_id_alone() -> None:
    items = [_item(str(number)) for number in range(300)]
    before = {item.id: part_of(item) for item in items}
    random.Random(1).shuffle(items)
    assert {item.id: part_of(item) for item in [*items, _item("new")][:300]} == before


def test_parts_have_the_papers_shares() -> None:
    parts = Counter(part_of(_item(str(number))) for number in range(3000))
    assert abs(parts["train"] / 3000 - 0.6) < 0.03
    assert abs(parts["validation"] / 3000 - 0.2) < 0.03


def test_a_source_that_names_the_part_is_believed() -> None:
    held_out = _item("1").model_copy(update={"part": "test"})
    assert part_of(held_out) == "test"
    assert in_part([held_out], "train") == ()


def test_balanced_items_are_the_same_in_any_order_and_of_all_kinds() -> None:
    items = list(generate(160, seed=3))
    chosen = balanced(items, 16, salt="a")
    assert Counter(item.kind for item in chosen) == dict.fromkeys(KINDS, 2)
    random.Random(2).shuffle(items)
    assert balanced(items, 16, salt="a") == chosen
    assert balanced(items, 16, salt="b") != chosen


def test_a_kind_that_runs_out_leaves_its_places_to_others() -> None:
    items = [*generate(2, kinds=("facts",)), *generate(20, kinds=("choice",))]
    counts = Counter(item.kind for item in balanced(items, 10, salt="a"))
    assert counts == {"facts": 2, "choice": 8}


def test_a_fingerprint_knows_the_items_and_not_their_order() -> None:
    items = generate(16, seed=1)
    assert fingerprint(items) == fingerprint(reversed(items))
    assert fingerprint(items) != fingerprint(items[1:])
