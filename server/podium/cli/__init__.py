"""The command line: argv and environment in, exit code out. The only place that builds things."""

from podium.cli.main import main

__all__ = ["main"]
