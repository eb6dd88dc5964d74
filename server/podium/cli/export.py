"""`podium export`: the whole record of a run, for programs or to be read."""

import json
import os
import secrets
import time
from functools import partial
from pathlib import Path
from typing import Literal

import anyio
import click

from podium import __version__
from podium.cli.compose import open_ledger
from podium.cli.exported import FORMAT_VERSION, ExportedRun, exported
from podium.cli.invocation import Invocation, pass_invocation
from podium.cli.markdown import page
from podium.cli.saying import say
from podium.cli.signals import stoppable
from podium.cli.wording import as_json, count, put

_MARKDOWN = (".md", ".markdown")


@click.command(
    epilog="""\b
Examples:
  podium export 6a53c0 > run.json
  podium export 6a53c0 --output run.md
  podium export 6a53c0 --format markdown | less"""
)
@click.argument("run_id", metavar="RUN")
@click.option(
    "--format", "format_", type=click.Choice(["json", "markdown"]),
    help="json, or markdown if FILE ends with .md, unless this says otherwise.",
)  # fmt: skip
@click.option(
    "--output", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
    help="Write to FILE instead of stdout; an existing one is replaced.",
)  # fmt: skip
@pass_invocation
def export(
    invocation: Invocation,
    *,
    run_id: str,
    format_: Literal["json", "markdown"] | None,
    output: Path | None,
) -> None:
    """Write the whole record of RUN, the runs nested in it included.

    Question, files, plans, every version of every step with its prompt and reply, every request to
    a model with what it cost, and the receipt. JSON has `format_version`, which grows when a field
    changes its meaning.
    """
    found = anyio.run(stoppable, partial(_collect, invocation, run_id))
    if found.missing:
        say(f"{count(found.missing, 'text')} could not be read from the ledger; left empty.")
    text = page(found) if _is_markdown(format_, output) else _document(found)
    if output is None:
        put(text.removesuffix("\n"))
    else:
        _write(output.expanduser(), text)
        say(f"Run {found.run.run_id} is in {output}.")


async def _collect(invocation: Invocation, run_id: str) -> ExportedRun:
    settings = invocation.settings
    async with open_ledger(settings) as store:
        return await exported(store, await store.run(run_id, principal=settings.principal))


def _is_markdown(format_: str | None, output: Path | None) -> bool:
    if format_ is None:
        return output is not None and output.suffix.lower() in _MARKDOWN
    return format_ == "markdown"


def _document(found: ExportedRun) -> str:
    head: dict[str, object] = {
        "format": "podium-run",
        "format_version": FORMAT_VERSION,
        "podium_version": __version__,
        "exported_at": time.time(),
    }
    return json.dumps(head | as_json(found), ensure_ascii=False, indent=2) + "\n"


def _write(output: Path, text: str) -> None:
    """Put *text* in the place of *output* at once, so that a failure leaves what was there.

    What is no file, such as a device or a pipe, is written to and never replaced.
    """
    output = Path(os.path.realpath(output))
    if output.exists() and not output.is_file():
        with output.open("w", encoding="utf-8", errors="replace", newline="") as opened:
            opened.write(text)
        return
    made = output.with_name(f"{output.name}.{secrets.token_hex(4)}.part")
    try:
        made.write_text(text, encoding="utf-8", errors="replace", newline="")
        os.replace(made, output)
    finally:
        made.unlink(missing_ok=True)
