"""A response that went on at the provider while its process died is taken up, and paid once."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from pydantic import SecretStr
from tests.core_parts import BOUND_S
from tests.ledger_samples import CARD, a_call, a_run
from tests.provider_simulator import Provider
from tests.responses_simulator import ResponseStore, Stored, document, message, told

from podium.budget import Amount
from podium.calls import Caller, Purpose
from podium.paid import prompt_sha
from podium.store import Store, open_store
from podium.trace import CallRecord
from podium_workers.responses import ResponsesWorker
from podium_workers.wire import ApiKey
from podium_workers.worker import ATTACHED_TO, ModelSettings, Price, Prompt

RUN = "run-000001"
PROMPT = Prompt.of("How many?")
SETTINGS = ModelSettings(max_output_tokens=300)
GOOD = told(document("completed", message("Forty-two")), "Forty", "-two")
PRICE = Price(input=1.0, output=10.0)
KEY = ApiKey(variable="OPENAI_API_KEY", secret=SecretStr("sk-of-nobody"))


def worker(provider: Provider) -> ResponsesWorker:
    card = CARD.model_copy(update={"name": "far", "kind": "openai", "price": PRICE})
    return ResponsesWorker(card, key=KEY, base_url=f"{provider.url}/v1", background=True)


def begun(**changes: object) -> CallRecord:
    """A call in the background whose process died before it heard of its end."""
    request = {"model": CARD.model, "background": True}
    fields: dict[str, object] = {
        "worker": "far", "model": CARD.model, "status": "running", "version": 0,
        "prompt": prompt_sha(PROMPT), "request": request, "request_id": "resp_1",
    }  # fmt: skip
    return a_call("begun", RUN, **(fields | changes))


@asynccontextmanager
async def left_behind(folder: Path, call: CallRecord) -> AsyncGenerator[Store]:
    """The ledger of a run that was taken over while *call* was under way."""
    with anyio.fail_after(BOUND_S):
        async with open_store(folder / "podium.db") as store:
            await store.create_run(a_run())
            lease = await store.claim(RUN, "dead", 10)
            assert lease is not None
            reserved = Amount(nano_usd=5_000_000, tokens=500)
            assert await store.held(lease).open_call(call, reserved, 1.0)
            assert await store.claim(RUN, "alive", 10, await store.holder(RUN))
            yield store


async def ask(store: Store, provider: Provider, *, again: bool = True, version: int = 1) -> str:
    purpose = Purpose(RUN, 0, 0, version, again=again)
    asked = worker(provider)
    reply = await Caller(store, day_usd=1.0).ask(asked, PROMPT, SETTINGS, purpose)
    await asked.aclose()
    return reply.text


async def test_the_reply_is_read_and_its_debt_moves_to_the_new_call(
    tmp_path: Path, provider: Provider
) -> None:
    held = ResponseStore(Stored(GOOD), kept={"resp_1": Stored(GOOD, status="in_progress")})
    provider.answers(held)
    async with left_behind(tmp_path, begun()) as store:
        (day,) = await store.accounts(RUN, 1.0)
        assert day.spent == 5_000_000, "nobody knows yet what it has cost"
        assert await ask(store, provider) == "Forty-two"

        assert held.created == 0
        old, new = await store.calls(RUN)
        assert (old.status, old.usage.output_tokens, old.usage.cost_usd) == ("stopped", 0, 0.0)
        assert new.request == {"model": CARD.model, ATTACHED_TO: "resp_1"}
        assert (new.status, new.usage.output_tokens) == ("finished", 20)
        total = await store.usage(RUN)
        assert total.cost_usd == new.usage.cost_usd
        (day,) = await store.accounts(RUN, 1.0)
        assert (day.spent, day.held) == (round((total.cost_usd or 0) * 1e9), 0)


async def test_a_response_that_the_provider_has_lost_is_asked_for_anew(
    tmp_path: Path, provider: Provider
) -> None:
    held = ResponseStore(Stored(GOOD))
    provider.answers(held)
    async with left_behind(tmp_path, begun()) as store:
        assert await ask(store, provider) == "Forty-two"
        assert held.created == 1
        old, new = await store.calls(RUN)
        assert (old.usage.cost_usd, new.status) == (None, "finished")
        (day,) = await store.accounts(RUN, 1.0)
        assert day.spent > 5_000_000, "the lost one may have been billed"


@pytest.mark.parametrize(
    "other",
    [
        {"prompt": "another prompt"},
        {"worker": "another"},
        {"model": "another"},
        {"step": 7},
        {"round": 1},
        {"request": {"model": CARD.model}},
    ],
    ids=lambda other: next(iter(other)),
)
async def test_only_a_call_for_exactly_the_same_is_taken_up(
    tmp_path: Path, provider: Provider, other: dict[str, object]
) -> None:
    held = ResponseStore(Stored(GOOD), kept={"resp_1": Stored(GOOD)})
    provider.answers(held)
    async with left_behind(tmp_path, begun(**other)) as store:
        await ask(store, provider)
        assert held.created == 1


async def test_a_first_try_looks_for_nothing_to_take_up(tmp_path: Path, provider: Provider) -> None:
    held = ResponseStore(Stored(GOOD), kept={"resp_1": Stored(GOOD)})
    provider.answers(held)
    async with left_behind(tmp_path, begun()) as store:
        await ask(store, provider, again=False, version=0)
        assert held.created == 1
