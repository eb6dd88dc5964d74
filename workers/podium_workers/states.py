"""Hidden states: what a small model on this machine makes of a text before it says anything.

The state is that of the penultimate token in the last layer, as it comes out of the engine. A
model reads from left to right, so it is the last one's of a text without its last token; no more
than that is asked of the engine, and no more is sent.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import anyio
from pydantic import JsonValue

from podium_workers.engine.client import Engine
from podium_workers.engine.state import ModelSpec
from podium_workers.errors import ContextTooLongError, MalformedReplyError, SlowReplyError
from podium_workers.local import engine_error
from podium_workers.weights.local_file import LocalFile
from podium_workers.wire import ApiKey, entries, items

TOKEN = "penultimate"
"""Whose state it is."""
CONTEXT = 4096
"""Tokens that a text may have."""
_WITHIN_S = 900.0
"""Seconds that one state may take: the model may have to be loaded, on a busy machine."""


@dataclass(frozen=True)
class LocalStates:
    """The hidden states of one model, by the engine that the local workers use too."""

    file: LocalFile
    engine: Engine
    threads: int = 1
    parallel: int = 1

    @property
    def model(self) -> str:
        """Whose states they are, as it was named."""
        return self.file.gguf

    async def __call__(self, text: str) -> list[float]:
        """The state after *text*; the same text always has the same one.

        Raises:
            WorkerError: the model is not here or cannot be asked, or the text is too long for it.
        """
        spec = ModelSpec(
            path=await self.file.path(), context=CONTEXT, slots=self.parallel,
            threads=self.threads, gives="states",
        )  # fmt: skip
        read = await self._ask("/tokenize", spec, {"content": text, "add_special": True})
        tokens = [token for token in items(entries(read).get("tokens")) if isinstance(token, int)]
        if len(tokens) < 2:
            raise MalformedReplyError("A text of less than two tokens has no penultimate one.")
        if len(tokens) > CONTEXT:
            raise ContextTooLongError(
                f"The transcript has {len(tokens)} tokens; {self.model} is given {CONTEXT}."
            )
        # -1: as it is. Otherwise its length would be set to one.
        asked: dict[str, JsonValue] = {"content": [*tokens[:-1]], "embd_normalize": -1}
        return _state(await self._ask("/embedding", spec, asked))

    async def _ask(self, path: str, spec: ModelSpec, request: Mapping[str, JsonValue]) -> object:
        from podium_workers.hosted.transport import BROKEN, meaning_of_broken

        try:
            with anyio.fail_after(_WITHIN_S):
                async with self.engine.call(path, spec, request) as response:
                    await response.aread()
                    body: object = response.json()
        except TimeoutError as error:
            why = f"{self.model} did not read the transcript within {_WITHIN_S:g} s."
            raise SlowReplyError(why, limit="total") from error
        except BROKEN as error:
            raise meaning_of_broken(error, ApiKey()) from error
        if not response.is_success:
            raise engine_error(body, response.status_code)
        return body


def _state(body: object) -> list[float]:
    """The one state in an answer of llama.cpp's server."""
    for told in items(body):
        for state in items(entries(told).get("embedding")):
            numbers = [float(number) for number in items(state) if isinstance(number, float | int)]
            if numbers:
                return numbers
    raise MalformedReplyError("The engine gave no state.")
