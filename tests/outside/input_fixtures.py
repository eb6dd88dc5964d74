"""Tools of the conformance suite that ask the client: its user, its model, its folders.

Most ask through the SDK's `Resolve`, as Podium does. Where the suite fixes the key of a question
on the wire, or its schema in a form that no model has, the request is written out.
"""

from typing import Annotated, Literal

from mcp.server.elicitation import AcceptedElicitation, ElicitationResult
from mcp.server.mcpserver import Context, Elicit, ListRoots, Resolve, Sample
from mcp.server.mcpserver.prompts.base import UserMessage
from mcp.types import (
    CallToolResult,
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequest,
    InputRequiredResult,
    ListRootsResult,
    SamplingMessage,
    TextContent,
)
from pydantic import BaseModel, Field, JsonValue


class Name(BaseModel):
    name: str


class Colour(BaseModel):
    color: str


class Confirmation(BaseModel):
    ok: bool


class Contact(BaseModel):
    username: str = Field(description="User's response")
    email: str = Field(description="User's email address")


class Defaults(BaseModel):
    name: str = "John Doe"
    age: int = 30
    score: float = 95.5
    status: Literal["active", "inactive", "pending"] = "active"
    verified: bool = True


def said(text: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=text)])


def asking(key: str, message: str, field: str) -> InputRequiredResult:
    """The request for one text from the user, under the key that the suite expects."""
    schema: dict[str, JsonValue] = {
        "type": "object",
        "properties": {field: {"type": "string"}},
        "required": [field],
    }
    asked: dict[str, InputRequest] = {key: form(message, schema)}
    return InputRequiredResult(input_requests=asked)


def form(message: str, schema: dict[str, JsonValue]) -> ElicitRequest:
    params = ElicitRequestFormParams(message=message, requested_schema=schema)
    return ElicitRequest(params=params)


def answer(ctx: Context, key: str) -> ElicitResult | None:
    """What the user said to the question under that key, if it has been answered."""
    response = (ctx.input_responses or {}).get(key)
    return response if isinstance(response, ElicitResult) else None


def _sampled(text: str, max_tokens: int) -> Sample:
    return Sample([_message(text)], max_tokens=max_tokens)


def _message(text: str) -> SamplingMessage:
    return SamplingMessage(role="user", content=TextContent(type="text", text=text))


def _text(result: CreateMessageResult) -> str:
    return result.content.text if isinstance(result.content, TextContent) else ""


def _outcome(action: str, content: object) -> CallToolResult:
    return said(f"Elicitation completed: action={action}, content={content}")


def ask_prompt(prompt: str) -> Sample:
    return _sampled(prompt, 100)


async def test_sampling(
    prompt: str, reply: Annotated[CreateMessageResult, Resolve(ask_prompt)]
) -> CallToolResult:
    """Asks the client's model."""
    return said(f"LLM response: {_text(reply)}")


def ask_contact(message: str) -> Elicit[Contact]:
    return Elicit(message, Contact)


async def test_elicitation(
    message: str, found: Annotated[ElicitationResult[Contact], Resolve(ask_contact)]
) -> CallToolResult:
    """Asks the user."""
    content = found.data.model_dump_json() if isinstance(found, AcceptedElicitation) else "none"
    return said(f"User response: action: {found.action}, content: {content}")


def ask_defaults() -> Elicit[Defaults]:
    return Elicit("Please check these.", Defaults)


async def test_elicitation_sep1034_defaults(
    found: Annotated[ElicitationResult[Defaults], Resolve(ask_defaults)],
) -> CallToolResult:
    """Asks the user with defaults."""
    content = found.data.model_dump_json() if isinstance(found, AcceptedElicitation) else "none"
    return _outcome(found.action, content)


async def test_elicitation_sep1330_enums(ctx: Context) -> CallToolResult:
    """Asks the user to choose."""
    options: list[JsonValue] = ["option1", "option2", "option3"]
    titled: list[JsonValue] = [
        {"const": "value1", "title": "First"},
        {"const": "value2", "title": "Second"},
        {"const": "value3", "title": "Third"},
    ]
    names: list[JsonValue] = ["Option One", "Option Two", "Option Three"]
    old: dict[str, JsonValue] = {"type": "string", "enum": ["opt1", "opt2", "opt3"]}
    schema: dict[str, JsonValue] = {
        "type": "object",
        "properties": {
            "untitledSingle": {"type": "string", "enum": options},
            "titledSingle": {"type": "string", "oneOf": titled},
            "legacyEnum": {**old, "enumNames": names},
            "untitledMulti": {"type": "array", "items": {"type": "string", "enum": options}},
            "titledMulti": {"type": "array", "items": {"anyOf": titled}},
        },
    }
    found = await ctx.session.elicit_form("Please choose.", schema, ctx.request_id)
    return _outcome(found.action, found.content)


