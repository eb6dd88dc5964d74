"""`podium workers`: the pool, and whether each of its workers is likely to answer."""

import anyio
import click

from podium.cli.compose import open_workers
from podium.cli.invocation import Invocation, pass_invocation
from podium.cli.profile import profile
from podium.cli.saying import say
from podium.cli.wording import as_json, put, put_json, table
from podium.views import price
from podium_workers.pool import Health, health
from podium_workers.prices import PriceTable, all_prices, own_prices, source_of
from podium_workers.profile import Profile, find_profile
from podium_workers.worker import Frozen, Worker, WorkerCard


class Seen(Frozen):
    """The pool as it is shown."""

    workers: tuple[WorkerCard, ...]
    conductor: str
    health: dict[str, Health]
    """By worker; empty when nobody asked for it."""
    profiles: dict[str, Profile]
    """Of the workers that were measured."""


@click.group(
    invoke_without_command=True,
    epilog="""\b
Examples:
  podium workers
  podium workers --no-check --json
  podium --pool my-pool.toml workers
  podium workers profile""",
)
@click.option(
    "--check/--no-check", default=True,
    help="Whether to ask each worker's endpoint, at no cost, if it is there.",
)  # fmt: skip
@click.option("--json", "json_", is_flag=True, help="A list of objects on stdout.")
@pass_invocation
@click.pass_context
def workers(ctx: click.Context, invocation: Invocation, *, check: bool, json_: bool) -> None:
    """List the workers of the pool, the strongest first, or measure them."""
    if ctx.invoked_subcommand is not None:
        return
    seen = anyio.run(_look, invocation, check)
    if json_:
        put_json([_data(card, seen) for card in seen.workers])
    else:
        put(_text(seen, all_prices(own_prices(invocation.file.parent, invocation.settings.prices))))
        say(f"Plans are written by {seen.conductor}.")


workers.add_command(profile)


async def _look(invocation: Invocation, check: bool) -> Seen:
    found: dict[str, Health] = {}

    async def look(worker: Worker) -> None:
        found[worker.card.name] = await health(worker)

    async with open_workers(invocation.settings, invocation.environment) as pool:
        async with anyio.create_task_group() as group:
            for worker in pool.workers if check else ():
                group.start_soon(look, worker)
        folder = invocation.settings.profiles_dir
        measured = {card.name: find_profile(folder, card) for card in pool.cards}
        return Seen(
            workers=pool.cards,
            conductor=pool.conductor,
            health=found,
            profiles={name: made for name, made in measured.items() if made},
        )


def _data(card: WorkerCard, seen: Seen) -> dict[str, object]:
    checked = seen.health.get(card.name)
    return as_json(card) | {
        "conductor": card.name == seen.conductor,
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
        (card.name, card.model, card.where, f"{card.context_window:,}", price(card))
        for card in seen.workers
    ]
    below = [_below(card, seen, prices) for card in seen.workers]
    return table(head, rows, below)


def _below(card: WorkerCard, seen: Seen, prices: PriceTable) -> list[str]:
    told = [f"good at: {card.good_at}"] if card.good_at else []
    if source := source_of(card.price, card.model, prices):
        told.append(f"price: {source}")
    if made := seen.profiles.get(card.name):
        told.append(f"measured {made.measured}: {made.good_at(card.price)}")
    if checked := seen.health.get(card.name):
        told.append(("ok: " if checked.ok else "not usable: ") + checked.detail)
    return told
