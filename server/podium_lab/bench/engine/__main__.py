"""What the engine costs: wall, CPU, flushes, memory and search, against a floor and other engines.

    python -m podium_lab.bench.peers.install
    python -m podium_lab.bench.engine --table
    python -m podium_lab.bench.engine --json

Without the environment of the other engines, Podium is measured alone. Takes ten minutes
on an idle machine.
"""

import argparse
import contextlib
import json
import os
import sys
import tempfile
from pathlib import Path

import anyio

from podium_lab.bench.engine import machine, search
from podium_lab.bench.engine.figures import Amount, Bench, Figures, Result
from podium_lab.bench.engine.sides import BARE, PODIUM, SideError, peers, versions
from podium_lab.bench.engine.simulator import run_simulator
from podium_lab.bench.engine.table import table
from podium_lab.bench.peers.install import default_folder, python_in


def measure(amount: Amount, place: Path, peers_folder: Path) -> Result:
    """Measure everything, each engine in turn.

    Raises:
        SideError: Podium itself failed.
    """
    facts = machine.facts(place)
    left_out: dict[str, str] = {}
    engines: list[Figures] = []
    with run_simulator(amount.delay_s) as provider:
        bench = Bench(amount, place, provider)
        bare = _told("bare", bench.of(BARE, None))
        engines += [bare, _told("podium", bench.of(PODIUM, bare))]
        others = peers(peers_folder)
        for side in others:
            try:
                engines.append(_told(side.name, bench.of(side, bare)))
            except SideError as error:
                left_out[side.name] = str(error)
        at_rest = bench.kb_per_run_at_rest()
    if others:
        facts |= versions(peers_folder)
    else:
        left_out["the other engines"] = (
            f"There is no {python_in(peers_folder)}; make it with "
            "`python -m podium_lab.bench.peers.install`."
        )
    return Result(
        amount=amount,
        machine=facts,
        engines=tuple(engines),
        left_out=left_out,
        kb_per_run_at_rest=at_rest,
        search=_search(amount, place),
    )


def _search(amount: Amount, place: Path) -> dict[str, float | int]:
    with tempfile.TemporaryDirectory(dir=place) as folder:
        path = Path(folder) / "podium.db"
        return anyio.run(search.measure, amount.search_runs, amount.queries, path)


def _told(name: str, figures: Figures) -> Figures:
    print(f"{name}: {figures.runs_wall_s:.2f} s, load {figures.load:g}", file=sys.stderr)
    return figures


def parser() -> argparse.ArgumentParser:
    """The command line."""
    usual = Amount()
    made = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    form = made.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="one JSON object")
    form.add_argument("--table", action="store_true", help="Markdown, as without an option")
    for name in ("runs", "rounds", "chains", "idle-runs", "search-runs", "queries"):
        value: int = getattr(usual, name.replace("-", "_"))
        made.add_argument(f"--{name}", type=int, default=value, help=f"{value} when not given")
    made.add_argument("--place", type=Path, help="folder whose disk is used; the temporary one")
    made.add_argument(
        "--peers", type=Path, default=default_folder(), help="environment of the other engines"
    )
    made.add_argument("--nice", type=int, default=0, help="priority, as of the command nice")
    return made


def main() -> None:
    """Measure, and print the figures."""
    given = vars(parser().parse_args())
    with contextlib.suppress(PermissionError):
        os.nice(given["nice"])
    amount = Amount.model_validate(
        {name: given[name] for name in Amount.model_fields if name in given}
    )
    with tempfile.TemporaryDirectory(dir=given["place"]) as place:
        try:
            result = measure(amount, Path(place), given["peers"])
        except SideError as error:
            raise SystemExit(str(error)) from None
    print(json.dumps(result.document(), indent=2) if given["json"] else "\n".join(table(result)))


if __name__ == "__main__":
    main()
