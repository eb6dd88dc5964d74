"""Who may call over HTTP, and in whose name: the SDK's token verifier over both kinds of tokens."""

import logging
from dataclasses import dataclass

import anyio.to_thread
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings

from podium.config import Settings
from podium.credentials import MARK, TokenFile
from podium.errors import SettingsError
from podium.oauth import Issuer, TokenError, open_issuer

_CLIENT = "podium-token"
"""Program of callers with a bearer token of Podium's own: which one it is, is not known."""
_NAMED = 5
"""People whom the server names when it starts; of more it says how many."""

logger = logging.getLogger(__name__)


class KnownCaller(AccessToken):
    """Who calls, as the SDK carries it along; without the token itself, which nobody needs."""

    principal: str
    """The user that his runs belong to."""


@dataclass(frozen=True)
class Access:
    """Lets in who has a token of the file, or of the issuer if there is one."""

    tokens: TokenFile
    issuer: Issuer | None
    resource: str
    """Address of this server as OAuth clients name it; empty without an issuer."""
    scopes: tuple[str, ...]
    """Those that the issuer's tokens need."""

    @property
    def settings(self) -> AuthSettings:
        """What the SDK publishes of it (RFC 9728), if there is an issuer to point to."""
        name = self.issuer.name if self.issuer else "http://localhost"  # without one never shown
        # From texts: a URL made before would be given a slash at its end, and be another name.
        return AuthSettings.model_validate(
            {
                "issuer_url": name,
                "resource_server_url": self.resource or None,
                "required_scopes": list(self.scopes),
                "validate_token_resource": False,  # the audience is checked with the signature
            }
        )

    @property
    def opens_to(self) -> tuple[str, ...]:
        """What lets somebody in now, in words; nothing while there is no way in.

        Raises:
            SettingsError: the tokens cannot be read.
        """
        names = sorted({token.name for token in self.tokens.valid()})
        whose = ", ".join(names) if len(names) <= _NAMED else f"{len(names)} people"
        ways = [f"a token (of {whose})"] if names else []
        return (*ways, *([f"a login at {self.issuer.name}"] if self.issuer else []))

    async def verify_token(self, token: str) -> KnownCaller | None:
        """Who has that token; None when it opens nothing here."""
        if token.startswith(MARK):
            return await anyio.to_thread.run_sync(self._of_file, token)
        return await self._of_issuer(token) if self.issuer else None

    def _of_file(self, text: str) -> KnownCaller | None:
        token = self.tokens.find(text)
        if token is None:
            logger.info("a bearer token that is unknown or has expired was refused")
            return None
        return KnownCaller(
            token="", client_id=_CLIENT, subject=token.name,
            scopes=list(self.scopes), principal=token.name,
        )  # fmt: skip

    async def _of_issuer(self, text: str) -> KnownCaller | None:
        assert self.issuer is not None, "only called when there is one"
        try:
            claims = await self.issuer.verify(text)
        except TokenError as error:
            logger.info("a token of %s was refused: %s", self.issuer.name, error)
            return None
        return KnownCaller(
            token="", client_id=claims.client, subject=claims.subject,
            claims={"iss": claims.issuer}, scopes=list(claims.scopes), principal=claims.principal,
        )  # fmt: skip

    def principal(self) -> str:
        """The user that the call at hand comes from."""
        caller = get_access_token()
        if isinstance(caller, KnownCaller):
            return caller.principal
        raise RuntimeError("a call came through that nobody had let in")


def open_access(settings: Settings) -> Access | None:
    """Who is let in over HTTP; None if no token was ever made and no issuer is set.

    Raises:
        SettingsError: the settings do not fit together, or the tokens cannot be read.
    """
    tokens, issuer = TokenFile(settings.tokens_file), _issuer(settings)
    tokens.read()
    if issuer is None and not tokens.exists():
        return None
    resource = settings.http_url if issuer and settings.http_url else ""
    return Access(tokens, issuer, resource, settings.oauth_scopes)


def _issuer(settings: Settings) -> Issuer | None:
    if settings.oauth_issuer is None:
        return None
    if settings.http_url is None:
        raise SettingsError(
            "http_url: is not set, but with oauth_issuer clients have to be told where this server "
            "is; type podium config set http_url https://YOUR.HOST/mcp"
        )
    audience = settings.oauth_audience or settings.http_url
    return open_issuer(settings.oauth_issuer, audience, settings.oauth_jwks)
