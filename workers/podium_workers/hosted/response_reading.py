"""A response of OpenAI's Responses interface, as far as it was read.

Deltas are kept for what breaks off; the document at the end is what counts.
"""

from typing import TYPE_CHECKING

from podium_workers.hosted.common import uncounted
from podium_workers.hosted.openai_client import Counts, said_in
from podium_workers.wire import Said
from podium_workers.worker import Usage, WorkerCard

if TYPE_CHECKING:
    from openai.types.responses import Response, ResponseOutputItem, ResponseStreamEvent

_ENDED = frozenset({"completed", "failed", "incomplete", "cancelled"})


class Reading:
    """What is known of one response so far."""

    def __init__(self, card: WorkerCard) -> None:
        self._card = card
        self.id = ""
        self.model = ""
        self.status = ""
        self.why_incomplete = ""
        self.error: Said | None = None
        self.calls_tool = False
        self.started = False
        """Whether anything of it has arrived, be it without words."""
        self.position: int | None = None
        """Number of the last event that was read."""
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._refusal: list[str] = []
        self._counts: Counts | None = None
        self._seen: int | None = None

    @property
    def text(self) -> str:
        return "".join(self._text)

    @property
    def reasoning(self) -> str:
        return "".join(self._reasoning)

    @property
    def refusal(self) -> str:
        return "".join(self._refusal)

    @property
    def begun(self) -> bool:
        """Whether the model's first words have arrived."""
        return bool(self._text or self._reasoning or self._refusal)

    @property
    def ended(self) -> bool:
        return self.status in _ENDED

    @property
    def usage(self) -> Usage:
        """Tokens and their price; none at an unknown price where the provider said nothing."""
        return uncounted(self._card) if self._counts is None else self._counts.usage(self._card)

    def has_moved(self) -> bool:
        """Whether events were read since this was last asked."""
        moved = self.position != self._seen
        self._seen = self.position
        return moved

    def add(self, event: "ResponseStreamEvent") -> bool:
        """Take *event* in; whether it told the response's id for the first time."""
        first, self.started = False, True
        match event.type:
            case (
                "response.created"
                | "response.queued"
                | "response.in_progress"
                | "response.completed"
                | "response.incomplete"
                | "response.failed"
            ):
                first = not self.id and bool(event.response.id)
                self.found(event.response)
            case "response.output_text.delta":
                self._text.append(event.delta)
            case "response.refusal.delta":
                self._refusal.append(event.delta)
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                self._reasoning.append(event.delta)
            case "response.reasoning_summary_part.added":
                if self._reasoning:
                    self._reasoning.append("\n\n")
            case "error":
                self.status = "failed"
                self.error = Said(event.message, code=event.code or "", parameter=event.param)
            case _:
                pass
        self.position = event.sequence_number
        return first

    def found(self, response: "Response") -> None:
        """Take in the response as the provider describes it as a whole."""
        self.started = True
        self.id = response.id or self.id
        self.model = response.model or self.model
        self.status = response.status or self.status
        details = response.incomplete_details
        self.why_incomplete = (details and details.reason) or ""
        if response.error is not None:
            self.error = said_in(response.error.model_dump())
        if response.usage is not None:
            said, inside = response.usage, response.usage.input_tokens_details
            kept = inside and inside.cache_write_tokens_details
            self._counts = Counts(
                given=said.input_tokens,
                made=said.output_tokens,
                total=said.total_tokens,
                cached=(inside and inside.cached_tokens) or 0,
                written=(inside and inside.cache_write_tokens) or 0,
                written_long=(kept and kept.ttl_12h_tokens) or 0,
                reasoned=(
                    said.output_tokens_details and said.output_tokens_details.reasoning_tokens
                )
                or 0,
            )
        if self.ended and response.output:
            self._take_output(response.output)

    def _take_output(self, output: "list[ResponseOutputItem]") -> None:
        """The items of the finished response in place of the deltas.

        What is encrypted of the reasoning stays with the provider's document. Commentary, which
        some models write before their answer, is kept with the reasoning.
        """
        self._text, self._refusal, self._reasoning = [], [], []
        for item in output:
            if item.type == "reasoning":
                parts = [part.text for part in (*item.summary, *(item.content or ()))]
                self._reasoning.append("\n\n".join(parts))
            elif item.type == "message":
                for part in item.content:
                    if part.type == "refusal":
                        self._refusal.append(part.refusal)
                    elif item.phase == "commentary":
                        self._reasoning.append(part.text)
                    else:
                        self._text.append(part.text)
            elif item.type.endswith("_call"):
                self.calls_tool = True
