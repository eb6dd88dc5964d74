"""Access tokens of an OAuth issuer: signed by one of its keys, made for this server, and in time.

Fetches the issuer's keys when they are first needed, and again when they are old or one is
unknown. Knows nothing of MCP; the texts of its errors never hold a token.
"""

import json
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit

import anyio

from podium.config import is_loopback
from podium.errors import SettingsError
from podium_workers.worker import Frozen

if TYPE_CHECKING:
    import httpx2

ALGORITHMS = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), "RSA"),
    **dict.fromkeys(("ES256", "ES384", "ES512"), "EC"),
    "EdDSA": "OKP",
}
"""How tokens may be signed, and with what kind of key. All with a public key: with a secret that
issuer and server share, whoever reads the keys could make tokens."""
LEEWAY_S = 30.0
"""Seconds by which the clocks of issuer and server may differ."""
FRESH_S = 3600.0
"""Seconds after which keys are fetched again: a key that was taken back must not live on."""
STALE_S = 86_400.0
"""Seconds that keys are used when they cannot be fetched again."""
BURST, WITHIN_S = 5, 60.0
"""Times that keys are asked for within so many seconds, whatever unknown keys tokens name."""
FETCH_S = 10.0
_MOST_BYTES = 1 << 20

Key = dict[str, object]
"""One key as the issuer publishes it (RFC 7517)."""

logger = logging.getLogger(__name__)


class TokenError(Exception):
    """A token that is not to be let in; why."""


class Claims(Frozen):
    """What a good token says."""

    issuer: str
    subject: str
    """The user, as this issuer knows him."""
    client: str
    """The program that he uses; empty when the token does not say."""
    scopes: tuple[str, ...]

    @property
    def principal(self) -> str:
        """The user, told apart from users of the same name elsewhere: an issuer holds no `#`."""
        return f"{self.issuer}#{self.subject}"


class _FetchError(Exception):
    """The issuer did not give what it was asked for."""


def check_address(setting: str, url: str) -> None:
    """Refuse an address over which somebody on the way could put his own keys.

    Raises:
        SettingsError: it is not HTTPS, and not on this machine either.
    """
    found = urlsplit(url)
    if found.scheme != "https" and not is_loopback(found.hostname or ""):
        raise SettingsError(f"{setting}: {url!r} has to begin with https://, so that it is safe.")


@dataclass
class KeySet:
    """The keys of *issuer*, as it publishes them at *jwks* or where its metadata says."""

    issuer: str
    jwks: str | None = None
    clock: Callable[[], float] = time.monotonic
    _keys: tuple[Key, ...] = ()
    _fetched_at: float | None = None
    _asked_at: list[float] = field(default_factory=list[float])
    _one_at_a_time: anyio.Lock = field(default_factory=anyio.Lock)
    """Held while keys are fetched, so that many callers ask the issuer once."""

    async def find(self, kid: str | None, kind: str) -> tuple[Key, ...]:
        """The keys of that kind with that id; without an id, all of that kind."""
        before = self._fetched_at
        found = self._fitting(kid, kind)
        if not found or before is None or self.clock() - before > FRESH_S:
            async with self._one_at_a_time:
                if self._fetched_at == before:
                    await self._renew()
            found = self._fitting(kid, kind)
        return found

    def _fitting(self, kid: str | None, kind: str) -> tuple[Key, ...]:
        return tuple(
            key
            for key in self._keys
            if key.get("kty") == kind
            and key.get("use", "sig") == "sig"
            and (kid is None or key.get("kid") == kid)
        )

    async def _renew(self) -> None:
        now = self.clock()
        self._asked_at = [at for at in self._asked_at if now - at < WITHIN_S]
        if len(self._asked_at) >= BURST:
            return
        self._asked_at.append(now)
        try:
            self._keys = await self._fetch()
        except _FetchError as error:
            logger.warning("the keys of %s cannot be fetched: %s", self.issuer, error)
            if self._fetched_at is not None and now - self._fetched_at > STALE_S:
                self._keys = ()
            return
        self._fetched_at = now

    async def _fetch(self) -> tuple[Key, ...]:
        import httpx2

        try:
            with anyio.fail_after(FETCH_S):
                async with httpx2.AsyncClient(timeout=FETCH_S) as client:
                    where = self.jwks or await self._discover(client)
                    keys = (await _get(client, where)).get("keys")
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise _FetchError(str(error) or type(error).__name__) from error
        except TimeoutError:
            raise _FetchError(f"no answer within {FETCH_S:g} seconds") from None
        if not isinstance(keys, list):
            raise _FetchError(f"{where} has no list of keys")
        return tuple(
            cast("Key", key) for key in cast("list[object]", keys) if isinstance(key, dict)
        )

    async def _discover(self, client: "httpx2.AsyncClient") -> str:
        """Where the issuer's metadata (RFC 8414, OpenID Connect) says that its keys are."""
        for place in metadata_places(self.issuer):
            try:
                found = await _get(client, place)
            except _FetchError:
                continue
            if found.get("issuer") != self.issuer:
                raise _FetchError(f"{place} is of another issuer, {found.get('issuer')!r}")
            where = found.get("jwks_uri")
            if not isinstance(where, str):
                raise _FetchError(f"{place} does not say where its keys are; set oauth_jwks")
            try:
                check_address("jwks_uri", where)
            except SettingsError as error:
                raise _FetchError(str(error)) from None
            return where
        raise _FetchError("it publishes no metadata; set oauth_jwks to where its keys are")


