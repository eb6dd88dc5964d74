"""Fitting a prompt to a worker's context window: fair shares, marked cuts, nothing silent (T29).

A worker's window is measured in tokens. Tokens are estimated without downloads, and the estimate
is corrected by what the worker reported for earlier prompts (`tokens_per_estimate`).
"""

from podium.plan import Cut
from podium.prompting import Material, cuttable, shared_prefix, worker_prompt
from podium.tokens import estimate_tokens
from podium_workers.errors import ContextTooLongError
from podium_workers.worker import Frozen, WorkerCard

_MARGIN = 64
"""Tokens kept free for the chat template around a prompt."""
_SMALLEST_PART = 200
"""Characters below which a shortened part would say nothing; less than this is not tried."""
_LONGEST_TOKEN = 20
"""Characters that a token stands for at most; a text with more is too long without counting."""
_NEAR = 32
"""A part of its share that may stay unused, as the divisor of it, to save looking further."""


class Fitted(Frozen):
    """A prompt that fits, and what had to be cut for that."""

    text: str
    cuts: tuple[Cut, ...]
    budget: int
    """Tokens that the prompt was allowed."""
    shared: int = 0
    """Characters at its beginning that prompts of other steps share."""


def prompt_budget(card: WorkerCard) -> int:
    """Tokens that a prompt for this worker may have: the window less the longest reply."""
    return card.context_window - reply_limit(card) - _MARGIN


def reply_limit(card: WorkerCard) -> int:
    """Tokens that a reply may have: the card's limit, and never more than half of the window."""
    return min(card.max_output_tokens, card.context_window // 2)


def fit(material: Material, card: WorkerCard, tokens_per_estimate: float = 1.0) -> Fitted:
    """The prompt of *material* for this worker, shortened where it does not fit.

    Raises:
        ContextTooLongError: question and subtask alone leave no room for the rest.
    """
    return fit_to(material, card, prompt_budget(card), tokens_per_estimate)


def fit_to(material: Material, card: WorkerCard, budget: int, tokens_per_estimate: float) -> Fitted:
    """As `fit`, for a given budget in tokens: rebuilds a recorded prompt exactly."""
    room = budget - _tokens(card.role, tokens_per_estimate)
    parts = cuttable(material)
    whole = worker_prompt(material, parts, ())
    if _fits(whole, room, tokens_per_estimate):
        shared = shared_prefix(material, whole, ())
        return Fitted(text=whole, cuts=(), budget=budget, shared=shared)
    floor = worker_prompt(material, dict.fromkeys(parts, ""), _cuts(parts, dict.fromkeys(parts, 0)))
    left = room - _tokens(floor, tokens_per_estimate)
    while left > 0:
        kept = _kept(parts, left, tokens_per_estimate)
        if any(size < min(len(parts[name]), _SMALLEST_PART) for name, size in kept.items()):
            break
        cuts = _cuts(parts, {name: size for name, size in kept.items() if size < len(parts[name])})
        shown = {name: _with_gap(text, kept[name]) for name, text in parts.items()}
        text = worker_prompt(material, shown, cuts)
        # The estimate of a whole is not exactly the sum over its parts.
        over = _tokens(text, tokens_per_estimate) - room
        if over <= 0:
            shared = shared_prefix(material, text, cuts)
            return Fitted(text=text, cuts=cuts, budget=budget, shared=shared)
        left -= over
    raise ContextTooLongError(
        f"The prompt does not fit into the window of {card.name!r} "
        f"({card.context_window} tokens, {budget} of them for the prompt)."
    )


def shorten(text: str, tokens: int, tokens_per_estimate: float = 1.0) -> tuple[str, int]:
    """*text* around a marked gap so that it fits, and how many of its characters stayed."""
    kept = _fitting(text, tokens, tokens_per_estimate)
    return _with_gap(text, kept), kept


def _tokens(text: str, tokens_per_estimate: float) -> int:
    return int(estimate_tokens(text) * tokens_per_estimate + 1) if text else 0


def _fits(text: str, tokens: int, tokens_per_estimate: float) -> bool:
    # A large file is not worth counting, which takes a second for a million characters.
    if len(text) > tokens * _LONGEST_TOKEN:
        return False
    # Nor is a short text: no token is less than a byte.
    if int(len(text.encode("utf-8", "surrogatepass")) * tokens_per_estimate + 1) <= tokens:
        return True
    return _tokens(text, tokens_per_estimate) <= tokens


def _kept(parts: dict[str, str], left: int, tokens_per_estimate: float) -> dict[str, int]:
    """How many characters of each part may stay, if all parts together have *left* tokens."""
    wanted = {
        name: left
        if len(text) > left * _LONGEST_TOKEN
        else min(left, _tokens(text, tokens_per_estimate))
        for name, text in parts.items()
    }
    shares = _fair_shares(wanted, left)
    return {name: _fitting(text, shares[name], tokens_per_estimate) for name, text in parts.items()}


def _cuts(parts: dict[str, str], sent: dict[str, int]) -> tuple[Cut, ...]:
    return tuple(Cut(part=n, given=len(parts[n]), sent=size) for n, size in sent.items())


def _fair_shares(wanted: dict[str, int], left: int) -> dict[str, int]:
    """Max-min fairness: small parts stay whole, the large ones share the rest evenly."""
    shares: dict[str, int] = {}
    for place, name in enumerate(sorted(wanted, key=lambda name: wanted[name])):
        even = left // (len(wanted) - place)
        shares[name] = min(wanted[name], even)
        left -= shares[name]
    return shares


def _fitting(text: str, tokens: int, tokens_per_estimate: float) -> int:
    """How many characters of *text*, with the mark of the gap, fit into *tokens* tokens.

    Near the most that do: every look counts the text again, which is slow for a long one.
    """
    if _fits(text, tokens, tokens_per_estimate):
        return len(text)
    low, high = 0, min(len(text), tokens * _LONGEST_TOKEN)
    size, halve = high, False
    while low < high:
        used = _tokens(_with_gap(text, size), tokens_per_estimate)
        if used > tokens:
            high = size - 1
        elif used >= tokens - tokens // _NEAR:
            return size
        else:
            low = size
        # As many as there would be if all of the text were like this; every other time the middle,
        # since it may not be.
        aim = 0 if halve else size * (2 * _NEAR - 1) * tokens // (2 * _NEAR * used)
        size = aim if low < aim <= high else (low + high + 1) // 2
        halve = not halve
    return low


def _with_gap(text: str, keep: int) -> str:
    """The first three fifths and the last two fifths of what may stay, around a mark."""
    if keep >= len(text):
        return text
    head = keep * 3 // 5
    gap = f"\n[… {len(text) - keep} characters left out here to fit the window …]\n"
    return text[:head] + gap + text[len(text) - (keep - head) :]
