"""`podium prices`: what models cost, where that was read, and what of it should be looked at."""

from collections.abc import Iterator
from datetime import date

import click

from podium.cli.compose import find_manifest
from podium.cli.invocation import Invocation, pass_invocation
from podium.cli.saying import say
from podium.cli.wording import as_json, count, put, put_json, table
from podium_workers.entries.hosted import AnthropicEntry, OpenAIEntry
from podium_workers.entries.named import Entry, card_of
from podium_workers.prices import (
    FILE_NAME,
    OLD_AFTER_DAYS,
    PricedModel,
    PriceTable,
    all_prices,
    overridden,
    own_prices,
    price_table,
    row_of,
)
from podium_workers.quirks import quirks_of
from podium_workers.worker import Frozen, Price, WorkerCard


class Unpriced(Frozen):
    """A worker of the pool whose price is not known."""

    worker: str
    model: str
    why: str
    remedy: str


class Old(Frozen):
    """A price that was read a while ago."""

    model: str
    provider: str
    read: date
    days: int
    source: str
    workers: tuple[str, ...]
    """Those of the pool that have it."""


class Overrides(Frozen):
    """A row of the user's own table that stands before a shipped one."""

    model: str
    provider: str
    own: Price
    shipped: Price


class Found(Frozen):
    """What `podium prices check` found."""

    old: tuple[Old, ...]
    unpriced: tuple[Unpriced, ...]
    overrides: tuple[Overrides, ...]

    @property
    def concerns_the_pool(self) -> bool:
        return bool(self.unpriced) or any(row.workers for row in self.old)


@click.group(
    invoke_without_command=True,
    epilog="""\b
Examples:
  podium prices
  podium prices --json
  podium prices check --days 30""",
)
@click.option("--json", "json_", is_flag=True, help="A list of objects on stdout.")
@pass_invocation
@click.pass_context
def prices(ctx: click.Context, invocation: Invocation, *, json_: bool) -> None:
    """List what hosted models cost, in US dollars per million tokens.

    A file prices.toml beside the settings' file holds prices of your own; they win over the
    shipped ones. A price in a pool's manifest wins over both.
    """
    if ctx.invoked_subcommand is not None:
        return
    found = all_prices(_own(invocation))
    if json_:
        put_json([_data(row, found) for row in found.model])
        return
    rows = [_row(row, found) for row in found.model]
    head = ("model", "provider", "input", "cached", "cache write", "output", "read")
    put(table(head, rows, [list(_below(row)) for row in found.model]))


@prices.command("check")
@click.option(
    "--days", type=click.IntRange(min=0), default=OLD_AFTER_DAYS, show_default=True,
    help="A price that was read longer ago is old.",
)  # fmt: skip
@click.option("--json", "json_", is_flag=True, help="One JSON object on stdout.")
@pass_invocation
@click.pass_context
def check(ctx: click.Context, invocation: Invocation, *, days: int, json_: bool) -> None:
    """Say which prices are old, which workers have none, and which ones are your own.

    Exit code 1 when a worker of the pool has no price, or an old one.
    """
    found = _check(invocation, days)
    if json_:
        put_json(as_json(found))
    else:
        put("\n".join(_lines(found)) or "Every price is new, and every worker has one.")
        if found.unpriced or found.old:
            say(
                f"{count(len(found.unpriced), 'worker')} without a price, "
                f"{count(len(found.old), 'price')} older than {count(days, 'day')}."
            )
    ctx.exit(1 if found.concerns_the_pool else 0)


def _own(invocation: Invocation) -> PriceTable | None:
    return own_prices(invocation.file.parent, invocation.settings.prices)


def _check(invocation: Invocation, days: int) -> Found:
    own = _own(invocation)
    known = all_prices(own)
    manifest, why = find_manifest(invocation.settings, invocation.environment)
    say(why)
    cards = {entry.name: card_of(entry, known) for entry in manifest.workers}
    own_file = invocation.settings.prices or invocation.file.with_name(FILE_NAME)
    unpriced = (_unpriced(entry, cards[entry.name], known) for entry in manifest.workers)
    return Found(
        old=tuple(_old(known, manifest.workers, days)),
        unpriced=tuple(
            Unpriced(
                worker=name,
                model=cards[name].model,
                why=reason,
                remedy=f"state its price in the manifest, or add a row for it to {own_file}",
            )
            for name, reason in filter(None, unpriced)
        ),
        overrides=tuple(
            Overrides(model=row.model, provider=row.provider, own=row.price, shipped=shipped.price)
            for row, shipped in (overridden(own, price_table()) if own else ())
        ),
    )


