"""OAuth in front of a real server: who is let in, who is sent where, and who he is then."""

import socket
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import cast

import anyio
import httpx2
import pytest
from mcp import Client, MCPError
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import JsonValue
from tests.command_line import CommandLine
from tests.flow.callers import begin, calling, new_token
from tests.flow.client import Era, data, http_server
from tests.oauth_issuer import OAuthIssuer, new_key, run_issuer

BOUND_S = 90


@dataclass(frozen=True)
class Guarded:
    """A server that takes the tokens of an issuer."""

    podium: CommandLine
    url: str
    issuer: OAuthIssuer

    def token(self, subject: str = "anna", **claims: object) -> str:
        return self.issuer.token(subject, **({"audience": self.url} | claims))


@asynccontextmanager
async def guarded(podium: CommandLine, **settings: str) -> AsyncGenerator[Guarded]:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}/mcp"
    with run_issuer() as issuer, anyio.fail_after(BOUND_S):
        environment = {"PODIUM_OAUTH_ISSUER": issuer.url, "PODIUM_HTTP_URL": url, **settings}
        there = CommandLine(podium.folder, environment)
        async with http_server(there, "--port", str(port)):
            yield Guarded(there, url, issuer)


@pytest.mark.parametrize("era", ["legacy", "2026-07-28"])
async def test_a_login_is_a_user_of_his_own(podium: CommandLine, era: Era) -> None:
    named = new_token(podium, "anna")
    async with (
        guarded(podium) as it,
        calling(it.url, it.token("anna"), era) as anna,
        calling(it.url, it.token("bob"), era) as bob,
        calling(it.url, named, era) as other_anna,
    ):
        asked: dict[str, JsonValue] = {"question": "Which?"}
        run_id = str(data(await anna.call_tool("orchestrate", asked))["run_id"])
        for somebody in (bob, other_anna):
            assert (await somebody.call_tool("get_run", {"run_id": run_id})).is_error
            assert data(await somebody.call_tool("search_runs", {}))["runs"] == []
        # A later login is the same user again.
        async with calling(it.url, it.token("anna", jti="later"), era) as again:
            assert data(await again.call_tool("get_run", {"run_id": run_id}))["run_id"] == run_id
        owner = CommandLine(podium.folder, {"PODIUM_PRINCIPAL": f"{it.issuer.url}#anna"})
        assert run_id in owner("runs", "--json").out


@pytest.mark.parametrize("era", ["legacy", "2026-07-28"])
async def test_bad_tokens_are_refused_with_the_way_to_a_good_one(
    podium: CommandLine, era: Era
) -> None:
    async with guarded(podium) as it:
        metadata = it.url.replace("/mcp", "/.well-known/oauth-protected-resource/mcp")
        for token in ("", *bad_tokens(it)):
            refused = await begin(it.url, token)
            assert refused.status_code == 401
            assert f'resource_metadata="{metadata}"' in refused.headers["www-authenticate"]
            assert not token or token not in refused.text
        with pytest.raises(BaseExceptionGroup) as failed:
            async with calling(it.url, it.token(exp=int(time.time()) - 60), era) as client:
                await client.list_tools()
        assert failed.group_contains(MCPError)
        async with httpx2.AsyncClient() as http:
            published = (await http.get(metadata)).json()
        assert published["resource"] == it.url
        assert published["authorization_servers"] == [it.issuer.url]


def bad_tokens(it: Guarded) -> list[str]:
    good = it.token()
    made = [
        it.token(exp=int(time.time()) - 60),
        it.token(iss="https://elsewhere.example"),
        it.token(audience="https://elsewhere.example/mcp"),
        it.issuer.unsigned(it.url),
        good[:-8] + "AAAAAAAA",
    ]
    it.issuer.sign_with("unknown", "RS256", new_key("RS256"))
    return [*made, it.token()]


async def test_a_client_finds_the_way_in_by_itself(podium: CommandLine) -> None:
    async with guarded(podium) as it:
        login = ClientCredentialsOAuthProvider(
            it.url, Memory(), "robot", "its secret", issuer=it.issuer.url
        )
        async with (
            httpx2.AsyncClient(auth=login, timeout=60) as http,
            Client(streamable_http_client(it.url, http_client=http)) as client,
        ):
            assert not (await client.call_tool("list_workers", {})).is_error
        assert [form["resource"] for form in it.issuer.forms] == [it.url]


class Memory:
    """Where an OAuth client keeps its tokens."""

    def __init__(self) -> None:
        self._tokens: OAuthToken | None = None
        self._client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self._tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self._tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self._client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self._client = client_info


async def test_new_keys_of_the_issuer_count_at_once(podium: CommandLine) -> None:
    async with guarded(podium) as it:
        assert (await begin(it.url, it.token())).status_code == 200
        it.issuer.keys.clear()
        it.issuer.publish("second", "ES256")
        assert (await begin(it.url, it.token())).status_code == 200


async def test_a_token_needs_the_scopes_that_are_set(podium: CommandLine) -> None:
    named = new_token(podium, "anna")
    async with guarded(podium, PODIUM_OAUTH_SCOPES="runs admin") as it:
        refused = await begin(it.url, it.token())
        assert refused.status_code == 403
        assert "insufficient_scope" in refused.headers["www-authenticate"]
        assert (await begin(it.url, it.token(scope="admin runs"))).status_code == 200
        assert (await begin(it.url, named)).status_code == 200
        metadata = it.url.replace("/mcp", "/.well-known/oauth-protected-resource/mcp")
        async with httpx2.AsyncClient() as http:
            published = cast("dict[str, JsonValue]", (await http.get(metadata)).json())
        assert published["scopes_supported"] == ["runs", "admin"]


async def test_the_audience_may_have_another_name_than_the_server(podium: CommandLine) -> None:
    async with guarded(podium, PODIUM_OAUTH_AUDIENCE="api://podium") as it:
        assert (await begin(it.url, it.token())).status_code == 401
        assert (await begin(it.url, it.token(audience="api://podium"))).status_code == 200
