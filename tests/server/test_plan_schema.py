"""The schema that holds a plan while it is written, and what the local engine writes under it."""

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, cast

import jsonschema
import pytest
from anthropic import transform_schema
from pydantic import JsonValue
from tests.plan_samples import POOL, one_step, plan_of

from podium.config import Settings
from podium.plan import Access
from podium.plan_text import (
    parse_plan,
    plan_schema,
    render_json,
)
from podium_workers.weights.pulling import find


def holds(text: str, schema: dict[str, JsonValue]) -> bool:
    try:
        jsonschema.validate(json.loads(text), schema)
    except jsonschema.ValidationError:
        return False
    return True


@pytest.mark.parametrize("by_position", [False, True])
@pytest.mark.parametrize("max_steps", [1, 2, 5])
def test_the_schema_takes_what_a_plan_may_be(max_steps: int, by_position: bool) -> None:
    schema = plan_schema(POOL, max_steps=max_steps, by_position=by_position)
    jsonschema.Draft202012Validator.check_schema(schema)
    nothing: Access = "all" if max_steps == 1 and not by_position else ()
    steps: list[tuple[str, str, Access]] = [
        ("Do one thing.", "Smol", tuple(range(number)) if number else nothing)
        for number in range(max_steps)
    ]
    assert holds(render_json(plan_of(*steps)), schema)
    assert not holds(one_step(worker="gpt-4", subtask="Do one thing."), schema)
    assert not holds('{"steps": []}', schema)
    assert holds('{"steps": []}', plan_schema(POOL, max_steps=max_steps, may_accept=True))


def test_the_schema_by_position_lets_a_step_name_earlier_steps_only() -> None:
    schema = plan_schema(POOL, max_steps=3, by_position=True)

    def takes(*accesses: list[int] | str) -> bool:
        steps = [{"subtask": "Do it now.", "worker": "Smol", "access": read} for read in accesses]
        return holds(json.dumps({"steps": steps}), schema)

    assert takes([])
    assert takes([], "all", [0, 1])
    assert not takes("all")
    assert not takes([0])
    assert not takes([], [1])
    assert not takes([], [], [2])
    assert not takes([], [], [], [])


def test_a_later_round_may_accept_or_read_all_that_came_before() -> None:
    schema = plan_schema(POOL, max_steps=2, may_accept=True, by_position=True)
    assert holds('{"steps": []}', schema)
    assert holds(one_step(subtask="Do it now.", access="all"), schema)


@pytest.mark.parametrize("max_steps", [1, 5])
def test_the_plain_schema_holds_nothing_that_a_provider_refuses(max_steps: int) -> None:
    schema = plan_schema(POOL, max_steps=max_steps, may_accept=True)
    refused = ("minLength", "maxLength", "minimum", "maximum", "maxItems", "prefixItems", "oneOf")
    assert not [word for word in refused if f'"{word}"' in json.dumps(schema)]
    # What Anthropic's own library cannot send it writes into a description.
    assert "description" not in json.dumps(transform_schema(dict(schema)))


def test_the_schema_asks_for_the_work_before_the_worker() -> None:
    for by_position in (False, True):
        text = json.dumps(plan_schema(POOL, max_steps=2, by_position=by_position))
        assert '"required": ["subtask", "worker", "access"]' in text


TEAM = ("strong", "light", "podium")


class Engine(Protocol):
    handle_chat_completions: Callable[[dict[str, JsonValue]], object]


@pytest.fixture(scope="module")
def engine() -> Engine:
    xllamacpp = importlib.import_module("xllamacpp")
    params = xllamacpp.CommonParams()
    path: Path = find("smollm2", Settings().models_dir)
    params.model.path = str(path)
    params.n_ctx, params.n_parallel, params.verbosity = 4096, 1, -1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    return cast("Engine", xllamacpp.Server(params))


def written(engine: Engine, ask: str, schema: dict[str, JsonValue], temperature: float) -> str:
    reply = engine.handle_chat_completions(
        {
            "messages": [{"role": "user", "content": ask}],
            "temperature": temperature,
            "seed": 7,
            "max_tokens": 3000,
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "plan", "schema": schema},
            },
        }
    )
    body = json.loads(reply) if isinstance(reply, str) else reply
    return str(
        cast("dict[str, list[dict[str, dict[str, str]]]]", body)["choices"][0]["message"]["content"]
    )


ASK = (
    "Write a plan of up to 3 steps as JSON for the workers strong, light and podium. For instance: "
    '{"steps": [{"subtask": "Find the facts.", "worker": "light", "access": []}]}\n'
    "Question: Compare two ways of sorting a list, then write a poem about the better one."
)


@pytest.mark.local
@pytest.mark.parametrize("temperature", [0.0, 1.0, 1.5])
def test_what_is_written_under_the_schema_is_always_a_plan(
    engine: Engine, temperature: float
) -> None:
    schema = plan_schema(TEAM, max_steps=3, by_position=True)
    plan = parse_plan(written(engine, ASK, schema, temperature), TEAM, max_steps=3)
    assert plan is not None
    assert len(plan.steps) <= 3


@pytest.mark.local
def test_plans_may_be_shorter_than_the_most_steps(engine: Engine) -> None:
    schema = plan_schema(TEAM, max_steps=5, by_position=True)
    plans = [parse_plan(written(engine, ASK, schema, heat), TEAM) for heat in (0.0, 0.7, 1.0, 1.5)]
    assert min(len(plan.steps) for plan in plans if plan) < 5


@pytest.mark.local
def test_a_step_can_only_name_earlier_steps(engine: Engine) -> None:
    wrong = (
        '{"steps": [{"subtask": "Solve it first.", "worker": "light", "access": [3]}, '
        '{"subtask": "Check the result.", "worker": "strong", "access": [4]}]}'
    )
    schema = plan_schema(TEAM, max_steps=5, by_position=True)
    assert parse_plan(written(engine, f"Repeat exactly: {wrong}", schema, 0.0), TEAM) is not None
