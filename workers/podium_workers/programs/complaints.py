"""What a command-line assistant's words on a failure mean, as one of this package's errors."""

import re
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from podium_workers.errors import (
    AuthenticationError,
    ContextTooLongError,
    OutOfCreditError,
    ProgramFailedError,
    RateLimitedError,
    RefusedError,
    UnknownModelError,
    UnreachableError,
    UnsupportedParameterError,
    WorkerError,
)
from podium_workers.programs.assistants import Said
from podium_workers.wire import LONGEST_TEXT, ApiKey, failure
from podium_workers.wire import Said as HttpSaid

_LOGIN = re.compile(
    r"not logged in|/login\b|log ?in (again|required)|login required|please (log|sign) ?in"
    r"|auth(entication)? method|unauthori[sz]ed|\b401\b|missing bearer|token (has )?expired"
    r"|(invalid|incorrect) api key|api key not valid|re-?authenticate"
)
_ALLOWANCE = re.compile(
    r"(usage|hour|weekly|daily|session|plan|opus|monthly) limit|limit reached|hit your .{0,20}limit"
    r"|reached your .{0,20}limit|out of .{0,20}(credit|usage)|credit balance|quota|purchase more"
)
_RATE = re.compile(r"rate.?limit|too many requests|\b429\b|resource.?exhausted")
_OTHERS: tuple[tuple[type[WorkerError], re.Pattern[str]], ...] = (
    (
        UnsupportedParameterError,
        re.compile(r"un(known|expected|recogni[sz]ed) (option|argument)s?"),
    ),
    (ContextTooLongError, re.compile(r"(prompt|input) is too long|context (window|length)")),
    (RefusedError, re.compile(r"content policy|usage policy|safety|unable to respond")),
    (
        UnknownModelError,
        re.compile(
            r"model\b.{0,80}(not found|not exist|not supported|not available)|selected model"
        ),
    ),
    (
        UnreachableError,
        re.compile(
            r"enotfound|econnrefused|etimedout|eai_again|lookup address|fetch failed|network"
            r"|(connection|connect) (failed|refused|error)|failed to connect|unable to connect"
        ),
    ),
)
_OPENINGS: dict[type[WorkerError], str] = {
    UnsupportedParameterError: "does not know how it was called; a newer version may",
    ContextTooLongError: "finds the prompt too long",
    RefusedError: "declined",
    UnknownModelError: "does not have this model",
    UnreachableError: "reaches no model",
    ProgramFailedError: "failed",
}


def meaning(said: Said, words: str, *, title: str, log_in: str) -> WorkerError:
    """The error behind *words*, with which an assistant called *title* ended."""
    low = words.lower()
    shown = " ".join(words.split())[-LONGEST_TEXT:] or "nothing"
    if said.status in {401, 403} or _LOGIN.search(low):
        return AuthenticationError(f"{title} is not logged in: {log_in}. It says: {shown}")
    if _ALLOWANCE.search(low) or said.status == 402:
        wait = wait_in(words, datetime.now().astimezone())
        if wait is None:
            return OutOfCreditError(f"{title} has nothing left to spend: {shown}")
        return RateLimitedError(f"{title} has used up its limit: {shown}", retry_after_s=wait)
    if said.status is not None:
        return failure(HttpSaid(f"{title}: {shown}", status=said.status), ApiKey())
    if _RATE.search(low):
        wait = wait_in(words, datetime.now().astimezone())
        return RateLimitedError(f"{title} was asked too often: {shown}", retry_after_s=wait)
    found = (kind for kind, pattern in _OTHERS if pattern.search(low))
    kind: type[WorkerError] = next(found, ProgramFailedError)
    return kind(f"{title} {_OPENINGS[kind]}. It says: {shown}")


_EPOCH = re.compile(r"\|(\d{10})\b")
_SPAN = re.compile(
    r"(?:try again|retry|resets?|available)(?: again)? in ((?:\d+ ?[a-z]+[, ]*(?:and )?)+)"
)
_PART = re.compile(r"(\d+) ?(d|h|m|s)")
_SECONDS = {"d": 86_400, "h": 3600, "m": 60, "s": 1}
_CLOCK = re.compile(
    r"(?:resets?|try again|available)(?: again)?(?: at)? (\d{1,2})(?::(\d{2}))? ?([ap]m)"
    r"(?: \(([a-z_]+/[a-z_/]+)\))?"
)


def wait_in(words: str, now: datetime) -> float | None:
    """Seconds from *now* until the moment that *words* name for the next try; None if none.

    Understood are a moment in seconds of the epoch behind a bar, a span of time, and a time of day,
    which is the next one of this machine's or of the zone that is named.
    """
    low = words.lower()
    if found := _EPOCH.search(low):
        return max(0.0, int(found[1]) - now.timestamp())
    if found := _SPAN.search(low):
        parts = _PART.findall(found[1])
        return float(sum(int(count) * _SECONDS[unit] for count, unit in parts)) if parts else None
    if found := _CLOCK.search(low):
        return _until(found, now)
    return None


def _until(found: re.Match[str], now: datetime) -> float | None:
    hour = int(found[1]) % 12 + (12 if found[3] == "pm" else 0)
    minute = int(found[2] or 0)
    if minute > 59 or int(found[1]) > 12:
        return None
    there = now.astimezone(_zone(found[4])) if found[4] else now
    moment = there.replace(hour=hour, minute=minute, second=0, microsecond=0)
    if moment <= there:
        moment += timedelta(days=1)
    return (moment - there).total_seconds()


def _zone(name: str) -> ZoneInfo | None:
    """The zone that was named in lower case; None, which means this machine's, if unknown."""
    proper = "/".join(
        "_".join(part.capitalize() for part in place.split("_")) for place in name.split("/")
    )
    try:
        return ZoneInfo(proper)
    except (KeyError, ValueError, OSError):  # ZoneInfoNotFoundError is a KeyError
        return None
