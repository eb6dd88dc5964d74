"""Tokens of an OAuth issuer: which are let in, which are not, and when its keys are asked for."""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable, Generator

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from tests.oauth_issuer import OAuthIssuer, encoded, new_key, public_jwk, run_issuer

from podium.errors import SettingsError
from podium.oauth import (
    BURST,
    FRESH_S,
    STALE_S,
    WITHIN_S,
    Issuer,
    KeySet,
    TokenError,
    metadata_places,
    open_issuer,
)

HERE = "https://podium.example.com/mcp"


@pytest.fixture
def issuer() -> Generator[OAuthIssuer]:
    with run_issuer() as running:
        yield running


class Clock:
    """Time as a test has it."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def opened(issuer: OAuthIssuer, jwks: str | None = None) -> tuple[Issuer, Clock]:
    clock = Clock()
    return Issuer(KeySet(issuer.url, jwks, clock), (HERE,)), clock


@pytest.mark.parametrize("algorithm", ["RS256", "PS384", "ES256", "EdDSA"])
async def test_a_good_token_says_who_calls(issuer: OAuthIssuer, algorithm: str):
    issuer.publish("second", algorithm)
    found, _ = opened(issuer)
    claims = await found.verify(issuer.token("anna", audience=[HERE, "elsewhere"]))
    assert (claims.issuer, claims.subject, claims.client) == (issuer.url, "anna", "editor")
    assert claims.scopes == ("runs",)
    assert claims.principal == f"{issuer.url}#anna"
    assert issuer.asked == ["/.well-known/oauth-authorization-server", "/keys"]


async def test_scopes_may_be_a_list_and_the_program_go_unnamed(issuer: OAuthIssuer):
    token = issuer.token(audience=HERE, scope=None, scp=["runs", "more"], client_id=None)
    claims = await opened(issuer)[0].verify(token)
    assert (claims.scopes, claims.client) == (("runs", "more"), "")


def tampered(token: str) -> str:
    head, body, signature = token.split(".")
    said = json.loads(base64.urlsafe_b64decode(body + "=="))
    return f"{head}.{encoded(said | {'sub': 'root'})}.{signature}"


def signed_by_nobody_known(issuer: OAuthIssuer) -> str:
    issuer.sign_with("first", "RS256", new_key("RS256"))
    return issuer.token(audience=HERE)


def with_an_unknown_key(issuer: OAuthIssuer) -> str:
    issuer.sign_with("other", "RS256", new_key("RS256"))
    return issuer.token(audience=HERE)


def with_the_public_key_as_a_secret(issuer: OAuthIssuer) -> str:
    key = new_key("RS256")
    issuer.publish("again", key=key)
    secret = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    parts = ({"alg": "HS256", "kid": "again"}, issuer.claims("anna", HERE))
    text = ".".join(map(encoded, parts))
    mac = hmac.new(secret, text.encode(), hashlib.sha256).digest()
    return f"{text}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"


def with_a_weak_key(issuer: OAuthIssuer) -> str:
    from cryptography.hazmat.primitives.asymmetric import rsa

    issuer.publish("weak", key=rsa.generate_private_key(65537, 1024))
    return with_no_warning(issuer)


def with_no_warning(issuer: OAuthIssuer) -> str:
    with pytest.warns(Warning, match="RSA key"):
        return issuer.token(audience=HERE)


BAD: dict[str, Callable[[OAuthIssuer], str]] = {
    "of another issuer": lambda it: it.token(audience=HERE, iss="https://elsewhere.example"),
    "of an issuer with a slash more": lambda it: it.token(audience=HERE, iss=it.url + "/"),
    "for another server": lambda it: it.token(audience="https://elsewhere.example/mcp"),
    "for nobody": lambda it: it.token(audience=None),
    "for a server of which this one is only the beginning": lambda it: it.token(audience=HERE[:-1]),
    "expired": lambda it: it.token(audience=HERE, exp=int(time.time()) - 60),
    "that never expires": lambda it: it.token(audience=HERE, exp=None),
    "not valid yet": lambda it: it.token(audience=HERE, nbf=int(time.time()) + 600),
    "of nobody": lambda it: it.token(audience=HERE, sub=None),
    "of an empty name": lambda it: it.token("", audience=HERE),
    "unsigned": lambda it: it.unsigned(HERE),
    "changed": lambda it: tampered(it.token(audience=HERE)),
    "signed by somebody else": signed_by_nobody_known,
    "with an unknown key": with_an_unknown_key,
    "signed with the public key as a secret": with_the_public_key_as_a_secret,
    "with a key that is too short": with_a_weak_key,
    "that is none": lambda it: "not a token",
    "of dots": lambda it: "..",
    "without a head": lambda it: f"{encoded([1])}.{encoded({})}.",
    "empty": lambda it: "",
}


@pytest.mark.parametrize("which", BAD)
async def test_a_bad_token_is_refused_and_never_told(issuer: OAuthIssuer, which: str):
    token = BAD[which](issuer)
    found, _ = opened(issuer)
    with pytest.raises(TokenError) as refused:
        await found.verify(token)
    assert str(refused.value)
    assert not token or token not in str(refused.value)


async def test_a_key_of_another_kind_or_use_does_not_count(issuer: OAuthIssuer):
    issuer.keys[0] |= {"use": "enc"}
    with pytest.raises(TokenError):
        await opened(issuer)[0].verify(issuer.token(audience=HERE))
    issuer.keys[0] |= {"use": "sig", "alg": "RS512"}
    with pytest.raises(TokenError):
        await opened(issuer)[0].verify(issuer.token(audience=HERE))


async def test_a_new_key_is_found_when_a_token_names_it(issuer: OAuthIssuer):
    found, _ = opened(issuer)
    old = issuer.token(audience=HERE)
    await found.verify(old)
    issuer.keys.clear()
    issuer.publish("second")
    await found.verify(issuer.token(audience=HERE))
    with pytest.raises(TokenError):  # the one that was taken back
        await found.verify(old)


async def test_a_key_that_was_taken_back_is_forgotten_within_the_hour(issuer: OAuthIssuer):
    found, clock = opened(issuer)
    old = issuer.token(audience=HERE)
    await found.verify(old)
    issuer.keys.clear()
    await found.verify(old)
    clock.now += FRESH_S + 1
    with pytest.raises(TokenError):
        await found.verify(old)


async def test_unknown_keys_do_not_make_it_ask_without_end(issuer: OAuthIssuer):
    found, clock = opened(issuer)
    good = issuer.token(audience=HERE)
    bad = with_an_unknown_key(issuer)
    for _ in range(3 * BURST):
        with pytest.raises(TokenError):
            await found.verify(bad)
    assert issuer.asked.count("/keys") == BURST
    await found.verify(good)
    clock.now += WITHIN_S
    with pytest.raises(TokenError):
        await found.verify(bad)
    assert issuer.asked.count("/keys") == BURST + 1


async def test_keys_that_are_known_outlive_an_issuer_that_is_down_for_a_day(issuer: OAuthIssuer):
    found, clock = opened(issuer)
    token = issuer.token(audience=HERE)
    await found.verify(token)
    issuer.status = 500
    clock.now += FRESH_S + 1
    await found.verify(token)
    clock.now += STALE_S
    with pytest.raises(TokenError):
        await found.verify(token)


async def test_an_issuer_that_is_not_there_lets_nobody_in(issuer: OAuthIssuer):
    token = issuer.token(audience=HERE)
    issuer.status = 503
    with pytest.raises(TokenError):
        await opened(issuer)[0].verify(token)


@pytest.mark.parametrize(
    "metadata",
    [
        {"issuer": "https://elsewhere.example", "jwks_uri": "{url}/keys"},
        {"issuer": "{url}"},
        {"issuer": "{url}", "jwks_uri": "http://elsewhere.example/keys"},
        {"issuer": "{url}", "jwks_uri": "{url}/nothing"},
    ],
)
async def test_metadata_that_does_not_fit_is_not_believed(
    issuer: OAuthIssuer, metadata: dict[str, str]
):
    issuer.metadata = {name: text.format(url=issuer.url) for name, text in metadata.items()}
    with pytest.raises(TokenError):
        await opened(issuer)[0].verify(issuer.token(audience=HERE))


async def test_keys_may_be_named_outright(issuer: OAuthIssuer):
    issuer.metadata = {}
    await opened(issuer, f"{issuer.url}/keys")[0].verify(issuer.token(audience=HERE))
    assert issuer.asked == ["/keys"]


async def test_keys_that_are_not_keys_are_passed_over(issuer: OAuthIssuer):
    good = list(issuer.keys)
    issuer.keys[:] = [{"kty": "RSA", "kid": "first"}, {}, *good]
    await opened(issuer)[0].verify(issuer.token(audience=HERE))
    issuer.keys[:] = [{**public_jwk(new_key("ES256"), "first"), "crv": "P-999"}]
    with pytest.raises(TokenError):
        await opened(issuer)[0].verify(issuer.token(audience=HERE))


def test_metadata_is_looked_for_where_either_standard_has_it():
    assert metadata_places("https://id.example/tenant/") == (
        "https://id.example/.well-known/oauth-authorization-server/tenant",
        "https://id.example/.well-known/openid-configuration/tenant",
        "https://id.example/tenant/.well-known/openid-configuration",
    )
    assert metadata_places("https://id.example") == (
        "https://id.example/.well-known/oauth-authorization-server",
        "https://id.example/.well-known/openid-configuration",
    )


def test_an_issuer_over_plain_http_is_refused_but_on_this_machine():
    open_issuer("http://127.0.0.1:9/x", HERE, None)
    with pytest.raises(SettingsError, match="oauth_issuer"):
        open_issuer("http://id.example", HERE, None)
    with pytest.raises(SettingsError, match="oauth_jwks"):
        open_issuer("https://id.example", HERE, "http://id.example/keys")


def test_a_slash_at_the_end_of_the_audience_makes_no_difference():
    expected = {HERE, HERE + "/"}
    assert set(open_issuer("https://id.example", HERE, None).audiences) == expected
    assert set(open_issuer("https://id.example", HERE + "/", None).audiences) == expected
