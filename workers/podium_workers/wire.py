"""What the adapters for hosted models share: limits in time, safe texts, what a refusal means.

Knows HTTP's meanings but no provider's library; each adapter translates its own exceptions into
`Said`, and `failure` decides which error that is.
"""

import math
import re
import time
from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, cast
from urllib.parse import urlsplit

import anyio
from pydantic import Field, SecretStr

from podium_workers.errors import (
    AuthenticationError,
    ContextTooLongError,
    MalformedReplyError,
    OutOfCreditError,
    OverloadedError,
    RateLimitedError,
    RefusedError,
    SlowReplyError,
    UnknownModelError,
    UnsupportedParameterError,
    WorkerError,
)
from podium_workers.worker import Frozen, Message, Prompt, WorkerCard

OPENAI_URL = "https://api.openai.com/v1"
ANTHROPIC_URL = "https://api.anthropic.com"
LONGEST_TEXT = 300
"""Characters of a provider's own words that an error keeps."""


class TimeLimits(Frozen):
    """How long a provider may keep a request waiting, in seconds."""

    first_byte_s: float = Field(default=120, gt=0)
    """Silence before the model's first words."""
    idle_s: float = Field(default=60, gt=0)
    """Silence after them."""


@dataclass(frozen=True)
class ApiKey:
    """A key and the environment variable that it came from; neither for an endpoint without."""

    variable: str | None = None
    secret: SecretStr | None = None

    def reveal(self) -> str:
        """The key, or a stand-in where none is wanted.

        Raises:
            AuthenticationError: the variable is not set, or holds what cannot be a key.
        """
        if self.secret is None and self.variable is None:
            return "none"
        text = self.secret.get_secret_value() if self.secret else ""
        if not text:
            raise AuthenticationError(
                f"{self.variable} is not set: put the key into that environment variable."
            )
        if not text.isascii() or not text.isprintable() or " " in text:
            raise AuthenticationError(
                f"{self.variable} holds characters that no key has: copy the key again."
            )
        return text

    def scrub(self, text: str) -> str:
        """*text* without this key and without anything that looks like one."""
        return scrub(self.struck_from(text))

    def struck_from(self, text: str) -> str:
        """*text* without this key: replies are stored, shown and read by other workers."""
        key = self.secret.get_secret_value() if self.secret else ""
        return text.replace(key, "[key]") if key else text


_LOOKS_LIKE_A_KEY = re.compile(
    r"\b(?:sk|pk|rk|gsk|xai|hf|pplx|AIza)[-_]?(?=[\w*.-]*[\d*])[\w*-][\w*.-]{7,}"
    r"|(?<=Bearer )\S+|\b\w{2,}\*{3,}\w*"
)


def scrub(text: str) -> str:
    """*text* with everything that looks like a key replaced."""
    return _LOOKS_LIKE_A_KEY.sub("[key]", text)


def is_loopback(url: str) -> bool:
    """Whether *url* leads to this machine."""
    host = (urlsplit(url).hostname or "").lower()
    return host in {"localhost", "::1"} or host.startswith("127.")


def is_openai(url: str) -> bool:
    """Whether *url* is OpenAI's own, regional ones included."""
    own = urlsplit(OPENAI_URL).hostname or ""
    host = urlsplit(url).hostname or ""
    return host == own or host.endswith(f".{own}")


def messages_of(prompt: Prompt, card: WorkerCard) -> tuple[Message, ...]:
    """The prompt's messages, with the worker's standing instructions as system message."""
    first, *rest = prompt.messages
    if not card.role:
        return prompt.messages
    if first.role != "system":
        return (Message(role="system", text=card.role), *prompt.messages)
    if card.role in first.text:
        return prompt.messages
    return (Message(role="system", text=f"{card.role}\n\n{first.text}"), *rest)


class Patience:
    """Holds one request to its limits. Every byte is a sign of life, keep-alive ones included.

    Until the model's first words the longer limit counts, since a model that reasons may be
    silent on the wire for minutes; after them, the idle limit.
    """

    def __init__(self, limits: TimeLimits, deadline: float) -> None:
        self._limits = limits
        self._deadline = deadline
        self._scope = anyio.CancelScope()
        self._strikes: Literal["first_byte", "idle", "total"] = "first_byte"
        self._begun = False

    @contextmanager
    def hold(self) -> Generator[None]:
        """Bound the block.

        Raises:
            SlowReplyError: a limit struck; it says which one.
        """
        self.hear()
        with self._scope:
            yield
        if self._scope.cancelled_caught:
            raise SlowReplyError(self._text(), limit=self._strikes)

    def begin(self) -> None:
        """The model's first words have arrived."""
        self._begun = True
        self.hear()

    def hear(self) -> None:
        """Bytes have arrived."""
        seconds = self._limits.idle_s if self._begun else self._limits.first_byte_s
        ends = anyio.current_time() + seconds
        self._scope.deadline = min(ends, self._deadline)
        if ends < self._deadline:
            self._strikes = "idle" if self._begun else "first_byte"
        else:
            self._strikes = "total"

    def _text(self) -> str:
        match self._strikes:
            case "first_byte":
                return f"No reply began within {self._limits.first_byte_s:g} s."
            case "idle":
                return f"The reply fell silent for {self._limits.idle_s:g} s."
            case "total":
                return "The reply had not ended when the time limit struck."