def ask_anything() -> Sample:
    return _sampled("Anything.", 10)


async def test_missing_capability(
    reply: Annotated[CreateMessageResult, Resolve(ask_anything)],
) -> CallToolResult:
    """Needs a model of the client's."""
    return said(_text(reply))


def ask_to_confirm() -> Elicit[Confirmation]:
    return Elicit("Please confirm", Confirmation)


async def test_streaming_elicitation(
    found: Annotated[Confirmation, Resolve(ask_to_confirm)],
) -> CallToolResult:
    """Asks the user while its answer streams."""
    return said(str(found.ok))


async def test_input_required_result_elicitation(
    ctx: Context,
) -> CallToolResult | InputRequiredResult:
    """Asks for a name."""
    found = answer(ctx, "user_name")
    if found is None or not found.content:
        return asking("user_name", "What is your name?", "name")
    return said(f"Hello, {found.content.get('name')}!")


def ask_capital() -> Sample:
    return _sampled("What is the capital of France?", 100)


async def test_input_required_result_sampling(
    reply: Annotated[CreateMessageResult, Resolve(ask_capital)],
) -> CallToolResult:
    """Asks the client's model."""
    return said(_text(reply))


def ask_roots() -> ListRoots:
    return ListRoots()


async def test_input_required_result_list_roots(
    found: Annotated[ListRootsResult, Resolve(ask_roots)],
) -> CallToolResult:
    """Asks for the client's folders."""
    return said(", ".join(str(root.uri) for root in found.roots))


async def test_input_required_result_request_state(
    found: Annotated[Confirmation, Resolve(ask_to_confirm)],
) -> CallToolResult:
    """Asks, and is sent its own state again."""
    return said(f"state-ok: {found.ok}")


async def test_input_required_result_tampered_state(
    found: Annotated[Confirmation, Resolve(ask_to_confirm)],
) -> CallToolResult:
    """Asks, and is sent a state that is not its own."""
    return said(f"state-ok: {found.ok}")


def ask_name() -> Elicit[Name]:
    return Elicit("What is your name?", Name)


def ask_greeting() -> Sample:
    return _sampled("Generate a greeting", 50)


async def test_input_required_result_multiple_inputs(
    user: Annotated[Name, Resolve(ask_name)],
    greeting: Annotated[CreateMessageResult, Resolve(ask_greeting)],
    folders: Annotated[ListRootsResult, Resolve(ask_roots)],
) -> CallToolResult:
    """Asks user, model and folders at once."""
    return said(f"{_text(greeting)} {user.name}, {len(folders.roots)} folders.")


def ask_first() -> Elicit[Name]:
    return Elicit("Step 1: What is your name?", Name)


def ask_second(first: Annotated[Name, Resolve(ask_first)]) -> Elicit[Colour]:
    return Elicit("Step 2: What is your favorite color?", Colour)


async def test_input_required_result_multi_round(
    first: Annotated[Name, Resolve(ask_first)], second: Annotated[Colour, Resolve(ask_second)]
) -> CallToolResult:
    """Asks twice."""
    return said(f"{first.name} likes {second.color}.")


async def test_input_required_result_capabilities(
    ctx: Context,
) -> CallToolResult | InputRequiredResult:
    """Asks for what the client can give."""
    if ctx.input_responses:
        return said("Thank you.")
    can = ctx.client_capabilities
    asked: dict[str, InputRequest] = {}
    if can and can.sampling:
        params = CreateMessageRequestParams(messages=[_message("Hello?")], max_tokens=10)
        asked["greeting"] = CreateMessageRequest(params=params)
    if can and can.elicitation:
        schema: dict[str, JsonValue] = {"type": "object", "properties": {}}
        asked["user"] = form("Are you there?", schema)
    return InputRequiredResult(input_requests=asked) if asked else said("Nothing to ask.")


async def test_input_required_result_prompt(
    ctx: Context,
) -> list[UserMessage] | InputRequiredResult:
    """Asks what it should be about."""
    found = answer(ctx, "user_context")
    if found is None or not found.content:
        return asking("user_context", "What context should the prompt use?", "context")
    return [UserMessage(f"Use this context: {found.content.get('context')}")]


TOOLS = (
    test_sampling, test_elicitation, test_elicitation_sep1034_defaults,
    test_elicitation_sep1330_enums, test_missing_capability, test_streaming_elicitation,
    test_input_required_result_elicitation, test_input_required_result_sampling,
    test_input_required_result_list_roots, test_input_required_result_request_state,
    test_input_required_result_tampered_state, test_input_required_result_multiple_inputs,
    test_input_required_result_multi_round, test_input_required_result_capabilities,
)  # fmt: skip
