"""Profile cards: what a worker was measured to be good at, how quick it is, kept in files.

A profile is made by asking a worker the shipped probe items. Knows nothing of the server: results
are JSON files in a folder, a file for each worker, model and day.
"""

import re
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import date
from hashlib import sha256
from pathlib import Path
from typing import get_args

import anyio
from pydantic import Field, JsonValue, ValidationError

from podium_workers.errors import (
    ContextTooLongError,
    EmptyReplyError,
    MalformedReplyError,
    ManifestError,
    RefusedError,
    SlowReplyError,
)
from podium_workers.probes import Item, Skill, probes, probes_hash
from podium_workers.retry import reply_with_retry
from podium_workers.worker import (
    Frozen,
    ModelSettings,
    Price,
    Prompt,
    Reply,
    Usage,
    Worker,
    WorkerCard,
)

SKILLS: tuple[Skill, ...] = get_args(Skill)
STRONG, FAIR = 0.75, 0.5
"""Shares of right replies from which on a worker is called strong, or fair, at a skill."""

_LONGEST = {"local": 512, "hosted": 2048}
"""Output tokens of a reply at most. The items ask for few words; but reasoning counts as output."""
_TYPICAL = 60
"""Output tokens expected of a reply."""
_WORDS: dict[Skill, str] = {
    "arithmetic": "calculation",
    "facts": "facts",
    "choice": "multiple choice",
    "code": "reading code",
    "extraction": "finding things in a text",
    "format": "keeping to a form",
}
_WRONG = (RefusedError, EmptyReplyError, MalformedReplyError, ContextTooLongError, SlowReplyError)
"""Failures that are a wrong answer to one item; others say nothing about the model."""


class Answered(Frozen):
    """What a worker made of one item."""

    skill: Skill
    ask: str
    reply: str
    """Empty when there was none; `failure` says why."""
    right: bool
    seconds: float = Field(ge=0)
    failure: str = ""


