"""Notices that an endpoint read less than it was sent: it cut the prompt and said nothing.

Ollama's OpenAI-compatible address does so at its own context length. A wrong alarm would spoil a
good reply, so the error needs a proof: every word and every number is at least one token for every
tokenizer in use, and fewer tokens than that were read. A count of exactly a window's size is a
suspicion; it is an error where the endpoint is known to cut.
"""

import re
from collections.abc import Sequence

from podium_workers.errors import ContextTooLongError
from podium_workers.quirks import Endpoint
from podium_workers.worker import Message

LEAST = 1000
"""Words below which nothing is said: no endpoint's window is that small."""
_MARGIN = 0.95
"""For tokenizers that join a few frequent words after all."""
_TOKENS_PER_WORD = 1.2
"""For the suspicion alone. Of 83 texts, licences, code, Markdown, JSON and tables, none has fewer
than 1.28 with the tokenizers of SmolLM2 and Qwen2.5."""
# Not a letter behind an apostrophe: "don't" can be a single token.
_WORD = re.compile(r"(?<!['\u2019])[^\W\d_]+|\d+")


def least_tokens(messages: Sequence[Message]) -> int:
    """How many tokens *messages* have at the very least."""
    return sum(len(_WORD.findall(message.text)) for message in messages)


def check_all_read(messages: Sequence[Message], read: int, endpoint: Endpoint) -> str:
    """A note when the count looks cut, or nothing; *read* is what the endpoint says it read.

    An endpoint that does not count (0) cannot be checked.

    Raises:
        ContextTooLongError: it read less than it was sent.
    """
    words = least_tokens(messages)
    if not read or words < LEAST:
        return ""
    full = read % 1024 == 0 or read % 1000 == 0
    suspect = full and words * _TOKENS_PER_WORD > read
    if read < words * _MARGIN or (suspect and endpoint.cuts):
        remedy = f"{endpoint.advice}, or set" if endpoint.advice else "set"
        raise ContextTooLongError(
            f"The endpoint read only {read:,} tokens of a prompt of {words:,} words: it cuts "
            f"long prompts in silence. For this worker, {remedy} context_window = {read}."
        )
    if suspect:
        return (
            f"The endpoint says that it read exactly {read:,} tokens: it may have cut the prompt."
        )
    return ""
