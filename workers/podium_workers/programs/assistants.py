"""The command-line assistants that Podium knows: how each is called, and what its output says.

Data and reading only; `command` runs them. Seen with Claude Code 2.1.197, Codex 0.171.0 and
Gemini CLI 0.61.0, each against a simulated provider.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from podium_workers.plain import plain
from podium_workers.wire import entries, items, words_in
from podium_workers.worker import FinishReason, Usage

Output = Literal["text", "claude", "codex", "gemini"]
"""What a program's standard output is: its reply, or the JSON of one of the assistants."""


@dataclass(frozen=True)
class Said:
    """What an assistant's output says, as far as there is any."""

    text: str = ""
    usage: Usage | None = None
    """None when it reports none; a cost of None when it names no cost."""
    model: str = ""
    session: str = ""
    """Its own name for the conversation."""
    finish: FinishReason = "stop"
    error: str = ""
    """Its words on a failure; empty when it names none."""
    status: int | None = None
    """The HTTP status behind the failure, when it names one."""
    ended: bool = False
    """Whether the output came to its proper end."""


@dataclass(frozen=True)
class Assistant:
    """How one assistant is called. The prompt goes to its standard input."""

    title: str
    command: tuple[str, ...]
    pure: tuple[str, ...]
    """Arguments for an assistant that is to answer and do nothing else."""
    model: str
    """The flag in front of the model's name."""
    login: tuple[str, ...]
    """Its command that tells, at no cost, whether it is logged in, by its exit code; empty when it
    has none."""
    install: str
    log_in: str
    """What to type without a login."""
    variables: tuple[str, ...]
    """Environment variables that say where its login and settings are."""
    settings: Mapping[str, str]
    """Variables that are set for it: no hooks and servers of the user's, among which may be
    Podium itself."""


ASSISTANTS: Mapping[str, Assistant] = {
    "claude": Assistant(
        title="Claude Code",
        command=(
            "claude", "-p", "--output-format", "stream-json", "--verbose",
            "--strict-mcp-config", "--no-session-persistence",
        ),
        pure=("--tools", ""),
        model="--model",
        login=("auth", "status"),
        install="npm install -g @anthropic-ai/claude-code",
        log_in="start `claude` and type /login",
        variables=("CLAUDE_CONFIG_DIR", "CLAUDE_CODE_OAUTH_TOKEN"),
        settings={"CLAUDE_CODE_SAFE_MODE": "1", "DISABLE_AUTOUPDATER": "1"},
    ),
    "codex": Assistant(
        title="Codex",
        command=(
            "codex", "exec", "--json", "--skip-git-repo-check", "--ephemeral",
            "--ignore-user-config", "--sandbox", "read-only",
        ),
        pure=(),
        model="--model",
        login=("login", "status"),
        install="npm install -g @openai/codex",
        log_in="type `codex login`",
        variables=("CODEX_HOME",),
        settings={},
    ),
    "gemini": Assistant(
        title="Gemini CLI",
        command=(
            "gemini", "--output-format", "json", "--skip-trust",
            "--allowed-mcp-server-names", "none", "--extensions", "none",
        ),
        pure=("--approval-mode", "plan"),
        model="--model",
        login=(),
        install="npm install -g @google/gemini-cli",
        log_in="start `gemini` and choose how to log in",
        variables=("GEMINI_CLI_HOME", "GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_LOCATION"),
        settings={"NO_COLOR": "1"},
    ),
}  # fmt: skip


def read(output: Output, text: str) -> Said:
    """What *text*, all that was printed so far, says."""
    return _READERS[output](text)


def is_sign_of_life(output: Output, line: str) -> bool:
    """Whether *line* shows progress; that Codex tries to connect, for ever, is none."""
    return not (output == "codex" and line.startswith('{"type":"error"'))


def has_begun(output: Output, line: str) -> bool:
    """Whether *line* holds words of the model."""
    if output == "claude":
        return line.startswith('{"type":"assistant"')
    if output == "codex":
        return line.startswith('{"type":"item.') and '"type":"error"' not in line
    return output == "text" and bool(line.strip())


def has_ended(output: Output, text: str) -> bool:
    """Whether *text*, all or a line of what was printed, holds the output's proper end.

    Plain text has none but the program's.
    """
    return output != "text" and read(output, text).ended


def _events(text: str) -> Iterator[Mapping[str, object]]:
    """The JSON objects that stand on lines of their own."""
    for line in text.splitlines():
        if not line.lstrip().startswith("{"):
            continue
        try:
            event = entries(json.loads(line))
        except (ValueError, RecursionError):
            continue
        if event:
            yield event


def _text(text: str) -> Said:
    return Said(text=plain(text).strip(), ended=True)


def _claude(text: str) -> Said:
    said, spoken, model, session = Said(), "", "", ""
    for event in _events(text):
        session = _word(event, "session_id") or session
        if event.get("type") == "assistant":
            message = entries(event.get("message"))
            model = _word(message, "model").replace("<synthetic>", "") or model
            spoken = _texts_of(message) or spoken
        elif event.get("type") == "result":
            said = _claude_result(event)
    return Said(
        text=said.text or ("" if said.error else spoken),
        usage=said.usage,
        model=model or said.model,
        session=session,
        finish=said.finish,
        error=said.error,
        status=said.status,
        ended=said.ended,
    )


