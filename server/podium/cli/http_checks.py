"""What `podium doctor` says of `podium serve --http`: who is let in. Changes and asks nothing."""

from collections.abc import Iterator
from datetime import UTC, datetime

from podium.cli.check import Check
from podium.cli.wording import count
from podium.config import Settings
from podium.credentials import TokenFile
from podium.errors import SettingsError
from podium.oauth import check_address


def http_checks(settings: Settings) -> Iterator[Check]:
    """Whether HTTP can be served to others, and what stands in the way."""
    try:
        found = _ways(settings)
    except SettingsError as error:
        remedy = "podium serve --http does not start before that"
        yield Check(area="http", level="note", found=str(error), remedy=remedy)
        return
    if found:
        yield Check(area="http", level="ok", found=found)
    else:
        found = "podium serve --http serves this machine only, and asks for no token"
        remedy = "to let others in: podium token add NAME"
        yield Check(area="http", level="ok", found=found, remedy=remedy)


def _ways(settings: Settings) -> str:
    """Who is let in, in words; empty while everybody on this machine is."""
    file = TokenFile(settings.tokens_file)
    tokens, now = file.read(), datetime.now(UTC)
    names = sorted({token.name for token in tokens if token.is_valid(now)})
    old = sum(not token.is_valid(now) for token in tokens)
    told: list[str] = []
    if file.exists():
        told.append(f"tokens of {', '.join(names) or 'nobody'} in {file.path}")
        told += [f"{count(old, 'token')} expired"] if old else []
    if settings.oauth_issuer:
        check_address("oauth_issuer", settings.oauth_issuer)
        if settings.http_url is None:
            raise SettingsError("http_url: is not set, but oauth_issuer needs it.")
        told.append(f"logins at {settings.oauth_issuer} for {settings.http_url}")
    return "; ".join(told)
