"""Turns a grammar without recursion, such as that of plans, into one regular expression.

vLLM's library for training holds decoding to regular expressions only.
"""

import re
from collections.abc import Mapping

_RULE = re.compile(r"^([a-z0-9-]+) ::= (.*)$", re.MULTILINE)
_PART = re.compile(
    r"""(?P<text>"(?:[^"\\]|\\.)*")|(?P<set>\[(?:[^\]\\]|\\.)*\])|(?P<name>[a-z][a-z0-9-]*)"""
    r"""|(?P<sign>\{\d+(?:,\d*)?\}|[()|?*+])|(?P<space>\s+)"""
)


def regex_of(grammar: str) -> str:
    """What *grammar*, in the GBNF notation, lets through from its rule `root`.

    Raises:
        ValueError: it is recursive, or has a sign that is not known here.
    """
    rules: dict[str, str] = dict(_RULE.findall(grammar))
    return _expanded("root", rules, ())


def _expanded(name: str, rules: Mapping[str, str], inside: tuple[str, ...]) -> str:
    if name in inside:
        raise ValueError(f"the rule {name!r} is recursive")
    body, place, parts = rules[name], 0, list[str]()
    while place < len(body):
        found = _PART.match(body, place)
        if found is None:
            raise ValueError(f"the rule {name!r} cannot be read from {body[place:][:20]!r} on")
        place = found.end()
        if text := found["text"]:
            literal = re.escape(_plain(text[1:-1]))
            parts.append(f"(?:{literal})" if len(literal) > 1 else literal)
        elif inner := found["name"]:
            parts.append(_expanded(inner, rules, (*inside, name)))
        elif not found["space"]:
            sign = found["sign"] or found["set"]
            parts.append("(?:" if sign == "(" else sign)
    return f"(?:{''.join(parts)})"


def _plain(text: str) -> str:
    """A literal without its escapes."""
    return re.sub(r"\\(.)", lambda found: {"n": "\n", "t": "\t"}.get(found[1], found[1]), text)