class Profile(Frozen):
    """What was measured of a worker."""

    name: str
    kind: str
    model: str
    measured: date
    probes: str
    """Identity of the items."""
    answered: tuple[Answered, ...] = Field(min_length=1)
    usage: Usage

    @property
    def skills(self) -> dict[Skill, float]:
        """Share of right replies by skill, from 0 to 1."""
        given: dict[Skill, list[bool]] = {
            skill: [a.right for a in self.answered if a.skill == skill] for skill in SKILLS
        }
        return {skill: sum(right) / len(right) for skill, right in given.items() if right}

    @property
    def right(self) -> int:
        return sum(answered.right for answered in self.answered)

    @property
    def latency_s(self) -> float:
        """Seconds of a middling reply."""
        return sorted(answered.seconds for answered in self.answered)[len(self.answered) // 2]

    def good_at(self, price: Price | None) -> str:
        """The profile as one line of a card, for the conductor."""
        shares = self.skills
        strong = [_WORDS[skill] for skill, share in shares.items() if share >= STRONG]
        fair = [_WORDS[skill] for skill, share in shares.items() if FAIR <= share < STRONG]
        weak = [_WORDS[skill] for skill, share in shares.items() if share < FAIR]
        parts = [
            f"{how} at {', '.join(words)}"
            for how, words in (("strong", strong), ("fair", fair), ("weak", weak))
            if words
        ]
        return "; ".join([*parts, f"about {_seconds(self.latency_s)} a reply", _cost(price)])


def _seconds(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds >= 1 else "a second or less"


def _cost(price: Price | None) -> str:
    if price is None:
        return "price unknown"
    if price.is_free:
        return "free"
    return f"${price.input:g} a million tokens read, ${price.output:g} written"


class Cost(Frozen):
    """What a measurement takes, in US dollars."""

    expected: float
    worst: float


def cost_of_profile(card: WorkerCard) -> Cost | None:
    """What a profile of that worker will cost; None when its price is unknown."""
    if card.price is None:
        return None
    asked = sum(len(item.ask) + len(card.role) for item in probes()) // 3 + 20 * len(probes())
    typical = Usage(input_tokens=asked, output_tokens=_TYPICAL * len(probes()))
    longest = Usage(input_tokens=asked, output_tokens=_longest(card) * len(probes()))
    return Cost(expected=card.price.cost(typical), worst=card.price.cost(longest))


Watch = Callable[[int, Usage], None]
"""Told before each item how many are done and what was used so far; may raise to end it."""


async def measure(worker: Worker, watch: Watch, *, today: date | None = None) -> Profile:
    """Ask *worker* every probe item, one after the other.

    Raises:
        WorkerError: it cannot be asked, for a reason that says nothing about the model.
    """
    call = _Measured()
    answered: list[Answered] = []
    for number, item in enumerate(probes()):
        watch(number, call.used)
        answered.append(await _answer(worker, item, call))
    return Profile(
        name=worker.card.name,
        kind=worker.card.kind,
        model=worker.card.model,
        measured=today or date.today(),
        probes=probes_hash(),
        answered=tuple(answered),
        usage=call.used,
    )


async def _answer(worker: Worker, item: Item, call: "_Measured") -> Answered:
    settings = ModelSettings(max_output_tokens=_longest(worker.card))
    prompt = Prompt.of(item.ask, system=worker.card.role)
    started = anyio.current_time()
    reply, failure = "", ""
    try:
        reply = (await reply_with_retry(worker, prompt, settings, call)).text
    except _WRONG as error:
        failure = error.message
    return Answered(
        skill=item.skill,
        ask=item.ask,
        reply=reply,
        right=item.is_right(reply),
        seconds=round(anyio.current_time() - started, 3),
        failure=failure,
    )


def _longest(card: WorkerCard) -> int:
    wanted = _LONGEST[card.where] + card.reasoning_floor
    return min(card.max_output_tokens, wanted, card.context_window // 2)


async def reply_once(worker: Worker, prompt: Prompt) -> tuple[Reply, Usage]:
    """One real reply, tried once and in no ledger, and what it took.

    Raises:
        WorkerError: no usable reply.
    """
    call = _Measured()
    reply = await worker.reply(prompt, ModelSettings(), call)
    return reply, call.used


class _Measured:
    """The `Call` of a measurement: it is in no ledger, but counts what was used."""

    deadline = float("inf")
    resume_id: str | None = None

    def __init__(self) -> None:
        self.used = Usage()

    @asynccontextmanager
    async def attempt(self, request: Mapping[str, JsonValue]) -> AsyncGenerator["_Counted"]:
        counted = _Counted()
        try:
            yield counted
        finally:
            self.used += counted.newest


class _Counted:
    """One request of a measurement."""

    def __init__(self) -> None:
        self.newest = Usage()

    async def sent(self, request_id: str) -> None:
        """Nothing is attached to later."""

    async def usage(self, usage: Usage) -> None:
        self.newest = usage

    async def settle(self, reply: Reply) -> None:
        self.newest = reply.usage


def save_profile(folder: Path, profile: Profile) -> Path:
    """Keep *profile*; one of the same worker, model and day is replaced. The file's path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{_stem(profile.name, profile.kind, profile.model)}.{profile.measured}.json"
    unfinished = path.with_suffix(".new")
    unfinished.write_text(profile.model_dump_json(indent=1) + "\n", encoding="utf-8")
    unfinished.replace(path)
    return path


def find_profile(folder: Path, card: WorkerCard) -> Profile | None:
    """The newest profile of that worker and model; None when it was never measured.

    Raises:
        ManifestError: its file is damaged.
    """
    paths = sorted(folder.glob(f"{_stem(card.name, card.kind, card.model)}.*.json"))
    if not paths:
        return None
    try:
        return Profile.model_validate_json(paths[-1].read_text(encoding="utf-8"))
    except (OSError, ValidationError, UnicodeDecodeError) as error:
        why = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error
        raise ManifestError(
            f"{paths[-1]}: this profile cannot be read ({why}); delete the file, then measure "
            f"again: podium workers profile {card.name}."
        ) from None


def _stem(name: str, kind: str, model: str) -> str:
    """A file name that is readable, and its own for every worker and model."""
    words = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{name}-{Path(model).name}")[:60].strip(".-")
    return f"{words}-{sha256(chr(0).join((name, kind, model)).encode()).hexdigest()[:8]}"
