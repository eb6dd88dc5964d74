"""What the official conformance suite wants a server to have, put beside Podium's own tools.

Names, texts and schemas are the suite's. Everything is registered on the server that
`build_server` makes, so what is tested is that server: its lists, its guards, its errors.
"""

import base64
import json
import struct
import zlib
from collections.abc import Iterable
from typing import Annotated

import anyio
from mcp.server import MCPServer
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.prompts.base import UserMessage
from mcp.types import (
    AudioContent,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    EmptyResult,
    ImageContent,
    LoggingMessageNotification,
    LoggingMessageNotificationParams,
    TextContent,
    TextResourceContents,
)
from pydantic import Field
from tests.outside import input_fixtures, task_fixtures

PAUSE_S = 0.05
"""Between two signs of life, so that they arrive as two."""
MODERN = "2026-07-28"


def register(server: MCPServer) -> None:
    """Put all of it on a server that Podium has built."""
    for tool in (*TOOLS, *input_fixtures.TOOLS, *task_fixtures.TOOLS):
        server.add_tool(tool)
    for prompt in (*PROMPTS, input_fixtures.test_input_required_result_prompt):
        server.prompt()(prompt)
    server.resource("test://static-text", mime_type="text/plain")(static_text)
    server.resource("test://static-binary", mime_type="image/png")(static_binary)
    server.resource("test://watched-resource", mime_type="text/plain")(watched_resource)
    server.resource("test://template/{id}/data", mime_type="application/json")(template_data)
    server.middleware.append(earlier_methods)


