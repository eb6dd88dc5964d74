"""The SDK's server with Podium's manners: brief lists, and errors that say what to do."""

import inspect
from collections.abc import Collection, Iterable

from mcp import MCPError
from mcp.server import MCPServer
from mcp.server.lowlevel.helper_types import ReadResourceContents
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import (
    ResourceNotFoundError,
    ToolError,
    UnexpectedToolError,
)
from mcp.types import (
    INVALID_PARAMS,
    CallToolResult,
    GetPromptResult,
    InputRequiredResult,
    Tool,
)
from pydantic import AnyUrl, JsonValue

from podium.app.errors import sentence, unknown, unknown_argument
from podium.app.guards import clean
from podium.app.schemas import brief, brief_arguments, members, offering

Arguments = dict[str, JsonValue]


class PoliteServer(MCPServer):
    """An MCP server whose lists are short and whose errors are sentences, in both eras."""

    strategies: Collection[str] = ()
    """Names of the strategies of this process."""

    async def list_tools(self) -> list[Tool]:
        tools = await super().list_tools()
        for tool in tools:
            tool.description = inspect.cleandoc(tool.description or "")
            tool.input_schema = offering(brief_arguments(tool.input_schema), self.strategies)
            tool.output_schema = brief(tool.output_schema) if tool.output_schema else None
        return tools

    async def call_tool(
        self, name: str, arguments: Arguments, context: Context | None = None
    ) -> CallToolResult | InputRequiredResult:
        tools = {tool.name: tool.input_schema for tool in await self.list_tools()}
        if name not in tools:
            raise ToolError(unknown("tool", name, tools))
        schema = tools[name]
        known = list(members(schema.get("properties")))
        # The SDK would drop them, but a misspelled limit must not be ignored.
        if problem := unknown_argument(name, arguments, known):
            raise ToolError(problem)
        given = {key: clean(value, numbers=False) for key, value in arguments.items()}
        try:
            result = await super().call_tool(name, given, context)
        except UnexpectedToolError as error:
            raise UnexpectedToolError(
                f"{name} failed by a fault in Podium; its log says why. What was paid is kept: "
                "search_runs and get_run show it."
            ) from error
        except ToolError as error:
            cause = error.__cause__ or error
            raise ToolError(sentence(cause, schema)) from cause
        if isinstance(result, CallToolResult):
            # The SDK cannot write half an emoji in a name, and would fail before it is sent.
            result.structured_content = clean(result.structured_content)
        return result

    async def get_prompt(
        self, name: str, arguments: dict[str, str] | None = None, context: Context | None = None
    ) -> GetPromptResult | InputRequiredResult:
        prompts = {prompt.name: prompt.arguments or [] for prompt in await self.list_prompts()}
        if name not in prompts:
            raise MCPError(INVALID_PARAMS, unknown("prompt", name, prompts))
        known = [argument.name for argument in prompts[name]]
        given = arguments or {}
        if problem := unknown_argument(name, given, known):
            raise MCPError(INVALID_PARAMS, problem)
        for argument in prompts[name]:
            if argument.required and not given.get(argument.name, "").strip():
                wanted = f"{argument.name}: is missing. {argument.description}"
                raise MCPError(INVALID_PARAMS, wanted)
        return await super().get_prompt(name, given, context)

    async def read_resource(
        self, uri: AnyUrl | str, context: Context | None = None
    ) -> Iterable[ReadResourceContents] | InputRequiredResult:
        try:
            return await super().read_resource(uri, context)
        except ResourceNotFoundError as error:
            if str(error) != f"Unknown resource: {uri}":
                raise  # the resource's own text
            places = [str(found.uri) for found in await self.list_resources()]
            places += [found.uri_template for found in await self.list_resource_templates()]
            raise ResourceNotFoundError(unknown("resource", str(uri), places)) from error