def _claude_result(event: Mapping[str, object]) -> Said:
    words = _word(event, "result")
    status = event.get("api_error_status")
    error = ""
    if event.get("is_error") or event.get("subtype") != "success":
        listed = "; ".join(str(error) for error in items(event.get("errors")))
        error = words or listed or _word(event, "subtype") or "no words"
    return Said(
        text="" if error else words,
        usage=_claude_usage(event),
        finish="length" if event.get("stop_reason") == "max_tokens" else "stop",
        error=error or _refusal(event),
        status=status if isinstance(status, int) else None,
        ended=True,
    )


def _refusal(event: Mapping[str, object]) -> str:
    return "content policy: refused" if event.get("stop_reason") == "refusal" else ""


def _claude_usage(event: Mapping[str, object]) -> Usage:
    """Every model that took part, small ones for side work included; else the main one's."""
    rows = [
        (entries(row), ("inputTokens", "cacheCreationInputTokens", "cacheReadInputTokens"))
        for row in entries(event.get("modelUsage")).values()
    ] or [
        (
            entries(event.get("usage")),
            ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"),
        )
    ]
    cost = event.get("total_cost_usd")
    return Usage(
        input_tokens=sum(_count(row, name) for row, names in rows for name in names),
        cached_tokens=sum(_count(row, names[2]) for row, names in rows),
        output_tokens=sum(_count(row, "outputTokens", "output_tokens") for row, _ in rows),
        cost_usd=float(cost) if isinstance(cost, int | float) else None,
    )


def _texts_of(message: Mapping[str, object]) -> str:
    return "".join(_word(part, "text") for part in map(entries, items(message.get("content"))))


def _codex(text: str) -> Said:
    spoken, session, error, ended, usage = "", "", "", False, None
    for event in _events(text):
        session = _word(event, "thread_id") or session
        match event.get("type"):
            case "item.completed":
                item = entries(event.get("item"))
                if item.get("type") == "agent_message":
                    spoken = _word(item, "text") or spoken
            case "turn.completed":
                ended, error = True, ""
                usage = (usage or Usage(cost_usd=None)) + _codex_usage(entries(event.get("usage")))
            case "turn.failed":
                ended, error = True, words_in(event.get("error"), "no words")
            case "error":
                error = words_in(event, "no words")
            case _:
                pass
    return Said(text=spoken, usage=usage, session=session, error=error, ended=ended)


def _codex_usage(row: Mapping[str, object]) -> Usage:
    return Usage(
        input_tokens=_count(row, "input_tokens"),
        cached_tokens=_count(row, "cached_input_tokens"),
        output_tokens=_count(row, "output_tokens"),
        reasoning_tokens=_count(row, "reasoning_output_tokens"),
        cost_usd=None,
    )


def _gemini(text: str) -> Said:
    found = _document(text)
    error = entries(found.get("error"))
    models = entries(entries(found.get("stats")).get("models"))
    tokens = {name: entries(entries(row).get("tokens")) for name, row in models.items()}
    usage = None
    if tokens:
        usage = sum(map(_gemini_usage, tokens.values()), Usage())
    return Said(
        text=_word(found, "response"),
        usage=usage,
        model=max(tokens, key=lambda name: _count(tokens[name], "candidates"), default=""),
        session=_word(found, "session_id"),
        error=words_in(error, "no words") if error else "",
        ended=bool(found),
    )


def _gemini_usage(row: Mapping[str, object]) -> Usage:
    thoughts = _count(row, "thoughts")
    return Usage(
        input_tokens=_count(row, "prompt") + _count(row, "tool"),
        cached_tokens=_count(row, "cached"),
        output_tokens=_count(row, "candidates") + thoughts,
        reasoning_tokens=thoughts,
        cost_usd=None,
    )


def _document(text: str) -> Mapping[str, object]:
    """The JSON object in *text*, around which a program may have printed notices."""
    start = text.find("{")
    while start >= 0:
        try:
            found, _ = json.JSONDecoder().raw_decode(text, start)
        except (ValueError, RecursionError):
            found = None
        if "session_id" in entries(found) or "response" in entries(found):
            return entries(found)
        start = text.find("\n{", start)
        start = start + 1 if start >= 0 else -1
    return {}


_READERS: Mapping[Output, Callable[[str], Said]] = {
    "text": _text,
    "claude": _claude,
    "codex": _codex,
    "gemini": _gemini,
}


def _word(fields: Mapping[str, object], name: str) -> str:
    value = fields.get(name)
    return value if isinstance(value, str) else ""


def _count(fields: Mapping[str, object], *names: str) -> int:
    """The first of these counts that is there."""
    found = (fields.get(name) for name in names)
    return next((value for value in found if isinstance(value, int)), 0)