@dataclass(frozen=True)
class Said:
    """What an endpoint said instead of a reply."""

    message: str
    status: int | None = None
    """HTTP status; None for an error inside a stream that began well."""
    code: str = ""
    """The endpoint's own word for the kind of error."""
    parameter: str | None = None
    """The part of the request that it complains of, when it says so."""
    retry_after_s: float | None = None


def entries(value: object) -> Mapping[str, object]:
    """*value* as a mapping; an empty one when it is something else."""
    return cast("Mapping[str, object]", value) if isinstance(value, dict) else {}


def items(value: object) -> Sequence[object]:
    """*value* as a sequence; an empty one when it is something else."""
    return cast("Sequence[object]", value) if isinstance(value, list) else ()


def add_text(parts: list[str], piece: object) -> None:
    """Add *piece* to *parts* if it is text and not empty."""
    if isinstance(piece, str) and piece:
        parts.append(piece)


def words_in(body: object, otherwise: str) -> str:
    """The endpoint's own words, wherever an error body keeps them."""
    for item in items(body):
        return words_in(item, otherwise)
    fields = entries(body)
    for name in ("message", "msg", "detail", "error"):
        found = fields.get(name)
        if isinstance(found, str) and found.strip():
            return found
        if isinstance(found, dict | list):
            return words_in(cast("object", found), otherwise)
    if isinstance(body, str) and body.strip():
        return "an HTML page came back" if body.lstrip().startswith("<") else body
    return otherwise


_CREDIT = re.compile(
    r"insufficient[_ ](quota|credit|balance|funds)|credit balance|not enough credit|out of credit"
    r"|billing[_ ](hard[_ ]limit|not[_ ]active|error)|spend(ing)?[_ ]limit|payment[_ ]required"
)
_CONTEXT = re.compile(
    r"context[_ ](length|window|size|limit)|maximum context|max[_ ]model[_ ]len|exceed_context"
    r"|(prompt|input) is too long|input token count|request[_ ]too[_ ]large|above_max_length"
)
_FILTERED = re.compile(
    r"content[_ ](filter|policy|management)|moderation|\bflagged\b|safety system|prohibited[_ ]cont"
    r"|invalid_prompt|policy_violation|\b(bio|misalignment)_policy|usage polic"
)
_KEY = re.compile(
    r"(invalid|incorrect|missing|expired|no)\b[^.]{0,20}api[_ -]?key|unauthenticated"
    r"|api[_ -]?key[_ ](not valid|invalid|is invalid|expired)"
)
_MODEL = re.compile(
    r"model[_ ]not[_ ]found|(no such|unknown|invalid) model|not a valid model"
    r"|model\b.{0,80}(does not exist|not found|not available|not exist)"
)
_REFUSES = re.compile(
    r"unsupported|not support|unrecognized|unknown|unexpected|extra[_ ](inputs|forbidden|fields)"
    r"|not (permitted|allowed|accepted|available)|deprecated|only the default|cannot be (set|used)"
)
_BAD_SCHEMA = re.compile(r"invalid[_ ](json[_ ])?schema")
_ALIASES = {
    "response_format": ("response_format", "json_schema", "structured output"),
    "output_config": ("output_config", "output_format", "structured output"),
    "text": ("text.format", "response_format", "json_schema", "structured output"),
}
_STATUS_OF_CODE = {
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "model_not_found": 404,
    "timeout_error": 504,
    "request_too_large": 413,
    "context_length_exceeded": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "insufficient_quota": 402,
    "invalid_request_error": 400,
    "overloaded_error": 529,
    "data_residency_mismatch": 400,
}
"""Statuses that errors inside a stream stand for, where the endpoint names only a kind."""

