"""Why a reply ended, in the words of all that speak Chat Completions, as one of a few meanings."""

from typing import Literal

Meaning = Literal["stop", "length", "filtered", "broken", "tool", "unknown"]

_WORDS: dict[Meaning, frozenset[str]] = {
    "stop": frozenset({"stop", "end_turn", "eos", "stop_sequence", "complete", "completed"}),
    "length": frozenset(
        {"length", "max_tokens", "max_output_tokens", "model_length", "max_length"}
    ),
    "filtered": frozenset(
        {
            "content_filter", "refusal", "sensitive",  # OpenAI, Anthropic, Z.ai
            "safety", "recitation", "language", "blocklist", "prohibited_content", "spii",
            "image_safety", "image_prohibited_content", "image_recitation", "model_armor",
        }
    ),  # of Gemini, which OpenRouter and LiteLLM pass on
    "broken": frozenset(
        {
            "error", "abort", "aborted", "cancelled",  # OpenRouter, vLLM
            "insufficient_system_resource",  # DeepSeek
            "load", "unload",  # Ollama
            "repetition",  # vLLM, when it ends a loop
        }
    ),
    "tool": frozenset(
        {
            "tool_calls", "function_call", "tool_use",
            "malformed_function_call", "unexpected_tool_call", "too_many_tool_calls",
        }
    ),
}  # fmt: skip


def meaning_of_finish(reason: str) -> Meaning:
    """What *reason* means; some endpoints put details behind a colon."""
    word = reason.split(":")[0].strip().lower()
    for meaning, words in _WORDS.items():
        if word in words:
            return meaning
    return "unknown"
