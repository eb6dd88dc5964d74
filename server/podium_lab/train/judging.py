"""Judges: whether a reply is right. A judge that cannot decide says so; it never guesses.

Rules are strict where a loose one could be gamed: a text counts only in the last lines of a reply,
so that listing every possible answer is not an answer.
"""

import re
import secrets
import sys
import unicodedata
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from importlib.util import find_spec

import anyio

from podium_lab.bench.scoring import last_number, plain_number
from podium_lab.train.items import Check, Item, JudgeName
from podium_workers.errors import NotInstalledError
from podium_workers.programs.sandbox import Sandbox

JUDGE_S = 60.0
"""Seconds that one judgement may take."""
PROGRAM_S = 6
"""Seconds of processor time that a program has for each of its checks (LiveCodeBench's own)."""
_LAST_CHARACTERS = 200
"""Where in a reply an answer in words has to stand: in so much of its end."""
_CODE = re.compile(r"```[\w+-]*[ \t]*\n(.*?)```", re.DOTALL)
_CHOICE = re.compile(r"(?i:answer|choice|option)(?:\s+(?i:is))?\W{0,12}([A-J])\b")
_LONE = re.compile(r"^\W*([A-J])(?:\W|$)")
_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL | re.I)


class JudgeError(Exception):
    """A reply could not be judged, for no fault of the reply; the text says why."""


@dataclass(frozen=True)
class Judges:
    """All judges. Programs run in a sandbox; one that has no sandbox judges no programs."""

    sandbox: Sandbox = field(default_factory=Sandbox)
    seconds: float = JUDGE_S

    async def is_right(self, item: Item, reply: str) -> bool:
        """Whether *reply* answers *item*.

        Raises:
            JudgeError: it took too long or failed, or what the judge needs is not there.
        """
        judge = self._judges()[item.judge]
        try:
            with anyio.move_on_after(self.seconds):
                return await judge(item, _final(reply))
        except JudgeError:
            raise
        except Exception as error:  # a reply can be anything, and one must not end a whole job
            raise JudgeError(
                f"The judge {item.judge!r} failed on item {item.id!r}: "
                f"{type(error).__name__}: {error}."
            ) from error
        raise JudgeError(
            f"The judge {item.judge!r} had not decided on item {item.id!r} after "
            f"{self.seconds:g} seconds."
        )

    def _judges(self) -> Mapping[JudgeName, Callable[[Item, str], Awaitable[bool]]]:
        return {
            "number": _number,
            "text": _text,
            "choice": _choice,
            "code": self._code,
            "program": self._program,
            "math": _math,
        }

    async def _code(self, item: Item, reply: str) -> bool:
        """Whether the checks of the item run to their end behind the reply's code."""
        # A word that no reply can know, so that none can print it and end early.
        done = secrets.token_hex(8)
        ran = await self._run(f"{code_of(reply)}\n\n{item.answer}\nprint({done!r})")
        return ran is not None and ran.rstrip().endswith(done)

    async def _program(self, item: Item, reply: str) -> bool:
        """Whether the reply's program prints what each check wants (LiveCodeBench's comparison)."""
        if not item.checks:
            raise JudgeError(f"Item {item.id!r} has no checks to judge a program by.")
        for check in item.checks:
            if not await self._prints(code_of(reply), check):
                return False
        return True

    async def _prints(self, program: str, check: Check) -> bool:
        given = (
            f"import io, sys\nsys.stdin = io.TextIOWrapper(io.BytesIO({check.stdin.encode()!r}))"
        )
        ran = await self._run(f"{given}\n{program}")
        return ran is not None and _same_output(ran, check.stdout)

    async def _run(self, program: str) -> str | None:
        try:
            ran = await self.sandbox.run(program, seconds=PROGRAM_S)
        except NotInstalledError as error:
            raise JudgeError(str(error)) from error
        return ran.output if ran.status == "finished" else None


def missing(items: Iterable[Item]) -> str:
    """What the judges of *items* need and is not installed, with what to type; else empty."""
    if find_spec("math_verify") or all(item.judge != "math" for item in items):
        return ""
    return (
        "taskset: answers of `math` are judged by math-verify, which is not installed here; type "
        f"`{sys.executable} -m pip install math-verify`."
    )


def comparable(item: Item, reply: str) -> str | None:
    """What a reply says, in a form that is alike for replies that say the same: to count votes.

    Empty when it says nothing; None where answers cannot be compared, as programs.
    """
    reply = _final(reply)
    if item.judge in ("code", "program"):
        return None
    if item.judge == "number":
        return last_number(reply)
    if item.judge == "choice" and (named := _CHOICE.findall(reply)):
        return named[-1].upper()
    lines = [line for line in reply.strip().splitlines() if line.strip()]
    return _plain(lines[-1]).removeprefix("answer:").strip(" .") if lines else ""


def _final(reply: str) -> str:
    """What stands in the last `<answer>` tags, where a reply has such; else all of it."""
    found = _ANSWER.findall(reply)
    return found[-1] if found else reply


def code_of(reply: str) -> str:
    """The code of a reply: its last fenced block, or all of it."""
    blocks = _CODE.findall(reply)
    return blocks[-1] if blocks else reply


async def _number(item: Item, reply: str) -> bool:
    return last_number(reply) == plain_number(item.answer)


async def _text(item: Item, reply: str) -> bool:
    end = _plain(reply.strip()[-_LAST_CHARACTERS:])
    wanted = _plain(item.answer)
    return re.search(rf"(?<!\w){re.escape(wanted)}(?!\w)", end) is not None


async def _choice(item: Item, reply: str) -> bool:
    named = _CHOICE.findall(reply)
    if named:
        return named[-1].upper() == item.answer
    lines = [line for line in reply.strip().splitlines() if line.strip()]
    lone = _LONE.match(lines[-1]) if lines else None
    return lone is not None and lone[1] == item.answer


async def _math(item: Item, reply: str) -> bool:
    """Equality of mathematical expressions, by the library math-verify, in a process of its own."""
    from podium_lab.train.math_judge import equal_expressions

    return await equal_expressions(item.answer, reply)


def _plain(text: str) -> str:
    """Without accents, case and repeated spaces."""
    flat = unicodedata.normalize("NFKD", text)
    return " ".join("".join(c for c in flat if not unicodedata.combining(c)).casefold().split())


def _same_output(given: str, wanted: str) -> bool:
    """Line by line without spaces at the ends, or all words equal as numbers."""
    ours, theirs = _lines(given), _lines(wanted)
    return ours == theirs or (
        len(ours) == len(theirs)
        and all(_same_words(one, other) for one, other in zip(ours, theirs, strict=True))
    )


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.strip().splitlines()]


def _same_words(one: str, other: str) -> bool:
    ours, theirs = one.split(), other.split()
    return len(ours) == len(theirs) and all(
        a == b or _same_number(a, b) for a, b in zip(ours, theirs, strict=True)
    )


def _same_number(one: str, other: str) -> bool:
    try:
        return Decimal(one) == Decimal(other)
    except InvalidOperation:
        return False
