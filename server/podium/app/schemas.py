"""Schemas of arguments as they are published: short, with nothing that a strict client refuses.

Every client pays for the whole list of tools in every session, so a schema holds no titles that
repeat names, no defaults that say nothing, and no references. Unknown arguments are refused
although it is not published.
"""

from collections.abc import Collection, Mapping, Sequence

from pydantic import JsonValue

Schema = Mapping[str, JsonValue]


def brief(schema: Schema) -> dict[str, JsonValue]:
    """*schema* with what it refers to in place, and without what tells a reader nothing.

    Everything that fits the original fits this one too.
    """
    return _brief(schema, members(schema.get("$defs")))


def brief_arguments(schema: Schema) -> dict[str, JsonValue]:
    """The same for arguments, where null need not be told of: leaving one out does as well.

    Some clients refuse values of more than one kind.
    """
    named = members(schema.get("properties"))
    plain: dict[str, JsonValue] = {name: _without_null(members(named[name])) for name in named}
    return brief({**schema, "properties": plain})


def offering(schema: Schema, strategies: Collection[str]) -> dict[str, JsonValue]:
    """The schema of arguments with the strategies that only some processes have."""
    named = members(schema.get("properties"))
    if "trinity" not in strategies or "strategy" not in named:
        return dict(schema)
    told = str(members(named["strategy"]).get("description", ""))
    told = told.replace("'chain';", "'chain', 'trinity' (an evolved head, turn by turn);")
    described: JsonValue = {**members(named["strategy"]), "description": told}
    return {**schema, "properties": {**named, "strategy": described}}


def _without_null(schema: Schema) -> dict[str, JsonValue]:
    kinds = schema.get("anyOf")
    if isinstance(kinds, list):
        real = [members(kind) for kind in kinds if kind != {"type": "null"}]
        if len(real) == 1:
            return {**real[0], **{key: value for key, value in schema.items() if key != "anyOf"}}
    return dict(schema)


def _brief(schema: Schema, definitions: Schema) -> dict[str, JsonValue]:
    schema = _resolved(schema, definitions)
    kept: dict[str, JsonValue] = {}
    for key, value in schema.items():
        if key == "properties":
            named = members(value)
            kept[key] = {name: _inner(named[name], definitions) for name in named}
        elif not _says_nothing(key, value):
            kept[key] = _inner(value, definitions)
    return kept


def _inner(value: JsonValue, definitions: Schema) -> JsonValue:
    if isinstance(value, dict):
        return _brief(value, definitions)
    if isinstance(value, list):
        return [_inner(each, definitions) for each in value]
    return value


def _resolved(schema: Schema, definitions: Schema) -> Schema:
    """What *schema* refers to, if it only refers."""
    reference = schema.get("$ref")
    if isinstance(reference, str):
        target = members(definitions.get(reference.rsplit("/", 1)[-1]))
        rest = {key: value for key, value in schema.items() if key != "$ref"}
        return _resolved({**target, **rest}, definitions)
    return schema


def _says_nothing(key: str, value: JsonValue) -> bool:
    match key:
        case "$defs" | "title" | "additionalProperties":
            return True
        case "default":
            return not value
        case _:
            return False


def members(value: JsonValue | None) -> dict[str, JsonValue]:
    """An object of a schema; empty for anything else."""
    return value if isinstance(value, dict) else {}


def at(schema: JsonValue, place: Sequence[int | str]) -> JsonValue:
    """The part of a brief schema that describes the value at *place*; empty if none does."""
    for part in place:
        match schema:
            case {"items": items} if isinstance(part, int):
                schema = items
            case {"properties": {**properties}}:
                schema = properties.get(str(part), {})
            case _:
                return {}
    return schema


def expected(schema: JsonValue) -> str:
    """What to write for a value with that schema, in words."""
    match schema:
        case {"enum": [*words]}:
            return f"one of {', '.join(map(str, words))}"
        case {"type": "integer" | "number" as kind, **limits}:
            return _number(str(kind), limits)
        case {"type": "boolean"}:
            return "true or false"
        case {"type": "array", "items": {"type": "object", "properties": {**properties}}}:
            return f"a list of objects with {', '.join(properties)}"
        case {"type": "array", "items": {"type": "integer"}}:
            return "a list of whole numbers"
        case {"type": "array"}:
            return "a list of texts"
        case {"type": "object", "properties": {**properties}}:
            return f"an object with {', '.join(properties)}"
        case {"type": "string", "minLength": _}:
            return "a text that is not empty"
        case {"type": "string"}:
            return "a text"
        case _:
            return "another value"


def _number(kind: str, limits: Schema) -> str:
    what = "a whole number" if kind == "integer" else "a number"
    match limits:
        case {"minimum": low, "maximum": high}:
            return f"{what} from {low} to {high}"
        case {"minimum": low}:
            return f"{what} of {low} or more"
        case {"maximum": high}:
            return f"{what} of at most {high}"
        case _:
            return what
