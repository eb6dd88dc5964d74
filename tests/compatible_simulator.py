"""Rules for the simulated provider: endpoints that speak Chat Completions in ways of their own."""

from tests.provider_simulator import DONE, Answer, Asked, Document, Piece, Rule, chunk


def gemini_reply(
    *texts: str, finish: str = "stop", prompt: int = 20, answer: int = 151, thoughts: int = 382
) -> Answer:
    """As Gemini's compatible address: thinking is counted in the total alone."""
    usage = {
        "prompt_tokens": prompt,
        "completion_tokens": answer,
        "total_tokens": prompt + answer + thoughts,
    }
    pieces: list[Piece] = [chunk({"role": "assistant", "content": text}) for text in texts]
    return Answer([*pieces, chunk(finish=finish, usage=usage), DONE])


def openrouter_error(message: str, code: int | str, *, within_choice: bool) -> Answer:
    """As OpenRouter, when the model's provider fails after the reply has begun."""
    error: Document = {"code": code, "message": message}
    begun: list[Piece] = [": OPENROUTER PROCESSING\n\n", chunk({"content": "Half a rep"})]
    delta: Document = {"content": ""}
    choice: dict[str, object] = {"index": 0, "delta": delta, "finish_reason": "error"}
    if within_choice:
        choice |= {"error": error, "native_finish_reason": "MALFORMED"}
        last = chunk(choices=[choice])
    else:
        last = chunk(choices=[choice], error=error)
    return Answer([*begun, last, DONE])


def openrouter_reply(text: str, *, finish: str, native: str) -> Answer:
    """As OpenRouter, which tells the reason of the model's provider beside its own."""
    choice: Document = {"index": 0, "finish_reason": finish, "native_finish_reason": native}
    delta: Document = {}
    return Answer([chunk({"content": text}), chunk(choices=[{**choice, "delta": delta}]), DONE])


def vllm_error(message: str, code: int) -> Answer:
    """As vLLM, whose errors in a stream have no `error` around them."""
    error: Document = {"object": "error", "message": message, "type": "ServerError", "code": code}
    return Answer([chunk({"content": "Half a rep"}), error, DONE])


def ollama(context: int, *, counts: bool = True) -> Rule:
    """As Ollama: reads the last *context* tokens of a prompt and says nothing of the others.

    Its models' tokens are taken to be one and a third a word, as for English prose.
    """

    def answer(asked: Asked) -> Answer:
        words = sum(len(str(message["content"]).split()) for message in asked.messages)
        read = min(words * 4 // 3, context) if counts else 0
        usage = {"prompt_tokens": read, "completion_tokens": 2, "total_tokens": read + 2}
        pieces: list[Piece] = [chunk({"content": "42"}), chunk(finish="stop", usage=usage), DONE]
        return Answer(pieces)

    return answer


def reasons_first(tokens: int, text: str = "42") -> Rule:
    """As a model that reasons for that many tokens, whatever its limit is, and then replies."""

    def answer(asked: Asked) -> Answer:
        limit = asked.body.get("max_tokens") or asked.body.get("max_completion_tokens")
        assert isinstance(limit, int)
        thought = chunk({"reasoning_content": "Hm."})
        if limit <= tokens:
            return Answer([thought, chunk(finish="length"), DONE])
        return Answer([thought, chunk({"content": text}), chunk(finish="stop"), DONE])

    return answer