_OPENINGS: dict[type[WorkerError], str] = {
    AuthenticationError: "The key was refused",
    OutOfCreditError: "The account has no credit left",
    ContextTooLongError: "The prompt is too long for the model",
    RefusedError: "The provider declined the prompt",
    UnknownModelError: "The endpoint has no such model",
    RateLimitedError: "Too many requests or tokens for the account's limits",
    OverloadedError: "The provider cannot serve now",
    MalformedReplyError: "The endpoint answered with something that is no reply",
    SlowReplyError: "The provider gave up waiting",
    UnsupportedParameterError: "The endpoint does not take the request",
}


def failure(said: Said, key: ApiKey, *, sent: Collection[str] = ()) -> WorkerError:
    """The error that *said* stands for; *sent* names the parameters that were in the request."""
    status = said.status if said.status is not None else _status_of(said.code)
    parameter = refused_parameter(said, sent) if status in {400, 422} else None
    kind = UnsupportedParameterError if parameter else _kind(status, said)
    words = " ".join(key.scrub(said.message).split())[:LONGEST_TEXT]
    shown = f" (HTTP {said.status})" if said.status is not None else ""
    text = f"{_OPENINGS[kind]}{shown}: {words}"
    if issubclass(kind, SlowReplyError):
        return SlowReplyError(text, limit="total")
    if issubclass(kind, UnsupportedParameterError):
        return UnsupportedParameterError(text, status=said.status, parameter=parameter)
    if kind is AuthenticationError and key.variable:
        text = f"{text.rstrip('.')}. Check {key.variable}."
    wait = _wait_in(said) if kind.transient else None
    return kind(text, status=said.status, retry_after_s=wait)


def refused_parameter(said: Said, sent: Collection[str]) -> str | None:
    """Which of the parameters *sent* the endpoint does not know or take at all, if any.

    A value that is merely out of range is not that: leaving the parameter out would change what
    was asked for.
    """
    words = f"{said.code} {said.message}".lower()
    if not _REFUSES.search(words) or _BAD_SCHEMA.search(words):
        return None
    for part in (said.parameter, (said.parameter or "").split(".")[0]):
        if part and part in sent:
            return part
    named = [
        (found.start(), -len(name), name)
        for name in sent
        for alias in _ALIASES.get(name, (name,))
        if (found := re.search(rf"(?<![\w-]){re.escape(alias)}(?!\w)", words))
    ]
    # The one that is named first, and "reasoning.summary" rather than "reasoning".
    return min(named)[2] if named else None


def _status_of(code: str) -> int:
    """The status behind an error inside a stream; 500 when it says nothing better."""
    if code.isdecimal() and 400 <= int(code) <= 599:
        return int(code)
    ours = code.startswith("invalid_") or "_policy" in code
    return _STATUS_OF_CODE.get(code, 400 if ours else 500)


_KIND_OF_STATUS: dict[int, type[WorkerError]] = {
    401: AuthenticationError,
    402: OutOfCreditError,
    403: AuthenticationError,
    404: UnknownModelError,
    408: SlowReplyError,
    409: OverloadedError,
    413: ContextTooLongError,
    425: OverloadedError,
    429: RateLimitedError,
    499: OverloadedError,
    501: UnsupportedParameterError,
}


def _kind(status: int, said: Said) -> type[WorkerError]:
    words = f"{said.code} {said.message}".lower()
    by_words = (
        (OutOfCreditError, _CREDIT, {400, 403, 429}),
        (ContextTooLongError, _CONTEXT, {400, 422, 429, 500}),
        (RefusedError, _FILTERED, {400, 403, 422}),
        (AuthenticationError, _KEY, {400}),
        (UnknownModelError, _MODEL, {400, 422}),
    )
    for kind, pattern, statuses in by_words:
        if status in statuses and pattern.search(words):
            return kind
    if status < 400:
        return MalformedReplyError
    otherwise = OverloadedError if status >= 500 else UnsupportedParameterError
    return _KIND_OF_STATUS.get(status, otherwise)


_WAIT_IN_WORDS = re.compile(r"(?:retry|try again) in (\d+(?:\.\d+)?)(ms|s)\b", re.IGNORECASE)


def _wait_in(said: Said) -> float | None:
    if said.retry_after_s is not None:
        return said.retry_after_s
    found = _WAIT_IN_WORDS.search(said.message)
    if not found:
        return None
    return float(found[1]) / (1000 if found[2].lower() == "ms" else 1)


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """The wait that an endpoint asks for in its headers, in seconds."""
    exact = _seconds(headers.get("retry-after-ms", ""))
    if exact is not None:
        return exact / 1000
    stated = headers.get("retry-after", "")
    seconds = _seconds(stated)
    if seconds is not None:
        return seconds
    from email.utils import parsedate_to_datetime

    try:
        return max(0.0, parsedate_to_datetime(stated).timestamp() - time.time())
    except ValueError:
        return None


def _seconds(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None
