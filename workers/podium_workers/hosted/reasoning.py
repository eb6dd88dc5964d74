"""Keeps reasoning and reply apart, where an endpoint does not.

Reasoning is recorded and never given to another worker, so what is thinking must not stand in a
reply; and a reply that a server's parser put into the reasoning channel is still the reply.
"""

import json
import re

_OPEN = re.compile(r"\s*<think(?:ing)?>", re.IGNORECASE)
_CLOSE = re.compile(r"</think(?:ing)?>\s*", re.IGNORECASE)
_CLOSE_ALONE = re.compile(r"(?:\A|\n)[ \t]*</think(?:ing)?>[ \t]*\n", re.IGNORECASE)


def split_thinking(text: str) -> tuple[str, str]:
    """*text* as (thinking, reply), for endpoints that leave the model's marks in the text.

    Thinking is what a `<think>` at the very beginning opens; or what stands before a `</think>` on
    a line of its own that nothing opened, since some templates open it in the prompt. Anything
    else is a reply that speaks of such marks.
    """
    opened = _OPEN.match(text)
    if opened:
        closed = _CLOSE.search(text, opened.end())
        if closed is None:
            return text[opened.end() :].strip(), ""
        return text[opened.end() : closed.start()].strip(), text[closed.end() :]
    closed = _CLOSE_ALONE.search(text)
    if closed is None or "<think" in text[: closed.start()].lower():
        return "", text
    return text[: closed.start()].strip(), text[closed.end() :].lstrip()


def reply_within(reasoning: str, *, wants_json: bool) -> str | None:
    """The reply that stands in the reasoning channel of a reply without text; None if none does.

    Accepted is what follows the last `</think>`; or, where JSON was asked for, reasoning that is a
    JSON object as a whole. All else is thinking without a reply: guessing where in it an answer
    begins would hand one worker's thoughts to another.
    """
    ends = [found.end() for found in _CLOSE.finditer(reasoning)]
    text = reasoning[ends[-1] :].strip() if ends else ""
    if text:
        return text
    if wants_json and reasoning.lstrip().startswith("{"):
        try:
            json.loads(reasoning)
        except ValueError:
            return None
        return reasoning.strip()
    return None
