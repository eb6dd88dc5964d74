"""JSON Schemas in the dialect that OpenAI's strict mode takes."""

from collections.abc import Mapping

from pydantic import JsonValue

_NOT_TAKEN = frozenset({"$schema", "default", "examples", "maxLength", "minLength", "uniqueItems"})
_BY_NAME = frozenset({"properties", "$defs"})
"""Keywords whose keys are names of the schema's author, not keywords."""


def spaced(schema: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """*schema* with one space behind each comma and colon, for decoders on LLGuidance.

    Where the spaces are free, a small model starts to indent, forgets the examples of its prompt
    and fills every list to its longest. Other decoders overlook the key.
    """
    spaces: dict[str, JsonValue] = {
        "whitespace_flexible": False,
        "item_separator": ", ",
        "key_separator": ": ",
    }
    return {**schema, "x-guidance": spaces}


def strict_schema(schema: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """*schema* with closed objects, every property required, and no keyword that is refused.

    What satisfies the result satisfies *schema* too, but for the keywords left out; so the reply
    still has to be checked.
    """
    made: dict[str, JsonValue] = {}
    for keyword, value in schema.items():
        if keyword in _NOT_TAKEN:
            continue
        if keyword in _BY_NAME and isinstance(value, dict):
            made[keyword] = {name: _strict(inner) for name, inner in value.items()}
        elif keyword in {"enum", "const"}:
            made[keyword] = value
        else:
            made[keyword] = _strict(value)
    properties = made.get("properties")
    if isinstance(properties, dict):
        made["additionalProperties"] = False
        made["required"] = list(properties)
    return made


def _strict(value: JsonValue) -> JsonValue:
    if isinstance(value, dict):
        return strict_schema(value)
    if isinstance(value, list):
        return [_strict(item) for item in value]
    return value
