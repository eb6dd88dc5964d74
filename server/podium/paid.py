"""Replies that were paid and recorded, but that nothing was made of: used instead of a new call.

Between the record of a call and the record of what it was for, a process can be stopped or die.
"""

from podium.store import Store, text_hash
from podium.trace import CallRecord
from podium_workers.worker import Prompt, Reply

Paid = dict[tuple[str, str], Reply]
"""Replies by worker and hash of the prompt."""


def prompt_sha(prompt: Prompt) -> str:
    """The hash by which a prompt is stored."""
    return text_hash(prompt.model_dump_json())


async def paid_replies(store: Store, run_id: str, round_number: int) -> Paid:
    """What workers have replied to prompts for the plan of a round."""
    calls = await store.calls(run_id)
    finished = [call for call in calls if call.round == round_number and call.step is None]
    return {
        (call.worker, call.prompt): await _reply(store, call)
        for call in finished
        if _is_whole(call)
    }


async def paid_reply(
    store: Store, run_id: str, step: int, version: int
) -> tuple[CallRecord, Reply] | None:
    """What a worker has replied for a version of a step, if its reply was recorded."""
    for call in reversed(await store.calls(run_id)):
        if (call.step, call.version) == (step, version) and _is_whole(call):
            return call, await _reply(store, call)
    return None


def _is_whole(call: CallRecord) -> bool:
    """Whether a call brought its worker's reply; a try is what the worker makes its reply of."""
    return call.reply is not None and "trial" not in call.request


async def _reply(store: Store, call: CallRecord) -> Reply:
    return Reply(
        text=await store.text(call.reply or ""),
        usage=call.usage,
        model=call.served_by,
        finish_reason=call.finish_reason or "stop",
        note=call.note,
    )
