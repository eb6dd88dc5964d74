"""`podium models`: lists, fetches and finds the weights of the local models."""

import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import click

from podium.cli.invocation import Invocation, pass_invocation
from podium.cli.saying import say
from podium.cli.wording import put, put_json, size, table
from podium_workers.weights.catalogue import CATALOGUE, Weights, lookup
from podium_workers.weights.pulling import find, is_present, path_of, pull
from podium_workers.weights.sources import Progress

_LINES_PER_PULL = 10


@click.group(
    epilog="""\b
Examples:
  podium models list
  podium models pull qwen-1.5b
  podium models pull smollm2 --from ~/Downloads/SmolLM2-135M-Instruct.Q4_1.gguf
  podium models path qwen-0.5b"""
)
def models() -> None:
    """List, fetch and find the weights of local models.

    Any other GGUF file can be used too: name its path as `gguf` in a pool's manifest.
    """


@models.command("list")
@click.option("--json", "json_", is_flag=True, help="A list of objects on stdout.")
@pass_invocation
def list_(invocation: Invocation, *, json_: bool) -> None:
    """Show the models that Podium can fetch, and which of them are here."""
    models_dir = invocation.settings.models_dir
    if json_:
        put_json([_data(weights, models_dir) for weights in CATALOGUE])
        return
    head = ["name", "size", "window", "licence", "here", "model", "where"]
    put(table(head, [_row(weights, models_dir) for weights in CATALOGUE]))


def _data(weights: Weights, models_dir: Path) -> dict[str, object]:
    return {
        "name": weights.name,
        "title": weights.title,
        "size": weights.size,
        "sha256": weights.sha256,
        "licence": weights.licence,
        "notice": weights.notice,
        "context_window": weights.context_window,
        "present": is_present(weights, models_dir),
        "path": str(path_of(weights, models_dir)),
    }


def _row(weights: Weights, models_dir: Path) -> list[str]:
    return [
        weights.name,
        size(weights.size),
        f"{weights.context_window:,}",
        weights.licence,
        "yes" if is_present(weights, models_dir) else "no",
        weights.title,
        str(path_of(weights, models_dir)),
    ]


@models.command("path")
@click.argument("name")
@pass_invocation
def path_(invocation: Invocation, *, name: str) -> None:
    """Print where the file of a model lies; fails when it is not here."""
    put(str(find(name, invocation.settings.models_dir)))


@models.command("pull")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--all", "all_", is_flag=True, help="Every model of `podium models list`.")
@click.option(
    "--from", "file", type=click.Path(path_type=Path), metavar="FILE",
    help="Take this file instead of fetching one; it must be the very same.",
)  # fmt: skip
@pass_invocation
def pull_(invocation: Invocation, *, names: tuple[str, ...], all_: bool, file: Path | None) -> None:
    """Fetch models, or check those that are here.

    What an interrupted pull has fetched is kept and used by the next one. Each file is checked
    against a fixed SHA-256 before it gets its name.
    """
    chosen = CATALOGUE if all_ else tuple(lookup(name) for name in dict.fromkeys(names))
    if not chosen:
        raise click.UsageError("Name a model, or use --all; `podium models list` shows them.")
    if file is not None and len(chosen) != 1:
        raise click.UsageError("--from gives one file, so name one model with it.")
    for weights in chosen:
        say(f"{weights.name}: {weights.title}, {size(weights.size)}, {weights.notice}")
        with _shown(weights) as progress:
            path = pull(
                weights,
                invocation.settings.models_dir,
                file=file.expanduser() if file else None,
                progress=progress,
                notify=say,
            )
        put(f"{path}  SHA-256 ok: {weights.sha256}")


@contextmanager
def _shown(weights: Weights) -> Generator[Progress]:
    """A bar on a terminal, a line now and then in a pipe; both on stderr."""
    if not sys.stderr.isatty():
        yield _Lines()
        return
    from rich import progress
    from rich.console import Console

    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.DownloadColumn(),
        progress.TimeRemainingColumn(),
    )
    with progress.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("looking for it", total=weights.size)

        def show(done: int, total: int, source: str) -> None:
            bar.update(task, completed=done, total=total, description=source)

        yield show


class _Lines:
    """Progress for a pipe: a line for every tenth."""

    def __init__(self) -> None:
        self._told = 0

    def __call__(self, done: int, total: int, source: str) -> None:
        if (share := done * _LINES_PER_PULL // total) > self._told:
            self._told = share
            say(f"{size(done)} of {size(total)} from {source}")
