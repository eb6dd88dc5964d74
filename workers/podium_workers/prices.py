"""What hosted models cost and take: a dated table with its sources. Unknown stays unknown.

A user's own table stands before the shipped one. Names are taken as the provider writes them, at
the provider's own address; nothing is guessed.
"""

import re
import tomllib
from collections.abc import Mapping
from datetime import date
from functools import cache
from importlib.resources import files
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import Field, ValidationError

from podium_workers.errors import ManifestError
from podium_workers.worker import Frozen, Price

FILE_NAME = "prices.toml"
"""Of a user's own table, beside the settings' file."""
OLD_AFTER_DAYS = 60
"""Days after which a price should be looked up again: providers change them every few months."""


class Provider(Frozen):
    """Whose prices they are."""

    host: str
    """Host name of the interface at which they hold; a reseller's prices are its own."""
    source: str
    """Where they can be read."""


class PricedModel(Price):
    """One row of the table."""

    provider: str
    model: str
    """The model's name; a name with a date behind it is the same model."""
    window: int | None = Field(default=None, gt=0)
    """Tokens of prompt and reply for which a worker is set up; None leaves that to its manifest."""
    longest: int | None = Field(default=None, gt=0)
    """Tokens that the model takes at all, where `long` prices what is beyond `window`."""
    max_output: int | None = Field(default=None, gt=0)
    """Tokens that a reply may have."""
    cache_from: int | None = Field(default=None, gt=0)
    """The fewest tokens of a prompt's beginning that the provider caches when it is told to."""
    read: date | None = None
    """When the price was read; the table's day when not given."""
    starts: date | None = Field(default=None, alias="from")
    until: date | None = None
    """Last day of the price."""

    @property
    def price(self) -> Price:
        return Price.model_validate(self.model_dump(include=set(Price.model_fields)))

    @property
    def priced_up_to(self) -> int | None:
        """Tokens of prompt and reply up to which the price is known; None for any number."""
        return self.longest if self.long and self.longest else self.window

    def holds(self, model: str, on: date) -> bool:
        """Whether the row speaks of *model* on that day."""
        named = re.fullmatch(re.escape(self.model) + r"([-@]20\d{2}-?\d{2}-?\d{2})?", model)
        begun = self.starts is None or self.starts <= on
        return bool(named) and begun and (self.until is None or on <= self.until)


class PriceTable(Frozen):
    """Rows, and when they were read. Of two rows for one model the first one counts."""

    read: date
    providers: Mapping[str, Provider] = Field(default_factory=dict[str, Provider])
    model: tuple[PricedModel, ...] = ()

    def find(self, model: str, base_url: str | None, on: date) -> PricedModel | None:
        """The row for *model* at that address; None asks for any address."""
        host = None if base_url is None else urlsplit(base_url).hostname
        for row in self.model:
            if row.holds(model, on) and host in {None, self.providers[row.provider].host}:
                return row
        return None

    def before(self, other: "PriceTable") -> "PriceTable":
        """Both tables in one, this one's rows first; what its rows leave open comes from *other*.

        Raises:
            ValueError: a row names a provider that neither table has.
        """
        providers = {**other.providers, **self.providers}
        for row in self.model:
            if row.provider not in providers:
                raise ValueError(
                    f"model {row.model!r}: there is no provider {row.provider!r}; use one of "
                    f"{', '.join(providers)}, or add [providers.{row.provider}] with host and "
                    "source"
                )
        own = tuple(_completed(row, other) for row in self.dated)
        return PriceTable(read=self.read, providers=providers, model=(*own, *other.dated))

    @property
    def dated(self) -> tuple[PricedModel, ...]:
        """The rows, each with the day on which it was read."""
        return tuple(row.model_copy(update={"read": self.read_on(row)}) for row in self.model)

    def read_on(self, row: PricedModel) -> date:
        """The day on which the price in *row* was read."""
        return row.read or self.read

    def source_of(self, row: PricedModel) -> str:
        """Where the price in *row* can be read, and when it was."""
        return f"{self.providers[row.provider].source}, read {self.read_on(row)}"


