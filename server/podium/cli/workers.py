"""`podium workers`: the pool, and whether each of its workers is likely to answer."""

from collections.abc import Awaitable, Callable

import anyio
import click

from podium.cli.compose import open_workers
from podium.cli.invocation import Invocation, pass_invocation
from podium.cli.profile import profile
from podium.cli.saying import say
from podium.cli.wording import as_json, put, put_json, spent, table
from podium_workers.errors import WorkerError
from podium_workers.pool import Health, health
from podium_workers.prices import PriceTable, all_prices, own_prices, source_of
from podium_workers.profile import Profile, find_profile, reply_once
from podium_workers.worker import Frozen, Prompt, Worker, WorkerCard

Look = Callable[[Worker], Awaitable[Health]]
ONE_WORD = Prompt.of("Reply with the one word: ready")


class Seen(Frozen):
    """The pool as it is shown."""

    workers: tuple[WorkerCard, ...]
    """With a conductor that does no steps, at the end."""
    conductor: str
    does_steps: frozenset[str]
    """Names of those that do."""
    health: dict[str, Health]
    """By worker; empty when nobody asked for it."""
    profiles: dict[str, Profile]
    """Of the workers that were measured."""


@click.group(
    invoke_without_command=True,
    epilog="""\b
Examples:
  podium workers
  podium workers --ask
  podium workers --no-check --json
  podium --pool my-pool.toml workers
  podium workers profile""",
)
@click.option(
    "--check/--no-check", default=True,
    help="Whether to ask each worker's endpoint, at no cost, if it is there.",
)  # fmt: skip
@click.option(
    "--ask", is_flag=True,
    help="Have each worker really reply with one word, which costs what it costs.",
)  # fmt: skip
@click.option("--json", "json_", is_flag=True, help="A list of objects on stdout.")
@pass_invocation
@click.pass_context
def workers(
    ctx: click.Context, invocation: Invocation, *, check: bool, ask: bool, json_: bool
) -> None:
    """List the workers of the pool, the strongest first, or measure them."""
    if ctx.invoked_subcommand is not None:
        return
    look = _reply if ask else health if check else None
    seen = anyio.run(_look, invocation, look)
    if json_:
        put_json([_data(card, seen) for card in seen.workers])
    else:
        put(_text(seen, all_prices(own_prices(invocation.file.parent, invocation.settings.prices))))
        alone = "" if seen.conductor in seen.does_steps else ", which does no steps"
        say(f"Plans are written by {seen.conductor}{alone}.")
    if ask and not all(checked.ok for checked in seen.health.values()):
        ctx.exit(1)


workers.add_command(profile)


async def _reply(worker: Worker) -> Health:
    """Whether the model itself replies: an endpoint may be well whose model is not."""
    name, began = worker.card.name, anyio.current_time()
    try:
        _, used = await reply_once(worker, ONE_WORD)
    except WorkerError as error:
        return Health(name=name, ok=False, detail=error.message)
    took = anyio.current_time() - began
    return Health(name=name, ok=True, detail=f"it replied in {took:.1f} s, {spent(used)}")


async def _look(invocation: Invocation, looks: Look | None) -> Seen:
    found: dict[str, Health] = {}

    async def look(looks: Look, worker: Worker) -> None:
        found[worker.card.name] = await looks(worker)

    async with open_workers(invocation.settings, invocation.environment) as pool:
        async with anyio.create_task_group() as group:
            if looks:
                for worker in pool.everyone:
                    group.start_soon(look, looks, worker)
        folder = invocation.settings.profiles_dir
        cards = tuple(worker.card for worker in pool.everyone)
        measured = {card.name: find_profile(folder, card) for card in pool.cards}
        return Seen(
            workers=cards,
            conductor=pool.conductor,
            does_steps=frozenset(pool.names),
            health=found,
            profiles={name: made for name, made in measured.items() if made},
        )


def _data(card: WorkerCard, seen: Seen) -> dict[str, object]:
    checked = seen.health.get(card.name)
    return as_json(card) | {
        "conductor": card.name == seen.conductor,
        "steps": card.name in seen.does_steps,
        "healthy": checked.ok if checked else None,
        "detail": checked.detail if checked else "",
        "profile": _profile(seen.profiles.get(card.name)),
    }


def _profile(made: Profile | None) -> dict[str, object] | None:
    if made is None:
        return None
    return {
        "measured": str(made.measured),
        "skills": made.skills,
        "right": made.right,
        "latency_s": made.latency_s,
    }


def _text(seen: Seen, prices: PriceTable) -> str:
    head = ("worker", "model", "where", "window", "price")
    rows = [
        (card.name, card.model, card.where, f"{card.context_window:,}", card.told_price)
        for card in seen.workers
    ]
    below = [_below(card, seen, prices) for card in seen.workers]
    return table(head, rows, below)


def _below(card: WorkerCard, seen: Seen, prices: PriceTable) -> list[str]:
    told = [f"good at: {card.good_at}"] if card.good_at else []
    if card.name not in seen.does_steps:
        told.append("writes plans and does no steps")
    if source := source_of(card.price, card.model, prices):
        told.append(f"price: {source}")
    if made := seen.profiles.get(card.name):
        told.append(f"measured {made.measured}: {made.good_at(card.price)}")
    if checked := seen.health.get(card.name):
        told.append(("ok: " if checked.ok else "not usable: ") + checked.detail)
    return told
