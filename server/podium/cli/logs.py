"""Where log lines of the command line go: stderr, through whatever draws there at the time."""

import logging
import sys

from podium.cli.saying import printable

OWN = ("podium", "podium_workers")
"""The loggers that `--verbose` opens up; other libraries tell only of warnings."""


class _Stderr(logging.Handler):
    """Writes to the present `sys.stderr`, which a live display may have replaced."""

    def emit(self, record: logging.LogRecord) -> None:
        print(printable(self.format(record)), file=sys.stderr, flush=True)


def log_to_stderr(*, verbose: bool) -> None:
    """Show warnings; with *verbose* everything that Podium itself logs."""
    handler = _Stderr()
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    if verbose:
        for name in OWN:
            logging.getLogger(name).setLevel(logging.DEBUG)