def _png() -> str:
    """A picture of one red pixel."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0))
    pixel = chunk(b"IDAT", zlib.compress(b"\x00\xff\x00\x00"))
    picture = b"\x89PNG\r\n\x1a\n" + header + pixel + chunk(b"IEND", b"")
    return base64.b64encode(picture).decode()


def _wav() -> str:
    """A sound of one silent sample."""
    sound = struct.pack("<4sIHHIIHH4sI", b"fmt ", 16, 1, 1, 8000, 16000, 2, 16, b"data", 2)
    body = b"WAVE" + sound + b"\x00\x00"
    return base64.b64encode(b"RIFF" + struct.pack("<I", len(body)) + body).decode()


def _said(*content: ContentBlock | str) -> CallToolResult:
    blocks: Iterable[ContentBlock] = (
        TextContent(type="text", text=block) if isinstance(block, str) else block
        for block in content
    )
    return CallToolResult(content=list(blocks))


def _image() -> ImageContent:
    return ImageContent(type="image", data=_png(), mime_type="image/png")


def _embedded(uri: str, mime_type: str, text: str) -> EmbeddedResource:
    contents = TextResourceContents(uri=uri, mime_type=mime_type, text=text)
    return EmbeddedResource(type="resource", resource=contents)


async def test_simple_text() -> CallToolResult:
    """Gives a text."""
    return _said("This is a simple text response for testing.")


async def test_image_content() -> CallToolResult:
    """Gives a picture."""
    return _said(_image())


async def test_audio_content() -> CallToolResult:
    """Gives a sound."""
    return _said(AudioContent(type="audio", data=_wav(), mime_type="audio/wav"))


async def test_embedded_resource() -> CallToolResult:
    """Gives a resource."""
    text = "This is an embedded resource content."
    return _said(_embedded("test://embedded-resource", "text/plain", text))


async def test_multiple_content_types() -> CallToolResult:
    """Gives a text, a picture and a resource."""
    data = json.dumps({"test": "data", "value": 123})
    resource = _embedded("test://mixed-content-resource", "application/json", data)
    return _said("Multiple content types test:", _image(), resource)


async def test_error_handling() -> CallToolResult:
    """Always fails."""
    raise ToolError("This tool intentionally returns an error for testing")


async def test_tool_with_progress(ctx: Context) -> CallToolResult:
    """Tells of its progress."""
    for done in (0, 50, 100):
        await ctx.report_progress(done, 100)
        await anyio.sleep(PAUSE_S)
    return _said("Done.")


async def _log(ctx: Context, text: str) -> None:
    """Log to a client of the earlier era; in the newer one it is on request, and nobody asks."""
    if ctx.protocol_version == MODERN:
        return
    params = LoggingMessageNotificationParams(level="info", data=text)
    message = LoggingMessageNotification(params=params)
    await ctx.session.send_notification(message, related_request_id=ctx.request_id)


async def test_tool_with_logging(ctx: Context) -> CallToolResult:
    """Logs to the client while it works."""
    for text in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await _log(ctx, text)
        await anyio.sleep(PAUSE_S)
    return _said("Logged.")


async def test_logging_tool(ctx: Context) -> CallToolResult:
    """Logs to clients that want it."""
    await _log(ctx, "A line.")
    return _said("Logged.")


async def test_reconnection(ctx: Context) -> CallToolResult:
    """Closes the stream of its own answer."""
    await ctx.close_sse_stream()
    await anyio.sleep(PAUSE_S)
    return _said("Reconnected.")


async def test_trigger_tool_change(ctx: Context) -> CallToolResult:
    """Says that the list of tools has changed."""
    await ctx.notify_tools_changed()
    return _said("Told.")


async def test_trigger_prompt_change(ctx: Context) -> CallToolResult:
    """Says that the list of prompts has changed."""
    await ctx.notify_prompts_changed()
    return _said("Told.")


async def test_custom_header(
    region: Annotated[
        str,
        Field(description="Where.", json_schema_extra={"x-mcp-header": "Region"}),
    ],
) -> CallToolResult:
    """Has an argument that clients repeat in a header."""
    return _said(f"Region: {region}")


TOOLS = (
    test_simple_text, test_image_content, test_audio_content, test_embedded_resource,
    test_multiple_content_types, test_error_handling, test_tool_with_progress,
    test_tool_with_logging, test_logging_tool, test_reconnection, test_trigger_tool_change,
    test_trigger_prompt_change, test_custom_header,
)  # fmt: skip


def test_simple_prompt() -> list[UserMessage]:
    """Without arguments."""
    return [UserMessage("This is a simple prompt for testing.")]


def test_prompt_with_arguments(
    arg1: Annotated[str, Field(description="First test argument")],
    arg2: Annotated[str, Field(description="Second test argument")],
) -> list[UserMessage]:
    """With two arguments."""
    return [UserMessage(f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'")]


def test_prompt_with_embedded_resource(
    resourceUri: Annotated[str, Field(description="URI of the resource to embed")],
) -> list[UserMessage]:
    """With a resource."""
    embedded = _embedded(resourceUri, "text/plain", "Embedded resource content for testing.")
    return [UserMessage(embedded), UserMessage("Please process the embedded resource above.")]


def test_prompt_with_image() -> list[UserMessage]:
    """With a picture."""
    return [UserMessage(_image()), UserMessage("Please analyze the image above.")]


PROMPTS = (
    test_simple_prompt, test_prompt_with_arguments, test_prompt_with_embedded_resource,
    test_prompt_with_image,
)  # fmt: skip


def static_text() -> str:
    """A text."""
    return "This is the content of the static text resource."


def static_binary() -> bytes:
    """A picture."""
    return base64.b64decode(_png())


def watched_resource() -> str:
    """A text that clients subscribe to."""
    return "Watched."


def template_data(id: str) -> str:
    """A text that depends on its address."""
    return json.dumps({"id": id, "templateTest": True, "data": f"Data for ID: {id}"})


async def earlier_methods(
    ctx: ServerRequestContext[object, object], call_next: CallNext
) -> HandlerResult:
    """Methods of the earlier era that Podium itself does not have."""
    methods = ("logging/setLevel", "resources/subscribe", "resources/unsubscribe")
    if ctx.method in methods and ctx.protocol_version != MODERN:
        return EmptyResult()
    return await call_next(ctx)
