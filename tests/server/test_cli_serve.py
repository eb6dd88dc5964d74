"""`podium serve --http`: where it listens, what it says, and how it ends."""

import json
import signal
import socket
import urllib.error
import urllib.request

import pytest
from tests.command_line import CommandLine, finish

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}


def answer(address: str) -> bytes:
    """What the server at *address* says to a client that begins."""
    headers = {
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
    }
    request = urllib.request.Request(address, json.dumps(INITIALIZE).encode(), headers)
    with urllib.request.urlopen(request, timeout=20) as response:
        return response.read()


@pytest.mark.parametrize(("host", "shown"), [("127.0.0.1", "127.0.0.1"), ("::1", "[::1]")])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_the_address_that_is_told_is_served_until_a_signal_comes(
    podium: CommandLine, host: str, shown: str, number: signal.Signals
):
    if host == "::1" and not has_ipv6():
        pytest.skip("this machine has no IPv6")
    server = podium.start("serve", "--http", "--host", host, "--port", "0")
    assert server.stderr is not None
    try:
        server.stderr.readline()
        told = server.stderr.readline().decode()
        assert told.startswith(f"Podium serves http://{shown}:")
        assert not told.endswith(":0/mcp\n")
        assert b"podium" in answer(told.removeprefix("Podium serves ").strip())
    finally:
        server.send_signal(number)
        ended = finish(server)
    assert (ended.code, ended.out) == (128 + number, "")


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


def test_a_client_that_gives_no_stdin_is_one_that_has_gone(podium: CommandLine):
    done = podium.redirected("<&-", "serve")
    assert (done.code, done.out) == (0, "")


def test_both_ways_end_in_quiet_when_the_client_on_stdio_goes(podium: CommandLine):
    server = podium.start("serve", "--http", "--stdio", "--port", "0", piped=True)
    assert server.stderr is not None
    server.stderr.readline()
    assert b"podium" in answer(server.stderr.readline().decode().split()[-1])
    done = finish(server, b"")
    assert (done.code, done.out, done.err) == (0, "", "")


def test_a_port_in_use_is_one_sentence(podium: CommandLine):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = podium("serve", "--http", "--port", str(port))
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith(f"Error: --port: {port} is in use; choose another, for example")
    assert len(done.err.splitlines()) == 1
    assert not podium.ledger.exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--port", "8000"], "--host and --port need --http"),
        (["--host", "127.0.0.1"], "--host and --port need --http"),
        (["--http", "--host", "0.0.0.0"], "let in with authentication only"),
        (["--http", "--host", "::"], "podium token add NAME"),
        (["--http", "--host", "10.0.0.5"], "oauth_issuer"),
        (["--http", "--port", "x"], "'x' is not a valid whole number"),
        (["--http", "--port", "65536"], "is not in the range"),
    ],
)
def test_an_address_that_cannot_be_served_is_wrong_usage(
    podium: CommandLine, arguments: list[str], sentence: str
):
    done = podium.inside("serve", *arguments)
    assert (done.code, done.out) == (2, "")
    assert sentence in done.err


@pytest.mark.parametrize("name", ["PODIUM_HTTP_HOSTS", "PODIUM_HTTP_URL"])
def test_a_server_behind_a_proxy_is_not_one_for_this_machine_only(podium: CommandLine, name: str):
    behind = CommandLine(
        podium.folder, {name: "http://podium.example.com"[7 * ("HOSTS" in name) :]}
    )
    done = behind.inside("serve", "--http")
    assert done.code == 2
    assert "let in with authentication only" in done.err


@pytest.mark.parametrize(
    ("environment", "sentence"),
    [
        ({"PODIUM_OAUTH_ISSUER": "https://id.example"}, "http_url: is not set"),
        (
            {"PODIUM_OAUTH_ISSUER": "http://id.example", "PODIUM_HTTP_URL": "https://x.example"},
            "oauth_issuer: 'http://id.example' has to begin with https://",
        ),
        ({"PODIUM_OAUTH_ISSUER": "id.example"}, "PODIUM_OAUTH_ISSUER: write an address"),
        ({"PODIUM_HTTP_HOSTS": "https://x"}, "PODIUM_HTTP_HOSTS: write a list of names"),
        ({"PODIUM_HTTP_MAX_BYTES": "1"}, "PODIUM_HTTP_MAX_BYTES: write a whole number"),
    ],
)
def test_settings_that_do_not_fit_are_one_sentence(
    podium: CommandLine, environment: dict[str, str], sentence: str
):
    done = CommandLine(podium.folder, environment).inside("serve", "--http", "--port", "0")
    assert (done.code, done.out) == (1, "")
    assert sentence in done.err


def test_a_damaged_file_of_tokens_keeps_the_server_from_starting(podium: CommandLine):
    podium.inside("token", "add", "anna")
    (podium.folder / "ledger-tokens.json").write_text("{")
    done = podium.inside("serve", "--http", "--host", "0.0.0.0")
    assert done.code == 1
    assert "is damaged" in done.err
    assert "is damaged" in podium.inside("doctor").out


def test_tokens_that_are_all_gone_do_not_open_the_door(podium: CommandLine):
    podium.inside("token", "add", "anna")
    podium.inside("token", "remove", "anna")
    assert podium.inside("serve", "--http", "--host", "0.0.0.0").code == 2
    server = podium.start("serve", "--http", "--port", "0")
    assert server.stderr is not None
    try:
        server.stderr.readline()
        url = server.stderr.readline().decode().split()[-1]
        assert b"there is none" in server.stderr.readline()
        with pytest.raises(urllib.error.HTTPError, match="401"):
            answer(url)
    finally:
        server.terminate()
        finish(server)


def test_lists_among_the_settings_take_spaces_and_commas(podium: CommandLine):
    assert podium.inside("config", "set", "http_hosts", "a.example, b.example:99").code == 0
    assert podium.inside("config", "set", "http_url", "https://a.example/mcp").code == 0
    shown = podium.inside("config", "--json").data["settings"]
    assert isinstance(shown, dict)
    assert shown["http_hosts"] == {"value": ["a.example", "b.example:99"], "source": "file"}
    refused = podium.inside("config", "set", "http_url", "a.example")
    assert "write an address, as https://" in refused.err