@dataclass(frozen=True)
class Issuer:
    """Tells good tokens of one issuer from others; *audiences* are names of this server."""

    keys: KeySet
    audiences: tuple[str, ...]

    @property
    def name(self) -> str:
        """The issuer's address, which is its name."""
        return self.keys.issuer

    async def verify(self, token: str) -> Claims:
        """What a token says, if it is to be believed.

        Raises:
            TokenError: it is not.
        """
        import jwt

        try:
            header: dict[str, object] = jwt.get_unverified_header(token)
        except jwt.PyJWTError as error:
            raise TokenError(type(error).__name__) from None
        algorithm, kid = header.get("alg"), header.get("kid")
        kind = ALGORITHMS.get(algorithm) if isinstance(algorithm, str) else None
        if not isinstance(algorithm, str) or kind is None:
            raise TokenError("it is not signed in a way that is allowed")
        keys = await self.keys.find(kid if isinstance(kid, str) else None, kind)
        if not keys:
            raise TokenError("it is signed with a key that the issuer does not have")
        return self._claims(token, algorithm, keys)

    def _claims(self, token: str, algorithm: str, keys: Sequence[Key]) -> Claims:
        import jwt

        for key in keys:
            if key.get("alg", algorithm) != algorithm:
                continue
            try:
                said: dict[str, object] = jwt.decode(
                    token,
                    jwt.PyJWK(key, algorithm),
                    algorithms=[algorithm],
                    audience=self.audiences,
                    issuer=self.name,
                    leeway=LEEWAY_S,
                    options={
                        "require": ["exp", "iss", "aud", "sub"],
                        "enforce_minimum_key_length": True,
                    },
                )
            except (jwt.InvalidSignatureError, jwt.InvalidKeyError):
                continue
            except jwt.PyJWTError as error:
                raise TokenError(type(error).__name__) from None
            return _as_claims(said)
        raise TokenError("its signature is not right")


def open_issuer(name: str, audience: str, jwks: str | None) -> Issuer:
    """The issuer with that address, whose tokens have to be made for *audience*.

    Raises:
        SettingsError: an address is not safe.
    """
    check_address("oauth_issuer", name)
    if jwks:
        check_address("oauth_jwks", jwks)
    bare = audience.rstrip("/")
    return Issuer(KeySet(name, jwks), tuple(dict.fromkeys((audience, bare, f"{bare}/"))))


def metadata_places(issuer: str) -> tuple[str, ...]:
    """Where an issuer may publish its metadata, the newer standard first."""
    found = urlsplit(issuer)
    host, path = f"{found.scheme}://{found.netloc}", found.path.rstrip("/")
    places = (
        f"{host}/.well-known/oauth-authorization-server{path}",
        f"{host}/.well-known/openid-configuration{path}",
        f"{host}{path}/.well-known/openid-configuration",
    )
    return tuple(dict.fromkeys(places))


def _as_claims(said: dict[str, object]) -> Claims:
    subject, client = said["sub"], said.get("client_id", said.get("azp", ""))
    if not isinstance(subject, str) or not subject:
        raise TokenError("it does not say whose it is")
    return Claims(
        issuer=str(said["iss"]),
        subject=subject,
        client=client if isinstance(client, str) else "",
        scopes=(*_scopes(said.get("scope")), *_scopes(said.get("scp"))),
    )


def _scopes(said: object) -> tuple[str, ...]:
    """Scopes as one text (RFC 9068) or as a list, as some issuers have it."""
    if isinstance(said, str):
        return tuple(said.split())
    found = cast("list[object]", said) if isinstance(said, list) else []
    return tuple(scope for scope in found if isinstance(scope, str))


async def _get(client: "httpx2.AsyncClient", url: str) -> dict[str, object]:
    """The JSON object at an address; redirects are not followed."""
    async with client.stream("GET", url, headers={"accept": "application/json"}) as response:
        if response.status_code != 200:
            raise _FetchError(f"{url} answered {response.status_code}")
        body = bytearray()
        async for piece in response.aiter_bytes():
            body += piece
            if len(body) > _MOST_BYTES:
                raise _FetchError(f"{url} answered with more than {_MOST_BYTES} bytes")
    try:
        found: object = json.loads(body)
    except (ValueError, RecursionError):
        raise _FetchError(f"{url} did not answer with JSON") from None
    if not isinstance(found, dict):
        raise _FetchError(f"{url} did not answer with a JSON object")
    return cast("dict[str, object]", found)
