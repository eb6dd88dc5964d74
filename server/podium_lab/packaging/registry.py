"""The page of Podium in the MCP registry: `manifests/registry/server.json`."""

from podium import __version__

SERVER_NAME = "io.github.podium-conductor/podium"
MARKER = f"<!-- mcp-name: {SERVER_NAME} -->"
"""Stands in the README, which the package index shows: so the registry knows whose server it is."""
SCHEMA = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
TITLE = "Podium"
DESCRIPTION = (
    "A conductor model plans each question and runs it over a pool of models, with a receipt."
)
"""At most 100 characters, as the registry wants it."""

PROVIDERS = {
    "OPENAI_API_KEY": "OpenAI",
    "ANTHROPIC_API_KEY": "Anthropic",
    "GEMINI_API_KEY": "Gemini",
    "OPENROUTER_API_KEY": "OpenRouter",
}
"""Whose keys are asked for, by their variables."""
_SETTINGS = (
    (
        "PODIUM_POOL",
        "Pool manifest, a TOML file; without one the keys that are set decide",
        "filepath",
    ),
    ("PODIUM_MAX_USD", "What one run may cost, in US dollars", "number"),
    ("PODIUM_DAY_USD", "What all runs of one day may cost, in US dollars", "number"),
)


def server_json() -> dict[str, object]:
    """The page."""
    keys: list[dict[str, object]] = [
        {
            "name": name,
            "description": f"Key of {provider}, whose models become workers",
            "isRequired": False,
            "isSecret": True,
        }
        for name, provider in PROVIDERS.items()
    ]
    settings: list[dict[str, object]] = [
        {"name": name, "description": text, "format": kind, "isRequired": False}
        for name, text, kind in _SETTINGS
    ]
    return {
        "$schema": SCHEMA,
        "name": SERVER_NAME,
        "title": TITLE,
        "description": DESCRIPTION,
        "version": __version__,
        "packages": [
            {
                "registryType": "pypi",
                "identifier": "podium",
                "version": __version__,
                "runtimeHint": "uvx",
                "transport": {"type": "stdio"},
                "packageArguments": [{"type": "positional", "value": "serve"}],
                "environmentVariables": keys + settings,
            }
        ],
    }
