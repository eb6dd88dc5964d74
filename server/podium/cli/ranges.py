"""Values on the command line, refused in words that people use."""

import re

import click


class Whole(click.IntRange):
    """A whole number between limits."""

    name = "whole number"


class Number(click.FloatRange):
    """A number between limits."""

    name = "number"


def filled(ctx: click.Context, option: click.Parameter, value: str | None) -> str | None:
    """The callback of an option that is left out, or says something."""
    if value is not None and not value.strip():
        raise click.BadParameter("is empty.")
    return value


def as_bytes(ctx: click.Context, option: click.Parameter, value: str | None) -> int | None:
    """The callback of an option that takes an amount of bytes, with its unit."""
    if value is None:
        return None
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)b\s*", value, re.IGNORECASE)
    if found is None:
        raise click.BadParameter(f"{value!r} is not a size; write 500MB, 2GB or 1.5GB.")
    return int(float(found[1]) * 1000 ** " kmgt".index(found[2].lower() or " "))
