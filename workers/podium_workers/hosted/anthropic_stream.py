"""A streamed message of Anthropic's as far as it has arrived: text, thinking, counts, end."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from podium_workers.hosted.common import uncounted
from podium_workers.worker import Usage, WorkerCard

if TYPE_CHECKING:
    from anthropic.types import MessageDeltaUsage, RawMessageStreamEvent
    from anthropic.types import Usage as WireUsage


@dataclass
class Streamed:
    """A reply of *card*'s worker as far as it has arrived."""

    card: WorkerCard
    text: list[str] = field(default_factory=list[str])
    reasoning: list[str] = field(default_factory=list[str])
    stop_reason: str = ""
    why_stopped: str = ""
    model: str = ""
    started: bool = False
    counted: bool = False
    """Whether the count of what was made has come: until then, `made` is only its beginning."""
    fresh: int = 0
    read: int = 0
    written: int = 0
    written_long: int = 0
    made: int = 0
    thought: int = 0

    def add(self, event: "RawMessageStreamEvent") -> None:
        match event.type:
            case "message_start":
                self.started = True
                self.model = event.message.model
                self._count(event.message.usage)
                if kept := event.message.usage.cache_creation:
                    self.written_long = kept.ephemeral_1h_input_tokens
            case "content_block_start":
                if event.content_block.type == "text":
                    self.text.append(event.content_block.text)
            case "content_block_delta":
                if event.delta.type == "text_delta":
                    self.text.append(event.delta.text)
                elif event.delta.type == "thinking_delta":
                    self.reasoning.append(event.delta.thinking)
            case "message_delta":
                self.stop_reason = event.delta.stop_reason or ""
                details = event.delta.stop_details
                self.why_stopped = (details and (details.explanation or details.category)) or ""
                self._count(event.usage)
                self.counted = True
            case "content_block_stop" | "message_stop":
                pass

    def _count(self, said: "WireUsage | MessageDeltaUsage") -> None:
        """Counts are of the whole message so far; the later ones name only what is new."""
        self.fresh = said.input_tokens or self.fresh
        self.read = said.cache_read_input_tokens or self.read
        self.written = said.cache_creation_input_tokens or self.written
        self.made = said.output_tokens or self.made
        if said.output_tokens_details:
            self.thought = said.output_tokens_details.thinking_tokens

    @property
    def usage(self) -> Usage:
        """Tokens and their price, which is unknown until the reply's own tokens were counted."""
        usage = Usage(
            input_tokens=self.fresh + self.read + self.written,
            cached_tokens=self.read,
            output_tokens=self.made,
            reasoning_tokens=min(self.thought, self.made),
        )
        if not self.counted:
            return uncounted(self.card, usage)
        kept_long = min(self.written_long, self.written)
        return self.card.priced(
            usage, written_tokens=self.written - kept_long, written_long_tokens=kept_long
        )
