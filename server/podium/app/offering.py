"""How the server introduces itself: its words, its icon, and how long its lists stay true."""

from base64 import b64encode
from importlib.resources import files

from mcp.server.caching import CacheableMethod, CacheHint
from mcp.types import Icon

INSTRUCTIONS = (
    "Podium hands a hard question to a team of models: a conductor writes a small plan, workers "
    "carry it out, and one answer comes back with its record. Use `orchestrate` for questions that "
    "are worth more than one model's first reply; `plan_only` first when price or time matter. A "
    "result with status `running` is not an error: call `get_run` with its run_id, which is free."
)
_HOUR, _MOMENT = 3_600_000, 2_000
_LISTS = CacheHint(ttl_ms=_HOUR, scope="private")
"""The tools, prompts and kinds of resources stay the same as long as the process lives."""
CACHE_HINTS: dict[CacheableMethod, CacheHint] = {
    "server/discover": _LISTS,
    "tools/list": _LISTS,
    "prompts/list": _LISTS,
    "resources/list": _LISTS,
    "resources/templates/list": _LISTS,
    # Runs change while they are looked at, and are their user's own.
    "resources/read": CacheHint(ttl_ms=_MOMENT, scope="private"),
}
LONG_RESULT = {"anthropic/maxResultSizeChars": 60_000}
"""Hint on tools whose text and data together may reach about 50,000 characters, from which on a
widespread client puts a result into a file instead of before its model."""


def icons() -> list[Icon]:
    """The server's icon, drawn and as pixels: some clients show only one kind."""
    return [
        Icon(src=_data_uri("icon.svg", "image/svg+xml"), mime_type="image/svg+xml", sizes=["any"]),
        Icon(src=_data_uri("icon.png", "image/png"), mime_type="image/png", sizes=["48x48"]),
    ]


def _data_uri(name: str, mime_type: str) -> str:
    content = files("podium.app").joinpath(name).read_bytes()
    return f"data:{mime_type};base64,{b64encode(content).decode()}"
