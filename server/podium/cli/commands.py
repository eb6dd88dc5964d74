"""The command `podium`: global options, and the one place that turns failures into a sentence.

Commands live in modules of their own, imported when they are run or when help lists them.
"""

import importlib
import importlib.util
import io
import os
import signal
import sys
import traceback
from collections.abc import Iterator
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import cast

import click

from podium import __version__
from podium.cli.invocation import Invocation
from podium.cli.logs import log_to_stderr
from podium.cli.saying import say
from podium.cli.signals import Stopped
from podium.errors import PodiumError
from podium_workers.errors import ManifestError, PoolSelectionError, WorkerError

COMMANDS = (
    "ask",
    "resume",
    "plan",
    "step",
    "runs",
    "show",
    "verify",
    "export",
    "backup",
    "prune",
    "fork",
    "compare",
    "workers",
    "models",
    "vllm",
    "prices",
    "doctor",
    "config",
    "install",
    "uninstall",
    "serve",
    "token",
)
"""Each stands under its name in the module of this package that has its name."""
MORE = "podium.commands"
"""Group of the entry points under which other packages have commands, which may be missing."""

EXPECTED = (PodiumError, ManifestError, PoolSelectionError, WorkerError, OSError)
"""Failures whose text is written for the user."""


class Commands(click.Group):
    """Imports a command's module late, and ends every command with an exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*COMMANDS, *sorted(_more())]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in COMMANDS:
            module = importlib.import_module(f"podium.cli.{cmd_name}")
            command: click.Command = getattr(module, cmd_name)
            return command
        found = _more().get(cmd_name)
        return cast("click.Command", found.load()) if found else None

    def invoke(self, ctx: click.Context) -> None:
        try:
            super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            _forget_stdout()
            ctx.exit(1)
        except (*EXPECTED, KeyboardInterrupt, BaseExceptionGroup) as error:
            ctx.exit(_told(error, verbose=bool(ctx.params.get("verbose"))))


def _more() -> dict[str, EntryPoint]:
    """Commands of other packages that are really there, by name."""
    return {entry.name: entry for entry in entry_points(group=MORE) if _is_there(entry.module)}


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # not even the package that it would be in
        return False


def _told(error: BaseException, *, verbose: bool) -> int:
    """Say what went wrong; the exit code. What nobody expected is raised again."""
    causes = tuple(_causes(error))
    for cause in causes:
        if isinstance(cause, KeyboardInterrupt | Stopped):
            say("Stopped.")
            return 128 + (cause.number if isinstance(cause, Stopped) else signal.SIGINT)
        if isinstance(cause, SystemExit):
            return cause.code if isinstance(cause.code, int) else 1
    if not all(isinstance(cause, EXPECTED) for cause in causes):
        raise error
    if verbose:
        say("".join(traceback.format_exception(error)))
    for text in dict.fromkeys(_sentence(cause) for cause in causes):
        say(f"Error: {text}")
    return 1


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The errors inside groups that task groups have made."""
    if isinstance(error, BaseExceptionGroup):
        for inner in cast("BaseExceptionGroup[BaseException]", error).exceptions:
            yield from _causes(inner)
    else:
        yield error


def _sentence(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror}."
    return str(error)


def _forget_stdout() -> None:
    """The reader of a pipe has gone: leave nothing for the interpreter to flush at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _tolerate_narrow_encodings() -> None:
    """Show a character that the terminal's encoding lacks as `?` instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""\b
Examples:
  podium ask "Which is heavier, a litre of oil or a litre of water, and why?"
  podium ask "What does this script do?" --file deploy.sh
  podium runs --limit 5
  podium doctor""",
)
@click.version_option(__version__, prog_name="podium")
@click.option("--store", metavar="PATH", help="The ledger's file (setting `store`).")
@click.option("--pool", metavar="FILE", help="The pool's manifest, in TOML (setting `pool`).")
@click.option("--record", metavar="FILE", help="Record all replies in this cassette.")
@click.option(
    "--replay", metavar="FILE", help="Give again what this cassette holds; no model is asked."
)
@click.option("--config", metavar="FILE", help="The settings' file (also PODIUM_CONFIG).")
@click.option("-v", "--verbose", is_flag=True, help="Log to stderr; show where errors come from.")
@click.pass_context
def podium(ctx: click.Context, config: str | None, verbose: bool, **paths: str | None) -> None:
    """Ask a hard question; a conductor plans, a pool of models works, one answer comes back.

    Results go to stdout, everything else to stderr. Exit codes: 0 done, 1 failed, 2 wrong usage,
    3 a step waits for you, 130 stopped with Ctrl-C (129, 143: with SIGHUP, SIGTERM).
    """
    _tolerate_narrow_encodings()
    log_to_stderr(verbose=verbose)
    environment = dict(os.environ) | ({"PODIUM_CONFIG": config} if config else {})
    given: dict[str, object] = {
        name: Path(value).expanduser() for name, value in paths.items() if value is not None
    }
    ctx.obj = Invocation(environment, given, config_given=config is not None)
