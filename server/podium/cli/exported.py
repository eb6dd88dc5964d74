"""A run with all that the ledger has of it, as `podium export` writes it."""

from podium.errors import StoreError
from podium.plan import Proposal
from podium.receipt import Receipt
from podium.store import Store
from podium.trace import CallRecord, Run, StepResult
from podium.views import full_receipt
from podium_workers.worker import Frozen

FORMAT_VERSION = 1
"""Grows when a field changes its meaning or goes; new fields may come without that."""


class ProposedRound(Frozen):
    """What the policy proposed in one round."""

    number: int
    proposal: Proposal


class ExportedRun(Frozen):
    """The whole record of one run."""

    run: Run
    rounds: tuple[ProposedRound, ...]
    steps: tuple[StepResult, ...]
    """Every version of every step, by number, the oldest first. `prompt` names a text."""
    calls: tuple[CallRecord, ...]
    """Every request to a provider. `prompt`, `reply` and `reasoning` name texts."""
    texts: dict[str, str | None]
    """The texts that steps and calls name; a prompt is JSON of its messages.

    None where the ledger could not give one."""
    receipt: Receipt
    nested: tuple["ExportedRun", ...]
    """The runs that are steps of this one."""

    @property
    def missing(self) -> int:
        """How many texts the ledger could not give, those of nested runs included."""
        own = sum(text is None for text in self.texts.values())
        return own + sum(inner.missing for inner in self.nested)


async def exported(store: Store, run: Run) -> ExportedRun:
    """The record of *run*, and of the runs nested in it.

    Raises:
        StoreError: a record cannot be read.
    """
    rounds = await store.rounds(run.run_id)
    steps = await store.steps(run.run_id, every_version=True)
    calls = await store.calls(run.run_id)
    named = [step.prompt for step in steps]
    for call in calls:
        named += [call.prompt, call.reply or "", call.reasoning or ""]
    return ExportedRun(
        run=run,
        rounds=tuple(ProposedRound(number=it.number, proposal=it.proposal) for it in rounds),
        steps=steps,
        calls=calls,
        texts={sha: await _text(store, sha) for sha in dict.fromkeys(named) if sha},
        receipt=await full_receipt(store, run),
        nested=tuple([await exported(store, child) for child in await store.children(run.run_id)]),
    )


async def _text(store: Store, sha: str) -> str | None:
    """The text, unless it is gone or on a damaged page: the rest of the record is still there."""
    try:
        return await store.text(sha)
    except StoreError:
        return None
