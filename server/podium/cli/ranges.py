"""Numbers on the command line, refused in words that people use."""

import click


class Whole(click.IntRange):
    """A whole number between limits."""

    name = "whole number"


class Number(click.FloatRange):
    """A number between limits."""

    name = "number"
