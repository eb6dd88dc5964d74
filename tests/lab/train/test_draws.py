"""What a policy is asked: all kinds evenly, pools as they are set, the same from the same seed."""

from collections import Counter

import pytest
from pydantic import ValidationError

from podium.errors import SettingsError
from podium_lab.train.draws import Pools, draws, looks
from podium_lab.train.generated import KINDS, generate

ITEMS = generate(80, seed=1)
NAMES = ("a", "b", "c", "d")


def test_every_iteration_has_its_questions_and_kinds_are_even() -> None:
    drawn = list(draws(ITEMS, NAMES, iterations=20, questions=4, seed=1))
    assert [draw.iteration for draw in drawn] == [n // 4 for n in range(80)]
    assert Counter(draw.item.kind for draw in drawn) == dict.fromkeys(KINDS, 10)
    assert len({draw.item.id for draw in drawn}) == 80


def test_the_same_seed_asks_the_same_and_another_does_not() -> None:
    pools = Pools(fewest=2, shuffled=True)
    first, again = (
        list(draws(ITEMS, NAMES, iterations=9, questions=3, seed=5, pools=pools)) for _ in range(2)
    )
    assert first == again
    assert first != list(draws(ITEMS, NAMES, iterations=9, questions=3, seed=6, pools=pools))


def test_a_longer_run_begins_like_a_shorter_one() -> None:
    short = list(draws(ITEMS, NAMES, iterations=5, questions=4, seed=2))
    longer = list(draws(ITEMS, NAMES, iterations=50, questions=4, seed=2))
    assert longer[:20] == short


def test_pools_are_whole_and_in_order_unless_they_are_set_otherwise() -> None:
    drawn = draws(ITEMS, NAMES, iterations=30, questions=2, seed=1)
    assert {draw.workers for draw in drawn} == {NAMES}


def test_pools_have_from_the_fewest_to_all_workers_and_keep_their_order() -> None:
    drawn = draws(ITEMS, NAMES, iterations=200, questions=1, seed=1, pools=Pools(fewest=2))
    shown = {draw.workers for draw in drawn}
    assert {len(names) for names in shown} == {2, 3, 4}
    assert all(list(names) == sorted(names) for names in shown)


def test_shuffled_pools_come_in_every_order() -> None:
    drawn = draws(ITEMS, NAMES[:3], iterations=200, questions=1, seed=1, pools=Pools(shuffled=True))
    assert len({draw.workers for draw in drawn}) == 6


def test_sets_that_are_kept_back_are_never_drawn_and_are_the_unseen_ones() -> None:
    pools = Pools(fewest=2, kept_back=(("c", "a"), ("b", "c", "d")))
    drawn = draws(ITEMS, NAMES, iterations=300, questions=1, seed=1, pools=pools)
    shown = {draw.workers for draw in drawn}
    unseen = {draw.workers for draw in looks(ITEMS, NAMES, pools=pools, which="unseen")}
    assert unseen == {("a", "c"), ("b", "c", "d")}
    assert {draw.workers for draw in looks(ITEMS, NAMES, pools=pools, which="seen")} == shown - {
        NAMES
    }
    assert not unseen & shown
    assert {draw.workers for draw in looks(ITEMS, NAMES, pools=pools, which="whole")} == {NAMES}


def test_a_share_of_all_sets_is_kept_back_whatever_the_seed() -> None:
    pools = Pools(fewest=2, kept_back=0.3)
    back = pools.sets(NAMES, "unseen")
    assert len(back) == 3
    assert len(pools.sets(NAMES, "seen")) == 7
    assert pools.sets(NAMES, "unseen") == back
    for seed in (1, 2):
        drawn = draws(ITEMS, NAMES, iterations=200, questions=1, seed=seed, pools=pools)
        assert not {draw.workers for draw in drawn} & set(back)


def test_an_item_always_gets_the_same_pool() -> None:
    pools = Pools(fewest=1, kept_back=0.5)
    first = looks(ITEMS, NAMES, pools=pools, which="unseen")
    again = looks(ITEMS[::-1], NAMES, pools=pools, which="unseen")
    assert {it.item.id: it.workers for it in first} == {it.item.id: it.workers for it in again}


def test_what_cannot_be_kept_back_is_named() -> None:
    with pytest.raises(SettingsError, match="there is no unseen pool"):
        looks(ITEMS, NAMES, pools=Pools(fewest=2), which="unseen")
    with pytest.raises(SettingsError, match="a, x is no set of 2 to 3 workers"):
        Pools(fewest=2, kept_back=(("a", "x"),)).sets(NAMES, "seen")
    with pytest.raises(ValidationError, match="kept_back needs fewest"):
        Pools(kept_back=0.5)
    with pytest.raises(ValidationError, match="a share from 0 to below 1"):
        Pools(fewest=2, kept_back=1.0)
