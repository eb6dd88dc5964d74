"""Limits of runs and days: they hold over parallel steps, nested runs and processes (T04, T09)."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from tests.core_parts import (
    BOUND_S,
    by_subtask,
    conductor,
    nesting,
    open_parts,
    plan_of,
    plans_asked,
    step,
    worker,
    written,
)
from tests.ledger_samples import a_run

from podium.calls import Caller, Purpose
from podium.errors import LimitError, PoolError
from podium.plan import PODIUM
from podium.store import Store, open_store
from podium_workers.errors import RateLimitedError, SlowReplyError, UnreachableError
from podium_workers.pool import Pool
from podium_workers.scripted import Line, Script, ScriptedWorker
from podium_workers.worker import (
    Call,
    ModelSettings,
    Price,
    Prompt,
    Reply,
    Usage,
    WorkerCard,
)

OUTPUT = Price(input=0, output=1_000_000)
"""A dollar a token: what a call may cost at most is the length of its longest reply."""
FREE = Price(input=0, output=0)
LIMITED = ModelSettings(max_output_tokens=300)


def priced(
    script: Script = ("word " * 99,), name: str = "ann", price: Price | None = OUTPUT
) -> ScriptedWorker:
    """A worker whose replies cost what they are long, and can be 300 tokens long."""
    return worker(name, script, card={"price": price, "max_output_tokens": 300})


@asynccontextmanager
async def ledger(folder: Path, **request: object) -> AsyncGenerator[Store]:
    run = a_run()
    limited = run.request.model_copy(update=request)
    with anyio.fail_after(BOUND_S):
        async with open_store(folder / "podium.db") as store:
            await store.create_run(run.model_copy(update={"request": limited}))
            yield store


PURPOSE = Purpose("run-000001", 0, 0, 0)


async def ask(caller: Caller, asked: ScriptedWorker) -> str:
    return (await caller.ask(asked, Prompt.of("?"), LIMITED, PURPOSE)).text


async def first_refusal(caller: Caller, asked: ScriptedWorker, purpose: Purpose) -> LimitError:
    """Ask until a limit strikes."""
    for _ in range(10):
        try:
            await caller.ask(asked, Prompt.of("?"), LIMITED, purpose)
        except LimitError as error:
            return error
    raise AssertionError("no limit has struck")


async def spent(store: Store) -> float | None:
    return (await store.usage("run-000001")).cost_usd


# One run.


async def test_a_call_that_could_pass_the_limit_is_not_made(tmp_path: Path) -> None:
    ann = priced()
    async with ledger(tmp_path, max_usd=250) as store:
        with pytest.raises(LimitError, match=r"of this run of \$250 struck: \$250 are left") as it:
            await ask(Caller(store), ann)
        assert it.value.limit == "usd"
        assert ann.seen == []
        assert await store.calls("run-000001") == ()


async def test_a_reply_is_kept_as_short_as_what_is_left(tmp_path: Path) -> None:
    ann = priced()
    async with ledger(tmp_path, max_usd=400) as store:
        caller = Caller(store)
        await ask(caller, ann)
        cost = await spent(store)
        assert cost is not None
        assert cost < 140
        await ask(caller, ann)
        assert [asked.max_output_tokens for asked in ann.asked] == [300, int(400 - cost)]


async def test_steps_at_the_same_time_cannot_pass_the_limit_together(tmp_path: Path) -> None:
    """The second waits for the first, which takes less than it could have."""
    running = most = 0

    async def script(prompt: Prompt) -> Line:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await anyio.lowlevel.checkpoint()
        running -= 1
        return "word " * 20

    ann = priced(script)
    async with ledger(tmp_path, max_usd=500) as store:
        caller = Caller(store)
        async with anyio.create_task_group() as group:
            for _ in range(4):
                group.start_soon(ask, caller, ann)
        assert most == 1, "two together could have cost 600"
        assert len(await store.calls("run-000001")) == 4
        cost = await spent(store)
        assert cost is not None
        assert cost < 500


async def test_an_attempt_that_was_not_billed_takes_nothing(tmp_path: Path) -> None:
    busy = RateLimitedError("Too many.", status=429)
    async with ledger(tmp_path, max_usd=310) as store:
        assert await ask(Caller(store), priced([busy, "Done."])) == "Done."


async def test_an_attempt_that_broke_off_counts_as_the_most_that_it_can_have_cost(
    tmp_path: Path,
) -> None:
    late = SlowReplyError("Nothing came.", limit="first_byte")
    async with ledger(tmp_path, max_usd=310) as store:
        caller = Caller(store)
        with pytest.raises(SlowReplyError):
            await ask(caller, priced([late]))
        with pytest.raises(LimitError, match=r"\$10 are left"):
            await ask(caller, priced(["Done."]))
        assert await spent(store) is None, "what it cost is unknown"
        await store.set_limits("run-000001", {"max_usd": 700})
        assert await ask(caller, priced(["Done."])) == "Done."


@dataclass(frozen=True)
class BreakingOff:
    """Tells what was used so far, and then its connection breaks."""

    card: WorkerCard
    told: Usage

    async def reply(self, prompt: Prompt, settings: ModelSettings, call: Call) -> Reply:
        async with call.attempt({}) as attempt:
            await attempt.usage(self.told)
            raise UnreachableError("It broke off.")


COUNTED = Usage(input_tokens=9, output_tokens=40, cost_usd=None)


@pytest.mark.parametrize("told", [Usage(cost_usd=None), COUNTED])
async def test_a_reply_that_broke_off_in_the_middle_counts_at_its_worst(
    tmp_path: Path, told: Usage
) -> None:
    """T12: that the connection broke tells nothing of how much was generated before."""
    async with ledger(tmp_path, max_usd=310) as store:
        with pytest.raises(LimitError, match=r"\$10 are left"):
            await Caller(store).ask(
                BreakingOff(priced().card, told), Prompt.of("?"), LIMITED, PURPOSE
            )
        (call,) = await store.calls("run-000001")
        assert (call.status, call.usage) == ("failed", told)


async def test_a_free_reply_that_broke_off_costs_nothing(tmp_path: Path) -> None:
    free = BreakingOff(priced(price=FREE).card, COUNTED)
    async with ledger(tmp_path, max_usd=310) as store:
        with pytest.raises(UnreachableError):
            await Caller(store).ask(free, Prompt.of("?"), LIMITED, PURPOSE)
        calls = await store.calls("run-000001")
        assert [call.usage for call in calls] == [COUNTED.model_copy(update={"cost_usd": 0.0})] * 3


async def test_tokens_are_limited_like_money(tmp_path: Path) -> None:
    free = priced(price=FREE)
    async with ledger(tmp_path, max_tokens=500) as store:
        caller = Caller(store)
        await ask(caller, free)
        error = await first_refusal(caller, free, PURPOSE)
        assert error.limit == "tokens"
        assert "The limit of 500 tokens struck" in str(error)
        used = await store.usage("run-000001")
        assert used.input_tokens + used.output_tokens <= 500


class Trying:
    """Makes an attempt for each of *added*, which joins the prompt, as who writes programs does."""

    def __init__(self, *added: str, paid: anyio.Event | None = None) -> None:
        self.card = priced(price=FREE).card
        self.lengths: list[int] = []
        """Of the replies that each attempt could have, in order."""
        self._added = added
        self._paid = paid or anyio.Event()

    async def reply(self, prompt: Prompt, settings: ModelSettings, call: Call) -> Reply:
        usage = Usage(input_tokens=10, output_tokens=90)
        for trial, added in enumerate(self._added):
            async with call.attempt({"trial": trial, "added": added}) as attempt:
                self.lengths.append(settings.max_output_tokens or 0)
                await attempt.settle(Reply(text="A program.", usage=usage, model="any"))
            self._paid.set()
        return Reply(text="Done.", usage=usage, model="any")


async def try_it(caller: Caller, asked: Trying, seconds: float = 1.0) -> str:
    deadline = anyio.current_time() + seconds
    return (await caller.ask(asked, Prompt.of("?"), LIMITED, PURPOSE, deadline=deadline)).text


async def test_a_reply_leaves_room_for_what_its_worker_adds_to_the_prompt(tmp_path: Path) -> None:
    asked = Trying("x " * 40)
    async with ledger(tmp_path, max_tokens=470) as store:
        assert await try_it(Caller(store), asked) == "Done."
        (length,) = asked.lengths
        assert 256 <= length < 300, "with what is added, 300 would pass the limit"


async def test_a_worker_that_adds_more_than_is_left_is_refused(tmp_path: Path) -> None:
    asked = Trying("x " * 800)
    async with ledger(tmp_path, max_tokens=1000) as store:
        with pytest.raises(LimitError, match="limit of 1000 tokens struck: 1000 are left") as it:
            await try_it(Caller(store), asked)
        assert it.value.limit == "tokens"
        assert await store.calls("run-000001") == ()


async def test_what_a_call_has_paid_is_not_paid_again_when_its_rest_passes_the_limit(
    tmp_path: Path,
) -> None:
    asked = Trying("Write it.", "Mend it. " * 200)
    async with ledger(tmp_path, max_tokens=700) as store:
        with pytest.raises(LimitError, match="limit of 700 tokens struck: 600 are left"):
            await try_it(Caller(store), asked)
        assert [call.request["trial"] for call in await store.calls("run-000001")] == [0]


async def test_the_rest_of_a_call_waits_for_what_another_one_holds(tmp_path: Path) -> None:
    """That one takes less than it could; and a refusal would lose what this one has paid."""
    began, paid = anyio.Event(), anyio.Event()

    async def hold(prompt: Prompt) -> Line:
        began.set()
        await paid.wait()
        await anyio.wait_all_tasks_blocked()
        return "Done."

    asked = Trying("Write it.", "Mend it. " * 30, paid=paid)
    async with ledger(tmp_path, max_tokens=900) as store, anyio.create_task_group() as group:
        caller = Caller(store)
        group.start_soon(ask, caller, priced(hold, "bob", FREE))
        await began.wait()
        assert await try_it(caller, asked, BOUND_S) == "Done."
        tried = [call.request.get("trial") for call in await store.calls("run-000001")]
        assert tried == [None, 0, 1]


async def test_a_worker_of_unknown_price_is_refused_unless_it_is_allowed(tmp_path: Path) -> None:
    unknown = priced(price=None)
    allowed = Purpose("run-000001", 0, 0, 0, allow_unpriced=True)
    async with ledger(tmp_path, max_usd=1) as store:
        caller = Caller(store)
        with pytest.raises(LimitError, match="price of ann is unknown"):
            await ask(caller, unknown)
        assert unknown.seen == []
        await caller.ask(unknown, Prompt.of("?"), LIMITED, allowed)
        assert len(unknown.seen) == 1


# A day.


async def test_a_day_is_limited_over_its_runs_and_processes(tmp_path: Path) -> None:
    async with ledger(tmp_path) as store, open_store(tmp_path / "podium.db") as other:
        await store.create_run(a_run("run-000002"))
        await ask(Caller(store, day_usd=400), priced())
        elsewhere = Caller(other, day_usd=400)
        again = Purpose("run-000002", 0, 0, 0)
        await elsewhere.ask(priced(), Prompt.of("?"), LIMITED, again)
        error = await first_refusal(elsewhere, priced(), again)
        assert error.limit == "day_usd"
        assert "The limit of this day" in str(error)


async def test_another_principal_has_a_day_of_his_own(tmp_path: Path) -> None:
    async with ledger(tmp_path) as store:
        await store.create_run(a_run("run-000002", principal="you"))
        caller = Caller(store, day_usd=310)
        await ask(caller, priced())
        await caller.ask(priced(), Prompt.of("?"), LIMITED, Purpose("run-000002", 0, 0, 0))
        assert [call.status for call in await store.calls("run-000002")] == ["finished"]


async def test_racing_calls_meet_the_limit_of_a_day_exactly(tmp_path: Path) -> None:
    exact = worker("ann", ["x"], card={"price": Price(input=0, output=1), "max_output_tokens": 1})
    one = ModelSettings(max_output_tokens=1)
    granted: list[str] = []

    async def race(caller: Caller) -> None:
        with suppress(LimitError):
            granted.append((await caller.ask(exact, Prompt.of("?"), one, PURPOSE)).text)

    async with ledger(tmp_path) as store, open_store(tmp_path / "podium.db") as other:
        callers = [Caller(store, day_usd=40e-6), Caller(other, day_usd=40e-6)]
        async with anyio.create_task_group() as group:
            for number in range(80):
                group.start_soon(race, callers[number % 2])
        assert len(granted) == 40
        assert await spent(store) == pytest.approx(40e-6)


# Whole runs.

PLAN = plan_of(step("ann", "First."), step("ann", "Second.", 0), step("ann", "Third.", 1))


async def test_a_run_at_its_limit_gives_its_best_answer_so_far_and_goes_on_with_more(
    tmp_path: Path,
) -> None:
    ann = priced(by_subtask({"First.": "One " * 50, "Second.": "Two " * 50, "Third.": "Three"}))
    async with open_parts(tmp_path, ann, plans=[PLAN]) as parts:
        run = await parts.ask(max_usd=350)
        assert (run.status, run.limit) == ("partial", "usd")
        assert run.answer_step is not None
        assert run.answer in ("One " * 50, "Two " * 50)
        assert run.notes[0].startswith("The limit of this run of $350 struck:")
        assert "not done. This is the best answer so far." in run.notes[0]
        (found,) = await parts.store.rounds(run.run_id)
        statuses = [result.status for result in found.results]
        assert statuses[-1] == "stopped", "the step that was refused does not look as if at work"
        before = len(ann.seen)

        await parts.store.set_limits(run.run_id, {"max_usd": 5000})
        run = await parts.go_on(run)
        assert (run.status, run.answer, run.limit, run.notes) == ("finished", "Three", None, ())
        assert len(ann.seen) == 3, f"{before} steps had been paid"


async def test_a_run_that_cannot_afford_its_first_step_fails_and_says_why(tmp_path: Path) -> None:
    async with open_parts(tmp_path, priced(), plans=[PLAN]) as parts:
        run = await parts.ask(max_usd=1)
        assert (run.status, run.limit) == ("failed", "usd")
        assert run.error is not None
        assert run.error.code == "limit"
        assert "Raise max_usd to go on. No step had finished before that." in run.error.message


async def test_a_part_of_a_reply_is_not_taken_for_the_whole_when_work_goes_on(
    tmp_path: Path,
) -> None:
    asked = Trying("Write it.", "Mend it. " * 200)
    plan = plan_of(step("ann", "Compute."))
    pool = Pool(workers=(asked,), conductor="ann")
    async with open_parts(tmp_path, pool=pool, plans=[plan]) as parts:
        run = await parts.ask(max_tokens=900)
        assert (run.status, run.limit) == ("failed", "tokens")
        await parts.store.set_limits(run.run_id, {"max_tokens": 5000})
        run = await parts.go_on(run)
        assert (run.status, run.answer) == ("finished", "Done.")


async def test_steps_at_work_are_finished_when_a_limit_strikes_another(tmp_path: Path) -> None:
    """What is begun is paid; only what is not begun is left."""
    plan = plan_of(step("ann", "Cheap."), step("dear", "Dear."), step("ann", "Both.", 0, 1))
    struck = anyio.Event()

    async def cheap(prompt: Prompt) -> Line:
        await struck.wait()
        return "Cheap one."

    ann = worker("ann", cheap)
    dear = priced(name="dear", price=Price(input=0, output=1_000_000_000))
    async with open_parts(tmp_path, ann, dear, plans=[plan]) as parts:

        async def let_go() -> None:
            while not parts.told("step_started"):
                await anyio.lowlevel.checkpoint()
            struck.set()

        run = await parts.create(max_usd=1)
        async with anyio.create_task_group() as group:
            group.start_soon(let_go)
            group.start_soon(parts.go_on, run)
        run = await parts.store.run(run.run_id)
        assert (run.status, run.answer, run.limit) == ("partial", "Cheap one.", "usd")


async def test_the_steps_of_all_plans_are_limited_together(tmp_path: Path) -> None:
    ann = worker("ann", ["One.", "Two."])
    async with open_parts(tmp_path, ann, plans=[PLAN]) as parts:
        run = await parts.ask(max_steps=2)
        assert (run.status, run.limit, run.answer) == ("partial", "steps", "Two.")
        assert len(ann.seen) == 2
        await parts.store.set_limits(run.run_id, {"max_steps": 3})
        assert (await parts.go_on(run)).status == "finished"


async def test_a_nested_run_stands_under_the_limit_of_the_one_above(tmp_path: Path) -> None:
    inner = plan_of(step("ann", "First."), step("ann", "Second.", 0))
    outer = plan_of(step("ann", "Before."), step(PODIUM, "Inside.", 0))
    ann = priced(["word " * 99])
    async with open_parts(tmp_path, ann, policies=nesting(inner, outer)) as parts:
        run = await parts.ask(depth=1, max_usd=310)
        assert (run.status, run.limit, run.answer_step) == ("partial", "usd", 0)
        total = await parts.store.usage(run.run_id)
        assert total.cost_usd is not None
        assert total.cost_usd <= 310


async def test_a_step_whose_nested_run_met_the_limit_says_so(tmp_path: Path) -> None:
    inner = plan_of(step("ann", "First."), step("ann", "Second.", 0))
    outer = plan_of(step(PODIUM, "Inside."))
    async with open_parts(tmp_path, priced(), policies=nesting(inner, outer)) as parts:
        run = await parts.ask(depth=1, max_usd=310)
        (child,) = await parts.store.children(run.run_id)
        assert (child.status, run.answer) == ("partial", child.answer)
        assert run.notes == (f"Step 0: {child.notes[0]}",)
        assert "This is the best answer so far." in run.notes[0]


async def test_workers_of_unknown_price_are_left_out_of_a_run_with_a_limit(tmp_path: Path) -> None:
    plan = plan_of(step("ann", "Do."))
    ann, zoe = worker("ann"), priced(name="zoe", price=None)
    async with open_parts(tmp_path, ann, zoe, plans=[plan]) as parts:
        run = await parts.ask(max_usd=1)
        assert [card.name for card in run.pool] == ["ann"]
        assert run.notes == ("Left out, since money is limited and their price unknown: zoe.",)
        with pytest.raises(PoolError, match=r"the price of zoe is unknown.*allow_unpriced"):
            await parts.create(max_usd=1, workers=("zoe",))
        allowed = await parts.ask(max_usd=1, allow_unpriced=True)
        assert [card.name for card in allowed.pool] == ["ann", "zoe"]
        assert allowed.notes == ()


async def test_a_plan_has_no_more_steps_than_the_run_may_have(tmp_path: Path) -> None:
    two = written(("boss", "One.", []), ("boss", "Two.", [0]))
    boss = conductor(two)
    async with open_parts(tmp_path, boss) as parts:
        run = await parts.ask(strategy="conductor", max_steps=2, rounds=2)
        assert (run.status, run.limit) == ("finished", None)
        (text, _), *others = plans_asked(boss)
        assert others == [], "no step is left for a second plan"
        assert "1 to 2 steps" in text
