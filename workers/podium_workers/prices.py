"""What hosted models cost and take: a dated table with its sources. Unknown stays unknown."""

import re
import tomllib
from collections.abc import Mapping
from datetime import date
from functools import cache
from importlib.resources import files
from urllib.parse import urlsplit

from pydantic import Field

from podium_workers.worker import Frozen, Price


class Provider(Frozen):
    """Whose prices they are."""

    host: str
    """Host name of the interface at which they hold; a reseller's prices are its own."""
    source: str
    """Where they can be read."""


class PricedModel(Frozen):
    """One row of the table."""

    provider: str
    model: str
    """The model's name; a name with a date behind it is the same model."""
    input: float = Field(ge=0)
    output: float = Field(ge=0)
    cached_input: float | None = Field(default=None, ge=0)
    cache_write: float | None = Field(default=None, ge=0)
    window: int = Field(gt=0)
    """Tokens of prompt and reply up to which the price holds."""
    max_output: int = Field(gt=0)
    """Tokens that a reply may have."""
    starts: date | None = Field(default=None, alias="from")
    until: date | None = None
    """Last day of the price."""

    @property
    def price(self) -> Price:
        return Price(
            input=self.input,
            output=self.output,
            cached_input=self.cached_input,
            cache_write=self.cache_write,
        )

    def holds(self, model: str, on: date) -> bool:
        """Whether the row speaks of *model* on that day."""
        named = re.fullmatch(re.escape(self.model) + r"([-@]20\d{2}-?\d{2}-?\d{2})?", model)
        begun = self.starts is None or self.starts <= on
        return bool(named) and begun and (self.until is None or on <= self.until)


class PriceTable(Frozen):
    """All rows, and when they were read."""

    read: date
    providers: Mapping[str, Provider]
    model: tuple[PricedModel, ...]

    def find(self, model: str, base_url: str | None, on: date) -> PricedModel | None:
        """The row for *model* at that address; None asks for any address."""
        host = None if base_url is None else urlsplit(base_url).hostname
        for row in self.model:
            if row.holds(model, on) and host in {None, self.providers[row.provider].host}:
                return row
        return None


@cache
def price_table() -> PriceTable:
    """The table that comes with the package."""
    text = (files("podium_workers") / "prices.toml").read_text(encoding="utf-8")
    return PriceTable.model_validate(tomllib.loads(text))


def row_of(
    model: str, *, base_url: str | None = None, on: date | None = None
) -> PricedModel | None:
    """What is known of *model* on that day (today by default); None when nothing is.

    With *base_url* only if that is the provider's own address.
    """
    return price_table().find(model, base_url, on or date.today())


def source_of(price: Price | None, model: str) -> str | None:
    """Where that price of *model* can be read, and when it was; None when it is not the table's."""
    row = row_of(model)
    if row is None or row.price != price:
        return None
    table = price_table()
    return f"{table.providers[row.provider].source}, read {table.read}"
