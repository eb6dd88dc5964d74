"""How long known clients wait for one call, so that a run is handed over before they give up.

The table is data (`clients.toml`), with where each figure comes from and when it was looked at.
"""

import tomllib
from datetime import date
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files

from mcp.server.mcpserver import Context

from podium_workers.worker import Frozen

PATIENCE_S = 45.0
"""Seconds that any client waits, as far as is known: most give up after 60."""


class KnownClient(Frozen):
    """A client that waits longer or shorter than most."""

    name: str
    """Pattern of the name by which it introduces itself; case does not matter."""
    seconds: float
    """After which a call is answered, finished or not."""
    note: str
    source: str
    """Where its limit was seen or read."""
    checked: date


@cache
def known_clients() -> tuple[KnownClient, ...]:
    """The table, in its order: the first pattern that fits counts."""
    table = files("podium.app").joinpath("clients.toml").read_text(encoding="utf-8")
    return tuple(KnownClient.model_validate(row) for row in tomllib.loads(table)["client"])


def patience(name: str) -> float:
    """Seconds after which a client of that name is to have its answer."""
    for client in known_clients():
        if fnmatchcase(name.lower(), client.name.lower()):
            return client.seconds
    return PATIENCE_S


def name_of_client(ctx: Context) -> str:
    """The name by which the client at hand introduces itself; empty when it does not.

    In the `initialize` era it comes with the handshake, later with every request. It is a hint, not
    an identity: anybody may say anything.
    """
    introduced = ctx.session.client_params
    return introduced.client_info.name if introduced else ""