def _completed(row: PricedModel, other: PriceTable) -> PricedModel:
    """*row* with the sizes that it leaves open, from the same model's row in *other*."""
    known = next((it for it in other.model if _same_model(it, row)), None)
    if known is None:
        return row
    sizes = ("window", "longest", "max_output", "cache_from")
    missing = {name: getattr(known, name) for name in sizes if getattr(row, name) is None}
    return row.model_copy(update=missing)


def _same_model(one: PricedModel, other: PricedModel) -> bool:
    return (one.provider, one.model) == (other.provider, other.model)


def overridden(own: PriceTable, shipped: PriceTable) -> tuple[tuple[PricedModel, PricedModel], ...]:
    """The rows of the user's *own* table that stand before one of the *shipped* table, and that."""
    return tuple(
        (row, known) for row in own.model for known in shipped.model if _same_model(row, known)
    )


@cache
def price_table() -> PriceTable:
    """The table that comes with the package."""
    text = (files("podium_workers") / "prices.toml").read_text(encoding="utf-8")
    return PriceTable.model_validate(tomllib.loads(text))


def own_table(path: Path) -> PriceTable:
    """A user's own table, alone.

    Raises:
        ManifestError: it is missing, cannot be read, or something in it is wrong.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ManifestError(f"{path}: there is no such file.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ManifestError(f"{path}: the prices cannot be read: {error}.") from None
    except (ValueError, RecursionError) as error:
        raise ManifestError(f"{path}: this is not valid TOML: {error}.") from None
    try:
        table = PriceTable.model_validate(data)
        table.before(price_table())
    except ValidationError as error:
        raise ManifestError(f"{path}: {_problem(error)}.") from None
    except ValueError as error:
        raise ManifestError(f"{path}: {error}.") from None
    return table


def own_prices(folder: Path, named: Path | None = None) -> PriceTable | None:
    """The user's own table: the file *named*, else `prices.toml` in *folder*, if it is there.

    Raises:
        ManifestError: it cannot be used, or the file *named* is missing.
    """
    path = named or folder / FILE_NAME
    return own_table(path) if named or path.exists() else None


def all_prices(own: PriceTable | None = None) -> PriceTable:
    """The shipped table behind the user's *own*, whose rows win."""
    return own.before(price_table()) if own else price_table()


def _problem(error: ValidationError) -> str:
    # A mistyped key first: it is also why its right form is missing.
    first = min(error.errors(), key=lambda found: found["type"] != "extra_forbidden")
    place = ", ".join(
        f"row {part + 1}" if isinstance(part, int) else str(part) for part in first["loc"]
    )
    match first["type"]:
        case "missing" if first["loc"] == ("read",):
            return "read is missing; add the day of these prices, as in read = 2026-11-30"
        case "missing":
            return f"{place}: this key is missing"
        case "extra_forbidden":
            keys = (field.alias or name for name, field in PricedModel.model_fields.items())
            return f"{place}: there is no such key; a model's row has {', '.join(keys)}"
        case _:
            return f"{place}: {first['msg'][:1].lower()}{first['msg'][1:]}"


def row_of(
    model: str,
    *,
    base_url: str | None = None,
    on: date | None = None,
    table: PriceTable | None = None,
) -> PricedModel | None:
    """What is known of *model* on that day (today by default); None when nothing is.

    With *base_url* only if that is the provider's own address. *table* is the shipped one unless
    given.
    """
    return (table or price_table()).find(model, base_url, on or date.today())


def source_of(price: Price | None, model: str, table: PriceTable | None = None) -> str | None:
    """Where that price of *model* can be read, and when it was; None when it is not the table's."""
    found = table or price_table()
    row = row_of(model, table=found)
    return found.source_of(row) if row and row.price == price else None
