"""A taskset made by a seeded generator: five kinds of questions, and such as need two workers.

The workers of a pool differ on these kinds: a small model that writes programs calculates, a larger
one knows facts. A question of two goals needs the result of the first for the second. Every item's
id is a hash of its text, so that the parts (train, validation, test) never share a question. Nor do
they share a fact: an item that asks for one, alone or before something else, is in the part that a
hash of the country's or element's name gives. By that .59 of the facts are trained on, .20 are for
validation and .21 for the test, and of the items about as many.
"""

import hashlib
import random
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.resources import files
from typing import cast

from podium_lab.train.items import Goal, Item, JudgeName, part_by

TASKSET = "generated"
_FACTS = cast(
    "Mapping[str, Mapping[str, str | int]]",
    tomllib.loads((files("podium_lab.train") / "facts.toml").read_text(encoding="utf-8")),
)
CAPITALS = {country: str(city) for country, city in _FACTS["capital"].items()}
NUMBERS = {element: int(number) for element, number in _FACTS["atomic_number"].items()}

_GOODS = (
    "apples", "bolts", "candles", "dishes", "envelopes", "forks", "gloves", "hammers", "inks",
    "jars", "kettles", "lamps", "mugs", "nails", "ovens", "pencils", "quilts", "ropes", "stools",
)  # fmt: skip
_LETTERS = "ABCD"


def generate(count: int, *, seed: int = 0, kinds: Sequence[str] = ()) -> tuple[Item, ...]:
    """*count* different items, as many of each kind as of the others.

    *kinds* are names in `KINDS`; all of them when none are given.

    Raises:
        ValueError: a kind is unknown, or has fewer different items than are asked for.
    """
    chosen = tuple(kinds) or tuple(KINDS)
    if unknown := sorted(set(chosen).difference(KINDS)):
        raise ValueError(f"kinds: there is no kind {unknown[0]!r}; known are {', '.join(KINDS)}.")
    made: dict[str, Item] = {}
    for place, kind in enumerate(chosen):
        share = count // len(chosen) + (place < count % len(chosen))
        made |= {item.id: item for item in _different(kind, share, seed)}
    return tuple(made.values())


def _different(kind: str, count: int, seed: int) -> Iterator[Item]:
    chance = random.Random(f"{seed}:{kind}")
    seen: set[str] = set()
    for _ in range(200 * count):
        if len(seen) == count:
            return
        item = KINDS[kind](chance)
        if item.id not in seen:
            seen.add(item.id)
            yield item
    if len(seen) < count:
        raise ValueError(
            f"kinds: {kind!r} has only {len(seen)} different items; ask for fewer than {count}."
        )


def _item(
    question: str, judge: JudgeName, *goals: tuple[str, str], answer: str = "", fact: str = ""
) -> Item:
    """An item; *fact* is the country or element that it has to be known about."""
    digest = hashlib.sha256(question.encode()).hexdigest()[:16]
    return Item(
        id=digest,
        taskset=TASKSET,
        question=question,
        judge=judge,
        answer=answer or goals[-1][1],
        goals=tuple(Goal(kind=kind, answer=found) for kind, found in goals),
        part=part_by("facts", fact) if fact else None,
    )


def _calculation(chance: random.Random, start: int | None = None) -> tuple[str, int]:
    """A calculation in words that follow a number, and its result; *start* None makes a number."""
    a = chance.randint(120, 990) if start is None else start
    b, c = chance.randint(13, 99), chance.randint(100, 2500)
    add = chance.random() < 0.5
    return f"times {b}, {'plus' if add else 'minus'} {c}", a * b + (c if add else -c)


def _arithmetic(chance: random.Random) -> Item:
    a = chance.randint(120, 990)
    words, result = _calculation(chance, a)
    wording = chance.choice(
        ("What is {a} {words}?", "Calculate {a} {words}.", "Give the value of {a} {words}.")
    )
    return _item(wording.format(a=a, words=words), "number", ("arithmetic", str(result)))


def _facts(chance: random.Random) -> Item:
    if chance.random() < 0.5:
        element = chance.choice(sorted(NUMBERS))
        wording = chance.choice(
            ("What is the atomic number of {x}?", "Which atomic number does {x} have?")
        )
        answer = str(NUMBERS[element])
        return _item(wording.format(x=element), "number", ("facts", answer), fact=element)
    country = chance.choice(sorted(CAPITALS))
    wording = chance.choice(
        ("What is the capital of {x}?", "Name the capital city of {x}.", "Which city governs {x}?")
    )
    question = wording.format(x=country)
    return _item(question, "text", ("facts", CAPITALS[country]), fact=country)


