"""Bearer tokens of callers over HTTP: made once, kept as hashes, found again by their text.

A token is 256 random bits behind a mark that tells it from tokens of other makers; so one round of
SHA-256 hides it as well as any slow hash. Knows nothing of HTTP or MCP.
"""

import hashlib
import hmac
import logging
import os
import re
import secrets
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pydantic import AwareDatetime, ValidationError

from podium.errors import SettingsError
from podium_workers.lockfile import LockFile
from podium_workers.worker import Frozen

MARK = "podium_"
"""Begins every token that Podium makes."""
_BYTES = 32
_PATIENCE_S = 5.0
"""Seconds to wait for another process that changes the file; it needs milliseconds."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}")
"""Holds no `#`, so that a name never equals a caller whom an OAuth issuer knows."""
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH

logger = logging.getLogger(__name__)


class Token(Frozen):
    """What is kept of a token."""

    name: str
    """Whose it is: the principal of the runs that are asked for with it."""
    sha256: str
    """Hash of its text, in hexadecimal digits."""
    created: AwareDatetime
    expires: AwareDatetime | None = None

    @property
    def id(self) -> str:
        """Tells it from other tokens of the same name; says nothing of its text."""
        return self.sha256[:8]

    def is_valid(self, now: datetime) -> bool:
        """Whether it still opens anything."""
        return self.expires is None or now < self.expires


class _Content(Frozen):
    """The file."""

    tokens: tuple[Token, ...] = ()


Stamp = tuple[int, int, int] | None
"""Changes with the file: what stat says of it; None when there is no file."""


def _now() -> datetime:
    return datetime.now(UTC)


class TokenFile:
    """The tokens in the file at *path*, which is read again whenever it has changed."""

    def __init__(self, path: Path, clock: Callable[[], datetime] = _now) -> None:
        self.path = path
        self._clock = clock
        self._seen: tuple[Stamp, tuple[Token, ...]] = (None, ())

    def exists(self) -> bool:
        """Whether a token was ever made; then callers need one, also when none is left.

        Raises:
            SettingsError: as in `read`.
        """
        return self._stamp() is not None

    def read(self) -> tuple[Token, ...]:
        """All tokens, by name, those that have expired too.

        Raises:
            SettingsError: the file is damaged, or others than its owner may write it.
        """
        stamp = self._stamp()
        if stamp != self._seen[0]:
            self._seen = (stamp, self._read())
        return self._seen[1]

    def valid(self) -> tuple[Token, ...]:
        """Those that open something now.

        Raises:
            SettingsError: as in `read`.
        """
        now = self._clock()
        return tuple(token for token in self.read() if token.is_valid(now))

    def find(self, text: str) -> Token | None:
        """The valid token with that text. While the file cannot be read there is none."""
        try:
            tokens = self.valid()
        except SettingsError as error:
            logger.warning("nobody is let in by a token: %s", error)
            return None
        presented, found = _hash(text), None
        for token in tokens:  # every one is compared, whichever it is
            if hmac.compare_digest(token.sha256, presented):
                found = token
        return found

    def add(self, name: str, lasts: timedelta | None = None) -> str:
        """A new token for *name*, beside those that it has; its text, which nobody can tell again.

        Raises:
            SettingsError: the name cannot be used, or the file cannot be written.
        """
        if not _NAME.fullmatch(name):
            raise SettingsError(
                f"{name!r} cannot be the name of a token; use up to 64 letters, digits and ._@+-, "
                "a letter or digit first, for example anna."
            )
        text = MARK + secrets.token_urlsafe(_BYTES)
        now = self._clock().replace(microsecond=0)
        token = Token(
            name=name, sha256=_hash(text), created=now, expires=now + lasts if lasts else None
        )
        with self._alone():
            self._write((*self.read(), token))
        return text

    def remove(self, which: str) -> tuple[Token, ...]:
        """Take out all tokens of that name, or the one with that id; what was taken out.

        Raises:
            SettingsError: there is none, or the file cannot be written.
        """
        with self._alone():
            tokens = self.read()
            removed = tuple(token for token in tokens if which in (token.name, token.id))
            if not removed:
                known = ", ".join(sorted({token.name for token in tokens})) or "nobody"
                raise SettingsError(f"There is no token {which!r}; tokens have: {known}.")
            self._write(tuple(token for token in tokens if token not in removed))
        return removed

    def _stamp(self) -> Stamp:
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise SettingsError(f"{self.path}: cannot be read ({error.strerror}).") from None
        if sys.platform != "win32" and found.st_mode & _WRITABLE_BY_OTHERS:
            raise SettingsError(
                f"{self.path}: others may write it, and so let themselves in; "
                f"type chmod 600 {self.path}"
            )
        return found.st_ino, found.st_mtime_ns, found.st_size

    def _read(self) -> tuple[Token, ...]:
        try:
            content = _Content.model_validate_json(self.path.read_bytes())
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise SettingsError(f"{self.path}: cannot be read ({error.strerror}).") from None
        except ValidationError:
            raise SettingsError(
                f"{self.path}: is damaged; restore it, or remove it and make new tokens with "
                "`podium token add NAME`."
            ) from None
        return tuple(sorted(content.tokens, key=lambda token: (token.name, token.created)))

    @contextmanager
    def _alone(self) -> Generator[None]:
        """Let nobody else change the file meanwhile."""
        try:
            lock = LockFile(self.path.with_suffix(".lock"))
        except OSError as error:
            raise SettingsError(f"{self.path}: cannot be written ({error.strerror}).") from None
        with lock:
            until = time.monotonic() + _PATIENCE_S
            while not lock.acquire():
                if time.monotonic() > until:
                    raise SettingsError(f"{self.path}: another process is changing it; try again.")
                time.sleep(0.01)
            yield

    def _write(self, tokens: tuple[Token, ...]) -> None:
        """Replace the file as a whole, readable for its owner only."""
        text = _Content(tokens=tokens).model_dump_json(indent=2, exclude_none=True)
        folder = self.path.parent
        try:
            with tempfile.NamedTemporaryFile("w", dir=folder, prefix=".", delete=False) as made:
                made.write(text + "\n")
                made.flush()
                os.fsync(made.fileno())
            try:
                os.replace(made.name, self.path)
            finally:
                Path(made.name).unlink(missing_ok=True)
        except OSError as error:
            raise SettingsError(f"{self.path}: cannot be written ({error.strerror}).") from None


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
