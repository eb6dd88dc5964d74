"""`podium workers profile`: measures what workers are good at, and keeps it for their cards."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio
import click

from podium.cli.compose import open_workers
from podium.cli.invocation import Invocation, pass_invocation
from podium.cli.questions import is_terminal
from podium.cli.ranges import Number
from podium.cli.saying import say
from podium.cli.signals import stoppable
from podium.cli.wording import as_json, count, put, put_json, spent, table
from podium.errors import LimitError
from podium.views import money
from podium_workers.errors import PoolSelectionError
from podium_workers.pool import Pool
from podium_workers.probes import probes, probes_hash
from podium_workers.profile import (
    SKILLS,
    Cost,
    Profile,
    cost_of_profile,
    find_profile,
    measure,
    save_profile,
)
from podium_workers.worker import Frozen, Usage, WorkerCard

_EVERY = 10
"""Items between two lines of progress."""


class Profiled(Frozen):
    """A worker's card and its profile."""

    card: WorkerCard
    profile: Profile


@click.command(
    epilog="""\b
Examples:
  podium workers profile
  podium workers profile qwen-0.5b smollm2 --refresh
  podium workers profile claude --max-usd 0.50
  podium workers profile --yes --json > profiles.json"""
)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--refresh", is_flag=True, help="Measure again what was measured before.")
@click.option(
    "--max-usd", type=Number(min=0, min_open=True), metavar="N",
    help="Money that all of it may cost, in US dollars.",
)  # fmt: skip
@click.option("--yes", is_flag=True, help="Do not ask before a worker that costs money is used.")
@click.option("--json", "json_", is_flag=True, help="A list of objects on stdout.")
@pass_invocation
def profile(
    invocation: Invocation,
    *,
    names: tuple[str, ...],
    refresh: bool,
    max_usd: float | None,
    yes: bool,
    json_: bool,
) -> None:
    """Measure what workers are good at: 30 short questions in six skills.

    The result is kept by worker, model and day. A worker whose manifest says not what it is good at
    is shown to the conductor by it. Without names the whole pool is measured.
    """
    folder = invocation.settings.profiles_dir
    known = anyio.run(_known, invocation, names, None if refresh else folder)
    wanted = [card for card, profile in known if profile is None]
    _check_cost(wanted, max_usd, yes=yes)
    measured = anyio.run(stoppable, _Measuring(invocation, wanted, max_usd, folder).run)
    found = [
        Profiled(card=card, profile=old or measured[card.name])
        for card, old in known
        if old or card.name in measured
    ]
    if json_:
        put_json([_data(one) for one in found])
    else:
        put(_text(found))


async def _known(
    invocation: Invocation, names: Sequence[str], folder: Path | None
) -> list[tuple[WorkerCard, Profile | None]]:
    """The workers that are meant, with what *folder* has of them from these very items."""
    async with open_workers(invocation.settings, invocation.environment) as pool:
        cards = [_measurable(pool, name) for name in names] if names else pool.cards
    found = [(card, find_profile(folder, card) if folder else None) for card in cards]
    return [(card, old if old and old.probes == probes_hash() else None) for card, old in found]


def _measurable(pool: Pool, name: str) -> WorkerCard:
    card = pool.get(name).card
    if name not in pool.names:
        raise PoolSelectionError(
            f"{name!r} does nothing but write plans (steps = false), so that no step would rest on "
            "what it is good at; name another worker."
        )
    return card


def _check_cost(cards: Sequence[WorkerCard], max_usd: float | None, *, yes: bool) -> None:
    """Say what the measurement will cost, and ask if it costs anything.

    Raises:
        LimitError: it is likely to cost more than is allowed, or nobody knows what.
        click.UsageError: it costs money, and there is nobody to ask.
    """
    paid = [card for card in cards if card.price is None or not card.price.is_free]
    if not paid:
        return
    costs = [cost_of_profile(card) for card in paid]
    for card, cost in zip(paid, costs, strict=True):
        say(f"{card.name}: {_estimate(cost)} for {count(len(probes()), 'question')}.")
    if max_usd is not None:
        _check_limit(paid, costs, max_usd)
    if yes:
        return
    if not is_terminal():
        raise click.UsageError("this asks workers that cost money; add --yes to agree to it.")
    click.confirm("Go on?", abort=True, err=True)


