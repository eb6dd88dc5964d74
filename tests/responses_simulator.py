"""OpenAI's Responses interface for the simulated provider: create, retrieve, cancel, in background.

A background response goes on while nobody listens, so a stream that breaks can be taken up again.
"""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from tests.provider_simulator import Answer, Asked, Document, Piece, openai_error

from podium_workers.wire import entries

RESPONSE_USAGE = {
    "input_tokens": 100,
    "input_tokens_details": {"cached_tokens": 40, "cache_write_tokens": 0},
    "output_tokens": 20,
    "output_tokens_details": {"reasoning_tokens": 5},
    "total_tokens": 120,
}


def message(*texts: str, phase: str | None = None) -> dict[str, object]:
    """An item of output with text."""
    content = [{"type": "output_text", "text": text} for text in texts]
    item: dict[str, object] = {"id": "msg_1", "type": "message", "role": "assistant"}
    item |= {"status": "completed", "content": content}
    return item | ({"phase": phase} if phase else {})


def refusal(text: str) -> dict[str, object]:
    """An item of output in which the model declines."""
    return message() | {"content": [{"type": "refusal", "refusal": text}]}


def reasoning(*summaries: str) -> dict[str, object]:
    """An item of output with summaries of reasoning, and its encrypted form."""
    parts = [{"type": "summary_text", "text": text} for text in summaries]
    return {
        "id": "rs_1",
        "type": "reasoning",
        "summary": parts,
        "encrypted_content": "gAAAA-not-to-be-read",
    }


def document(
    status: str = "completed",
    *output: Document,
    usage: Document | None = RESPONSE_USAGE,
    **more: object,
) -> dict[str, object]:
    """A response as a whole."""
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "model-as-served",
        "status": status,
        "output": list(output),
        "error": None,
        "incomplete_details": None,
        "usage": usage,
        "parallel_tool_calls": False,
        "tool_choice": "auto",
        "tools": [],
    } | more


def numbered(*events: Mapping[str, object]) -> list[dict[str, object]]:
    return [dict(event) | {"sequence_number": number} for number, event in enumerate(events)]


def delta(text: str, kind: str = "output_text") -> dict[str, object]:
    return {
        "type": f"response.{kind}.delta",
        "item_id": "msg_1",
        "output_index": 0,
        "content_index": 0,
        "summary_index": 0,
        "delta": text,
        "logprobs": [],
    }


def told(last: Document, *texts: str, thoughts: Sequence[str] = ()) -> list[dict[str, object]]:
    """All events of a response that ends as the document *last*."""
    nothing: dict[str, object] = {"output": [], "usage": None, "error": None}
    begun = {**last, **nothing, "status": "in_progress", "incomplete_details": None}
    return numbered(
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
        *(delta(thought, "reasoning_summary_text") for thought in thoughts),
        *(delta(text) for text in texts),
        {"type": f"response.{last['status']}", "response": last},
    )


def responses_reply(
    *texts: str, thoughts: Sequence[str] = (), usage: Document | None = RESPONSE_USAGE
) -> Answer:
    """A good streamed response."""
    output = ([reasoning(*thoughts)] if thoughts else []) + [message("".join(texts))]
    last = document("completed", *output, usage=usage)
    return Answer(told(last, *texts, thoughts=thoughts), headers={"x-request-id": "req_1"})


def responses_end(last: Document) -> Answer:
    """A streamed response that ends as *last*."""
    return Answer(told(last, "Half a rep"))


@dataclass
class Stored:
    """A background response at the provider."""

    events: Sequence[Mapping[str, object]]
    breaks: list[int] = field(default_factory=list[int])
    """After how many events each connection breaks off, in order; later ones do not."""
    how: Literal["HANG UP", "STALL"] = "HANG UP"
    status: str = ""
    """What a look at it says; as its last event does, unless given."""

    def streamed(self, after: int = -1) -> Answer:
        pieces: list[Piece] = [
            event for event in self.events if int(str(event["sequence_number"])) > after
        ]
        if self.breaks:
            pieces = [*pieces[: self.breaks.pop(0)], self.how]
        return Answer(pieces)

    def shown(self) -> Answer:
        last = entries(self.events[-1]["response"])
        if self.status in {"in_progress", "queued"}:
            nothing: dict[str, object] = {"output": [], "usage": None}
            return Answer(document={**last, **nothing, "status": self.status})
        return Answer(document={**last, "status": self.status or last["status"]})


class ResponseStore:
    """A rule for the simulated provider: answers as the Responses interface would.

    *scripts* are what the requests to create a response give, in order.
    """

    def __init__(self, *scripts: Stored, kept: Mapping[str, Stored] | None = None) -> None:
        self._scripts = list(scripts)
        self.kept: dict[str, Stored] = dict(kept or {})
        self.created = 0
        self.cancelled: list[str] = []
        self.was_cancelled = threading.Event()

    def __call__(self, asked: Asked) -> Answer:
        _, _, rest = asked.path.partition("/responses")
        name, _, action = rest.strip("/").partition("/")
        if not name:
            return self._create()
        stored = self.kept.get(name)
        if stored is None:
            return openai_error(404, f"Response with id '{name}' not found.")
        if action == "cancel":
            return self._cancel(name, stored)
        if asked.query.get("stream") == "true":
            return stored.streamed(int(asked.query.get("starting_after", "-1")))
        return stored.shown()

    def _create(self) -> Answer:
        stored = self._scripts[min(self.created, len(self._scripts) - 1)]
        self.created += 1
        self.kept[str(entries(stored.events[0]["response"])["id"])] = stored
        return stored.streamed()

    def _cancel(self, name: str, stored: Stored) -> Answer:
        self.cancelled.append(name)
        stored.status = "cancelled"
        self.was_cancelled.set()
        return stored.shown()