def _code(chance: random.Random) -> Item:
    """A small function, with the checks that it has to pass."""
    k, m = chance.randint(2, 9), chance.randint(2, 30)
    name, told, body = chance.choice(_FUNCTIONS)
    solution = f"def {name}(n):\n    return {body.format(k=k, m=m)}"
    names: dict[str, Callable[[int], object]] = {}
    exec(solution, {}, names)  # our own text, a few lines above
    checks = "\n".join(f"assert {name}({n}) == {names[name](n)!r}" for n in _TRIED)
    wanted = told.format(k=k, m=m)
    question = (
        f"Write a Python function {name}(n) that returns {wanted}, for a whole number n >= 1."
    )
    return _item(question, "code", ("code", solution), answer=checks)


_TRIED = (1, 7, 12, 30, 101)
_FUNCTIONS = (
    ("total_of_multiples", "the sum of all multiples of {k} from 0 up to and with n",
     "sum(range(0, n + 1, {k}))"),
    ("shifted", "n times {k} if n is even, else n plus {m}", "n * {k} if n % 2 == 0 else n + {m}"),
    ("digit_score", "the sum of the digits of n, times {k}, plus {m}",
     "sum(map(int, str(n))) * {k} + {m}"),
    ("count_down", "the list of numbers from n down to 1 in steps of {k}",
     "list(range(n, 0, -{k}))"),
    ("no_multiples", "the list of the numbers from 1 to n that are no multiples of {k}",
     "[i for i in range(1, n + 1) if i % {k}]"),
)  # fmt: skip
"""Name, what it returns, and how: with two numbers to fill in."""


def _records(chance: random.Random) -> dict[str, int]:
    goods = chance.sample(_GOODS, 6)
    return {name: chance.randint(11, 97) for name in goods}


def _listed(records: Mapping[str, int]) -> str:
    return "; ".join(f"{name}, shelf {value}" for name, value in records.items())


def _extraction(chance: random.Random) -> Item:
    records = _records(chance)
    name = chance.choice(list(records))
    wording = chance.choice(
        ("From this list: {list}. On which shelf are the {x}?",
         "Stock: {list}. Give the number of the shelf with the {x}.")
    )  # fmt: skip
    question = wording.format(list=_listed(records), x=name)
    return _item(question, "number", ("extraction", str(records[name])))


def _choice(chance: random.Random) -> Item:
    """Which of four numbers has a property that one has to look for."""
    k = chance.choice((7, 9, 11, 13))
    right = k * chance.randint(12, 70)
    others = [right + offset for offset in chance.sample(range(1, k), 3)]
    options = [right, *others]
    chance.shuffle(options)
    letter = _LETTERS[options.index(right)]
    listed = " ".join(f"({a}) {b}" for a, b in zip(_LETTERS, options, strict=True))
    question = f"Which of these numbers is a multiple of {k}? {listed}. Answer with one letter."
    return _item(question, "choice", ("choice", letter))


def _fact_then_arithmetic(chance: random.Random) -> Item:
    element = chance.choice(sorted(NUMBERS))
    number = NUMBERS[element]
    words, result = _calculation(chance, number)
    wording = chance.choice(
        ("What is the atomic number of {x}, {words}?",
         "Take the atomic number of {x}. What is it {words}?")
    )  # fmt: skip
    question = wording.format(x=element, words=words)
    goals = ("facts", str(number)), ("arithmetic", str(result))
    return _item(question, "number", *goals, fact=element)


def _fact_then_extraction(chance: random.Random) -> Item:
    country, *others = chance.sample(sorted(CAPITALS), 6)
    cities = [CAPITALS[country], *(CAPITALS[other] for other in others)]
    chance.shuffle(cities)
    amounts = dict(zip(cities, chance.sample(range(110, 990), 6), strict=True))
    listed = "; ".join(f"{city}: {amount}" for city, amount in amounts.items())
    question = f"Sales by city: {listed}. How much was sold in the capital of {country}?"
    city = CAPITALS[country]
    goals = ("facts", city), ("extraction", str(amounts[city]))
    return _item(question, "number", *goals, fact=country)


def _extraction_then_arithmetic(chance: random.Random) -> Item:
    records = _records(chance)
    name = chance.choice(list(records))
    words, result = _calculation(chance, records[name])
    question = (
        f"Stock: {_listed(records)}. Take the shelf number of the {name}. What is it {words}?"
    )
    found = str(records[name])
    return _item(question, "number", ("extraction", found), ("arithmetic", str(result)))


KINDS: Mapping[str, Callable[[random.Random], Item]] = {
    "arithmetic": _arithmetic,
    "facts": _facts,
    "code": _code,
    "extraction": _extraction,
    "choice": _choice,
    "facts+arithmetic": _fact_then_arithmetic,
    "facts+extraction": _fact_then_extraction,
    "extraction+arithmetic": _extraction_then_arithmetic,
}
"""What makes an item of each kind."""
