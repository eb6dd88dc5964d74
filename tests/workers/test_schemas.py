from pydantic import JsonValue

from podium_workers.hosted.schemas import strict_schema


def test_objects_are_closed_at_every_depth_and_need_all_that_they_have():
    schema: dict[str, JsonValue] = {
        "type": "object",
        "properties": {
            "steps": {
                "type": "array",
                "minItems": 1,
                "items": {
                    "type": "object",
                    "properties": {"subtask": {"type": "string", "maxLength": 9}},
                },
            },
            "why": {"anyOf": [{"$ref": "#/$defs/note"}, {"type": "null"}]},
        },
        "required": ["steps"],
        "$defs": {"note": {"type": "object", "properties": {"text": {"type": "string"}}}},
    }
    assert strict_schema(schema) == {
        "type": "object",
        "properties": {
            "steps": {
                "type": "array",
                "minItems": 1,
                "items": {
                    "type": "object",
                    "properties": {"subtask": {"type": "string"}},
                    "additionalProperties": False,
                    "required": ["subtask"],
                },
            },
            "why": {"anyOf": [{"$ref": "#/$defs/note"}, {"type": "null"}]},
        },
        "required": ["steps", "why"],
        "additionalProperties": False,
        "$defs": {
            "note": {
                "type": "object",
                "properties": {"text": {"type": "string"}},
                "additionalProperties": False,
                "required": ["text"],
            }
        },
    }


def test_names_and_values_that_look_like_keywords_are_left_alone():
    schema: dict[str, JsonValue] = {
        "properties": {"default": {"enum": ["minLength", {"default": 1}]}, "examples": {}},
    }
    assert strict_schema(schema) == {
        "properties": {"default": {"enum": ["minLength", {"default": 1}]}, "examples": {}},
        "additionalProperties": False,
        "required": ["default", "examples"],
    }