def _check_limit(cards: Sequence[WorkerCard], costs: Sequence[Cost | None], max_usd: float) -> None:
    unknown = [card.name for card, cost in zip(cards, costs, strict=True) if cost is None]
    if unknown:
        raise LimitError(
            "usd",
            f"--max-usd: the price of {', '.join(unknown)} is unknown, so that no limit can be "
            "kept; give a price in the pool manifest, or leave --max-usd out.",
        )
    expected = sum(cost.expected for cost in costs if cost)
    if expected > max_usd:
        raise LimitError(
            "usd",
            f"--max-usd: it is likely to cost {money(expected)}, which is more than "
            f"{money(max_usd)}; name fewer workers, or allow more.",
        )


def _estimate(cost: Cost | None) -> str:
    if cost is None:
        return "price unknown"
    return f"about {money(cost.expected)}, at most {money(cost.worst)},"


@dataclass(frozen=True)
class _Measuring:
    invocation: Invocation
    cards: Sequence[WorkerCard]
    max_usd: float | None
    folder: Path

    async def run(self) -> dict[str, Profile]:
        """One worker after the other, so that none slows another down."""
        settings, environment = self.invocation.settings, self.invocation.environment
        measured: dict[str, Profile] = {}
        async with open_workers(settings, environment, quiet=True) as pool:
            for card in self.cards:
                spent_before = sum((made.usage for made in measured.values()), Usage())
                watch = partial(self._watch, card, spent_before)
                measured[card.name] = await measure(pool.get(card.name), watch)
                save_profile(self.folder, measured[card.name])
        return measured

    def _watch(self, card: WorkerCard, before: Usage, done: int, used: Usage) -> None:
        """Tell how far it is.

        Raises:
            LimitError: what has been used has reached the limit.
        """
        cost = (before + used).cost_usd
        if self.max_usd is not None and cost is not None and cost >= self.max_usd:
            raise LimitError(
                "usd",
                f"--max-usd: {money(cost)} were used when {card.name!r} had answered {done} of "
                f"{count(len(probes()), 'question')}; what was finished before it is kept.",
            )
        if done % _EVERY == 0:
            say(f"{card.name}: {done} of {count(len(probes()), 'question')} answered")


def _data(found: Profiled) -> dict[str, object]:
    made = found.profile
    return as_json(made) | {
        "skills": made.skills,
        "right": made.right,
        "latency_s": made.latency_s,
        "good_at": made.good_at(found.card.price),
    }


def _text(found: Sequence[Profiled]) -> str:
    head = ("worker", *SKILLS, "right", "a reply", "used", "measured")
    rows = [
        (
            one.card.name,
            *(_share(one.profile, skill) for skill in SKILLS),
            f"{one.profile.right} of {len(one.profile.answered)}",
            f"{one.profile.latency_s:.1f} s",
            spent(one.profile.usage),
            str(one.profile.measured),
        )
        for one in found
    ]
    return table(head, rows, [_below(one) for one in found])


def _share(made: Profile, skill: str) -> str:
    asked = [answered for answered in made.answered if answered.skill == skill]
    return f"{sum(answered.right for answered in asked)} of {len(asked)}"


def _below(found: Profiled) -> list[str]:
    line = found.profile.good_at(found.card.price)
    if found.card.good_at in ("", line):
        return [f"the conductor is told: {line}"]
    return [f"measured: {line}", f"the conductor is told, by the manifest: {found.card.good_at}"]
