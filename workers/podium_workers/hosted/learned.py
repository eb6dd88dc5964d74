"""Parameters that endpoints were seen to refuse, kept between processes in one small JSON file.

A refusal costs a request and the user's time, so it is paid once, not once a process. It is kept
only after the request without the parameter was taken, and forgotten after a while, since models
behind a name change.
"""

from collections.abc import Callable, Collection
from datetime import date, timedelta
from pathlib import Path

from anyio import to_thread
from pydantic import ValidationError

from podium_workers.worker import Frozen

KEPT_FOR = timedelta(days=90)
FILE_NAME = "quirks.json"


class Refusal(Frozen):
    """One parameter that one model at one address does not take."""

    base_url: str
    model: str
    parameter: str
    date: date


class _File(Frozen):
    version: int = 1
    learned: tuple[Refusal, ...] = ()


class Learned:
    """The refusals of one user's machine. Nothing is kept without a folder to keep it in."""

    def __init__(
        self, folder: Path | None = None, notify: Callable[[str], None] = lambda text: None
    ) -> None:
        self._path = None if folder is None else folder / FILE_NAME
        self._notify = notify

    def refused(self, base_url: str, model: str) -> frozenset[str]:
        """What that model at that address was seen to refuse lately. Reads the file."""
        oldest = date.today() - KEPT_FOR
        return frozenset(
            refusal.parameter
            for refusal in self._read()
            if (refusal.base_url, refusal.model) == (base_url, model) and refusal.date >= oldest
        )

    async def add(self, base_url: str, model: str, parameters: Collection[str]) -> None:
        """Keep that these are refused, and say so."""
        named = " and ".join(repr(name) for name in sorted(parameters))
        self._notify(
            f"{model} at {base_url} does not take {named}: not sent from now on "
            f"(learned from its refusal on {date.today()})."
        )
        if self._path is not None:
            new = tuple(
                Refusal(base_url=base_url, model=model, parameter=name, date=date.today())
                for name in sorted(parameters)
            )
            await to_thread.run_sync(self._write, self._path, new)

    def _read(self) -> tuple[Refusal, ...]:
        if self._path is None:
            return ()
        try:
            return _File.model_validate_json(self._path.read_bytes()).learned
        except FileNotFoundError:
            return ()
        except (OSError, ValidationError) as error:
            why = str(error).splitlines()[0]
            self._notify(f"{self._path} cannot be read ({why}); what it held is learned again.")
            return ()

    def _write(self, path: Path, new: tuple[Refusal, ...]) -> None:
        """Replace the file as a whole; of two processes at once one may lose, and learn again."""
        oldest = date.today() - KEPT_FOR
        known = {(kept.base_url, kept.model, kept.parameter): kept for kept in self._read()}
        known |= {(kept.base_url, kept.model, kept.parameter): kept for kept in new}
        kept = tuple(refusal for refusal in known.values() if refusal.date >= oldest)
        draft = path.with_suffix(".new")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            draft.write_text(_File(learned=kept).model_dump_json(indent=2), encoding="utf-8")
            draft.replace(path)
        except OSError as error:
            self._notify(f"{path} cannot be written ({error}); the next start learns it again.")
