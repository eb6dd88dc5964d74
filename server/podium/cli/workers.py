"""`podium workers`: the pool, and whether each of its workers is likely to answer."""

import anyio
import click

from podium.cli.compose import open_workers
from podium.cli.invocation import Invocation, pass_invocation
from podium.cli.saying import say
from podium.cli.wording import as_json, put, put_json, table
from podium.views import price
from podium_workers.pool import Health, health
from podium_workers.prices import source_of
from podium_workers.worker import Frozen, Worker, WorkerCard


class Seen(Frozen):
    """The pool as it is shown."""

    workers: tuple[WorkerCard, ...]
    conductor: str
    health: dict[str, Health]
    """By worker; empty when nobody asked for it."""


@click.command(
    epilog="""\b
Examples:
  podium workers
  podium workers --no-check --json
  podium --pool my-pool.toml workers"""
)
@click.option(
    "--check/--no-check", default=True,
    help="Whether to ask each worker's endpoint, at no cost, if it is there.",
)  # fmt: skip
@click.option("--json", "json_", is_flag=True, help="A list of objects on stdout.")
@pass_invocation
def workers(invocation: Invocation, *, check: bool, json_: bool) -> None:
    """List the workers of the pool, the strongest first."""
    seen = anyio.run(_look, invocation, check)
    if json_:
        put_json([_data(card, seen) for card in seen.workers])
    else:
        put(_text(seen))
        say(f"Plans are written by {seen.conductor}.")


async def _look(invocation: Invocation, check: bool) -> Seen:
    found: dict[str, Health] = {}

    async def look(worker: Worker) -> None:
        found[worker.card.name] = await health(worker)

    async with open_workers(invocation.settings, invocation.environment) as pool:
        async with anyio.create_task_group() as group:
            for worker in pool.workers if check else ():
                group.start_soon(look, worker)
        return Seen(workers=pool.cards, conductor=pool.conductor, health=found)


def _data(card: WorkerCard, seen: Seen) -> dict[str, object]:
    checked = seen.health.get(card.name)
    return as_json(card) | {
        "conductor": card.name == seen.conductor,
        "healthy": checked.ok if checked else None,
        "detail": checked.detail if checked else "",
    }


def _text(seen: Seen) -> str:
    head = ("worker", "model", "where", "window", "price")
    rows = [
        (card.name, card.model, card.where, f"{card.context_window:,}", price(card))
        for card in seen.workers
    ]
    return table(head, rows, [_below(card, seen.health.get(card.name)) for card in seen.workers])


def _below(card: WorkerCard, checked: Health | None) -> list[str]:
    told = [f"good at: {card.good_at}"] if card.good_at else []
    if source := source_of(card.price, card.model):
        told.append(f"price: {source}")
    if checked:
        told.append(("ok: " if checked.ok else "not usable: ") + checked.detail)
    return told
