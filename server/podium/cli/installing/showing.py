"""A client's document as text, for --print and for the files that can be copied."""

import json

from podium.cli.installing import toml_text
from podium.cli.installing.clients import Syntax
from podium.cli.installing.entries import Entry


def as_text(data: Entry, syntax: Syntax) -> str:
    """The document, without a line end at its end."""
    if syntax != "toml":
        return json.dumps(data, ensure_ascii=False, indent=2)
    text = ""
    for section, servers in data.items():
        assert isinstance(servers, dict), "a section holds servers"
        for name, entry in servers.items():
            text = toml_text.put(text, (section, name), entry)
    return text.strip()
