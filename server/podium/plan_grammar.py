"""Grammars that hold decoding of a plan, one for each of its forms, in the GBNF notation.

vLLM's and llama.cpp's decoders both take it. What it cannot say is left to the parser, which reads
every plan after decoding all the same.
"""

from collections.abc import Iterable, Iterator, Sequence

SHORTEST_SUBTASK = 8
LONGEST_SUBTASK = 300
"""Characters."""

# A JSON string, which Python reads as the same text.
_LETTER = r"""letter ::= [^"\\\x00-\x1F\x7F] | "\\" ["\\/nt]"""


def lists_grammar(
    workers: int, *, max_steps: int, may_accept: bool = False, prose: int, counted: bool = True
) -> str:
    """A grammar for at most *prose* characters and then the three lists, of equal length.

    *workers* is how many a plan may name, by number from 0. One branch for each length from one
    to *max_steps*; an access list names earlier steps only, or "all". With *may_accept* there is
    also the branch of three empty lists. Unless they are *counted*, the letters of a subtask may be
    any number but none: a decoder that looks at its whole vocabulary (xgrammar) takes a quarter of
    a second for each token inside of a counted subtask, and next to nothing otherwise.
    """
    fewest = 0 if may_accept else 1
    lengths = range(fewest, max_steps + 1)
    branches = " | ".join(f"lists-{length}" for length in lengths)
    rules = [
        f"root ::= opening ({branches})",
        *(_lists(length, may_accept=may_accept) for length in lengths),
        "worker ::= " + _one_of([str(number) for number in range(workers)]),
        _subtask(counted=counted),
        *_access_rules(max_steps, may_accept=may_accept),
        _opening(prose),
        _LETTER,
    ]
    return "\n".join(rules) + "\n"


def json_grammar(
    workers: Sequence[str], *, max_steps: int, may_accept: bool = False, counted: bool = True
) -> str:
    """A grammar for the JSON form on one line, as `plan_text.render_json` writes it.

    It says what `plan_schema` says by position, for training, where letters need not be counted.
    Steps name *workers*; the rest is as in `lists_grammar`.
    """
    fewest = 0 if may_accept else 1
    lengths = range(fewest, max_steps + 1)
    rules = [
        'root ::= "{\\"steps\\": [" (' + " | ".join(f"steps-{n}" for n in lengths) + ")",
        *(f"steps-{n} ::= {_joined(f'step-{place}' for place in range(n))}" for n in lengths),
        *(_step(number, may_accept=may_accept) for number in range(max_steps)),
        "worker ::= " + _one_of([f'\\"{name}\\"' for name in sorted(workers)]),
        _subtask(counted=counted),
        *_access_rules(max_steps, may_accept=may_accept),
        _LETTER,
    ]
    return "\n".join(rules) + "\n"


def _joined(steps: Iterable[str]) -> str:
    return ' ", " '.join(steps) + ' "]}"'


def _step(number: int, *, may_accept: bool) -> str:
    """The rule for the step at a place."""
    parts = (
        '"{\\"subtask\\": "', "subtask",
        '", \\"worker\\": "', "worker",
        '", \\"access\\": "', _access_name(number, may_accept=may_accept), '"}"',
    )  # fmt: skip
    return f"step-{number} ::= " + " ".join(parts)


def _subtask(*, counted: bool) -> str:
    letters = f"{{{SHORTEST_SUBTASK},{LONGEST_SUBTASK}}}" if counted else "+"
    return f'subtask ::= "\\"" letter{letters} "\\""'


def _opening(prose: int) -> str:
    """Prose, and where the lists begin.

    The prose holds no "_": where a model writes "model_", nothing but the lists can follow. A draft
    of them inside the prose would use up the room for the real ones. The parser wants their label
    to begin a word.
    """
    return f'opening ::= ([^_]{{0,{prose}}} [ \\n*`#:>(-])? "model_id = ["'


def _lists(length: int, *, may_accept: bool) -> str:
    """The branch for plans of *length* steps."""
    access = [_access_name(number, may_accept=may_accept) for number in range(length)]
    parts = (
        _items(["worker"] * length),
        '"\\nsubtasks = ["',
        _items(["subtask"] * length),
        '"\\naccess_list = ["',
        _items(access),
    )
    return f"lists-{length} ::= " + " ".join(parts)


def _items(items: Sequence[str]) -> str:
    return ' ", " '.join([*items]) + ' "]"'


def _access_name(number: int, *, may_accept: bool) -> str:
    """The rule for the access of the step at a place; the first of a plan reads nothing."""
    return f"access-{number}" if number or may_accept else '"[]"'


def _access_rules(max_steps: int, *, may_accept: bool) -> Iterator[str]:
    everything = r'"\"all\"" | "[\"all\"]"'
    if may_accept:  # of the rounds before, which have no numbers here
        yield f'access-0 ::= "[]" | {everything}'
    for number in range(1, max_steps):
        earlier = _one_of([str(read) for read in range(number)])
        more = f' (", " earlier-{number}){{0,{number - 1}}}' if number > 1 else ""
        yield f'access-{number} ::= "[]" | {everything} | "[" earlier-{number}{more} "]"'
        yield f"earlier-{number} ::= {earlier}"


def _one_of(words: Sequence[str]) -> str:
    return " | ".join(f'"{word}"' for word in words)