def _unpriced(entry: Entry, card: WorkerCard, known: PriceTable) -> tuple[str, str] | None:
    """The worker's name and why its price is not known; None where that is as it should be."""
    # A command-line assistant states what it cost, or is paid by the month; the price of one that
    # writes programs is that of the worker it asks.
    if card.price is not None or card.kind in {"command", "program"}:
        return None
    if not isinstance(entry, OpenAIEntry | AnthropicEntry):
        return card.name, "nothing is known of its price"
    if quirks_of(card.model, entry.url).endpoint.states_cost:
        return None
    row = row_of(card.model, base_url=entry.url, table=known)
    if row is not None:
        return card.name, (
            f"its context_window of {card.context_window:,} is larger than the "
            f"{row.priced_up_to or 0:,} tokens up to which a price is known"
        )
    return card.name, f"no table has {card.model!r} at {entry.url}"


def _old(known: PriceTable, entries: tuple[Entry, ...], days: int) -> Iterator[Old]:
    today = date.today()
    used: dict[tuple[str, str], list[str]] = {}
    for entry in entries:
        if isinstance(entry, OpenAIEntry | AnthropicEntry) and not entry.price:
            row = row_of(entry.model, base_url=entry.url, table=known)
            if row is not None:
                used.setdefault((row.provider, row.model), []).append(entry.name)
    for row in known.model:
        age = (today - known.read_on(row)).days
        holds = row.until is None or row.until >= today
        home = f"https://{known.providers[row.provider].host}"
        wins = row_of(row.model, base_url=home, on=row.starts, table=known) == row
        if age > days and holds and wins:
            yield Old(
                model=row.model,
                provider=row.provider,
                read=known.read_on(row),
                days=age,
                source=known.providers[row.provider].source,
                workers=tuple(used.get((row.provider, row.model), ())),
            )


def _lines(found: Found) -> Iterator[str]:
    for missing in found.unpriced:
        yield f"no price  {missing.worker} ({missing.model}): {missing.why}"
        yield f"          -> {missing.remedy}"
    for row in found.old:
        used = f", used by {', '.join(row.workers)}" if row.workers else ""
        yield f"old       {row.model}: read {row.read}, {count(row.days, 'day')} ago{used}"
        yield f"          -> {row.source}"
    for row in found.overrides:
        yield f"yours     {row.model}: {_brief(row.own)} instead of {_brief(row.shipped)}"


def _brief(price: Price) -> str:
    return f"${price.input:g} in, ${price.output:g} out"


def _row(row: PricedModel, found: PriceTable) -> tuple[str, ...]:
    cells = (row.input, row.cached_input, row.cache_write, row.output)
    figures = ("-" if figure is None else f"{figure:g}" for figure in cells)
    return (row.model, row.provider, *figures, str(found.read_on(row)))


def _below(row: PricedModel) -> Iterator[str]:
    if row.starts or row.until:
        yield f"holds {' '.join(_bounds(row))}"
    for rates in row.long:
        cached = "" if rates.cached_input is None else f", {rates.cached_input:g} cached"
        yield (
            f"prompts above {rates.above:,} tokens: {rates.input:g} in{cached}, "
            f"{rates.output:g} out, for the whole request"
        )
    if row.cache_write_long is not None:
        yield f"cache write for an hour or more: {row.cache_write_long:g}"


def _bounds(row: PricedModel) -> Iterator[str]:
    if row.starts:
        yield f"from {row.starts}"
    if row.until:
        yield f"until {row.until}"


def _data(row: PricedModel, found: PriceTable) -> dict[str, object]:
    source = {"read": str(found.read_on(row)), "source": found.providers[row.provider].source}
    return {**row.model_dump(mode="json", by_alias=True), **source}
