"""`podium backup`: a copy of the ledger, taken while it is in use."""

from functools import partial
from pathlib import Path

import anyio
import click

from podium.backup import Backup
from podium.backup import backup as back_up
from podium.cli.invocation import Invocation, pass_invocation
from podium.cli.saying import say
from podium.cli.signals import stoppable
from podium.cli.wording import as_json, count, put, put_json, size


@click.command(
    epilog="""\b
Examples:
  podium backup ~/backups/podium.db
  podium backup ~/backups/podium.db --force         (replace the last one)
  podium --store ~/backups/podium.db runs           (look into a backup)"""
)
@click.argument("target", metavar="FILE", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@click.option("--json", "json_", is_flag=True, help="One JSON object on stdout.")
@pass_invocation
def backup(invocation: Invocation, *, target: Path, force: bool, json_: bool) -> None:
    """Copy the ledger to FILE.

    The copy is the whole ledger as it is at one moment; runs go on meanwhile. It is looked through
    before it gets its name, and only you can read it. To go back to it, end every Podium, remove
    the ledger with the files beside it that end in -wal and -shm, and copy FILE to its place.
    """
    store = invocation.settings.store
    work = partial(back_up, store, target.expanduser(), force=force)
    done = anyio.run(stoppable, work)
    if json_:
        put_json(as_json(done))
    else:
        put(str(done.path))
        say(_summary(done, store))


def _summary(done: Backup, store: Path) -> str:
    return f"A copy of {store}: {count(done.runs, 'run')}, {size(done.bytes)}, looked through."
